"""Bytes no client would send: at most one connection is lost, memory is bounded, no panic.

A bystander writes and reads on one connection of its own while they arrive on others.
"""

import random
import socket
import struct
import threading

import batches
import harness
import pytest
import wire
from confluent_kafka.admin import NewTopic

ANNOUNCED = 100 * 1024 * 1024


def address(cluster):
    return cluster.bootstrap.split(",")[0]


def assert_serves(cluster):
    with wire.Connection(address(cluster)) as connection:
        assert wire.API_VERSIONS in wire.api_versions(connection)
    assert cluster.alive()
    if cluster.name == "heliograph":
        assert not cluster.panics(), cluster.panics()


class Bystander:
    """Writes a record and reads it back, again and again, on one connection that must last."""

    def __init__(self, cluster, topic):
        self.topic = topic
        self.rounds = 0
        self.fault = None
        self.running = True
        self.connection = wire.Connection(address(cluster))
        self.session = wire.FetchSession(self.connection)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            while self.running:
                written = batches.produce(self.connection, self.topic, 0, batches.batch())
                assert written[0] == 0, f"Produce answered {written}"
                _, found = self.session.fetch({self.topic: [(0, written[1])]})
                assert found == [(self.topic, 0, 0)], found
                self.rounds += 1
        except Exception as fault:  # noqa: BLE001, the test reports it
            self.fault = fault

    def end(self):
        self.running = False
        self.thread.join(20)
        self.connection.close()


@pytest.fixture(scope="module")
def busy_topic(single):
    topic = f"bystander-{random.randrange(1 << 40):010x}"
    admin = harness.admin(single.bootstrap)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)

    def accepts():
        with wire.Connection(address(single)) as connection:
            return batches.produce(connection, topic, 0, batches.batch())[0] == 0
    harness.eventually(accepts, 20, "the first write")
    return topic


@pytest.fixture(autouse=True)
def bystander(single, busy_topic):
    """Was served on its connection before, during and after the test."""
    witness = Bystander(single, busy_topic)

    def served():
        seen = witness.rounds
        harness.eventually(lambda: witness.fault or witness.rounds > seen + 1, 20,
                           "another round of the bystander", interval=0.005)
        assert witness.fault is None, f"the bystander was hurt: {witness.fault!r}"
    served()
    witness.served = served
    yield witness
    try:
        served()
    finally:
        witness.end()


def closed_or_quiet(connection, wait=0.02):
    connection.settimeout(wait)
    try:
        while connection.recv(65536):
            pass
    except OSError:
        pass


@pytest.mark.quick
@pytest.mark.mirroring  # a real Kafka allocates what is announced, and does not survive it
def test_announced_frames_cost_no_memory(single):
    before = single.memory()
    host, port = address(single).rsplit(":", 1)
    held = []
    for _ in range(500):
        connection = socket.create_connection((host, int(port)), 10)
        connection.sendall(struct.pack(">i", ANNOUNCED))
        held.append(connection)
    assert_serves(single)
    grown = single.memory() - before
    for connection in held:
        connection.close()
    assert grown < 32 << 20, f"{grown >> 20} MiB for 500 connections"
    assert_serves(single)


@pytest.mark.parametrize("length", [-1, -2**31, 0, 1, 7, 2**31 - 1])
def test_absurd_lengths(single, length):
    with wire.Connection(address(single)) as connection:
        connection.send_raw(struct.pack(">i", length) + b"\0" * 64)
        closed_or_quiet(connection.socket)
    assert_serves(single)


@pytest.mark.quick
def test_random_bytes(single):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        with wire.Connection(address(single)) as connection:
            body = chance.randbytes(chance.randrange(0, 400))
            if chance.random() < 0.7:
                key, version = chance.randrange(-2, 110), chance.randrange(-1, 20)
                body = struct.pack(">hhi", key, version, 1) + body
            try:
                connection.send_raw(struct.pack(">i", len(body)) + body)
                closed_or_quiet(connection.socket)
            except OSError:
                pass
    assert_serves(single)


def test_cut_and_flipped_requests(single):
    """Valid requests with bytes flipped or cut: lengths inside the body lie."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    name = wire.compact_string("victim")
    bodies = [
        (wire.METADATA, 12, wire.compact_array([b"\0" * 16 + name + wire.TAGS]) + b"\0\0\0"),
        (wire.API_VERSIONS, 3, name + name + wire.TAGS),
        (wire.FETCH, 12, struct.pack(">iiiibii", -1, 10, 1, 1 << 20, 0, 0, 0)
         + wire.compact_array([name + b"\2" + b"\0" * 40]) + b"\1\1\0"),
        (wire.DESCRIBE_MIRRORS, 0, wire.compact_array([name]) + b"\0\0"),
    ]
    for _ in range(300):
        key, version, body = chance.choice(bodies)
        with wire.Connection(address(single)) as connection:
            frame = bytearray(connection.frame(key, version, body))
            for _ in range(chance.randrange(1, 6)):
                frame[chance.randrange(12, len(frame))] = chance.choice([0, 0x7F, 0x80, 0xFF])
            if chance.random() < 0.3:
                frame = frame[:chance.randrange(8, len(frame))]
                frame[:4] = struct.pack(">i", len(frame) - 4)
            try:
                connection.send_raw(bytes(frame))
                closed_or_quiet(connection.socket)
            except OSError:
                pass
    assert_serves(single)


def test_idle_session_with_500_partitions_answers_little(single, unique):
    admin = harness.admin(single.bootstrap)
    topic = unique("idle")
    admin.create_topics([NewTopic(topic, 500, 1)])[topic].result(60)

    def led():
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(found) == 500 and all(part.leader >= 0 for part in found.values())
    harness.eventually(led, 60, "500 partitions with leaders")
    wanted = [(partition, 0) for partition in range(500)]

    def all_answer():
        with wire.Connection(address(single)) as connection:
            return all(error == 0 for _, _, error in
                       wire.FetchSession(connection).fetch({topic: wanted})[1])
    harness.eventually(all_answer, 30, "500 partitions that serve")
    with wire.Connection(address(single)) as connection:
        session = wire.FetchSession(connection)
        _, partitions = session.fetch({topic: wanted})
        assert len(partitions) == 500 and session.identity != 0
        size, partitions = session.fetch({})
        assert partitions == [] and size < 200, size


def test_a_version_of_api_versions_that_nobody_serves(single):
    """It is answered in version 0, so that the client learns what there is."""
    with wire.Connection(address(single)) as connection:
        connection.send_raw(connection.frame(wire.API_VERSIONS, 99, b""))
        size = struct.unpack(">i", connection.receive(4))[0]
        answer = wire.Reader(connection.receive(size))
        assert answer.int32() == connection.correlation
        assert answer.int16() == 35
    assert_serves(single)
