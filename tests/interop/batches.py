"""Record batches and Produce requests built byte by byte, right ones and wrong ones.

Owns the layouts; never judges an answer. What a test wants wrong is an argument here.
"""

import struct
import time
import zlib

import wire

PRODUCE = 0
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TRANSACTIONAL, CONTROL = 0x10, 0x20


def _crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def zigzag(value):
    return wire.varint((value << 1 ^ value >> 63) & (1 << 64) - 1)


def record(delta, key=b"key", value=b"value", length=None, headers=0, timestamp_delta=0):
    """One record of format 2; `length` and `headers` may lie."""
    body = (b"\0" + zigzag(timestamp_delta) + zigzag(delta)
            + (zigzag(-1) if key is None else zigzag(len(key)) + key)
            + zigzag(len(value)) + value + zigzag(headers))
    return zigzag(len(body) if length is None else length) + body


def batch(records=None, *, base=0, attributes=0, last_delta=None, count=None, timestamp=None,
          producer=(-1, -1, -1), magic=2, crc=None, length=None, epoch=-1, payload=None):
    """A batch of format 2 that is right, except for what is given."""
    records = [record(0), record(1)] if records is None else records
    now = int(time.time() * 1000) if timestamp is None else timestamp
    last = len(records) - 1 if last_delta is None else last_delta
    count = len(records) if count is None else count
    payload = b"".join(records) if payload is None else payload
    tail = struct.pack(">hiqqqhii", attributes, last, now, now, *producer, count) + payload
    checksum = crc32c(tail) if crc is None else crc
    length = 4 + 1 + 4 + len(tail) if length is None else length
    return struct.pack(">qiibI", base, length, epoch, magic, checksum) + tail


def message(magic, value=b"value"):
    """A message of format 0 or 1."""
    tail = struct.pack(">bb", magic, 0)
    tail += struct.pack(">q", int(time.time() * 1000)) if magic else b""
    tail += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    whole = struct.pack(">I", zlib.crc32(tail)) + tail
    return struct.pack(">qi", 0, len(whole)) + whole


def _string(text):
    return struct.pack(">h", len(text)) + text.encode()


def produce(connection, topic, partition, records, version=9, acks=-1, transaction=None):
    """Sends one Produce request; returns (error code, base offset), "closed" or "no answer"."""
    flexible = version >= 9
    if flexible:
        row = struct.pack(">i", partition) + (
            b"\0" if records is None else wire.varint(len(records) + 1) + records) + wire.TAGS
        rows = wire.compact_string(topic) + wire.compact_array([row]) + wire.TAGS
        body = (wire.compact_string(transaction) + struct.pack(">hi", acks, 5000)
                + wire.compact_array([rows]) + wire.TAGS)
    else:
        row = struct.pack(">ii", partition, -1 if records is None else len(records))
        body = (struct.pack(">hhi", -1, acks, 5000) + struct.pack(">i", 1) + _string(topic)
                + struct.pack(">i", 1) + row + (records or b""))
    try:
        reader, _ = connection.ask(PRODUCE, version, body, flexible)
    except TimeoutError:
        return "no answer"
    except ConnectionError:
        return "closed"
    if flexible:
        assert reader.varint() == 2
        assert reader.compact_string() == topic
        assert reader.varint() == 2
    else:
        assert reader.int32() == 1
        assert reader.take(reader.int16()).decode() == topic
        assert reader.int32() == 1
    assert reader.int32() == partition
    return reader.int16(), reader.int64()
