"""kill -9 of the whole cluster under test: what was acknowledged is there afterwards."""

import harness
import load
import pytest
from conftest import cluster_under_test
from test_mirror import create_topic


@pytest.mark.promise_acknowledged_is_kept
def test_acknowledged_records_survive_kill_9_of_everything():
    nodes = 1 if harness.os.environ.get("INTEROP_SUT") == "kafka" else 3
    with cluster_under_test(nodes) as cluster:
        topic = create_topic(cluster, "kept", 3)
        highest = 0
        with load.Load(cluster.bootstrap, topic, rate=500) as steady:
            for _ in range(4):
                enough = len(steady.acknowledged) + 500
                harness.eventually(lambda: len(steady.acknowledged) > enough, 40, "500 more")
                cluster.kill()
                before = dict(steady.acknowledged)
                cluster.restart()
                found = load.read_all(cluster.bootstrap, topic, 3)
                load.assert_kept(before, found, "after kill -9")
                assert len(found) >= highest, "a read went back"
                highest = len(found)
            acknowledged = steady.stop()
        load.assert_kept(acknowledged, load.read_all(cluster.bootstrap, topic, 3), "in the end")
        assert not steady.failed, steady.failed[:3]


def test_commits_survive_kill_9_of_everything():
    from test_confluent import consume, consumer, produce
    nodes = 1 if harness.os.environ.get("INTEROP_SUT") == "kafka" else 3
    with cluster_under_test(nodes) as cluster:
        topic = create_topic(cluster, "committed", 1)
        produce(cluster, topic, 100)
        client = consumer(cluster, "group")
        client.subscribe([topic])
        consume(client, 100)
        client.commit(asynchronous=False)
        client.close()
        cluster.kill()
        cluster.restart()
        fresh = produce(cluster, topic, 10, prefix="later-")
        client = consumer(cluster, "group")
        client.subscribe([topic])
        assert consume(client, 10) == fresh
        client.close()
