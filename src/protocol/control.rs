//! Control records: transaction markers and the producer-id reset of mirroring. Owns their keys
//! and values; never decides when one is written.
//!
//! A control batch holds one record. Its key is `int16 version = 0, int16 type`, its value
//! depends on the type:
//!
//! | type | name | value |
//! |---|---|---|
//! | 0 | ABORT | `int16 version = 0, int32 coordinator epoch` |
//! | 1 | COMMIT | the same |
//! | 7 | MIRROR_PID_RESET | `int16 version = 0, compact string source cluster id, no tags` |
//!
//! Types 2 to 6 belong to Raft's log. Values of a later version begin with the same fields.

use bytes::Bytes;

use crate::batch::{self, BatchBuilder, RecordBatch};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::record::Record;

const KEY_VERSION: i16 = 0;
const MARKER_VERSION: i16 = 0;
const RESET_VERSION: i16 = 0;
const ABORT: i16 = 0;
const COMMIT: i16 = 1;
const MIRROR_PID_RESET: i16 = 7;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionEnd {
    /// Its records are to be skipped by consumers that read committed ones.
    Abort,
    /// Its records count.
    Commit,
}

/// What a control record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    /// A producer's transaction ended on this partition.
    EndTransaction {
        /// How.
        end: TransactionEnd,
        /// The epoch of the transaction coordinator that wrote the marker.
        coordinator_epoch: i32,
    },
    /// The partition stopped mirroring: what is known of every producer is void.
    MirrorPidReset {
        /// The cluster that was mirrored; empty if it was never learned.
        source_cluster_id: String,
    },
    /// A type that is of no concern to a partition's log.
    Other {
        /// The type.
        kind: i16,
    },
}

/// Why a control record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key is null or too short.
    #[error("a control record at offset {offset} has no whole key")]
    Key {
        /// The record's offset.
        offset: Offset,
    },
    /// The value is null, too short or malformed.
    #[error("a control record of type {kind} at offset {offset} has no whole value")]
    Value {
        /// The record's offset.
        offset: Offset,
        /// The type its key says.
        kind: i16,
    },
    /// A version below 0.
    #[error("a control record at offset {offset} has version {version}")]
    Version {
        /// The record's offset.
        offset: Offset,
        /// The version.
        version: i16,
    },
    /// The batch around the record is malformed.
    #[error(transparent)]
    Batch(#[from] batch::Error),
}

impl ControlRecord {
    /// Reads a record of a control batch.
    pub fn parse(record: &Record) -> Result<ControlRecord, Error> {
        let offset = record.offset;
        let mut key = record.key.as_deref().unwrap_or_default();
        check_version(take(&mut key).ok_or(Error::Key { offset })?, offset)?;
        let kind = take(&mut key).map(i16::from_be_bytes).ok_or(Error::Key { offset })?;
        let mut value = record.value.as_deref().unwrap_or_default();
        let value_error = || Error::Value { offset, kind };
        let end = match kind {
            ABORT => TransactionEnd::Abort,
            COMMIT => TransactionEnd::Commit,
            MIRROR_PID_RESET => {
                check_version(take(&mut value).ok_or_else(value_error)?, offset)?;
                let source_cluster_id = take_compact_string(&mut value).ok_or_else(value_error)?;
                return Ok(ControlRecord::MirrorPidReset { source_cluster_id });
            }
            kind => return Ok(ControlRecord::Other { kind }),
        };
        check_version(take(&mut value).ok_or_else(value_error)?, offset)?;
        let coordinator_epoch =
            take(&mut value).map(i32::from_be_bytes).ok_or_else(value_error)?;
        Ok(ControlRecord::EndTransaction { end, coordinator_epoch })
    }

    /// Reads the record of a control batch; `None` if compaction emptied the batch.
    pub fn of_batch(batch: &RecordBatch) -> Result<Option<ControlRecord>, Error> {
        let Some(record) = batch.records_within(CONTROL_BYTES_MAX)?.next() else {
            return Ok(None);
        };
        let base_offset = batch.header.base_offset;
        let record = record.map_err(|source| batch::Error::Record { base_offset, source })?;
        ControlRecord::parse(&record).map(Some)
    }
}

/// A control batch is small: one record of a few bytes.
const CONTROL_BYTES_MAX: usize = 64 * 1024;

/// Where, when and by whom a marker is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTransactionMarker {
    /// How the transaction ended.
    pub end: TransactionEnd,
    /// Whose transaction it was.
    pub producer_id: ProducerId,
    /// In which of its incarnations.
    pub producer_epoch: ProducerEpoch,
    /// The epoch of the coordinator that asks for it.
    pub coordinator_epoch: i32,
    /// The time of writing.
    pub timestamp: TimestampMs,
}

/// The batch of a transaction marker, at offset 0 without a leader epoch: the leader gives it
/// both.
#[must_use]
pub fn end_transaction_marker(marker: &EndTransactionMarker) -> Bytes {
    let kind = match marker.end {
        TransactionEnd::Abort => ABORT,
        TransactionEnd::Commit => COMMIT,
    };
    let mut value = Vec::with_capacity(6);
    value.extend_from_slice(&MARKER_VERSION.to_be_bytes());
    value.extend_from_slice(&marker.coordinator_epoch.to_be_bytes());
    BatchBuilder::new()
        .leader_epoch(LeaderEpoch::NONE)
        .producer(marker.producer_id, marker.producer_epoch, Sequence::NONE)
        .transactional()
        .control()
        .record(marker.timestamp, Some(&key(kind)), Some(&value))
        .build()
}

