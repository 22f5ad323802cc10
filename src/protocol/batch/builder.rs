//! Makes a batch from records. Owns the order of the fields that depend on the records (deltas,
//! max timestamp, count, checksum); never checks that a client may write such a batch.

use bytes::Bytes;

use super::{
    APPEND_TIME_BIT, BatchHeader, CONTROL_BIT, DELETE_HORIZON_BIT, RecordBatch, TRANSACTIONAL_BIT,
    TimestampType, rebuild,
};
use crate::compression::Compression;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::record::{RecordHeader, write_record};

/// Collects records for one batch. Offsets count up by one unless [`BatchBuilder::append_at`]
/// leaves a gap.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    compression: Compression,
    attributes: i16,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: Sequence,
    append_time: Option<TimestampMs>,
    delete_horizon: Option<TimestampMs>,
    base_timestamp: Option<TimestampMs>,
    max_timestamp: TimestampMs,
    next_offset_delta: i32,
    last_offset_delta: Option<i32>,
    count: i32,
    records: Vec<u8>,
}

impl Default for BatchBuilder {
    fn default() -> BatchBuilder {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// A batch at offset 0 without leader epoch, producer or compression.
    #[must_use]
    pub fn new() -> BatchBuilder {
        BatchBuilder {
            base_offset: Offset::ZERO,
            leader_epoch: LeaderEpoch::NONE,
            compression: Compression::None,
            attributes: 0,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: Sequence::NONE,
            append_time: None,
            delete_horizon: None,
            base_timestamp: None,
            max_timestamp: TimestampMs::NONE,
            next_offset_delta: 0,
            last_offset_delta: None,
            count: 0,
            records: Vec::new(),
        }
    }

    /// Where the batch lies.
    #[must_use]
    pub fn base_offset(mut self, base_offset: Offset) -> BatchBuilder {
        self.base_offset = base_offset;
        self
    }

    /// The epoch of the leader that appends it.
    #[must_use]
    pub fn leader_epoch(mut self, leader_epoch: LeaderEpoch) -> BatchBuilder {
        self.leader_epoch = leader_epoch;
        self
    }

    /// How its records are compressed.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> BatchBuilder {
        self.compression = compression;
        self
    }

    /// Which producer writes it, and the sequence of its first record.
    #[must_use]
    pub fn producer(
        mut self,
        id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: Sequence,
    ) -> BatchBuilder {
        (self.producer_id, self.producer_epoch, self.base_sequence) = (id, epoch, base_sequence);
        self
    }

    /// Makes it part of a transaction.
    #[must_use]
    pub fn transactional(mut self) -> BatchBuilder {
        self.attributes |= TRANSACTIONAL_BIT;
        self
    }

    /// Makes it a control batch.
    #[must_use]
    pub fn control(mut self) -> BatchBuilder {
        self.attributes |= CONTROL_BIT;
        self
    }

    /// Gives it the leader's time instead of the records' own.
    #[must_use]
    pub fn append_time(mut self, now: TimestampMs) -> BatchBuilder {
        self.attributes |= APPEND_TIME_BIT;
        self.append_time = Some(now);
        self
    }

    /// Sets when compaction may drop its tombstones (KIP-534); the records' timestamps count
    /// from it.
    #[must_use]
    pub fn delete_horizon(mut self, horizon: TimestampMs) -> BatchBuilder {
        self.attributes |= DELETE_HORIZON_BIT;
        self.delete_horizon = Some(horizon);
        self
    }

    /// Makes the batch cover offsets up to `delta` after its base, whatever its last record is.
    #[must_use]
    pub fn last_offset_delta(mut self, delta: i32) -> BatchBuilder {
        self.last_offset_delta = Some(delta);
        self
    }

    /// Adds a record without headers.
    #[must_use]
    pub fn record(
        mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> BatchBuilder {
        self.append(timestamp, key, value, &[]);
        self
    }

    /// Adds a record at the next offset.
    pub fn append(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader],
    ) {
        self.append_at(self.next_offset_delta, timestamp, key, value, headers);
    }

    /// Adds a record `offset_delta` after the base offset; not below the record before.
    pub fn append_at(
        &mut self,
        offset_delta: i32,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RecordHeader],
    ) {
        let base_timestamp =
            *self.base_timestamp.get_or_insert(self.delete_horizon.unwrap_or(timestamp));
        let timestamp_delta = timestamp.0.wrapping_sub(base_timestamp.0);
        write_record(&mut self.records, offset_delta, timestamp_delta, key, value, headers);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.next_offset_delta = offset_delta.saturating_add(1);
        self.count += 1;
    }

    /// Bytes of the records so far, before compression.
    #[must_use]
    pub fn records_len(&self) -> usize {
        self.records.len()
    }

    /// How many records there are so far.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.count
    }

    /// The batch. Its records must stay below 2 GiB.
    #[must_use]
    pub fn build_batch(&self) -> RecordBatch {
        let last_record_delta = (self.next_offset_delta - 1).max(0);
        let base_timestamp =
            self.base_timestamp.or(self.delete_horizon).unwrap_or(TimestampMs::NONE);
        let header = BatchHeader {
            base_offset: self.base_offset,
            batch_length: 0,
            leader_epoch: self.leader_epoch,
            crc: 0,
            attributes: self.attributes | self.compression.id(),
            last_offset_delta: self.last_offset_delta.unwrap_or(last_record_delta),
            base_timestamp,
            max_timestamp: self.append_time.unwrap_or(self.max_timestamp),
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.count,
        };
        debug_assert_eq!(
            header.timestamp_type() == TimestampType::LogAppendTime,
            self.append_time.is_some()
        );
        match self.compression {
            Compression::None => rebuild(header, &self.records),
            Compression::Gzip | Compression::Snappy | Compression::Lz4 | Compression::Zstd => {
                rebuild(header, &self.compression.compress(&self.records))
            }
        }
    }

    /// The batch's bytes. Its records must stay below 2 GiB.
    #[must_use]
    pub fn build(&self) -> Bytes {
        self.build_batch().bytes
    }
}
