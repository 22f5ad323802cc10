//! A batch of records of magic 2, the unit of Produce, Fetch, the log and mirroring. Owns the
//! 61-byte header, cutting bytes into batches, and the few rewrites a broker makes; never
//! touches the records of a batch except to decompress or recompress them.
//!
//! All numbers are big-endian.
//!
//! | at | width | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | base offset | of the first record, even if that record was compacted away |
//! | 8 | 4 | length | bytes that follow this field |
//! | 12 | 4 | leader epoch | of the leader that appended it |
//! | 16 | 1 | magic | 2 |
//! | 17 | 4 | CRC | CRC-32C of everything from the attributes to the end |
//! | 21 | 2 | attributes | 0–2 codec, 3 append time, 4 transaction, 5 control, 6 delete horizon |
//! | 23 | 4 | last offset delta | last offset − base offset |
//! | 27 | 8 | base timestamp | of the first record; with bit 6 the delete horizon (KIP-534) |
//! | 35 | 8 | max timestamp | the largest of the records, or the append time |
//! | 43 | 8 | producer id | −1 without one |
//! | 51 | 2 | producer epoch | −1 without one |
//! | 53 | 4 | base sequence | of the first record; −1 without one |
//! | 57 | 4 | record count | |
//! | 61 | | records | see [`crate::record`]; compressed as a whole |
//!
//! Offset, length and epoch lie before the CRC's range, so that a leader assigns them without
//! touching it.

use bytes::{Bytes, BytesMut};

use crate::compression::{self, Compression, DECOMPRESSED_BYTES_MAX};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::record::{self, Records};

pub use self::builder::BatchBuilder;
pub use self::produced::{
    ProduceRules, Produced, RecordFault, RecordRefusal, Refusal, validate_produced,
};

mod builder;
mod produced;

const BASE_OFFSET_AT: usize = 0;
const LENGTH_AT: usize = BASE_OFFSET_AT + size_of::<i64>();
const LEADER_EPOCH_AT: usize = LENGTH_AT + size_of::<i32>();
const MAGIC_AT: usize = LEADER_EPOCH_AT + size_of::<i32>();
const CRC_AT: usize = MAGIC_AT + size_of::<i8>();
const ATTRIBUTES_AT: usize = CRC_AT + size_of::<u32>();
const LAST_OFFSET_DELTA_AT: usize = ATTRIBUTES_AT + size_of::<i16>();
const BASE_TIMESTAMP_AT: usize = LAST_OFFSET_DELTA_AT + size_of::<i32>();
const MAX_TIMESTAMP_AT: usize = BASE_TIMESTAMP_AT + size_of::<i64>();
const PRODUCER_ID_AT: usize = MAX_TIMESTAMP_AT + size_of::<i64>();
const PRODUCER_EPOCH_AT: usize = PRODUCER_ID_AT + size_of::<i64>();
const BASE_SEQUENCE_AT: usize = PRODUCER_EPOCH_AT + size_of::<i16>();
const RECORD_COUNT_AT: usize = BASE_SEQUENCE_AT + size_of::<i32>();

/// Bytes of a batch's header, and the offset of its records.
pub const HEADER_BYTES: usize = RECORD_COUNT_AT + size_of::<i32>();
/// Bytes in front of what the length field counts.
pub const LOG_OVERHEAD_BYTES: usize = LEADER_EPOCH_AT;
/// Bytes that a leader rewrites when it appends: base offset, length and leader epoch.
pub const PREFIX_BYTES: usize = MAGIC_AT;
/// Bytes of a batch that must be there to know its magic.
pub const UP_TO_MAGIC_BYTES: usize = MAGIC_AT + size_of::<i8>();
/// The only magic that is written, and read without conversion.
pub const MAGIC: i8 = 2;

const COMPRESSION_MASK: i16 = 0b111;
const APPEND_TIME_BIT: i16 = 1 << 3;
const TRANSACTIONAL_BIT: i16 = 1 << 4;
const CONTROL_BIT: i16 = 1 << 5;
const DELETE_HORIZON_BIT: i16 = 1 << 6;

/// A message of magic 0 or 1 has at least these bytes behind the length field.
const LEGACY_LENGTH_MIN: i32 = 14;

