"""Mirroring from a real Kafka: what arrives, that it is equal, that it is read-only."""

import harness
import load
import pytest
import segments
import wire
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewPartitions, NewTopic

pytestmark = pytest.mark.mirroring


def create_topic(kafka, topic, partitions=2, **config):
    admin = harness.admin(kafka.bootstrap)
    wanted = NewTopic(topic, partitions, kafka.replication, config=config)
    admin.create_topics([wanted])[topic].result(20)
    return topic


def produce(kafka, topic, count, first=0, size=20, **settings):
    client = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "linger.ms": 2,
                       "log_level": 0, **settings})
    for i in range(first, first + count):
        client.produce(topic, key=str(i), value=f"{i} " + "v" * size)
        client.poll(0)
    assert client.flush(30) == 0


def assert_copies_equal(source, destination, topic, partitions):
    """Every replica at the destination holds the source's batches, byte for byte."""
    total = 0
    for partition in range(partitions):
        original = segments.replicas(source.data(1), topic, partition)[0]
        copies = segments.replicas(destination.data(), topic, partition)
        assert len(copies) == destination.replication
        for index, copy in enumerate(copies):
            what = f"{topic}-{partition} replica {index}"
            segments.assert_equal(original, copy, what)
            segments.assert_monotonic(copy, what)
        total += len(original)
    assert total > 0, "nothing was compared"


def wait_equal(source, destination, topic, partitions, timeout=30):
    harness.eventually(
        lambda: assert_copies_equal(source, destination, topic, partitions) is None,
        timeout, f"equal copies of {topic}", interval=0.2)


@pytest.fixture(scope="module")
def mirrors(source, destination):
    cli = destination.mirrors()
    assert cli.create("shared", source.bootstrap) == "Created mirror shared\n"
    return cli


@pytest.mark.quick
@pytest.mark.promise_mirrored_is_byte_equal
def test_records_before_and_while_mirroring(source, destination, mirrors, unique):
    """Section 10, test 4: 50 + 50 records arrive, the second half while mirroring."""
    topic = create_topic(source, unique("orders"))
    produce(source, topic, 50)
    assert mirrors.start("shared", topic) == (
        f"Started 1 mirror topic(s) in mirror shared: [{topic}]\n")
    mirrors.wait_state("shared", topic, "MIRRORING", partitions=2, lag=0)
    produce(source, topic, 50, first=50)
    harness.eventually(
        lambda: len(load.read_all(destination.bootstrap, topic, 2)) == 100, 20, "100 records")
    wait_equal(source, destination, topic, 2)
    mirrors.wait_state("shared", topic, "MIRRORING", partitions=2, lag=0)
    assert (sorted(load.read_all(destination.bootstrap, topic, 2))
            == sorted(load.read_all(source.bootstrap, topic, 2)))


def test_the_copy_has_the_topic_id_and_configs(source, destination, mirrors, unique):
    topic = create_topic(source, unique("same-id"), 3, **{"retention.ms": "7200000"})
    mirrors.start("shared", topic)
    mirrors.wait_state("shared", topic, "MIRRORING", partitions=3)
    ids = []
    for cluster in (source, destination):
        with wire.Connection(cluster.bootstrap.split(",")[0]) as connection:
            ids.append(wire.topic_id(connection, topic))
    assert ids[0] == ids[1]
    described = harness.tool("ConfigCommand", "--bootstrap-server", destination.bootstrap,
                             "--entity-type", "topics", "--entity-name", topic, "--describe")
    assert "retention.ms=7200000" in described, "copied, though a client could not set it here"
    assert "mirror.name" not in described


def test_a_topic_made_before_with_the_sources_id(source, destination, mirrors, unique):
    """Section 10, test 3: CreateTopics v8 with the source's id, then 50 records arrive."""
    topic = create_topic(source, unique("precreated"), 1)
    produce(source, topic, 50)
    with wire.Connection(source.bootstrap.split(",")[0]) as connection:
        identity = wire.topic_id(connection, topic)
    with wire.Connection(destination.bootstrap.split(",")[0]) as connection:
        error, created, message = wire.create_topic_with_id(
            connection, topic, 1, destination.replication, identity)
    assert (error, created) == (0, identity), message
    mirrors.start("shared", topic)
    mirrors.wait_state("shared", topic, "MIRRORING", partitions=1, lag=0)
    assert len(load.read_all(destination.bootstrap, topic, 1)) == 50
    wait_equal(source, destination, topic, 1)


