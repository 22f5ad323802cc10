"""Produce requests with bad batches, and requests nobody serves: the very same bytes go to a real
Kafka, and the code it answers is the one that is expected here.
"""

import struct
import time
from dataclasses import dataclass

import batches
import harness
import pytest
import wire
from batches import batch, record
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

pytestmark = pytest.mark.mirroring  # a real Kafka cannot be compared with itself

HOUR_MS = 3_600_000


@dataclass
class Send:
    """One Produce request; what is not said is right."""

    records: bytes | None
    topic: str | None = None
    partition: int = 0
    version: int = 9
    acks: int = -1
    transaction: str | None = None


def idempotent(sequence, epoch=0, producer=77_001, **wrong):
    return batch(producer=(producer, epoch, sequence), **wrong)


def zstd_frame(payload):
    """A zstd frame of one raw block."""
    head = struct.pack("<I", 0xFD2FB528) + bytes([0x20, len(payload)])
    return head + struct.pack("<I", len(payload) << 3 | 1)[:3] + payload


ZSTD_OF_TWO = zstd_frame(record(0) + record(1))


def cases():
    """Name → the requests sent one after the other, on one connection, to a new topic."""
    good = batch()
    flipped = bytearray(good)
    flipped[-1] ^= 0xFF
    now = int(time.time() * 1000)
    table = {
        "right": [good],
        "right, a null key": [batch([record(0, key=None)])],
        "right, version 3": [Send(good, version=3)],
        "wrong crc": [batch(crc=1)],
        "a flipped byte": [bytes(flipped)],
        "format 0": [batches.message(0)],
        "format 1": [batches.message(1)],
        "format 0 in version 3": [Send(batches.message(0), version=3)],
        "format 1 in version 3": [Send(batches.message(1), version=3)],
        "magic 3": [batch(magic=3)],
        "magic -1": [batch(magic=-1)],
        "compression 5": [batch(attributes=5)],
        "compression 7": [batch(attributes=7)],
        "said to be gzip": [batch(attributes=batches.GZIP)],
        "said to be snappy": [batch(attributes=batches.SNAPPY)],
        "said to be lz4": [batch(attributes=batches.LZ4)],
        "said to be zstd": [batch(attributes=batches.ZSTD)],
        "truncated in a record": [good[:-3]],
        "truncated in the head": [good[:40]],
        "truncated in the length": [good[:10]],
        "length below a head's": [batch(length=20)],
        "length 0": [batch(length=0)],
        "length -1": [batch(length=-1)],
        "length beyond the end": [batch(length=5000)],
        "bytes after the batch": [good + b"\0\0\0"],
        "no bytes": [b""],
        "no records field": [Send(None)],
        "two batches": [good + good],
        "no records in the batch": [batch([], last_delta=0)],
        "no records, deltas say so": [batch([], last_delta=-1)],
        "fewer records than the count": [batch(count=3, last_delta=2)],
        "more records than the count": [batch(count=1, last_delta=0)],
        "a count below zero": [batch(count=-1)],
        "last offset delta too large": [batch(last_delta=5)],
        "last offset delta too small": [batch(last_delta=0)],
        "offsets begin at 5": [batch(base=5)],
        "offsets begin below zero": [batch(base=-7)],
        "inner offsets begin at 1": [batch([record(1), record(2)], last_delta=2, count=2)],
        "inner offsets repeat": [batch([record(0), record(0)], last_delta=1, count=2)],
        "inner offsets fall": [batch([record(1), record(0)], last_delta=1, count=2)],
        "a record's length too large": [batch([record(0, length=200)])],
        "a record's length too small": [batch([record(0, length=3)])],
        "a record's length below zero": [batch([record(0, length=-1)])],
        "headers that are not there": [batch([record(0, headers=3)])],
        "headers below zero": [batch([record(0, headers=-1)])],
        "a control batch": [batch(attributes=batches.CONTROL)],
        "a control batch with a producer": [idempotent(0, attributes=batches.CONTROL)],
        "a delete horizon": [batch(attributes=0x40)],
        "unused attribute bits": [batch(attributes=0x80)],
        "append time said by a client": [batch(attributes=0x08)],
        "a timestamp in the far future": [batch(timestamp=now + 3 * HOUR_MS)],
        "a timestamp in the near future": [batch(timestamp=now + HOUR_MS // 2)],
        "a timestamp of no time": [batch(timestamp=-1)],
        "a timestamp below that": [batch(timestamp=-2)],
        "a producer without a sequence": [idempotent(-1)],
        "a producer with a sequence far below zero": [idempotent(-5)],
        "a producer with an epoch below zero": [idempotent(0, epoch=-1)],
        "sequences in order": [idempotent(0), idempotent(2)],
        "the same sequence again": [idempotent(0), idempotent(0)],
        "a gap in sequences": [idempotent(0), idempotent(7)],
        "a first sequence above zero": [idempotent(5)],
        "an old producer epoch": [idempotent(0, epoch=3), idempotent(2, epoch=2)],
        "a new epoch that begins above zero": [idempotent(0, epoch=3), idempotent(2, epoch=4)],
        "a batch said to be transactional": [batch(attributes=batches.TRANSACTIONAL)],
        "a transaction nobody began": [Send(idempotent(0, attributes=batches.TRANSACTIONAL),
                                            transaction="nobody-began-me")],
        "a transaction's name on a plain batch": [Send(good, transaction="nobody-began-me")],
        "too large": [batch([record(0, value=b"x" * 5000)])],
        "acks 7": [Send(good, acks=7)],
        "acks -2": [Send(good, acks=-2)],
        "an unknown topic": [Send(good, topic="nobody-made-me")],
        "an invalid topic name": [Send(good, topic="no/slashes")],
        "an unknown partition": [Send(good, partition=9)],
        "a partition below zero": [Send(good, partition=-1)],
    }
    for version in (3, 6, 7, 9):
        table[f"zstd in version {version}"] = [
            Send(batch(attributes=batches.ZSTD, payload=ZSTD_OF_TWO, count=2, last_delta=1),
                 version=version)]
    return table


UNKNOWN_COMPRESSION, INVALID_RECORD, NO_PRODUCER = 76, 87, 49

# Where we answer otherwise, and why: with what, and what Kafka does.
EXCEPTIONS = {
    # Kafka runs into an exception of its own and says UNKNOWN_SERVER_ERROR; we say what is wrong.
    "compression 5": (UNKNOWN_COMPRESSION, -1),
    "compression 7": (UNKNOWN_COMPRESSION, -1),
    "said to be gzip": (INVALID_RECORD, -1),
    "said to be snappy": (INVALID_RECORD, -1),
    "said to be lz4": (INVALID_RECORD, -1),
    "said to be zstd": (INVALID_RECORD, -1),
    # Kafka keeps such a batch as it came when it is not compressed, and refuses it with this code
    # when it is: two records of one offset are never right.
    "inner offsets repeat": (INVALID_RECORD, 0),
    "inner offsets fall": (INVALID_RECORD, 0),
    # Kafka runs into a null and never answers.
    "no records field": (INVALID_RECORD, "no answer"),
    # Transactions are not built here: whoever names one is told so, whatever the batch is.
    "a transaction's name on a plain batch": (NO_PRODUCER, 0),
}


def outcomes(cluster, topic, sends):
    with wire.Connection(cluster.bootstrap.split(",")[0], timeout=6) as connection:
        found = []
        for send in sends:
            send = send if isinstance(send, Send) else Send(send)
            found.append(batches.produce(connection, send.topic or topic, send.partition,
                                         send.records, send.version, send.acks,
                                         send.transaction))
        return found


@pytest.fixture(scope="module")
def clusters(source, single):
    """The real Kafka, with its transaction coordinator at work, and the cluster under test."""
    client = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "awake",
                       "log_level": 0})
    client.init_transactions(20)
    return source, single


