"""The source's log start moves while it is mirrored (spec D21): the destination's follows on every
replica, nothing below it can be read, and the copy goes on byte-equal.
"""

import harness
import load
import pytest
import segments
import wire
from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from test_mirror import create_topic, produce

pytestmark = [pytest.mark.mirroring, pytest.mark.timeout(180)]
OFFSET_OUT_OF_RANGE = 1
NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def cli(source, destination):
    destination.mirrors().create("a-to-b", source.bootstrap)
    return destination.mirrors()


def delete_records(kafka, topic, before):
    """Deletes a topic's records below an offset, and returns where the log starts then."""
    partition = TopicPartition(topic, 0, before)
    admin = harness.admin(kafka.bootstrap)  # an admin client that is gone never answers
    deleted = admin.delete_records([partition])
    return deleted[partition].result(20).low_watermark


def bounds(cluster, topic):
    """Where a client finds the first record, and the end."""
    client = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "bounds",
                       "log_level": 0})
    try:
        return client.get_watermark_offsets(TopicPartition(topic, 0), timeout=10, cached=False)
    finally:
        client.close()


def stored_start(destination, node, topic):
    """Where a node's replica starts, by the file it would read after a crash."""
    file = destination.data() / f"node-{node}" / "data" / "log-start-offset-checkpoint"
    rows = [line.split() for line in file.read_text().splitlines()]
    return next((int(row[2]) for row in rows if row[:2] == [topic, "0"]), 0)


def wait_for_start(destination, topic, start):
    harness.eventually(lambda: bounds(destination, topic)[0] == start, 20,
                       f"{topic} starts at {start}")
    for node in NODES:
        harness.eventually(lambda: stored_start(destination, node, topic) == start, 20,
                           f"node {node} starts {topic} at {start}")


def read_at(destination, topic, offset):
    """The code that the leader answers a Fetch at an offset with."""
    described = harness.admin(destination.bootstrap).list_topics(topic, timeout=5)
    broker = described.brokers[described.topics[topic].partitions[0].leader]
    with wire.Connection(f"{broker.host}:{broker.port}") as connection:
        _, found = wire.FetchSession(connection).fetch({topic: [(0, offset)]})
    return found[0][2]


def assert_equal(source, destination, topic, start):
    """Every replica holds the batches that the source still has, and nothing behind them."""
    def kept(batches):
        return [batch for batch in batches if batch.last_offset >= start]
    original = kept(segments.replicas(source.data(1), topic, 0)[0])
    copies = segments.replicas(destination.data(), topic, 0)
    assert len(copies) == len(NODES)
    for copy in copies:
        segments.assert_equal(original, kept(copy), topic)
        segments.assert_monotonic(copy, topic)
    return True


def wait_equal(source, destination, topic, start):
    harness.eventually(lambda: assert_equal(source, destination, topic, start), 30,
                       f"equal copies of {topic}")


@pytest.mark.quick
@pytest.mark.promise_mirrored_is_byte_equal
def test_records_are_deleted_at_the_source_while_mirroring(source, destination, cli, unique):
    topic = create_topic(source, unique("trimmed"), 1, **{"segment.bytes": "1048576"})
    produce(source, topic, 3000, size=1000)
    cli.start("a-to-b", topic)
    cli.wait_state("a-to-b", topic, "MIRRORING", lag=0)
    wait_equal(source, destination, topic, 0)
    for start in (7, 2222):
        assert delete_records(source, topic, start) == start
        wait_for_start(destination, topic, start)
        assert read_at(destination, topic, start - 1) == OFFSET_OUT_OF_RANGE
        assert read_at(destination, topic, start) == 0
        produce(source, topic, 100, first=3000)
        cli.wait_state("a-to-b", topic, "MIRRORING", lag=0)
        wait_equal(source, destination, topic, start)
        assert (load.read_all(destination.bootstrap, topic, 1)
                == load.read_all(source.bootstrap, topic, 1))
    assert [row["recordsCut"] for row in cli.rows("a-to-b", topic)] == [0], "followed, not cut"


@pytest.mark.promise_mirrored_is_byte_equal
def test_all_records_are_deleted_at_the_source(source, destination, cli, unique):
    topic = create_topic(source, unique("emptied"), 1)
    produce(source, topic, 500)
    cli.start("a-to-b", topic)
    cli.wait_state("a-to-b", topic, "MIRRORING", lag=0)
    for end in (500, 600):
        assert delete_records(source, topic, OFFSET_END) == end
        wait_for_start(destination, topic, end)
        assert bounds(destination, topic) == (end, end)
        assert read_at(destination, topic, end - 1) == OFFSET_OUT_OF_RANGE
        produce(source, topic, 100, first=end)
        cli.wait_state("a-to-b", topic, "MIRRORING", lag=0)
        wait_equal(source, destination, topic, end)
        found = load.read_all(destination.bootstrap, topic, 1)
        assert [offset for _, offset, _, _ in found] == list(range(end, end + 100))
    assert not [row["reason"] for row in cli.rows("a-to-b", topic) if row["reason"]], "no gap"


@pytest.mark.promise_mirrored_is_byte_equal
def test_records_are_deleted_again_and_again_under_load(source, destination, cli, unique):
    """What is deleted before it was copied is a gap, what is deleted after is followed: in the end
    both logs start and end alike."""
    topic = create_topic(source, unique("chased"), 1, **{"segment.bytes": "1048576"})
    with load.Load(source.bootstrap, topic, rate=1000, size=500) as steady:
        cli.start("a-to-b", topic)
        cli.wait_state("a-to-b", topic, "MIRRORING")
        for _ in range(20):
            enough = len(steady.acknowledged) + 200
            harness.eventually(lambda: len(steady.acknowledged) > enough, 30, "200 records more")
            delete_records(source, topic, OFFSET_END)
        steady.stop()
    cli.wait_state("a-to-b", topic, "MIRRORING", lag=0)
    start, end = bounds(source, topic)
    wait_for_start(destination, topic, start)
    assert bounds(destination, topic) == (start, end)
    wait_equal(source, destination, topic, start)
    # The last word is a deletion, with nothing written after it.
    assert delete_records(source, topic, OFFSET_END) == end
    wait_for_start(destination, topic, end)
