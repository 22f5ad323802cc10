"""kill -9 of the whole destination inside each step of stop, the source dead: it goes on and ends.

Needs a binary with the fail points compiled in (HELIOGRAPH_FAILPOINTS_BIN, made by the gate). The
steps are the fail points that `actors/` names, found in its sources.
"""

import os
import re
import subprocess
import time
from pathlib import Path

import harness
import pytest
import segments
from test_failover import PARTITIONS, first_write, settled, source_batches
from test_mirror import create_topic, produce

BINARY = os.environ.get("HELIOGRAPH_FAILPOINTS_BIN")
pytestmark = [
    pytest.mark.mirroring,
    pytest.mark.skipif(not BINARY, reason="HELIOGRAPH_FAILPOINTS_BIN names no binary"),
]


def steps():
    """The fail points of the stop flow, in the order of the sources."""
    sources = sorted((harness.ROOT / "actors").rglob("*.rs"))
    text = "\n".join(path.read_text() for path in sources)
    return re.findall(r'crash_point\(\s*"([\w-]*stop[\w-]*)"', text) or ["none"]


@pytest.mark.promise_stop_never_needs_the_source
@pytest.mark.parametrize("step", steps())
def test_a_crash_inside_a_step_of_stop(step):
    assert step != "none", "actors/ names no fail point of the stop flow"
    with harness.Kafka(nodes=1) as source:
        topic = create_topic(source, "orders", PARTITIONS)
        produce(source, topic, 300)
        destination = harness.Heliograph(nodes=3, binary=Path(BINARY),
                                         environment={"FAILPOINTS": f"{step}=pause"})
        with destination:
            cli = destination.mirrors()
            cli.create("standby", source.bootstrap)
            cli.start("standby", topic)
            cli.wait_state("standby", topic, "MIRRORING", partitions=PARTITIONS, lag=0)
            source.kill()
            order = subprocess.Popen(
                [str(destination.binary), "kafka-mirrors", "--bootstrap-server",
                 destination.bootstrap, "--stop", "--mirror", "standby", "--topics", topic],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(2)  # the step holds for ever: long enough to have come to it
            destination.kill()
            order.kill()
            order.wait()
            destination.environment = {}
            destination.restart()
            cli.stop("standby", topic)
            rows = cli.wait_state("standby", topic, "STOPPED", partitions=PARTITIONS)
            assert_stopped_once(source, destination, topic, rows)


def assert_stopped_once(source, destination, topic, rows):
    """All of the source is there, and one reset a partition, whatever was done twice."""
    last = {row["partition"]: row["lastMirroredOffset"] for row in rows}
    for partition, original in source_batches(source, topic).items():
        assert last[partition] == original[-1].last_offset
        for copy in settled(destination, topic, partition):
            segments.assert_equal(original, copy[:len(original)], f"{topic}-{partition}")
            added = [batch for batch in copy[len(original):] if batch.is_control]
            assert [batch.control_type() for batch in added] == [7], copy[-1].summary()
    first_write(destination, topic)
