"""What every interop test starts from: a cluster under test, a real Kafka as a source.

INTEROP_SUT=kafka puts a real Kafka in the place of the cluster under test, which shows that a test
is right; tests that need mirroring are skipped then.
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


def pytest_configure(config):
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
        if cluster.name == "heliograph":
            assert not cluster.panics(), cluster.panics()


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
