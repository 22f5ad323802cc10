"""The soft limit of open files that a shell gives is no limit of the cluster's."""

import contextlib
import resource

import harness
import load
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

SOFT = 256
PARTITIONS = 100


@contextlib.contextmanager
def soft_limit(files):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.mirroring  # a JVM raises its limit too, and needs far more memory for this
def test_more_logs_than_the_soft_limit_allows_files(unique):
    """300 replicas and 300 of internal topics: the process raises its limit to the hard one."""
    with soft_limit(SOFT), harness.Heliograph(nodes=3) as cluster:
        topic = unique("many")
        admin = harness.admin(cluster.bootstrap)
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(20)
        client = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for partition in range(PARTITIONS):
            client.produce(topic, value="one", partition=partition)
        assert client.flush(30) == 0
        assert len(load.read_all(cluster.bootstrap, topic, PARTITIONS)) == PARTITIONS
        log = cluster.process.log.read_text(errors="replace")
        assert "Too many open files" not in log
