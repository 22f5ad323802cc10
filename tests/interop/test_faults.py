"""Nodes crash and Partition actors are killed, again and again, under acks=all and an idempotent
producer: nothing acknowledged is lost, nothing is there twice, no read goes back.

Needs a binary with the fail points compiled in (HELIOGRAPH_FAILPOINTS_BIN, made by the gate): it
takes orders to crash its own nodes.
"""

import os
from pathlib import Path

import harness
import load
import pytest
from test_mirror import create_topic

BINARY = os.environ.get("HELIOGRAPH_FAILPOINTS_BIN")
pytestmark = [
    pytest.mark.mirroring,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not BINARY, reason="HELIOGRAPH_FAILPOINTS_BIN names no binary"),
]
TIMES = 50
NODES = (1, 2, 3)
PARTITIONS = 6


def more(steady, count=20):
    """Waits until `count` more records are acknowledged."""
    enough = len(steady.acknowledged) + count
    harness.eventually(lambda: len(steady.acknowledged) >= enough, 60, f"{count} more records",
                       interval=0.01)


def wait_in_sync(cluster, topic):
    """Waits until every replica of every partition is in sync again."""
    def whole():
        partitions = harness.admin(cluster.bootstrap).list_topics(topic, timeout=3)
        found = partitions.topics[topic].partitions.values()
        return len(found) == PARTITIONS and all(
            p.leader > 0 and len(p.isrs) == len(NODES) for p in found)
    harness.eventually(whole, 60, "every replica in sync")


def run(links, break_something):
    """A load and a reader while `break_something(cluster, topic, round)` is done again and again;
    then every promise is looked at."""
    with harness.Heliograph(nodes=len(NODES), binary=Path(BINARY), links=links) as cluster:
        topic = create_topic(cluster, "kept", PARTITIONS)
        with load.Load(cluster.bootstrap, topic, rate=300) as steady, \
                load.Reader(cluster.bootstrap, topic, PARTITIONS) as reader:
            more(steady)
            for turn in range(TIMES):
                break_something(cluster, topic, turn)
                more(steady)
            acknowledged = steady.stop()
        wait_in_sync(cluster, topic)
        assert not steady.failed, steady.failed[:3]
        found = load.read_all(cluster.bootstrap, topic, PARTITIONS)
        load.assert_kept(acknowledged, found, f"after {TIMES} times")
        reader.assert_never_went_back(found)
        assert len(reader.seen) > len(acknowledged) // 2, "the reader came along"


def crash_and_start(cluster, topic, turn):
    node = NODES[turn % len(NODES)]
    cluster.order("crash-node", node)
    cluster.order("start-node", node)
    wait_in_sync(cluster, topic)


def kill_partitions(cluster, topic, turn):
    """The leader's actor in one round, a follower's in the next; each partition in its turn."""
    partition = turn % PARTITIONS
    found = harness.admin(cluster.bootstrap).list_topics(topic, timeout=10).topics[topic]
    leader = found.partitions[partition].leader
    followers = [node for node in NODES if node != leader]
    node = leader if turn // PARTITIONS % 2 == 0 else followers[turn % 2]
    cluster.order("kill-partition", topic, partition, node)


@pytest.mark.promise_acknowledged_is_kept
@pytest.mark.parametrize("links", ["local", "tcp"])
def test_a_node_crashed_and_started_again_50_times(links):
    run(links, crash_and_start)


@pytest.mark.promise_acknowledged_is_kept
@pytest.mark.parametrize("links", ["local", "tcp"])
def test_a_partition_actor_killed_50_times(links):
    run(links, kill_partitions)


def test_a_node_that_was_away_deletes_what_was_deleted_meanwhile():
    with harness.Heliograph(nodes=len(NODES), binary=Path(BINARY)) as cluster:
        gone, kept = (create_topic(cluster, name, PARTITIONS) for name in ("gone", "kept"))
        with load.Load(cluster.bootstrap, gone) as steady:
            more(steady, 100)
            steady.stop()
        cluster.order("crash-node", 3)
        away = cluster.data() / "node-3"
        assert len(list(away.rglob(f"{gone}-*"))) == PARTITIONS
        admin = harness.admin(cluster.bootstrap)
        admin.delete_topics([gone])[gone].result(30)
        cluster.order("start-node", 3)
        harness.eventually(lambda: not list(away.rglob(f"{gone}-*")), 30, "the folders to go")
        assert len(list(away.rglob(f"{kept}-*"))) == PARTITIONS