/// Where the timestamps of a batch come from (`message.timestamp.type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer set them.
    #[default]
    CreateTime,
    /// The leader's clock at the append; every record of the batch has the max timestamp.
    LogAppendTime,
}

/// Why bytes are not the batch they should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes end inside a batch: a torn tail, or a fetch cut at its limit.
    #[error("a batch of {needed} bytes at offset {base_offset} has only {available}")]
    Torn {
        /// The base offset of the batch, -1 if even that is cut off.
        base_offset: Offset,
        /// Bytes the batch announces, or of a header if that is cut off.
        needed: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// The length field says less than a batch has.
    #[error("the batch at offset {base_offset} has a length of {length}, which is too small")]
    TooSmall {
        /// The base offset of the batch.
        base_offset: Offset,
        /// The length field.
        length: i32,
    },
    /// A format before 0.11, which is read nowhere.
    #[error("the batch at offset {base_offset} has the old format with magic {magic}")]
    OldMagic {
        /// The base offset of the batch.
        base_offset: Offset,
        /// 0 or 1.
        magic: i8,
    },
    /// No format of Kafka's.
    #[error("the batch at offset {base_offset} has the unknown magic {magic}")]
    UnknownMagic {
        /// The base offset of the batch.
        base_offset: Offset,
        /// What is neither 0, 1 nor 2.
        magic: i8,
    },
    /// The bytes were changed after the checksum was made.
    #[error(
        "the batch at offset {base_offset} has checksum {stored:08x}, its bytes {computed:08x}"
    )]
    WrongChecksum {
        /// The base offset of the batch.
        base_offset: Offset,
        /// The CRC field.
        stored: u32,
        /// The CRC-32C of the bytes.
        computed: u32,
    },
    /// Last offset and record count contradict each other.
    #[error(
        "the batch at offset {base_offset} has {record_count} records and a last offset delta of \
         {last_offset_delta}"
    )]
    WrongOffsets {
        /// The base offset of the batch.
        base_offset: Offset,
        /// The record count field.
        record_count: i32,
        /// The last offset delta field.
        last_offset_delta: i32,
    },
    /// The attributes name a compression that is not defined.
    #[error("the batch at offset {base_offset} has the unknown compression {id}")]
    UnknownCompression {
        /// The base offset of the batch.
        base_offset: Offset,
        /// 5, 6 or 7.
        id: i16,
    },
    /// The records cannot be decompressed.
    #[error("the batch at offset {base_offset}: {source}")]
    Compression {
        /// The base offset of the batch.
        base_offset: Offset,
        /// What is wrong.
        source: compression::Error,
    },
    /// The records contradict themselves or the header.
    #[error("the batch at offset {base_offset}: {source}")]
    Record {
        /// The base offset of the batch.
        base_offset: Offset,
        /// What is wrong.
        source: record::Error,
    },
}

