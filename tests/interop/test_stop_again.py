"""Stops that come before a started topic was compared with its source: nothing that was written
here is ever called mirrored, and the next start says what is a copy and what is not."""

import harness
import load
import pytest
import segments
import wire
from confluent_kafka import Producer
from test_failover import first_write
from test_mirror import create_topic, produce, wait_equal
from test_stop_steps import MIRROR, PARTITIONS, TOPIC, Ledger, assert_stopped_once, keys, write

pytestmark = pytest.mark.mirroring


def write_here(destination, topic, count):
    client = Producer({"bootstrap.servers": destination.bootstrap, "acks": "all", "log_level": 0})
    for i in range(count):
        client.produce(topic, key=f"local-{i}", value="local", partition=0)
    assert client.flush(20) == 0


def stopped(cli, mirror, topic):
    """Stops at once after a start, so that the comparison may or may not have been made."""
    cli.stop(mirror, topic)
    return cli.wait_state(mirror, topic, "STOPPED")


@pytest.mark.promise_stop_never_needs_the_source
def test_a_second_stop_with_the_source_dead_keeps_the_first_ones_point():
    """Failed over, written to, started again by an id the client knew, and stopped: the last
    mirrored offset is the first stop's, and what was written here stays."""
    with harness.Kafka(nodes=1) as source, harness.Heliograph(nodes=3) as destination:
        ledger = Ledger(source)
        cli = destination.mirrors()
        cli.create(MIRROR, source.bootstrap)
        cli.start(MIRROR, TOPIC)
        cli.wait_state(MIRROR, TOPIC, "MIRRORING", partitions=PARTITIONS, lag=0)
        with wire.Connection(source.bootstrap) as connection:
            identity = wire.topic_id(connection, TOPIC)
        source.kill()
        cli.stop(MIRROR, TOPIC)
        cli.wait_state(MIRROR, TOPIC, "STOPPED", partitions=PARTITIONS)
        first_write(destination, TOPIC)
        client = Producer({"bootstrap.servers": destination.bootstrap, "acks": "all",
                           "log_level": 0})
        write(client, "local", 3)
        with wire.Connection(destination.bootstrap.split(",")[0]) as connection:
            assert wire.start_mirror_topic(connection, MIRROR, TOPIC, identity, PARTITIONS) == 0
        cli.wait_state(MIRROR, TOPIC, "PREPARING", partitions=PARTITIONS)
        cli.stop(MIRROR, TOPIC)
        rows = cli.wait_state(MIRROR, TOPIC, "STOPPED", partitions=PARTITIONS)
        assert_stopped_once(destination, ledger, rows, keys("local") | {"after"})


@pytest.mark.promise_mirrored_is_byte_equal
@pytest.mark.parametrize("written", [0, 20])
def test_a_topic_stopped_while_it_was_empty_becomes_a_copy(source, destination, unique, written):
    topic, mirror = create_topic(source, unique("empty"), 1), unique("again")
    cli = destination.mirrors()
    cli.create(mirror, source.bootstrap)
    cli.start(mirror, topic)
    cli.wait_state(mirror, topic, "MIRRORING")
    assert [row["lastMirroredOffset"] for row in stopped(cli, mirror, topic)] == [-1]
    if written:
        write_here(destination, topic, written)
    for _ in range(3):
        cli.start(mirror, topic)
        assert [row["lastMirroredOffset"] for row in stopped(cli, mirror, topic)] == [-1]
    produce(source, topic, 300)
    cli.start(mirror, topic)
    rows = cli.wait_state(mirror, topic, "MIRRORING", lag=0)
    assert [row["destinationOffset"] for row in rows] == [300]
    wait_equal(source, destination, topic, 1)
    assert rows[0]["recordsCut"] >= written


@pytest.mark.promise_mirrored_is_byte_equal
def test_records_that_never_came_from_a_mirror_never_become_a_copy(source, destination, unique):
    """A topic made here with the source's id and written to: a stop of its failed start does not
    turn its records into mirrored ones."""
    topic, mirror = create_topic(source, unique("own"), 1), unique("never")
    produce(source, topic, 300)
    with wire.Connection(source.bootstrap.split(",")[0]) as connection:
        identity = wire.topic_id(connection, topic)
    with wire.Connection(destination.bootstrap.split(",")[0]) as connection:
        made = wire.create_topic_with_id(connection, topic, 1, destination.replication, identity)
        assert made[0] == 0, made
    write_here(destination, topic, 10)
    here = segments.replicas(destination.data(), topic, 0)[0]
    cli = destination.mirrors()
    cli.create(mirror, source.bootstrap)
    for _ in range(3):
        cli.start(mirror, topic)
        rows = cli.wait_state(mirror, topic, "FAILED")
        assert "never came from a mirror" in rows[0]["reason"], rows
        rows = stopped(cli, mirror, topic)
        assert [row["lastMirroredOffset"] for row in rows] == [-1], rows
    kept = segments.replicas(destination.data(), topic, 0)[0]
    segments.assert_equal(here, kept[:len(here)], topic)
    found = load.read_all(destination.bootstrap, topic, 1)
    assert [value for _, _, _, value in found] == [b"local"] * 10
