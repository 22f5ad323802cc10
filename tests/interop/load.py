"""A steady load of numbered records that remembers what was acknowledged.

Owns one producer and its thread. Never judges: it hands back what the cluster acknowledged.
"""

import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition


class Load:
    """Produces `rate` records a second until stopped; survives a cluster that goes away."""

    def __init__(self, bootstrap, topic, rate=500, size=100, **settings):
        self.topic = topic
        self.pause = 1.0 / rate
        self.padding = "x" * size
        self.acknowledged = {}
        self.failed = []
        self.sent = 0
        self.running = True
        self.producer = Producer({
            "bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True,
            "linger.ms": 5, "message.timeout.ms": 60_000, "reconnect.backoff.max.ms": 200,
            "retry.backoff.max.ms": 200, "log_level": 0, **settings})
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        if self.running:
            self.abandon()

    def _delivered(self, error, message):
        if error:
            self.failed.append(error)
        else:
            self.acknowledged[message.key().decode()] = (message.partition(), message.offset())

    def _run(self):
        while self.running:
            try:
                self.producer.produce(self.topic, key=str(self.sent),
                                      value=f"{self.sent} {self.padding}",
                                      on_delivery=self._delivered)
                self.sent += 1
            except BufferError:
                pass
            self.producer.poll(0)
            time.sleep(self.pause)

    def stop(self, timeout=60):
        """Stops, and waits until everything sent has its answer."""
        self.running = False
        self.thread.join(10)
        assert self.producer.flush(timeout) == 0, "records without an answer"
        return self.acknowledged

    def abandon(self):
        """Stops without waiting for answers: the cluster is gone."""
        self.running = False
        self.thread.join(10)
        self.producer.poll(0)
        self.producer.purge()
        self.producer.flush(2)
        return self.acknowledged


def read_all(bootstrap, topic, partitions, isolation="read_committed", timeout=60):
    """Every record from the start to the end as of now: [(partition, offset, key, value)]."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "read-all", "log_level": 0,
                       "enable.auto.commit": False, "isolation.level": isolation,
                       "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    found, ended = [], set()
    deadline = time.monotonic() + timeout
    client.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"{topic}: {len(found)} records, ended {ended}"
        for message in client.consume(2000, 0.5):
            if message.error() and message.error().code() == -191:  # end of the partition
                ended.add(message.partition())
            elif not message.error():
                key = message.key().decode() if message.key() else None
                found.append((message.partition(), message.offset(), key, message.value()))
    client.close()
    return found


def assert_kept(acknowledged, records, what):
    """Every acknowledged record is there, at its offset, once."""
    seen = {}
    for partition, offset, key, _ in records:
        assert key not in seen, f"{what}: {key} is there twice: {seen[key]}, {(partition, offset)}"
        seen[key] = (partition, offset)
    lost = {key: at for key, at in acknowledged.items() if seen.get(key) != at}
    assert not lost, f"{what}: {len(lost)} of {len(acknowledged)} lost or moved: {list(lost)[:5]}"