/// The header of a batch. Parsing checks the length and the magic, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The offset of the first record.
    pub base_offset: Offset,
    /// Bytes that follow the length field; at least 49.
    pub batch_length: i32,
    /// The epoch of the leader that appended the batch.
    pub leader_epoch: LeaderEpoch,
    /// The CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Compression, timestamp type and flags; see the module's table.
    pub attributes: i16,
    /// Last offset − base offset.
    pub last_offset_delta: i32,
    /// What the records' timestamps count from.
    pub base_timestamp: TimestampMs,
    /// The largest timestamp of the records, or the append time.
    pub max_timestamp: TimestampMs,
    /// Who wrote it.
    pub producer_id: ProducerId,
    /// In which of its incarnations.
    pub producer_epoch: ProducerEpoch,
    /// The sequence of the first record.
    pub base_sequence: Sequence,
    /// How many records it holds; fewer than the offsets it covers once compacted.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`. The records need not be there.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, Error> {
        check_magic(bytes)?;
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            let base_offset = Offset(i64::from_be_bytes(field(bytes, BASE_OFFSET_AT)));
            return Err(Error::Torn { base_offset, needed: HEADER_BYTES, available: bytes.len() });
        };
        let header = BatchHeader::from_bytes(header);
        if header.batch_length < HEADER_LENGTH_MIN {
            let (base_offset, length) = (header.base_offset, header.batch_length);
            return Err(Error::TooSmall { base_offset, length });
        }
        Ok(header)
    }

    fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> BatchHeader {
        BatchHeader {
            base_offset: Offset(i64::from_be_bytes(field(bytes, BASE_OFFSET_AT))),
            batch_length: i32::from_be_bytes(field(bytes, LENGTH_AT)),
            leader_epoch: LeaderEpoch(i32::from_be_bytes(field(bytes, LEADER_EPOCH_AT))),
            crc: u32::from_be_bytes(field(bytes, CRC_AT)),
            attributes: i16::from_be_bytes(field(bytes, ATTRIBUTES_AT)),
            last_offset_delta: i32::from_be_bytes(field(bytes, LAST_OFFSET_DELTA_AT)),
            base_timestamp: TimestampMs(i64::from_be_bytes(field(bytes, BASE_TIMESTAMP_AT))),
            max_timestamp: TimestampMs(i64::from_be_bytes(field(bytes, MAX_TIMESTAMP_AT))),
            producer_id: ProducerId(i64::from_be_bytes(field(bytes, PRODUCER_ID_AT))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(field(bytes, PRODUCER_EPOCH_AT))),
            base_sequence: Sequence(i32::from_be_bytes(field(bytes, BASE_SEQUENCE_AT))),
            record_count: i32::from_be_bytes(field(bytes, RECORD_COUNT_AT)),
        }
    }

    /// The header's 61 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, BASE_OFFSET_AT, self.base_offset.0.to_be_bytes());
        put(&mut bytes, LENGTH_AT, self.batch_length.to_be_bytes());
        put(&mut bytes, LEADER_EPOCH_AT, self.leader_epoch.0.to_be_bytes());
        put(&mut bytes, MAGIC_AT, MAGIC.to_be_bytes());
        put(&mut bytes, CRC_AT, self.crc.to_be_bytes());
        put(&mut bytes, ATTRIBUTES_AT, self.attributes.to_be_bytes());
        put(&mut bytes, LAST_OFFSET_DELTA_AT, self.last_offset_delta.to_be_bytes());
        put(&mut bytes, BASE_TIMESTAMP_AT, self.base_timestamp.0.to_be_bytes());
        put(&mut bytes, MAX_TIMESTAMP_AT, self.max_timestamp.0.to_be_bytes());
        put(&mut bytes, PRODUCER_ID_AT, self.producer_id.0.to_be_bytes());
        put(&mut bytes, PRODUCER_EPOCH_AT, self.producer_epoch.0.to_be_bytes());
        put(&mut bytes, BASE_SEQUENCE_AT, self.base_sequence.0.to_be_bytes());
        put(&mut bytes, RECORD_COUNT_AT, self.record_count.to_be_bytes());
        bytes
    }

    /// Bytes of the whole batch.
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        usize::try_from(self.batch_length).unwrap_or(0) + LOG_OVERHEAD_BYTES
    }

    /// The offset of the last record, even if that record was compacted away.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0.saturating_add(i64::from(self.last_offset_delta)))
    }

    /// The offset after the batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.last_offset().next()
    }

    /// The sequence of the last record; [`Sequence::NONE`] for a batch without sequences.
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        if self.base_sequence == Sequence::NONE {
            return Sequence::NONE;
        }
        self.base_sequence.plus(self.last_offset_delta)
    }

    /// How the records are compressed.
    pub fn compression(&self) -> Result<Compression, Error> {
        let id = self.attributes & COMPRESSION_MASK;
        Compression::from_id(id)
            .map_err(|_| Error::UnknownCompression { base_offset: self.base_offset, id })
    }

    /// Where the timestamps come from.
    #[must_use]
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & APPEND_TIME_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch is part of a transaction; a marker is too.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Whether the records are for brokers and consumers, not for applications.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Whether an idempotent or transactional producer wrote it.
    #[must_use]
    pub fn has_producer_id(&self) -> bool {
        self.producer_id.0 > ProducerId::NONE.0
    }

    /// When compaction may drop the tombstones of the batch, if it was seen by compaction
    /// (KIP-534).
    #[must_use]
    pub fn delete_horizon(&self) -> Option<TimestampMs> {
        (self.attributes & DELETE_HORIZON_BIT != 0).then_some(self.base_timestamp)
    }

    /// Checks that the offsets the batch covers can be: what a replica may rely on.
    pub fn check_offsets(&self) -> Result<(), Error> {
        let possible = self.base_offset.0 >= 0
            && self.last_offset_delta >= 0
            && self.record_count >= 0
            && i64::from(self.record_count) <= i64::from(self.last_offset_delta) + 1
            && self.base_offset.0.checked_add(i64::from(self.last_offset_delta) + 1).is_some();
        if possible {
            return Ok(());
        }
        Err(Error::WrongOffsets {
            base_offset: self.base_offset,
            record_count: self.record_count,
            last_offset_delta: self.last_offset_delta,
        })
    }

    fn set_timestamp_type(&mut self, timestamp_type: TimestampType) {
        match timestamp_type {
            TimestampType::CreateTime => self.attributes &= !APPEND_TIME_BIT,
            TimestampType::LogAppendTime => self.attributes |= APPEND_TIME_BIT,
        }
    }
}