@pytest.mark.parametrize("name", cases())
def test_a_bad_batch_gets_kafkas_code(clusters, unique, name):
    topic = unique("bad")
    for cluster in clusters:
        admin = harness.admin(cluster.bootstrap)
        wanted = NewTopic(topic, 1, 1, config={"max.message.bytes": "3000"})
        admin.create_topics([wanted])[topic].result(20)
        harness.eventually(lambda: outcomes(cluster, topic, [batch()]) == [(0, 0)], 20,
                           "the first write")
    sends = cases()[name]
    kafka, ours = (outcomes(cluster, topic, sends) for cluster in clusters)
    if name in EXCEPTIONS:
        codes = [found[0][0] if isinstance(found[0], tuple) else found[0]
                 for found in (ours, kafka)]
        assert tuple(codes) == EXCEPTIONS[name], "another exception than the one that is listed"
    else:
        assert ours == kafka


def answered(cluster, key, version):
    """Whether a request of nothing but zeros gets an answer, or its connection is closed."""
    with wire.Connection(cluster.bootstrap.split(",")[0]) as connection:
        connection.send_raw(connection.frame(key, version, b"\0" * 16))
        try:
            return bool(connection.receive(4))
        except ConnectionError:
            return False


# What Kafka 4.4 serves and we do not, as the issue names it: transactions, then the new group
# protocol, then ours of mirroring that are not built.
NAMED = {24, 25, 26, 27, 28, 68, 102, 103, 104}


def test_keys_and_versions_that_are_not_served(clusters):
    """They get what Kafka does with a key or a version that it does not serve."""
    kafka, ours = clusters
    served = {}
    for cluster in clusters:
        with wire.Connection(cluster.bootstrap.split(",")[0]) as connection:
            served[cluster.name] = wire.api_versions(connection)
    not_here = (set(served["kafka"]) | NAMED | set(range(-1, 130)) | {999, 1000, 1001, 1002}
                ) - set(served["heliograph"])
    assert NAMED <= not_here and len(set(served["kafka"]) & not_here) > 20
    not_there = [key for key in range(-1, 130) if key not in served["kafka"]]
    assert {answered(kafka, key, 0) for key in not_there} == {False}
    wrong = {key for key in not_here for version in (0, 1) if answered(ours, key, version)}
    assert not wrong, f"keys that are answered though they are not listed: {sorted(wrong)}"
    for cluster in clusters:
        for key, (oldest, newest) in served[cluster.name].items():
            for version in {newest + 1, newest + 50, oldest - 1} - set(range(oldest, newest + 1)):
                expected = key == wire.API_VERSIONS
                assert answered(cluster, key, version) == expected, (cluster.name, key, version)
