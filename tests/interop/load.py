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
    """Every acknowledged record is there, at its offset, once.

    A client that learns from later answers that a record it sends again was stored before knows
    its partition only: the offset is None.
    """
    seen = {}
    for partition, offset, key, _ in records:
        assert key not in seen, f"{what}: {key} is there twice: {seen[key]}, {(partition, offset)}"
        seen[key] = (partition, offset)

    def kept(key, partition, offset):
        at = seen.get(key)
        return at == (partition, offset) or (offset is None and at and at[0] == partition)
    lost = {key: f"{at}, now {seen.get(key)}" for key, at in acknowledged.items()
            if not kept(key, *at)}
    some = dict(list(lost.items())[:10])
    assert not lost, f"{what}: {len(lost)} of {len(acknowledged)} lost or moved: {some}"


class Reader:
    """Reads a topic from its start, for as long as it is open, and remembers what it saw.

    Never starts over by itself: an offset that is no longer there ends it with an error.
    """

    def __init__(self, bootstrap, topic, partitions):
        self.seen = {}
        self.faults = []
        self.running = True
        self.next = dict.fromkeys(range(partitions), 0)
        self.consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0,
            "enable.auto.commit": False, "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50, "reconnect.backoff.max.ms": 200})
        self.consumer.assign([TopicPartition(topic, partition, 0) for partition in self.next])
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.running = False
        self.thread.join(20)
        self.consumer.close()

    def _run(self):
        while self.running:
            for message in self.consumer.consume(500, 0.1):
                if message.error():
                    self._failed(message.error())
                else:
                    self._saw(message)

    def _failed(self, error):
        # What goes away with a node is tried again by the client; the rest must not happen.
        if not error.retriable() and error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
            self.faults.append(str(error))

    def _saw(self, message):
        partition, offset = message.partition(), message.offset()
        if offset != self.next[partition]:
            self.faults.append(f"{partition}: read {offset} in place of {self.next[partition]}")
        self.next[partition] = offset + 1
        self.seen[partition, offset] = message.key().decode()

    def assert_never_went_back(self, records):
        """No fault, and everything that was read is still there, the same."""
        assert not self.faults, self.faults[:5]
        now = {(partition, offset): key for partition, offset, key, _ in records}
        gone = [at for at, key in self.seen.items() if now.get(at) != key]
        assert not gone, f"{len(gone)} records read once are gone or changed: {gone[:5]}"