/// The least that the length field of a batch of magic 2 can say: an empty batch.
const HEADER_LENGTH_MIN: i32 = 49;
const _: () = assert!(HEADER_BYTES == LOG_OVERHEAD_BYTES + 49);

/// A whole batch: its header, and all its bytes with the header. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordBatch {
    /// The parsed header.
    pub header: BatchHeader,
    /// The batch as on the wire and on disk.
    pub bytes: Bytes,
}

impl RecordBatch {
    /// The batch that `bytes` holds and nothing else.
    pub fn parse(bytes: Bytes) -> Result<RecordBatch, Error> {
        let header = BatchHeader::parse(&bytes)?;
        let needed = header.size_in_bytes();
        if needed != bytes.len() {
            let (base_offset, available) = (header.base_offset, bytes.len());
            return Err(Error::Torn { base_offset, needed, available });
        }
        Ok(RecordBatch { header, bytes })
    }

    /// Compares the checksum with the bytes. Reads all of them.
    pub fn verify_crc(&self) -> Result<(), Error> {
        let computed = crc32c(&self.bytes[ATTRIBUTES_AT..]);
        if computed == self.header.crc {
            return Ok(());
        }
        let (base_offset, stored) = (self.header.base_offset, self.header.crc);
        Err(Error::WrongChecksum { base_offset, stored, computed })
    }

    /// The records in order, decompressed up to [`DECOMPRESSED_BYTES_MAX`].
    pub fn records(&self) -> Result<Records, Error> {
        self.records_within(DECOMPRESSED_BYTES_MAX)
    }

    /// The records in order, decompressed up to `limit` bytes.
    pub fn records_within(&self, limit: usize) -> Result<Records, Error> {
        let header = &self.header;
        let append_time = match header.timestamp_type() {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(header.max_timestamp),
        };
        Ok(Records::new(
            self.plain(limit)?,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            append_time,
        ))
    }

    /// The records' bytes as they are in the batch.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(HEADER_BYTES..)
    }

    /// The same batch at `base_offset` in `leader_epoch`: a copy. A log writes the [`prefix`]
    /// instead.
    #[must_use]
    pub fn at(&self, base_offset: Offset, leader_epoch: LeaderEpoch) -> RecordBatch {
        let header = BatchHeader { base_offset, leader_epoch, ..self.header };
        rebuild(header, &self.bytes[HEADER_BYTES..])
    }

    /// The same records with another timestamp type and max timestamp, and the checksum made
    /// anew: a copy.
    #[must_use]
    pub fn with_timestamps(
        &self,
        timestamp_type: TimestampType,
        max_timestamp: TimestampMs,
    ) -> RecordBatch {
        let mut header = BatchHeader { max_timestamp, ..self.header };
        header.set_timestamp_type(timestamp_type);
        rebuild(header, &self.bytes[HEADER_BYTES..])
    }

    /// The same records compressed otherwise.
    pub fn recompress(&self, compression: Compression) -> Result<RecordBatch, Error> {
        let payload = compression.compress(&self.plain(DECOMPRESSED_BYTES_MAX)?);
        let attributes = (self.header.attributes & !COMPRESSION_MASK) | compression.id();
        Ok(rebuild(BatchHeader { attributes, ..self.header }, &payload))
    }

    fn plain(&self, limit: usize) -> Result<Bytes, Error> {
        let base_offset = self.header.base_offset;
        self.header
            .compression()?
            .decompress(&self.payload(), limit)
            .map_err(|source| Error::Compression { base_offset, source })
    }
}