def test_the_same_name_with_another_id_is_refused(source, destination, mirrors, unique):
    topic = create_topic(source, unique("taken"), 1)
    create_topic(destination, topic, 1)
    done = mirrors.run("--start", "--mirror", "shared", "--topics", topic)
    assert done.returncode == 1
    assert topic in done.stderr and "id" in done.stderr, done.stderr


def test_patterns_are_resolved_on_the_source(source, destination, mirrors, unique):
    stem = unique("pattern")
    names = [create_topic(source, f"{stem}-{part}", 1) for part in ("eu", "us")]
    other = create_topic(source, unique("unmatched"), 1)
    for name in names:
        produce(source, name, 10)
    assert mirrors.start("shared", f"{stem}-.*") == (
        f"Started 2 mirror topic(s) in mirror shared: [{names[0]}, {names[1]}]\n")
    for name in names:
        mirrors.wait_state("shared", name, "MIRRORING", partitions=1, lag=0)
        wait_equal(source, destination, name, 1)
    assert not mirrors.rows("shared", other)


@pytest.mark.promise_mirrored_is_byte_equal
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_arrives_untouched(source, destination, mirrors, unique, compression):
    topic = create_topic(source, unique(f"packed-{compression}"), 1)
    produce(source, topic, 200, size=500, **{"compression.type": compression})
    mirrors.start("shared", topic)
    mirrors.wait_state("shared", topic, "MIRRORING", lag=0)
    wait_equal(source, destination, topic, 1)


@pytest.mark.promise_mirrored_is_byte_equal
def test_many_segments_under_load(source, destination, mirrors, unique):
    """Segments that roll on both sides, records written while the copy catches up."""
    topic = create_topic(source, unique("rolling"), 3, **{"segment.bytes": "1048576"})
    produce(source, topic, 6000, size=1000)
    with load.Load(source.bootstrap, topic, rate=1000, size=500) as steady:
        mirrors.start("shared", topic)
        mirrors.wait_state("shared", topic, "MIRRORING", partitions=3)
        harness.eventually(lambda: len(steady.acknowledged) > 3000, 30, "3000 records more")
        acknowledged = steady.stop()
    mirrors.wait_state("shared", topic, "MIRRORING", partitions=3, lag=0)
    wait_equal(source, destination, topic, 3)
    assert len(acknowledged) > 3000


def test_large_batches_pass_the_destinations_limits(source, destination, mirrors, unique):
    topic = create_topic(source, unique("large"), 1, **{"max.message.bytes": "8000000"})
    produce(source, topic, 3, size=6_000_000, **{"message.max.bytes": 8_000_000})
    mirrors.start("shared", topic)
    mirrors.wait_state("shared", topic, "MIRRORING", lag=0)
    wait_equal(source, destination, topic, 1)


def test_a_source_whose_log_starts_later(source, destination, mirrors, unique):
    """Records deleted before the first copy are no gap: it starts where the source does."""
    topic = create_topic(source, unique("started-late"), 1)
    produce(source, topic, 100)
    records = harness.ROOT / ".kafka" / f"{topic}.json"
    records.write_text('{"version":1,"partitions":[{"topic":"%s","partition":0,"offset":40}]}'
                       % topic)
    harness.tool("DeleteRecordsCommand", "--bootstrap-server", source.bootstrap,
                 "--offset-json-file", records)
    records.unlink()
    mirrors.start("shared", topic)
    mirrors.wait_state("shared", topic, "MIRRORING", lag=0)
    found = load.read_all(destination.bootstrap, topic, 1)
    assert [offset for _, offset, _, _ in found] == list(range(40, 100))


