"""A few Kafka requests written byte by byte: what no client library sends.

Owns one blocking connection and the encodings the tests need; never retries, never negotiates.
"""

import socket
import struct
import uuid

FETCH, METADATA, API_VERSIONS, CREATE_TOPICS = 1, 3, 18, 19
START_MIRROR_TOPICS, DESCRIBE_MIRRORS = 95, 99


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text):
    if text is None:
        return b"\0"
    raw = text.encode()
    return varint(len(raw) + 1) + raw


def compact_array(items):
    return varint(len(items) + 1) + b"".join(items)


TAGS = b"\0"


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, size):
        assert self.at + size <= len(self.data), "the answer ends early"
        raw = self.data[self.at:self.at + size]
        self.at += size
        return raw

    def int8(self):
        return struct.unpack(">b", self.take(1))[0]

    def int16(self):
        return struct.unpack(">h", self.take(2))[0]

    def int32(self):
        return struct.unpack(">i", self.take(4))[0]

    def int64(self):
        return struct.unpack(">q", self.take(8))[0]

    def uuid(self):
        return uuid.UUID(bytes=self.take(16))

    def varint(self):
        value, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def compact_string(self):
        length = self.varint()
        return None if length == 0 else self.take(length - 1).decode()

    def compact_array(self, read):
        return [read() for _ in range(max(0, self.varint() - 1))]

    def tags(self):
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


class Connection:
    def __init__(self, address, timeout=20):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation = 0

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send_raw(self, data):
        self.socket.sendall(data)

    def receive(self, size):
        out = b""
        while len(out) < size:
            part = self.socket.recv(size - len(out))
            if not part:
                raise ConnectionError("closed by the other side")
            out += part
        return out

    def frame(self, key, version, body, flexible=True):
        self.correlation += 1
        client = b"interop-wire"
        head = struct.pack(">hhih", key, version, self.correlation, len(client)) + client
        whole = head + (TAGS if flexible else b"") + body
        return struct.pack(">i", len(whole)) + whole

    def ask(self, key, version, body, flexible=True):
        """Sends one request and returns a reader behind the answer's header, and its size."""
        self.send_raw(self.frame(key, version, body, flexible))
        size = struct.unpack(">i", self.receive(4))[0]
        reader = Reader(self.receive(size))
        assert reader.int32() == self.correlation
        if flexible and key != API_VERSIONS:
            reader.tags()
        return reader, size + 4


def api_versions(connection):
    """{key: (oldest, newest)}"""
    body = compact_string("interop") + compact_string("1") + TAGS
    reader, _ = connection.ask(API_VERSIONS, 3, body)
    assert reader.int16() == 0

    def entry():
        row = reader.int16(), reader.int16(), reader.int16()
        reader.tags()
        return row
    return {key: (oldest, newest) for key, oldest, newest in reader.compact_array(entry)}


def topic_id(connection, topic):
    """A topic's id by Metadata v12."""
    name = b"\0" * 16 + compact_string(topic) + TAGS
    reader, _ = connection.ask(METADATA, 12, compact_array([name]) + b"\0\0" + TAGS)
    reader.int32()

    def broker():
        reader.int32(), reader.compact_string(), reader.int32(), reader.compact_string()
        reader.tags()
    reader.compact_array(broker)
    reader.compact_string(), reader.int32()
    reader.varint()
    error = reader.int16()
    assert error == 0, f"Metadata for {topic} answered {error}"
    reader.compact_string()
    return reader.uuid()


def create_topic(connection, topic, partitions, replication):
    """CreateTopics v7. Returns (error code, topic id, message)."""
    row = (compact_string(topic) + struct.pack(">ih", partitions, replication)
           + compact_array([]) + compact_array([]) + TAGS)
    return _created(connection, topic, 7, row)


def create_topic_with_id(connection, topic, partitions, replication, identity):
    """CreateTopics v8 with MirrorInfo. Returns (error code, topic id, message)."""
    mirror = b"\1" + identity.bytes + TAGS
    row = (compact_string(topic) + struct.pack(">ih", partitions, replication)
           + compact_array([]) + compact_array([]) + mirror + TAGS)
    return _created(connection, topic, 8, row)


def _created(connection, topic, version, row):
    body = compact_array([row]) + struct.pack(">i?", 10_000, False) + TAGS
    reader, _ = connection.ask(CREATE_TOPICS, version, body)
    reader.int32()
    assert reader.varint() == 2
    assert reader.compact_string() == topic
    identity = reader.uuid()
    error = reader.int16()
    return error, identity, reader.compact_string()


def start_mirror_topic(connection, mirror, topic, identity, partitions):
    """StartMirrorTopics for a topic that its client looked up itself. Returns its error."""
    row = identity.bytes + compact_string(topic) + struct.pack(">i", partitions) + TAGS
    body = (compact_string(mirror) + compact_array([row]) + compact_array([]) + compact_array([])
            + TAGS)
    reader, _ = connection.ask(START_MIRROR_TOPICS, 0, body)
    reader.int32()
    error = reader.int16()
    assert error == 0, f"StartMirrorTopics answered {error}: {reader.compact_string()}"
    reader.compact_string(), reader.compact_string()
    assert reader.varint() == 2
    assert reader.compact_string() == topic
    return reader.int16()


class FetchSession:
    """A consumer's fetch session over names (Fetch v12)."""

    def __init__(self, connection):
        self.connection = connection
        self.identity = 0
        self.epoch = 0

    def fetch(self, partitions, wait_ms=100):
        """Fetches {topic: [(partition, offset), …]}; returns the size and the partitions."""
        def part(index, offset):
            return struct.pack(">iiqiqi", index, -1, offset, -1, -1, 1 << 20) + TAGS
        topics = [compact_string(topic) + compact_array([part(*p) for p in parts]) + TAGS
                  for topic, parts in partitions.items()]
        body = (struct.pack(">iiiibii", -1, wait_ms, 1, 50 << 20, 0, self.identity, self.epoch)
                + compact_array(topics) + compact_array([]) + compact_string("") + TAGS)
        reader, size = self.connection.ask(FETCH, 12, body)
        reader.int32()
        error = reader.int16()
        assert error == 0, f"Fetch answered {error}"
        self.identity = reader.int32()
        self.epoch += 1
        return size, self._partitions(reader)

    def _partitions(self, reader):
        found = []
        for _ in range(reader.varint() - 1):
            topic = reader.compact_string()
            for _ in range(reader.varint() - 1):
                index, error = reader.int32(), reader.int16()
                reader.int64(), reader.int64(), reader.int64()

                def aborted():
                    reader.int64(), reader.int64()
                    reader.tags()
                reader.compact_array(aborted)
                reader.int32()
                reader.take(max(0, reader.varint() - 1))
                reader.tags()
                found.append((topic, index, error))
            reader.tags()
        return found
