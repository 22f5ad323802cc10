//! What a broker checks of the records in a client's Produce request before it gives them
//! offsets. Owns Kafka's rules for magic 2 and the code each broken rule is answered with; never
//! looks at producer state or a log.
//!
//! The order of the checks decides which code a batch with several faults gets:
//!
//! 1. exactly one batch, of magic 2, zstd only from Produce v7 on (KIP-110);
//! 2. base offset 0, size within `max.message.bytes`, checksum;
//! 3. record count and last offset agree, no control batch, a sequence with a producer id;
//! 4. every record: its length and place, a key on a compacted topic, a timestamp within bounds;
//! 5. size again, if the topic's `compression.type` made the leader recompress.
//!
//! Where Kafka would build a compressed batch anew because the offsets inside have gaps (clients
//! before
//! 0.11 did that), the batch is refused instead.

use std::io::{BufReader, Read};

use bytes::Bytes;

use super::{BatchHeader, Error, HEADER_BYTES, MAGIC, RecordBatch, Split, TimestampType, split};
use crate::compression::{Compression, DECOMPRESSED_BYTES_MAX};
use crate::error_code::ErrorCode;
use crate::ids::{Offset, TimestampMs};
use crate::record::{self, RecordScan, RecordShape};

const ZSTD_PRODUCE_VERSION_MIN: i16 = 7;
const DECODE_BUFFER_BYTES: usize = 16 * 1024;
/// How many bad records of one batch are named in the answer.
const RECORD_REFUSALS_MAX: usize = 1_000;

/// The topic's and the request's part in what a client may write.
#[derive(Clone, Copy, Debug)]
pub struct ProduceRules {
    /// The version of the Produce request, from 3.
    pub produce_version: i16,
    /// `max.message.bytes`: the largest batch, in bytes.
    pub max_message_bytes: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// Whether `cleanup.policy` has compact: records must have keys.
    pub compacted: bool,
    /// What `compression.type` asks for; `None` keeps the producer's.
    pub compression: Option<Compression>,
    /// `max.decompressed.message.bytes`: the longest record of a compressed batch, in bytes.
    pub decompressed_record_bytes_max: i64,
    /// The broker's time.
    pub now: TimestampMs,
}

impl Default for ProduceRules {
    /// Kafka's defaults, for the newest Produce request, at time 0.
    fn default() -> ProduceRules {
        ProduceRules {
            produce_version: i16::MAX,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compacted: false,
            compression: None,
            decompressed_record_bytes_max: i64::MAX,
            now: TimestampMs(0),
        }
    }
}

/// A client's batch that passed, as it is to be appended but for offset and leader epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produced {
    /// The client's bytes, untouched unless timestamps or compression had to change.
    pub batch: RecordBatch,
    /// Which record has the batch's max timestamp: its offset − the base offset.
    pub max_timestamp_delta: i32,
    /// Bytes of the records when decompressed.
    pub plain_bytes: i64,
}

/// What is wrong with one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// A record of a compacted topic must have a key.
    #[error("a compacted topic does not accept a record without a key")]
    KeyMissing,
    /// The timestamp is too far from the broker's time.
    #[error("timestamp {timestamp} is not within {earliest} and {latest}")]
    TimestampOutOfRange {
        /// The record's timestamp.
        timestamp: TimestampMs,
        /// The earliest allowed.
        earliest: TimestampMs,
        /// The latest allowed.
        latest: TimestampMs,
    },
    /// The producer set a timestamp type that only brokers set.
    #[error("a producer may not set the timestamp type to LogAppendTime")]
    AppendTimeSet,
}

/// A record and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRefusal {
    /// The record's number in the batch, from 0.
    pub index: i32,
    /// What is wrong.
    pub fault: RecordFault,
}

