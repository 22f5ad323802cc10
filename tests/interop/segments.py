"""Reads the segment files of a partition, ours or Kafka's, and compares them batch by batch.

Owns the layout of a record batch's head as far as a comparison needs it; never decompresses.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

HEAD = struct.Struct(">qiibIhiqqqhii")
CONTROL = 0x20
TRANSACTIONAL = 0x10


@dataclass(frozen=True)
class Batch:
    base_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset: int
    producer_id: int
    count: int
    raw: bytes

    @property
    def is_control(self):
        return bool(self.attributes & CONTROL)

    def control_type(self):
        """The type of the first control record: 0 abort, 1 commit, 7 the producer-id reset."""
        record = self.raw[HEAD.size:]
        at = 0
        for skipped in range(4):  # length, then attributes (one byte), timestamp and offset deltas
            if skipped == 1:
                at += 1
                continue
            while record[at] & 0x80:
                at += 1
            at += 1
        while record[at] & 0x80:  # key length
            at += 1
        at += 1
        return struct.unpack_from(">h", record, at + 2)[0]

    def summary(self):
        return (f"offsets {self.base_offset}..{self.last_offset} epoch {self.leader_epoch} "
                f"crc {self.crc:08x} {len(self.raw)} bytes")


def parse(data):
    """The whole batches in the bytes; a torn or preallocated tail ends them."""
    batches = []
    at = 0
    while at + HEAD.size <= len(data):
        (base, length, epoch, magic, crc, attributes, delta, _, _, producer, _, _,
         count) = HEAD.unpack_from(data, at)
        end = at + 12 + length
        if length <= 0 or end > len(data):
            break
        assert magic == 2, f"magic {magic} at byte {at}"
        batches.append(Batch(base, epoch, crc, attributes, base + delta, producer, count,
                             bytes(data[at:end])))
        at = end
    return batches


def folders(data, topic, partition):
    """Every folder under `data` that holds a replica of the partition."""
    return sorted(path for path in Path(data).rglob(f"{topic}-{partition}") if path.is_dir())


def read(folder):
    """All batches of one replica, in offset order."""
    batches = []
    for segment in sorted(Path(folder).glob("*.log")):
        batches.extend(parse(segment.read_bytes()))
    return batches


def replicas(data, topic, partition):
    """The batches of every replica under `data`."""
    found = [read(folder) for folder in folders(data, topic, partition)]
    assert found, f"no folder of {topic}-{partition} under {data}"
    return found


def assert_equal(source, copy, what):
    """Asserts that two lists of batches are the same: offsets, epochs, CRC and every byte."""
    for index, (ours, theirs) in enumerate(zip(copy, source)):
        assert ours.raw == theirs.raw, (
            f"{what}: batch {index} differs\n source {theirs.summary()}\n copy   {ours.summary()}")
    assert len(source) == len(copy), (
        f"{what}: the source has {len(source)} batches, the copy {len(copy)}")


def assert_monotonic(batches, what):
    """Offsets rise without overlap and epochs never fall."""
    for before, after in zip(batches, batches[1:]):
        assert after.base_offset > before.last_offset, f"{what}: {after.summary()} overlaps"
        assert after.leader_epoch >= before.leader_epoch, f"{what}: {after.summary()} falls back"
