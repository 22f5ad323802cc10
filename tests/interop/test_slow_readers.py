"""Clients that ask and do not read, and requests made to be large: memory and the controller
stay for the others."""

import socket
import struct
import threading
import time

import harness
import load
import pytest
import wire
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

RECORD = b"x" * 100_000
RECORDS = 800


def address(cluster):
    host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
    return host, int(port)


def fetch_v11(topic, partition_bytes):
    """A Fetch request in a version without flexible fields, as large as a client may ask."""
    name = topic.encode()
    body = struct.pack(">iiiibii", -1, 500, 1, 0x7FFFFFFF, 0, 0, -1)
    body += struct.pack(">i", 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">i", 1) + struct.pack(">iiqqi", 0, -1, 0, -1, partition_bytes)
    body += struct.pack(">i", 0) + struct.pack(">h", 0)
    header = struct.pack(">hhih", wire.FETCH, 11, 1, 4) + b"slow"
    return struct.pack(">i", len(header) + len(body)) + header + body


def ends_early(connection):
    """Whether the answer that was begun is not there to its end."""
    connection.settimeout(10)
    try:
        announced = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        return len(connection.recv(announced, socket.MSG_WAITALL)) < announced
    except ConnectionError:
        return True


@pytest.mark.mirroring  # Kafka sends files, and holds no answer in memory
def test_answers_that_nobody_reads_hold_bounded_memory(single, unique):
    topic = unique("unread")
    admin = harness.admin(single.bootstrap)
    wanted = NewTopic(topic, 1, 1, config={"max.message.bytes": "2000000"})
    admin.create_topics([wanted])[topic].result(10)
    client = Producer({"bootstrap.servers": single.bootstrap, "acks": "all",
                       "message.max.bytes": 2_000_000, "queue.buffering.max.kbytes": 200_000})
    for _ in range(RECORDS):
        client.produce(topic, value=RECORD)
        client.poll(0)
    assert client.flush(60) == 0
    before = single.memory()
    held = []
    for _ in range(60):
        connection = socket.socket()
        # A small window, so that the answer stays where it is made.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(address(single))
        connection.sendall(fetch_v11(topic, 0x7FFFFFFF))
        held.append(connection)
    grown = 0
    for _ in range(20):
        time.sleep(0.1)
        grown = max(grown, single.memory() - before)
    assert 40 << 20 < grown < 400 << 20, f"{grown >> 20} MiB for 60 unread answers"
    # Beside them an honest client reads all; of those that take nothing, so many are given up
    # that there is memory for others again.
    assert len(load.read_all(single.bootstrap, topic, 1)) == RECORDS

    time.sleep(8)
    given_up = sum(ends_early(connection) for connection in held)
    assert given_up >= 10, f"{given_up} of {len(held)} clients were given up"
    for connection in held:
        connection.close()
    assert not single.panics(), single.panics()


@pytest.mark.mirroring  # Kafka's own limits are others
def test_a_padded_request_does_not_hold_the_controller(single, unique):
    """One topic and 20 MB of nothing: refused at once, and others are served beside it."""
    padding = wire.varint(1) + wire.varint(99) + wire.varint(20_000_000) + bytes(20_000_000)
    topic = (wire.compact_string(unique("padded")) + struct.pack(">ih", 1, 1)
             + wire.compact_array([]) + wire.compact_array([]) + wire.TAGS)
    body = wire.compact_array([topic]) + struct.pack(">ib", 10_000, 0) + padding
    before = single.memory()
    answers = []
    admin = harness.admin(single.bootstrap)

    def padded():
        with wire.Connection(single.bootstrap.split(",")[0]) as connection:
            answers.append(connection.ask(wire.CREATE_TOPICS, 7, body))
    asking = threading.Thread(target=padded)
    asking.start()
    for _ in range(20):
        name = unique("beside")
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(5)
    asking.join(30)
    assert answers, "no answer"
    assert single.memory() - before < 120 << 20