/// The batch of `header` and `payload`, with the length and the checksum that fit.
fn rebuild(header: BatchHeader, payload: &[u8]) -> RecordBatch {
    let size = HEADER_BYTES + payload.len();
    let batch_length = i32::try_from(size - LOG_OVERHEAD_BYTES)
        .expect("the limit on decompressed bytes keeps a batch below 2 GiB");
    let mut header = BatchHeader { batch_length, ..header };
    let mut bytes = BytesMut::with_capacity(size);
    bytes.extend_from_slice(&header.to_bytes());
    bytes.extend_from_slice(payload);
    header.crc = crc32c(&bytes[ATTRIBUTES_AT..]);
    bytes[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&header.crc.to_be_bytes());
    RecordBatch { header, bytes: bytes.freeze() }
}

/// The first 16 bytes of a batch: what a leader writes in front of `&bytes[PREFIX_BYTES..]` to
/// append it.
#[must_use]
pub fn prefix(
    base_offset: Offset,
    batch_length: i32,
    leader_epoch: LeaderEpoch,
) -> [u8; PREFIX_BYTES] {
    let mut bytes = [0; PREFIX_BYTES];
    put(&mut bytes, BASE_OFFSET_AT, base_offset.0.to_be_bytes());
    put(&mut bytes, LENGTH_AT, batch_length.to_be_bytes());
    put(&mut bytes, LEADER_EPOCH_AT, leader_epoch.0.to_be_bytes());
    bytes
}

/// Cuts `bytes` into batches that share them. A tail that is no whole batch comes last as
/// [`Error::Torn`]; nothing follows an error.
pub fn split(bytes: Bytes) -> Split {
    Split { rest: bytes, position: 0 }
}

/// The batches of some bytes. Made by [`split`].
#[derive(Clone, Debug)]
pub struct Split {
    rest: Bytes,
    position: usize,
}

impl Split {
    /// Bytes of the batches yielded so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    fn cut(&mut self) -> Result<RecordBatch, Error> {
        let header = BatchHeader::parse(&self.rest)?;
        let needed = header.size_in_bytes();
        if needed > self.rest.len() {
            let (base_offset, available) = (header.base_offset, self.rest.len());
            return Err(Error::Torn { base_offset, needed, available });
        }
        self.position += needed;
        Ok(RecordBatch { header, bytes: self.rest.split_to(needed) })
    }
}

impl Iterator for Split {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Result<RecordBatch, Error>> {
        if self.rest.is_empty() {
            return None;
        }
        let batch = self.cut();
        if batch.is_err() {
            self.rest = Bytes::new();
        }
        Some(batch)
    }
}

/// Checks the length field and the magic at the start of `bytes`.
fn check_magic(bytes: &[u8]) -> Result<(), Error> {
    let available = bytes.len();
    if available < LOG_OVERHEAD_BYTES {
        let base_offset = match bytes.first_chunk() {
            Some(offset) => Offset(i64::from_be_bytes(*offset)),
            None => Offset::NONE,
        };
        return Err(Error::Torn { base_offset, needed: HEADER_BYTES, available });
    }
    let base_offset = Offset(i64::from_be_bytes(field(bytes, BASE_OFFSET_AT)));
    let length = i32::from_be_bytes(field(bytes, LENGTH_AT));
    if length < LEGACY_LENGTH_MIN {
        return Err(Error::TooSmall { base_offset, length });
    }
    if available < UP_TO_MAGIC_BYTES {
        return Err(Error::Torn { base_offset, needed: HEADER_BYTES, available });
    }
    match i8::from_be_bytes(field(bytes, MAGIC_AT)) {
        MAGIC => Ok(()),
        magic @ 0..MAGIC => Err(Error::OldMagic { base_offset, magic }),
        magic => Err(Error::UnknownMagic { base_offset, magic }),
    }
}

/// The CRC-32C (Castagnoli) of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(checksum).expect("a CRC of 32 bits fits")
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the caller checked that the field is there")
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vector_tests;
