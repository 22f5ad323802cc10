"""A source of three nodes whose leaders move, which restarts, and whose topic grows."""

import harness
import load
import pytest
import segments
from test_failover import first_write
from test_mirror import create_topic, produce

pytestmark = [pytest.mark.mirroring, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def source():
    with harness.Kafka(nodes=3) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def cli(source, destination):
    destination.mirrors().create("a-to-b", source.bootstrap)
    return destination.mirrors()


def assert_equal(source, destination, topic, partitions):
    """Equal to every replica of the source that is complete."""
    for partition in range(partitions):
        originals = [segments.read(folder) for node in range(1, source.nodes + 1)
                     for folder in segments.folders(source.data(node), topic, partition)]
        longest = max(originals, key=len)
        for copy in segments.replicas(destination.data(), topic, partition):
            segments.assert_equal(longest, copy, f"{topic}-{partition}")
            segments.assert_monotonic(copy, f"{topic}-{partition}")
    return True


def wait_equal(source, destination, topic, partitions):
    harness.eventually(lambda: assert_equal(source, destination, topic, partitions), 30,
                       f"equal copies of {topic}")


@pytest.mark.promise_mirrored_is_byte_equal
def test_leaders_of_the_source_move_under_load(source, destination, cli, unique):
    topic = create_topic(source, unique("moving"), 3, **{"min.insync.replicas": "2"})
    with load.Load(source.bootstrap, topic, rate=500) as steady:
        cli.start("a-to-b", topic)
        cli.wait_state("a-to-b", topic, "MIRRORING", partitions=3)
        for node in (1, 2):
            enough = len(steady.acknowledged) + 500
            harness.eventually(lambda: len(steady.acknowledged) > enough, 60, "500 records more")
            source.kill(node)
            enough = len(steady.acknowledged) + 500
            harness.eventually(lambda: len(steady.acknowledged) > enough, 60, "500 records more")
            source.restart()
        harness.tool("LeaderElectionCommand", "--bootstrap-server", source.bootstrap,
                     "--election-type", "preferred", "--all-topic-partitions")
        acknowledged = steady.stop()
    rows = cli.wait_state("a-to-b", topic, "MIRRORING", partitions=3, lag=0, timeout=60)
    assert len(rows) == 3
    wait_equal(source, destination, topic, 3)
    load.assert_kept(acknowledged, load.read_all(destination.bootstrap, topic, 3), topic)


def test_new_partitions_are_followed(source, destination, cli, unique):
    topic = create_topic(source, unique("growing"), 2)
    produce(source, topic, 50)
    cli.start("a-to-b", topic)
    cli.wait_state("a-to-b", topic, "MIRRORING", partitions=2, lag=0)
    harness.tool("TopicCommand", "--bootstrap-server", source.bootstrap, "--alter",
                 "--topic", topic, "--partitions", 5)
    produce(source, topic, 200, first=50)
    cli.wait_state("a-to-b", topic, "MIRRORING", partitions=5, lag=0, timeout=75)
    wait_equal(source, destination, topic, 5)
    assert len(load.read_all(destination.bootstrap, topic, 5)) == 250


def test_failover_around_a_rolling_restart(source, destination, cli, unique):
    """The first half of section 10, test 13."""
    topic = create_topic(source, unique("restarted"), 1)
    produce(source, topic, 3)
    cli.start("a-to-b", topic)
    for node in (1, 2, 3):
        source.stop_node(node)
        source.restart()
    produce(source, topic, 3, first=3)
    cli.wait_state("a-to-b", topic, "MIRRORING", partitions=1, lag=0, timeout=60)
    assert len(load.read_all(destination.bootstrap, topic, 1)) == 6
    wait_equal(source, destination, topic, 1)
    cli.stop("a-to-b", topic)
    cli.wait_state("a-to-b", topic, "STOPPED", partitions=1)
    first_write(destination, topic)
    assert len(load.read_all(destination.bootstrap, topic, 1)) == 7