@pytest.mark.quick
@pytest.mark.promise_read_only_is_read_only
@pytest.mark.parametrize("idempotent", [False, True])
def test_a_mirror_topic_refuses_writes(source, destination, mirrors, unique, idempotent):
    topic = create_topic(source, unique("read-only"), 1)
    produce(source, topic, 10)
    mirrors.start("shared", topic)
    mirrors.wait_state("shared", topic, "MIRRORING", lag=0)
    errors = []
    client = Producer({"bootstrap.servers": destination.bootstrap, "acks": "all", "log_level": 0,
                       "enable.idempotence": idempotent, "message.timeout.ms": 10_000})
    for _ in range(5):
        client.produce(topic, value="not here", on_delivery=lambda error, _: errors.append(error))
    client.flush(20)
    assert len(errors) == 5
    # Not `None not in errors`: a KafkaError cannot be compared with None.
    assert all(error is not None for error in errors), "a write to a mirror topic was accepted"
    assert {error.code() for error in errors} <= {KafkaError.POLICY_VIOLATION,
                                                  KafkaError._FATAL}, errors
    assert any("POLICY" in str(error) or "olicy" in str(error) for error in errors), errors
    assert len(load.read_all(destination.bootstrap, topic, 1)) == 10
    wait_equal(source, destination, topic, 1)


@pytest.mark.promise_read_only_is_read_only
def test_a_mirror_topic_refuses_partitions(source, destination, mirrors, unique):
    topic = create_topic(source, unique("fixed"), 1)
    mirrors.start("shared", topic)
    mirrors.wait_state("shared", topic, "MIRRORING")
    admin = harness.admin(destination.bootstrap)
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(10)
    assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
    for part in (topic, "shared", "ACTIVE"):
        assert part in refused.value.args[0].str(), refused.value


@pytest.mark.promise_read_only_is_read_only
@pytest.mark.parametrize("order", [("--add-config", "mirror.name=other"),
                                   ("--add-config", "mirror.name=shared.stopped"),
                                   ("--delete-config", "mirror.name")])
def test_kafkas_own_tools_cannot_change_a_topics_mirror(source, destination, mirrors, unique,
                                                        order):
    """INVALID_REQUEST (42), D1; the mirror goes on."""
    topic = create_topic(source, unique("pinned"), 1)
    mirrors.start("shared", topic)
    mirrors.wait_state("shared", topic, "MIRRORING")
    done = harness.tool("ConfigCommand", "--bootstrap-server", destination.bootstrap,
                        "--entity-type", "topics", "--entity-name", topic, "--alter", *order,
                        check=False)
    assert done.returncode == 1, done.stdout
    assert ("errors.InvalidRequestException: 'mirror.name' is changed by the commands of mirroring"
            in done.stderr), done.stderr
    produce(source, topic, 10)
    harness.eventually(lambda: len(load.read_all(destination.bootstrap, topic, 1)) == 10, 20,
                       "records after the refused change")
    mirrors.wait_state("shared", topic, "MIRRORING", lag=0)


def test_a_topic_cannot_be_created_into_a_mirror(destination, mirrors, unique):
    """INVALID_REQUEST (42), D1. Kafka's own tool knows no such setting and does not even ask."""
    topic = unique("smuggled")
    admin = harness.admin(destination.bootstrap)
    wanted = NewTopic(topic, 1, 1, config={"mirror.name": "shared"})
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([wanted])[topic].result(10)
    assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST, refused.value
    assert topic not in admin.list_topics(timeout=10).topics


def test_clients_consume_a_mirror_topic_in_a_group(source, destination, mirrors, unique):
    topic = create_topic(source, unique("consumed"), 2)
    produce(source, topic, 100)
    mirrors.start("shared", topic)
    mirrors.wait_state("shared", topic, "MIRRORING", lag=0)
    text = harness.tool("consumer.ConsoleConsumer", "--bootstrap-server", destination.bootstrap,
                        "--topic", topic, "--from-beginning", "--max-messages", 100,
                        "--group", unique("group"))
    assert len(text.split("\n")) == 101


def test_dump_tool_reads_a_mirrored_segment(source, destination, mirrors, unique):
    topic = create_topic(source, unique("dumped"), 1)
    produce(source, topic, 500, size=500)
    mirrors.start("shared", topic)
    mirrors.wait_state("shared", topic, "MIRRORING", lag=0)
    wait_equal(source, destination, topic, 1)
    for folder in segments.folders(destination.data(), topic, 0):
        files = ",".join(str(file) for file in sorted(folder.glob("*.log")))
        done = harness.tool("DumpLogSegments", "--deep-iteration", "--files", files)
        assert done.count("| offset: ") == 500
        assert "isvalid: false" not in done