/// Why a client's records are not appended.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no whole batch.
    #[error("a Produce request must have one record batch per partition, this has none")]
    NoBatch,
    /// There is more than one batch.
    #[error("a Produce request must have exactly one record batch per partition")]
    ManyBatches,
    /// A format before 0.11.
    #[error("a Produce request must have records of magic 2, not {magic}")]
    OldMagic {
        /// 0 or 1.
        magic: i8,
    },
    /// zstd in a Produce request before version 7.
    #[error("Produce version {version} does not allow zstd, version 7 does")]
    ZstdTooEarly {
        /// The request's version.
        version: i16,
    },
    /// The base offset is not 0.
    #[error("the base offset of a produced batch must be 0, not {base_offset}")]
    BaseOffset {
        /// What the client set.
        base_offset: Offset,
    },
    /// The batch is larger than the topic allows.
    #[error("the batch has {size} bytes, the topic's max.message.bytes is {max}")]
    TooLarge {
        /// Bytes of the batch.
        size: usize,
        /// The topic's limit.
        max: usize,
    },
    /// A client wrote a control batch.
    #[error("clients may not write control records")]
    Control,
    /// A producer id without a sequence.
    #[error("producer {producer_id} wrote a batch with the sequence {sequence}")]
    NoSequence {
        /// The producer.
        producer_id: i64,
        /// What is below 0.
        sequence: i32,
    },
    /// The records' offsets are not 0, 1, 2, ….
    #[error("record {index} has the offset delta {offset_delta}")]
    OffsetGap {
        /// The record's number in the batch, from 0.
        index: i32,
        /// Its offset − the base offset.
        offset_delta: i32,
    },
    /// Records that the topic does not take.
    #[error("{} records are refused, the first at {}: {}",
        .records.len(), .records[0].index, .records[0].fault)]
    Records {
        /// Which, at least one.
        records: Vec<RecordRefusal>,
    },
    /// The bytes are no batch, or damaged.
    #[error(transparent)]
    Batch(#[from] Error),
}

impl Refusal {
    /// Kafka's error code for it.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Refusal::NoBatch
            | Refusal::ManyBatches
            | Refusal::OldMagic { .. }
            | Refusal::BaseOffset { .. }
            | Refusal::Control
            | Refusal::NoSequence { .. }
            | Refusal::OffsetGap { .. } => ErrorCode::InvalidRecord,
            Refusal::ZstdTooEarly { .. } => ErrorCode::UnsupportedCompressionType,
            Refusal::TooLarge { .. } => ErrorCode::MessageTooLarge,
            Refusal::Records { records } => {
                match records.iter().all(|record| record.fault == RecordFault::KeyMissing) {
                    true => ErrorCode::InvalidRecord,
                    false => ErrorCode::InvalidTimestamp,
                }
            }
            Refusal::Batch(error) => match error {
                Error::Torn { .. }
                | Error::TooSmall { .. }
                | Error::UnknownMagic { .. }
                | Error::WrongChecksum { .. } => ErrorCode::CorruptMessage,
                Error::UnknownCompression { .. } => ErrorCode::UnsupportedCompressionType,
                Error::OldMagic { .. }
                | Error::WrongOffsets { .. }
                | Error::Compression { .. }
                | Error::Record { .. } => ErrorCode::InvalidRecord,
            },
        }
    }

    /// The records to name in the answer, each with a text (Produce v8 on).
    #[must_use]
    pub fn records(&self) -> &[RecordRefusal] {
        match self {
            Refusal::Records { records } => records,
            Refusal::NoBatch
            | Refusal::ManyBatches
            | Refusal::OldMagic { .. }
            | Refusal::ZstdTooEarly { .. }
            | Refusal::BaseOffset { .. }
            | Refusal::TooLarge { .. }
            | Refusal::Control
            | Refusal::NoSequence { .. }
            | Refusal::OffsetGap { .. }
            | Refusal::Batch(_) => &[],
        }
    }
}

