"""What every interop test starts from: a cluster under test, a real Kafka as a source.

INTEROP_SUT=kafka puts a real Kafka in the place of the cluster under test, which shows that a test
is right; tests that need mirroring are skipped then. INTEROP_SKIPS=fail makes a skip a failure,
except for the reasons listed here. Exit code 10 says that nothing failed but tests whose client's
own timeout is known to run out on a busy machine: the gate runs those once more.
"""

import os
import random

import harness
import pytest

PROMISES = {
    "acknowledged_is_kept": "what was acknowledged is never lost",
    "mirrored_is_byte_equal": "a mirrored batch equals the source's in every byte",
    "read_only_is_read_only": "a mirror topic refuses every client write until STOPPED",
    "stop_never_needs_the_source": "failover works with the source dead",
}

# The end of a run in which only tests marked client_timing failed, and in their own call.
ONLY_CLIENT_TIMING = 10
SKIPS_ALLOWED = ("the default ports are taken by somebody else",)


class Outcomes:
    """What failed and what was skipped; says how the run ends."""

    def __init__(self):
        self.failed, self.timing, self.skipped = [], [], []

    def pytest_runtest_logreport(self, report):
        if report.failed and report.when == "call" and "client_timing" in report.keywords:
            self.timing.append(report.nodeid)
        elif report.failed:
            self.failed.append(f"{report.nodeid} ({report.when})")
        elif report.skipped and not any(reason in str(report.longrepr)
                                        for reason in SKIPS_ALLOWED):
            self.skipped.append(f"{report.nodeid}: {report.longrepr[-1]}")

    def pytest_sessionfinish(self, session, exitstatus):
        if self.skipped and os.environ.get("INTEROP_SKIPS") == "fail":
            session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
        elif exitstatus == pytest.ExitCode.TESTS_FAILED and not self.failed and self.timing:
            session.exitstatus = ONLY_CLIENT_TIMING

    def pytest_terminal_summary(self, terminalreporter):
        if self.timing and not self.failed:
            terminalreporter.write_line(f"only client timing failed: {len(self.timing)}")
        if os.environ.get("INTEROP_SKIPS") == "fail":
            for skip in self.skipped:
                terminalreporter.write_line(f"FAILED {skip}: a skip is a failure here")


def pytest_configure(config):
    config.pluginmanager.register(Outcomes())
    config.addinivalue_line("markers", "client_timing(reason): a real client's own timeout, named "
                            "by the reason, is known to run out on a busy machine")
    for name, text in PROMISES.items():
        config.addinivalue_line("markers", f"promise_{name}: {text}")
    config.addinivalue_line("markers", "mirroring: needs a Heliograph as the cluster under test")
    config.addinivalue_line("markers", "quick: runs in scripts/check.sh --quick too")
    harness.compile_java()


def real_kafka_under_test():
    return os.environ.get("INTEROP_SUT") == "kafka"


def pytest_collection_modifyitems(items):
    if real_kafka_under_test():
        skip = pytest.mark.skip(reason="INTEROP_SUT=kafka: a real Kafka does not mirror")
        for item in items:
            if item.get_closest_marker("mirroring"):
                item.add_marker(skip)


def cluster_under_test(nodes):
    if real_kafka_under_test():
        return harness.Kafka(nodes=nodes)
    return harness.Heliograph(nodes=nodes)


@pytest.fixture(scope="session")
def sut():
    """The cluster under test: three nodes of Heliograph, or one real Kafka."""
    with cluster_under_test(1 if real_kafka_under_test() else 3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def single():
    """A cluster under test of one node."""
    with cluster_under_test(1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def source():
    """A real Kafka of one node, shared by the tests that do not hurt it."""
    with harness.Kafka(nodes=1) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def destination():
    """Three nodes of Heliograph, shared by one file's tests that do not hurt it."""
    with harness.Heliograph(nodes=3) as cluster:
        yield cluster


@pytest.fixture
def unique():
    """A name nobody used yet."""
    def make(prefix):
        return f"{prefix}-{random.randrange(1 << 40):010x}"
    return make
