"""A failed-over topic is mirrored again while its source lives (spec D7, D8): what was written
here goes and is counted, what came from the source stays, and every replica is the source's log.
"""

import os
import re
from pathlib import Path

import harness
import load
import pytest
import segments
from test_failover import first_write
from test_mirror import create_topic, produce, wait_equal

pytestmark = [pytest.mark.mirroring, pytest.mark.timeout(240)]
FAILPOINTS = os.environ.get("HELIOGRAPH_FAILPOINTS_BIN")
PARTITIONS = 3
LOCAL = 90
RESETS = PARTITIONS  # one record a partition, written by the stop
TOLD = {"RUST_LOG": "warn,actors::partition=info"}  # what followers cut, too


@pytest.fixture
def source():
    """A Kafka of its own: it restarts here."""
    with harness.Kafka(nodes=1) as kafka:
        yield kafka


@pytest.fixture
def destination():
    with harness.Heliograph(nodes=3, environment=TOLD) as cluster:
        yield cluster


def leaders_and_isrs(cluster, topic):
    partitions = harness.admin(cluster.bootstrap).list_topics(topic, timeout=3).topics[topic]
    return {p.id: (p.leader, sorted(p.isrs)) for p in partitions.partitions.values()}


def wait_in_sync(cluster, topic, nodes=(1, 2, 3)):
    harness.eventually(lambda: all(leader in nodes and isr == list(nodes) for leader, isr in
                                   leaders_and_isrs(cluster, topic).values()),
                       60, f"{topic} in sync on {nodes}")


def mirrored_then_failed_over(source, destination):
    """A topic that was mirrored, stopped, and written here; its source got other records since,
    in a later leader epoch."""
    cli = destination.mirrors()
    cli.create("standby", source.bootstrap)
    topic = create_topic(source, "orders", PARTITIONS)
    produce(source, topic, 300)
    cli.start("standby", topic)
    cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS, lag=0)
    cli.stop("standby", topic)
    cli.wait_state("standby", topic, "STOPPED", partitions=PARTITIONS)
    first_write(destination, topic)
    produce(destination, topic, LOCAL - 1, first=10_000)
    source.stop_node(1)
    source.restart()
    produce(source, topic, 200, first=300)
    return cli, topic


def epochs(source, topic):
    batches = [batch for partition in range(PARTITIONS)
               for batch in segments.replicas(source.data(1), topic, partition)[0]]
    return {batch.leader_epoch for batch in batches}


def assert_mirrored_again(source, destination, cli, topic):
    rows = cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS, lag=0)
    assert sum(row["recordsCut"] for row in rows) == LOCAL + RESETS, rows
    assert all(row["recordsCut"] >= 1 and "records cut" in row["reason"] for row in rows), rows
    wait_in_sync(destination, topic)
    wait_equal(source, destination, topic, PARTITIONS)
    produce(source, topic, 100, first=500)
    cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS, lag=0)
    wait_equal(source, destination, topic, PARTITIONS)
    assert (sorted(load.read_all(destination.bootstrap, topic, PARTITIONS))
            == sorted(load.read_all(source.bootstrap, topic, PARTITIONS)))
    assert len(epochs(source, topic)) > 1, "the source's epoch rose between"
    log = destination.process.log.read_text(errors="replace").splitlines()
    assert not [line for line in log if " ERROR " in line]
    cuts = [line for line in log if "cut what the source does not have" in line]
    assert len(cuts) == PARTITIONS, cuts
    # Nobody goes on asking: each follower is repaired once, and keeps what came from the source.
    truncated = [line for line in log if " truncated " in line and f"topic={topic} " in line]
    assert 0 < len(truncated) <= 2 * PARTITIONS, truncated
    cut = {row["partition"]: row["recordsCut"] for row in rows}
    for line in truncated:
        partition, records = re.search(r"partition=\S+-(\d+) .*records=(\d+)", line).groups()
        assert int(records) == cut[int(partition)], line
    assert not destination.panics(), destination.panics()


@pytest.mark.quick
@pytest.mark.promise_mirrored_is_byte_equal
def test_a_failed_over_topic_is_mirrored_again(source, destination):
    cli, topic = mirrored_then_failed_over(source, destination)
    cli.start("standby", topic)
    assert_mirrored_again(source, destination, cli, topic)
    # And it can be failed over again, without the source.
    source.kill()
    cli.stop("standby", topic)
    cli.wait_state("standby", topic, "STOPPED", partitions=PARTITIONS)
    first_write(destination, topic)


@pytest.mark.promise_mirrored_is_byte_equal
@pytest.mark.skipif(not FAILPOINTS, reason="HELIOGRAPH_FAILPOINTS_BIN names no binary")
@pytest.mark.parametrize("links", ["local", "tcp"])
def test_a_node_is_down_while_it_is_mirrored_again(source, links):
    """Each node leads one partition and follows two: both kinds of replicas come back."""
    with harness.Heliograph(nodes=3, links=links, binary=Path(FAILPOINTS),
                            environment=TOLD) as destination:
        cli, topic = mirrored_then_failed_over(source, destination)
        wait_in_sync(destination, topic)
        destination.order("crash-node", 3)
        wait_in_sync(destination, topic, (1, 2))
        cli.start("standby", topic)
        cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS, lag=0)
        destination.order("start-node", 3)
        assert_mirrored_again(source, destination, cli, topic)