/// Checks what a client sent for one partition, and makes the changes the topic's settings ask
/// for. Decompresses once, in constant memory; a batch that needs no change keeps the client's
/// bytes.
pub fn validate_produced(records: &Bytes, rules: &ProduceRules) -> Result<Produced, Refusal> {
    let batch = only_batch(records, rules)?;
    check_bytes(&batch, rules)?;
    check_header(&batch.header)?;
    let scanned = scan(&batch, rules)?;
    let max_timestamp = match rules.timestamp_type {
        TimestampType::CreateTime => scanned.max_timestamp,
        TimestampType::LogAppendTime => rules.now,
    };
    let batch = adjust(batch, max_timestamp, rules)?;
    let max_timestamp_delta = match rules.timestamp_type {
        TimestampType::CreateTime => scanned.max_timestamp_delta,
        TimestampType::LogAppendTime => batch.header.last_offset_delta,
    };
    Ok(Produced { batch, max_timestamp_delta, plain_bytes: scanned.plain_bytes })
}

fn only_batch(records: &Bytes, rules: &ProduceRules) -> Result<RecordBatch, Refusal> {
    let mut batches = split(records.clone());
    let batch = whole(&mut batches)?.ok_or(Refusal::NoBatch)?;
    let compression = batch.header.compression()?;
    if compression == Compression::Zstd && rules.produce_version < ZSTD_PRODUCE_VERSION_MIN {
        return Err(Refusal::ZstdTooEarly { version: rules.produce_version });
    }
    match whole(&mut batches)? {
        Some(_) => Err(Refusal::ManyBatches),
        None => Ok(batch),
    }
}

/// The next batch; a torn tail counts as nothing, as in Kafka, which trims it.
fn whole(batches: &mut Split) -> Result<Option<RecordBatch>, Refusal> {
    match batches.next() {
        None | Some(Err(Error::Torn { .. })) => Ok(None),
        Some(Ok(batch)) => Ok(Some(batch)),
        Some(Err(Error::OldMagic { magic, .. })) => Err(Refusal::OldMagic { magic }),
        Some(Err(error)) => Err(Refusal::Batch(error)),
    }
}

fn check_bytes(batch: &RecordBatch, rules: &ProduceRules) -> Result<(), Refusal> {
    if batch.header.base_offset != Offset::ZERO {
        return Err(Refusal::BaseOffset { base_offset: batch.header.base_offset });
    }
    check_size(batch, rules)?;
    Ok(batch.verify_crc()?)
}

fn check_size(batch: &RecordBatch, rules: &ProduceRules) -> Result<(), Refusal> {
    let (size, max) = (batch.bytes.len(), rules.max_message_bytes);
    if size > max {
        return Err(Refusal::TooLarge { size, max });
    }
    Ok(())
}

fn check_header(header: &BatchHeader) -> Result<(), Refusal> {
    let offsets = i64::from(header.last_offset_delta) + 1;
    if offsets <= 0 || header.record_count <= 0 || offsets != i64::from(header.record_count) {
        return Err(Refusal::Batch(Error::WrongOffsets {
            base_offset: header.base_offset,
            record_count: header.record_count,
            last_offset_delta: header.last_offset_delta,
        }));
    }
    if header.is_control() {
        return Err(Refusal::Control);
    }
    if header.has_producer_id() && header.base_sequence.0 < 0 {
        let (producer_id, sequence) = (header.producer_id.0, header.base_sequence.0);
        return Err(Refusal::NoSequence { producer_id, sequence });
    }
    Ok(())
}

struct Scanned {
    max_timestamp: TimestampMs,
    max_timestamp_delta: i32,
    plain_bytes: i64,
}

