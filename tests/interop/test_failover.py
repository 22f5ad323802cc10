"""Failover with the source SIGKILLed, and crashes of the whole destination around it."""

import time

import harness
import load
import pytest
import segments
from confluent_kafka import Producer
from test_mirror import assert_copies_equal, create_topic, produce, wait_equal

pytestmark = pytest.mark.mirroring

PARTITIONS = 3


@pytest.fixture
def pair():
    """A source that the test may kill, a destination it may kill, and a mirror between them."""
    with harness.Kafka(nodes=1) as source, harness.Heliograph(nodes=3) as destination:
        destination.mirrors().create("standby", source.bootstrap)
        yield source, destination


def first_write(destination, topic, timeout=30):
    """Seconds until a write to the topic is acknowledged."""
    started = time.monotonic()

    def accepted():
        answers = []
        client = Producer({"bootstrap.servers": destination.bootstrap, "acks": "all",
                           "message.timeout.ms": 2000, "log_level": 0})
        client.produce(topic, key="after", value="failover",
                       on_delivery=lambda error, _: answers.append(error))
        client.flush(5)
        return answers == [None]
    harness.eventually(accepted, timeout, "a write to the failed-over topic")
    return time.monotonic() - started


def source_batches(source, topic):
    return {partition: segments.replicas(source.data(1), topic, partition)[0]
            for partition in range(PARTITIONS)}


def settled(destination, topic, partition):
    """The replicas once all are equal: one that was out of sync at the stop has its end later."""
    def equal():
        copies = segments.replicas(destination.data(), topic, partition)
        return copies if all(copy == copies[0] for copy in copies) else None
    return harness.eventually(equal, what=f"equal replicas of {topic}-{partition}")


def assert_failed_over(source, destination, topic, acknowledged, rows):
    """The copy is a prefix of the source; exactly what is above its last offset is missing."""
    last = {row["partition"]: row["lastMirroredOffset"] for row in rows}
    for partition, original in source_batches(source, topic).items():
        mirrored = [batch for batch in original if batch.last_offset <= last[partition]]
        for copy in settled(destination, topic, partition):
            segments.assert_equal(mirrored, copy[:len(mirrored)], f"{topic}-{partition}")
            segments.assert_monotonic(copy, f"{topic}-{partition}")
            added = copy[len(mirrored):]
            resets = [b for b in added if b.is_control and b.control_type() == 7]
            assert len(resets) == 1, [batch.summary() for batch in added]
            if mirrored:
                assert added[0].leader_epoch > mirrored[-1].leader_epoch
    found = {key: (partition, offset) for partition, offset, key, _ in
             load.read_all(destination.bootstrap, topic, PARTITIONS)}
    missing = {key for key, at in acknowledged.items() if found.get(key) != at}
    above = {key for key, (partition, offset) in acknowledged.items() if offset > last[partition]}
    assert missing == above, (len(missing), len(above))
    assert len(acknowledged) > len(above)


@pytest.mark.quick
@pytest.mark.promise_stop_never_needs_the_source
@pytest.mark.promise_acknowledged_is_kept
def test_failover_with_the_source_killed_under_load(pair):
    source, destination = pair
    cli = destination.mirrors()
    topic = create_topic(source, "orders", PARTITIONS)
    with load.Load(source.bootstrap, topic, rate=1000) as steady:
        cli.start("standby", topic)
        cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS)
        harness.eventually(lambda: len(steady.acknowledged) > 3000, 30, "3000 records")
        source.kill()
        acknowledged = dict(steady.abandon())
    stopped = time.monotonic()
    assert cli.stop("standby", topic) == (
        f"Stopped mirroring for 1 topic(s) in mirror standby: [{topic}]\n")
    rows = cli.wait_state("standby", topic, "STOPPED", partitions=PARTITIONS)
    print(f"STOPPED {time.monotonic() - stopped:.2f} s after the order, the source dead")
    assert_failed_over(source, destination, topic, acknowledged, rows)
    first_write(destination, topic)
    # Stopping again succeeds unchanged, and changes nothing.
    before = destination.mirrors().rows("standby", topic)
    cli.stop("standby", topic)
    after = destination.mirrors().rows("standby", topic)
    assert [row["state"] for row in after] == ["STOPPED"] * PARTITIONS
    assert ([row["lastMirroredOffset"] for row in after]
            == [row["lastMirroredOffset"] for row in before])


@pytest.mark.promise_stop_never_needs_the_source
def test_source_dead_and_destination_restarted_then_stopped(pair):
    """Section 10.5, fault 4: this once stayed read-only until the source came back."""
    source, destination = pair
    cli = destination.mirrors()
    topic = create_topic(source, "orders", PARTITIONS)
    produce(source, topic, 300)
    cli.start("standby", topic)
    cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS, lag=0)
    source.kill()
    destination.kill()
    destination.restart()
    cli.stop("standby", topic)
    rows = cli.wait_state("standby", topic, "STOPPED", partitions=PARTITIONS)
    originals = source_batches(source, topic)
    for row in rows:
        assert row["lastMirroredOffset"] == originals[row["partition"]][-1].last_offset
    first_write(destination, topic)
    # A failed-over topic stays writable through another crash of everything.
    destination.kill()
    destination.restart()
    first_write(destination, topic)
    cli.wait_state("standby", topic, "STOPPED", partitions=PARTITIONS)
    assert len(load.read_all(destination.bootstrap, topic, PARTITIONS)) == 302


@pytest.mark.promise_stop_never_needs_the_source
def test_empty_partitions_stop_too(pair):
    source, destination = pair
    cli = destination.mirrors()
    topic = create_topic(source, "empty", PARTITIONS)
    cli.start("standby", topic)
    cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS)
    source.kill()
    cli.stop("standby", topic)
    rows = cli.wait_state("standby", topic, "STOPPED", partitions=PARTITIONS)
    assert [row["lastMirroredOffset"] for row in rows] == [-1] * PARTITIONS
    first_write(destination, topic)


@pytest.mark.promise_mirrored_is_byte_equal
def test_destination_killed_again_and_again_while_mirroring(pair):
    source, destination = pair
    cli = destination.mirrors()
    topic = create_topic(source, "orders", PARTITIONS, **{"segment.bytes": "1048576"})
    with load.Load(source.bootstrap, topic, rate=1000, size=500) as steady:
        cli.start("standby", topic)
        cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS)
        for _ in range(4):
            enough = len(steady.acknowledged) + 1000
            harness.eventually(lambda: len(steady.acknowledged) > enough, 30, "1000 records more")
            destination.kill()
            destination.restart()
        cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS)
        acknowledged = steady.stop()
    cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS, lag=0)
    wait_equal(source, destination, topic, PARTITIONS)
    records = load.read_all(destination.bootstrap, topic, PARTITIONS)
    load.assert_kept(acknowledged, records, topic)


def test_an_unreachable_source_fails_and_recovers_by_itself(pair):
    """FAILED 30 s after the source went, MIRRORING again by itself once it is back."""
    source, destination = pair
    cli = destination.mirrors()
    topic = create_topic(source, "orders", PARTITIONS)
    produce(source, topic, 30)
    cli.start("standby", topic)
    cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS, lag=0)
    source.kill()
    rows = cli.wait_state("standby", topic, "FAILED", partitions=PARTITIONS, timeout=60)
    assert all(row["reason"] for row in rows), rows
    source.restart()
    produce(source, topic, 30, first=30)
    cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS, lag=0, timeout=75)
    assert_copies_equal(source, destination, topic, PARTITIONS)