/// The batch of a producer-id reset after mirroring `source_cluster_id`, at offset 0 without a
/// leader epoch: the leader gives it both.
#[must_use]
pub fn mirror_pid_reset(source_cluster_id: &str, timestamp: TimestampMs) -> Bytes {
    let mut value = Vec::with_capacity(source_cluster_id.len() + 4);
    value.extend_from_slice(&RESET_VERSION.to_be_bytes());
    put_compact_string(&mut value, source_cluster_id);
    value.push(0);
    BatchBuilder::new()
        .leader_epoch(LeaderEpoch::NONE)
        .control()
        .record(timestamp, Some(&key(MIRROR_PID_RESET)), Some(&value))
        .build()
}

fn key(kind: i16) -> [u8; 4] {
    let ([a, b], [c, d]) = (KEY_VERSION.to_be_bytes(), kind.to_be_bytes());
    [a, b, c, d]
}

fn check_version(version: [u8; 2], offset: Offset) -> Result<(), Error> {
    let version = i16::from_be_bytes(version);
    if version < 0 { Err(Error::Version { offset, version }) } else { Ok(()) }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

/// A compact string has its length + 1 in front, as an unsigned varint.
fn put_compact_string(out: &mut Vec<u8>, text: &str) {
    let mut length = text.len() + 1;
    while length >= 0x80 {
        let [low, ..] = length.to_le_bytes();
        out.push(low | 0x80);
        length >>= 7;
    }
    let [low, ..] = length.to_le_bytes();
    out.push(low);
    out.extend_from_slice(text.as_bytes());
}

fn take_compact_string(bytes: &mut &[u8]) -> Option<String> {
    let mut length = 0usize;
    for shift in (0..28).step_by(7) {
        let [byte] = take(bytes)?;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let (text, rest) = bytes.split_at_checked(length.checked_sub(1)?)?;
            *bytes = rest;
            return String::from_utf8(text.to_vec()).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qk";

    fn payload(batch: &Bytes) -> Vec<u8> {
        batch[batch::HEADER_BYTES..].to_vec()
    }

    #[test]
    fn markers_have_kafkas_bytes() {
        let marker = EndTransactionMarker {
            end: TransactionEnd::Commit,
            producer_id: ProducerId(5),
            producer_epoch: ProducerEpoch(1),
            coordinator_epoch: 3,
            timestamp: TimestampMs(1_000),
        };
        let bytes = end_transaction_marker(&marker);
        // length 16; attributes, deltas; key of 4 bytes; value of 6; no headers
        let expected = [32, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 0, 0, 0, 3, 0];
        assert_eq!(payload(&bytes), expected);
        let batch = RecordBatch::parse(bytes).unwrap();
        assert!(batch.header.is_control() && batch.header.is_transactional());
        assert_eq!(batch.header.base_sequence, Sequence::NONE);
        let read = ControlRecord::of_batch(&batch).unwrap();
        let end = TransactionEnd::Commit;
        assert_eq!(read, Some(ControlRecord::EndTransaction { end, coordinator_epoch: 3 }));
    }

    #[test]
    fn a_reset_has_the_specified_bytes() {
        let bytes = mirror_pid_reset(CLUSTER, TimestampMs(7));
        let mut expected = vec![72, 0, 0, 0, 8, 0, 0, 0, 7, 52, 0, 0, 23];
        expected.extend_from_slice(CLUSTER.as_bytes());
        expected.extend_from_slice(&[0, 0]);
        assert_eq!(payload(&bytes), expected);
        let batch = RecordBatch::parse(bytes).unwrap();
        assert!(batch.header.is_control() && !batch.header.is_transactional());
        assert_eq!(batch.header.producer_id, ProducerId::NONE);
        let record = batch.records().unwrap().next().unwrap().unwrap();
        assert_eq!(record.value.as_ref().map(Bytes::len), Some(26));
        let source_cluster_id = CLUSTER.to_owned();
        assert_eq!(
            ControlRecord::of_batch(&batch).unwrap(),
            Some(ControlRecord::MirrorPidReset { source_cluster_id })
        );
    }

    #[test]
    fn a_reset_without_a_known_cluster_reads_back() {
        let batch = RecordBatch::parse(mirror_pid_reset("", TimestampMs(7))).unwrap();
        let source_cluster_id = String::new();
        assert_eq!(
            ControlRecord::of_batch(&batch).unwrap(),
            Some(ControlRecord::MirrorPidReset { source_cluster_id })
        );
    }

    #[test]
    fn unknown_types_are_told_and_cut_off_values_are_errors() {
        let record = |key: &[u8], value: &[u8]| Record {
            offset: Offset(4),
            timestamp: TimestampMs(0),
            key: Some(Bytes::copy_from_slice(key)),
            value: Some(Bytes::copy_from_slice(value)),
            headers: Vec::new(),
        };
        let read = |key: &[u8], value: &[u8]| ControlRecord::parse(&record(key, value));
        assert_eq!(read(&[0, 0, 0, 5], &[]).unwrap(), ControlRecord::Other { kind: 5 });
        assert!(matches!(read(&[0, 0, 0], &[]), Err(Error::Key { .. })));
        assert!(matches!(read(&[0xff, 0, 0, 1], &[]), Err(Error::Version { .. })));
        assert!(matches!(read(&[0, 0, 0, 1], &[0, 0, 1]), Err(Error::Value { .. })));
        assert!(matches!(read(&[0, 0, 0, 7], &[0, 0, 9, b'a']), Err(Error::Value { .. })));
        assert!(matches!(
            read(&[0, 0, 0, 7], &[0, 0, 255, 255, 255, 255]),
            Err(Error::Value { .. })
        ));
    }
}