fn scan(batch: &RecordBatch, rules: &ProduceRules) -> Result<Scanned, Refusal> {
    let header = &batch.header;
    let base_offset = header.base_offset;
    let payload = &batch.bytes[HEADER_BYTES..];
    let limit = u64::try_from(DECOMPRESSED_BYTES_MAX).unwrap_or(u64::MAX);
    match header.compression()? {
        Compression::None => {
            scan_records(header, RecordScan::new(payload, header.record_count), rules)
        }
        compression @ (Compression::Gzip
        | Compression::Snappy
        | Compression::Lz4
        | Compression::Zstd) => {
            let reader = compression.reader(payload).map_err(|source| Error::Record {
                base_offset,
                source: record::Error::Read(source),
            })?;
            let reader = BufReader::with_capacity(DECODE_BUFFER_BYTES, reader.take(limit));
            let scan = RecordScan::new(reader, header.record_count)
                .with_record_bytes_max(rules.decompressed_record_bytes_max);
            scan_records(header, scan, rules)
        }
    }
}

fn scan_records<R: std::io::BufRead>(
    header: &BatchHeader,
    mut scan: RecordScan<R>,
    rules: &ProduceRules,
) -> Result<Scanned, Refusal> {
    let base_offset = header.base_offset;
    let mut scanned =
        Scanned { max_timestamp: TimestampMs::NONE, max_timestamp_delta: -1, plain_bytes: 0 };
    let mut refused = Vec::new();
    let mut index = 0;
    while let Some(shape) =
        scan.next_shape().map_err(|source| Error::Record { base_offset, source })?
    {
        if shape.offset_delta != index {
            return Err(Refusal::OffsetGap { index, offset_delta: shape.offset_delta });
        }
        let timestamp = record_timestamp(header, &shape);
        if let Some(fault) = record_fault(header, &shape, timestamp, rules)
            && refused.len() < RECORD_REFUSALS_MAX
        {
            refused.push(RecordRefusal { index, fault });
        }
        if timestamp > scanned.max_timestamp {
            (scanned.max_timestamp, scanned.max_timestamp_delta) = (timestamp, index);
        }
        index += 1;
    }
    scanned.plain_bytes = scan.consumed();
    if refused.is_empty() { Ok(scanned) } else { Err(Refusal::Records { records: refused }) }
}

fn record_timestamp(header: &BatchHeader, shape: &RecordShape) -> TimestampMs {
    match header.timestamp_type() {
        TimestampType::CreateTime => {
            TimestampMs(header.base_timestamp.0.wrapping_add(shape.timestamp_delta))
        }
        TimestampType::LogAppendTime => header.max_timestamp,
    }
}

fn record_fault(
    header: &BatchHeader,
    shape: &RecordShape,
    timestamp: TimestampMs,
    rules: &ProduceRules,
) -> Option<RecordFault> {
    if rules.compacted && !shape.has_key {
        return Some(RecordFault::KeyMissing);
    }
    if rules.timestamp_type == TimestampType::CreateTime && timestamp != TimestampMs::NONE {
        let earliest = TimestampMs(rules.now.0.saturating_sub(rules.timestamp_before_max_ms));
        let latest = TimestampMs(rules.now.0.saturating_add(rules.timestamp_after_max_ms));
        let within = earliest <= timestamp && timestamp <= latest;
        return (!within).then_some(RecordFault::TimestampOutOfRange {
            timestamp,
            earliest,
            latest,
        });
    }
    (header.timestamp_type() == TimestampType::LogAppendTime).then_some(RecordFault::AppendTimeSet)
}

fn adjust(
    batch: RecordBatch,
    max_timestamp: TimestampMs,
    rules: &ProduceRules,
) -> Result<RecordBatch, Refusal> {
    let mut batch = batch;
    if let Some(compression) = rules.compression
        && compression != batch.header.compression()?
    {
        batch = batch.recompress(compression)?;
    }
    let timestamps = (batch.header.timestamp_type(), batch.header.max_timestamp);
    if timestamps != (rules.timestamp_type, max_timestamp) {
        batch = batch.with_timestamps(rules.timestamp_type, max_timestamp);
    }
    check_size(&batch, rules)?;
    debug_assert_eq!(batch.bytes[super::MAGIC_AT], MAGIC.cast_unsigned());
    Ok(batch)
}
