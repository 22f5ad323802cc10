"""Kafka's own command line tools against the cluster under test."""

import harness
import pytest
import segments
from confluent_kafka import Producer

HOW_MANY = 300


def bootstrap(sut):
    return ["--bootstrap-server", sut.bootstrap]


@pytest.fixture(scope="module")
def topic(sut):
    """A topic with some records, made by kafka-topics and the console producer."""
    name = "tools"
    created = harness.tool("TopicCommand", *bootstrap(sut), "--create", "--topic", name,
                           "--partitions", "2", "--replication-factor", sut.replication)
    assert f"Created topic {name}." in created
    lines = "".join(f"key-{i}:value-{i}\n" for i in range(HOW_MANY))
    harness.tool("ConsoleProducer", *bootstrap(sut), "--topic", name,
                 "--reader-property", "parse.key=true", "--reader-property", "key.separator=:",
                 stdin=lines)
    return name


def test_topics_are_listed_described_and_deleted(sut, topic):
    assert topic in harness.tool("TopicCommand", *bootstrap(sut), "--list").split()
    described = harness.tool("TopicCommand", *bootstrap(sut), "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    assert f"ReplicationFactor: {sut.replication}" in described
    assert described.count("Leader: none") == 0
    harness.tool("TopicCommand", *bootstrap(sut), "--create", "--topic", "short-lived")
    harness.tool("TopicCommand", *bootstrap(sut), "--alter", "--topic", "short-lived",
                 "--partitions", "3")
    harness.tool("TopicCommand", *bootstrap(sut), "--delete", "--topic", "short-lived")
    listed = harness.tool("TopicCommand", *bootstrap(sut), "--list")
    assert "short-lived" not in listed.split()


def test_console_consumer_reads_what_the_producer_wrote(sut, topic):
    text = harness.tool("consumer.ConsoleConsumer", *bootstrap(sut), "--topic", topic,
                        "--from-beginning", "--max-messages", HOW_MANY, "--group", "console",
                        "--formatter-property", "print.key=true", timeout=60)
    expected = {f"key-{i}\tvalue-{i}" for i in range(HOW_MANY)}
    assert set(text.split("\n")) - {""} == expected


@pytest.mark.client_timing(
    reason="kafka-consumer-groups gives the group coordinator 5 s, from a cold JVM")
def test_groups_are_listed_and_described(sut, topic):
    harness.tool("consumer.ConsoleConsumer", *bootstrap(sut), "--topic", topic,
                 "--from-beginning", "--max-messages", HOW_MANY, "--group", "described")
    command = ["consumer.group.ConsumerGroupCommand", *bootstrap(sut)]
    assert "described" in harness.tool(*command, "--list").split()
    rows = harness.tool(*command, "--describe", "--group", "described")
    columns = [row.split() for row in rows.splitlines() if row.startswith("described")]
    assert len(columns) == 2, rows
    assert sum(int(row[3]) for row in columns) == HOW_MANY, rows
    assert all(row[5] == "0" for row in columns), rows
    state = harness.tool(*command, "--describe", "--group", "described", "--state")
    assert "Empty" in state


def test_configs_are_altered_and_described(sut, topic):
    command = ["ConfigCommand", *bootstrap(sut), "--entity-type", "topics", "--entity-name", topic]
    harness.java("org.apache.kafka.tools.ConfigCommand", *command[1:], "--alter", "--add-config",
                 "segment.ms=1234567")
    described = harness.tool(*command, "--describe")
    assert "segment.ms=1234567" in described
    harness.tool(*command, "--alter", "--delete-config", "segment.ms")
    assert "segment.ms=1234567" not in harness.tool(*command, "--describe")


def test_broker_api_versions_are_understood(sut):
    text = harness.tool("BrokerApiVersionsCommand", *bootstrap(sut))
    assert text.count("id: ") >= sut.replication
    assert "Produce(0): 0 to" in text
    assert "UNSUPPORTED" in text or sut.name == "kafka"
    for key in ("Produce(0)", "Fetch(1)", "Metadata(3)", "DescribeTopicPartitions(75)"):
        line = next(line for line in text.splitlines() if key in line)
        assert "usable" in line, line


COMPLAINTS = ("ismatch", "isvalid: false", "corrupt", "Found timestamp", "Could not",
              "should be", "not found", "Exception")


def dump(files, *options):
    """DumpLogSegments over the files; fails on any complaint and returns its lines."""
    done = harness.tool("DumpLogSegments", *options, "--files", ",".join(map(str, files)),
                        check=False)
    lines = (done.stdout + done.stderr).splitlines()
    bad = [line for line in lines if any(complaint in line for complaint in COMPLAINTS)]
    assert done.returncode == 0 and not bad, "\n".join(bad or lines)
    return lines


@pytest.mark.quick
def test_dump_tool_reads_our_segments(sut, unique):
    """Segments that roll, with their indexes, in the form that Kafka's own tool accepts."""
    name = unique("dumped")
    harness.tool("TopicCommand", *bootstrap(sut), "--create", "--topic", name, "--partitions", "1",
                 "--replication-factor", sut.replication, "--config", "segment.bytes=1048576",
                 "--config", "index.interval.bytes=1024")
    producer = Producer({"bootstrap.servers": sut.bootstrap, "acks": "all", "linger.ms": 2,
                         "batch.num.messages": 20, "enable.idempotence": True})
    for i in range(3000):
        producer.produce(name, key=str(i), value=b"x" * 1000)
        producer.poll(0)
    assert producer.flush(30) == 0
    # A running Kafka keeps its indexes preallocated, which its own tool takes for mismatches.
    kinds = ("log",) if sut.name == "kafka" else ("log", "index", "timeindex", "txnindex",
                                                   "snapshot")
    folders = segments.folders(sut.data(), name, 0)
    assert len(folders) == sut.replication
    for folder in folders:
        assert len(list(folder.glob("*.log"))) >= 3
        files = [file for kind in kinds for file in sorted(folder.glob(f"*.{kind}"))]
        lines = dump(files, "--deep-iteration")
        assert sum("| offset: " in line for line in lines) == 3000
