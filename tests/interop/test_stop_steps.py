"""kill -9 of the whole destination inside each step of stop, the source dead: it goes on and ends.

Needs a binary with the fail points compiled in (HELIOGRAPH_FAILPOINTS_BIN, made by the gate). The
steps are the fail points that `actors/` names, found in its sources; a held one says on standard
error that it was reached, and only then everything is killed.
"""

import os
import re
import subprocess
from pathlib import Path

import harness
import load
import pytest
import segments
from confluent_kafka import Producer
from test_failover import first_write, settled
from test_mirror import create_topic

BINARY = os.environ.get("HELIOGRAPH_FAILPOINTS_BIN")
pytestmark = [
    pytest.mark.mirroring,
    pytest.mark.skipif(not BINARY, reason="HELIOGRAPH_FAILPOINTS_BIN names no binary"),
]

TOPIC, MIRROR, PARTITIONS = "ledger", "standby", 2
ABORT, RESET = 0, 7

# What is fetched keeps a distance below our leader epoch, and a stop that comes before the logs
# were compared keeps the last one's point: no order over the wire makes the bump needed. A script
# of the machine shows it (stop_needs_a_bump_when_the_epoch_is_not_above.script in src/mirror).
NEVER_NEEDED = "mirror-stop-bump"


def steps():
    """The fail points of the stop flow, in the order of the sources."""
    sources = sorted((harness.ROOT / "actors").rglob("*.rs"))
    text = "\n".join(path.read_text() for path in sources)
    found = re.findall(r'crash_point\(\s*"([\w-]*stop[\w-]*)"', text)
    return [step for step in found if step != NEVER_NEEDED] or ["none"]


class Ledger:
    """What is at the source: committed and plain records, and two transactions left open."""

    def __init__(self, source):
        create_topic(source, TOPIC, PARTITIONS)
        self.committed = set()
        self.transaction(source, "done").commit_transaction(20)
        plain = Producer({"bootstrap.servers": source.bootstrap, "acks": "all", "log_level": 0})
        write(plain, "plain", 50)
        self.committed = keys("done") | keys("plain", 50)
        self.open = [self.transaction(source, name) for name in ("left-open", "left-open-too")]

        def markers():
            logs = [segments.replicas(source.data(1), TOPIC, partition)[0]
                    for partition in range(PARTITIONS)]
            return all(sum(batch.is_control for batch in log) == 1 for log in logs)
        harness.eventually(markers, what="the commit's markers at the source")
        self.batches = [segments.replicas(source.data(1), TOPIC, partition)[0]
                        for partition in range(PARTITIONS)]

    @staticmethod
    def transaction(source, name):
        producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": name,
                             "transaction.timeout.ms": 600_000, "log_level": 0})
        producer.init_transactions(20)
        producer.begin_transaction()
        write(producer, name, 3)
        return producer

    def open_producers(self, partition):
        """The producer ids of the open transactions, in the order of their first offsets."""
        log = self.batches[partition]
        ended = {batch.producer_id for batch in log if batch.is_control}
        open_ = [batch.producer_id for batch in log if batch.attributes & segments.TRANSACTIONAL
                 and batch.producer_id not in ended]
        return list(dict.fromkeys(open_))


def keys(tag, count=3):
    return {f"{tag}-{i}-{partition}" for i in range(count) for partition in range(PARTITIONS)}


def write(producer, tag, count):
    for i in range(count):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, key=f"{tag}-{i}-{partition}", value=tag, partition=partition)
    assert producer.flush(20) == 0


def reached(destination, step):
    return f"crash point reached: {step}" in destination.process.log.read_text(errors="replace")


def stop_and_kill_at(destination, step):
    """Orders the stop, waits until the step says that it is held, and kills everything."""
    assert not reached(destination, step), "the step belongs to the stop"
    order = subprocess.Popen(
        [str(destination.binary), "kafka-mirrors", "--bootstrap-server", destination.bootstrap,
         "--stop", "--mirror", MIRROR, "--topics", TOPIC],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        harness.eventually(lambda: reached(destination, step), 20, f"{step} being reached")
        kind = {"mirror-stop-aborts-appended": ABORT, "mirror-stop-reset-appended": RESET}
        if step in kind:
            harness.eventually(lambda: kind[step] in kinds_on_disk(destination), 20,
                               "the control batch in the leader's log")
    finally:
        destination.kill()
        order.kill()
        order.wait()


def kinds_on_disk(destination):
    logs = (log for partition in range(PARTITIONS)
            for log in segments.replicas(destination.data(), TOPIC, partition))
    return {batch.control_type() for log in logs for batch in log if batch.is_control}


@pytest.mark.promise_stop_never_needs_the_source
@pytest.mark.promise_mirrored_is_byte_equal
@pytest.mark.parametrize("step", steps())
def test_a_crash_inside_a_step_of_stop(step):
    assert step != "none", "actors/ names no fail point of the stop flow"
    with harness.Kafka(nodes=1) as source:
        ledger = Ledger(source)
        destination = harness.Heliograph(nodes=3, binary=Path(BINARY),
                                         environment={"FAILPOINTS": f"{step}=return(hold)"})
        with destination:
            cli = destination.mirrors()
            cli.create(MIRROR, source.bootstrap)
            cli.start(MIRROR, TOPIC)
            cli.wait_state(MIRROR, TOPIC, "MIRRORING", partitions=PARTITIONS, lag=0)
            # What only the leader has is not committed, and may go when all nodes are killed.
            for partition in range(PARTITIONS):
                settled(destination, TOPIC, partition)
            source.kill()
            stop_and_kill_at(destination, step)
            destination.environment = {}
            destination.restart()
            # It was ordered to stop, and ends that by itself.
            rows = cli.wait_state(MIRROR, TOPIC, "STOPPED", partitions=PARTITIONS)
            assert_stopped_once(destination, ledger, rows)


def assert_stopped_once(destination, ledger, rows, local=frozenset()):
    """The source's batches, then one ABORT an open transaction and one reset, whatever was done
    twice; of the records those that were committed at the source, and those written here."""
    last = {row["partition"]: row["lastMirroredOffset"] for row in rows}
    for partition, original in enumerate(ledger.batches):
        what = f"{TOPIC}-{partition}"
        opened = ledger.open_producers(partition)
        assert len(opened) == 2
        for copy in settled(destination, TOPIC, partition):
            segments.assert_equal(original, copy[:len(original)], what)
            segments.assert_monotonic(copy, what)
            added = copy[len(original):]
            control = [batch for batch in added if batch.is_control]
            found = [batch.control_type() for batch in control]
            assert found == [ABORT, ABORT, RESET], [batch.summary() for batch in added]
            assert [batch.producer_id for batch in control[:2]] == opened
            assert all(batch.leader_epoch > original[-1].leader_epoch for batch in added)
            assert last[partition] == original[-1].last_offset
    found = [key for _, _, key, _ in load.read_all(destination.bootstrap, TOPIC, PARTITIONS)]
    assert sorted(found) == sorted(ledger.committed | local)
    first_write(destination, TOPIC)
