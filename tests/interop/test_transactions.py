"""Section 10, test 2 up to Stop: transactions open, committed and aborted at the source."""

import harness
import load
import pytest
import segments
from confluent_kafka import Producer
from test_mirror import create_topic

pytestmark = pytest.mark.mirroring

PARTITIONS = 2
TOPIC = "ledger"


class Transaction:
    """A transactional producer that writes `count` records to every partition."""

    def __init__(self, kafka, name):
        self.name = name
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0,
                                  "transactional.id": name, "log_level": 0,
                                  "transaction.timeout.ms": 600_000})
        self.producer.init_transactions(20)
        self.producer.begin_transaction()

    def write(self, count, tag):
        for i in range(count):
            for partition in range(PARTITIONS):
                self.producer.produce(TOPIC, key=f"{tag}-{i}-{partition}", value=tag,
                                      partition=partition)
        assert self.producer.flush(20) == 0


def plain(kafka, tag, count):
    client = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "log_level": 0})
    for i in range(count):
        for partition in range(PARTITIONS):
            client.produce(TOPIC, key=f"{tag}-{i}-{partition}", value=tag, partition=partition)
    assert client.flush(20) == 0


def wait_markers(kafka, count):
    """The source answers the end of a transaction before its markers are in the partitions."""
    def written():
        logs = (segments.replicas(kafka.data(1), TOPIC, partition)[0]
                for partition in range(PARTITIONS))
        return all(sum(batch.is_control for batch in log) == count for log in logs)
    harness.eventually(written, what=f"{count} markers in every partition of the source")


def write_ledger(source):
    """Leaves two transactions open, b and the second d; returns the committed keys."""
    before = Transaction(source, "before")
    before.write(2, "before")
    before.producer.commit_transaction(20)
    wait_markers(source, 1)
    source.kill()
    source.restart()
    a, b, c = (Transaction(source, name) for name in "abc")
    d = Transaction(source, "d")
    a.write(3, "a1"), b.write(2, "b1"), c.write(2, "c1"), d.write(1, "d1")
    plain(source, "plain1", 2)
    again = Transaction(source, "d")  # fences d: its first transaction is aborted
    a.write(1, "a2"), again.write(2, "d2"), b.write(1, "b2")
    c.producer.abort_transaction(20)
    a.producer.commit_transaction(20)
    plain(source, "plain2", 1)
    again.write(1, "d3")
    wait_markers(source, 4)  # before, the first d, c, a
    counts = {"before": 2, "a1": 3, "a2": 1, "plain1": 2, "plain2": 1}
    committed = {f"{tag}-{i}-{partition}" for tag, count in counts.items()
                 for i in range(count) for partition in range(PARTITIONS)}
    return committed, (b, again)


@pytest.fixture(scope="module")
def ledger():
    """A source with the ledger and a destination that mirrored it and was stopped, source dead."""
    with harness.Kafka(nodes=1) as source, harness.Heliograph(nodes=3) as destination:
        create_topic(source, TOPIC, PARTITIONS)
        committed, still_open = write_ledger(source)
        cli = destination.mirrors()
        cli.create("ledgers", source.bootstrap)
        cli.start("ledgers", TOPIC)
        cli.wait_state("ledgers", TOPIC, "MIRRORING", partitions=PARTITIONS, lag=0)
        assert keys(destination, "read_committed") < committed, "nothing above the open one"
        source.kill()
        cli.stop("ledgers", TOPIC)
        rows = cli.wait_state("ledgers", TOPIC, "STOPPED", partitions=PARTITIONS)
        originals = [segments.replicas(source.data(1), TOPIC, partition)[0]
                     for partition in range(PARTITIONS)]
        yield destination, committed, originals, rows
        del still_open


def keys(cluster, isolation):
    found = load.read_all(cluster.bootstrap, TOPIC, PARTITIONS, isolation)
    names = [key for _, _, key, _ in found]
    assert len(names) == len(set(names)), "a record twice"
    return set(names)


def test_read_committed_is_the_committed_records(ledger):
    destination, committed, _, _ = ledger
    assert keys(destination, "read_committed") == committed


@pytest.mark.promise_mirrored_is_byte_equal
def test_raw_is_the_source_and_two_aborts_and_one_reset_a_partition(ledger):
    destination, _, originals, rows = ledger
    for partition, original in enumerate(originals):
        for copy in segments.replicas(destination.data(), TOPIC, partition):
            segments.assert_equal(original, copy[:len(original)], f"{TOPIC}-{partition}")
            added = copy[len(original):]
            kinds = [batch.control_type() for batch in added]
            assert kinds == [0, 0, 7], [batch.summary() for batch in added]
            assert copy[-1].last_offset == original[-1].last_offset + 3
            assert all(batch.leader_epoch > original[-1].leader_epoch for batch in added)
            opened = {batch.producer_id for batch in original if batch.attributes & 0x10}
            assert {batch.producer_id for batch in added[:2]} <= opened
        row = rows[partition]
        assert row["lastMirroredOffset"] == original[-1].last_offset
        assert len(row["abortedProducers"]) == 2


def test_dump_tool_reads_the_reset(ledger):
    destination, _, _, _ = ledger
    for folder in segments.folders(destination.data(), TOPIC, 0):
        files = ",".join(str(file) for kind in ("log", "txnindex")
                         for file in sorted(folder.glob(f"*.{kind}")))
        text = harness.tool("DumpLogSegments", "--files", files)
        assert "isvalid: false" not in text
