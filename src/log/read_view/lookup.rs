//! Looking things up through a [`ReadView`]: offsets by time, transactions, epochs. Never changes
//! the log.

use protocol::batch::RecordBatch;
use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use super::{ReadUpTo, ReadView};
use crate::aborted::AbortedTransaction;
use crate::disk::ReadMode;
use crate::error::Error;
use crate::scan::Scan;
use crate::segment::Segment;

/// A record found by its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampedOffset {
    /// The record's timestamp.
    pub timestamp: TimestampMs,
    /// Its offset.
    pub offset: Offset,
    /// The leader epoch of its batch.
    pub leader_epoch: LeaderEpoch,
}

impl ReadView {
    /// The first record, from the log's start on, whose timestamp is at least `timestamp`, if it
    /// lies below the bound of `up_to`. Decompresses one batch.
    ///
    /// # Errors
    /// As [`ReadView::read`].
    pub fn offset_for_timestamp(
        &self,
        timestamp: TimestampMs,
        up_to: ReadUpTo,
        mode: ReadMode,
    ) -> Result<Option<TimestampedOffset>, Error> {
        self.undisturbed(|_| {
            let segments = self.segments.load();
            for segment in segments.iter().filter(|one| one.max_timestamp() >= timestamp) {
                let found = self.record_at(segment, timestamp, mode)?;
                if let Some(found) = found {
                    return Ok(Some(found).filter(|found| found.offset < self.bound(up_to)));
                }
            }
            Ok(None)
        })
    }

    /// The first record with the largest timestamp of the log; `None` in an empty log.
    ///
    /// # Errors
    /// As [`ReadView::read`].
    pub fn max_timestamp(&self, mode: ReadMode) -> Result<Option<TimestampedOffset>, Error> {
        let segments = self.segments.load();
        let largest = segments.iter().map(|segment| segment.max_timestamp()).max();
        match largest {
            Some(largest) if largest > TimestampMs::NONE => {
                self.offset_for_timestamp(largest, ReadUpTo::LogEnd, mode)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// The aborted transactions with records in `from..to`, as a reader of committed records needs
    /// them for what it read there.
    #[must_use]
    pub fn aborted_transactions(&self, from: Offset, to: Offset) -> Vec<AbortedTransaction> {
        let segments = self.segments.load();
        let first = segments.partition_point(|segment| segment.base <= from).saturating_sub(1);
        let mut found = Vec::new();
        for segment in segments.iter().skip(first) {
            if segment.with_aborted(|aborted| aborted.collect(from, to, &mut found)) {
                break;
            }
        }
        found
    }

    fn record_at(
        &self,
        segment: &Segment,
        timestamp: TimestampMs,
        mode: ReadMode,
    ) -> Result<Option<TimestampedOffset>, Error> {
        let log_start = self.log_start();
        let position = segment.with_indexes(&self.files, mode, |indexes| {
            // The entry below is strictly older: the batch wanted comes behind it.
            let before = TimestampMs(timestamp.0.saturating_sub(1));
            let offset = indexes.times.lookup(before).map(|entry| entry.offset);
            offset
                .and_then(|offset| indexes.offsets.lookup(offset))
                .map_or(0, |entry| u64::from(entry.position))
        })?;
        let mut scan = Scan::headers(segment, &self.files, position, segment.bytes(), mode);
        while let Some(found) = scan.next()? {
            if found.header.max_timestamp < timestamp || found.header.last_offset() < log_start {
                continue;
            }
            let leader_epoch = found.header.leader_epoch;
            let batch = RecordBatch { header: found.header, bytes: scan.bytes_of(&found)? };
            let record = first_record_at(&batch, timestamp, log_start)?;
            if let Some((timestamp, offset)) = record {
                return Ok(Some(TimestampedOffset { timestamp, offset, leader_epoch }));
            }
        }
        Ok(None)
    }
}

/// The first record, from `log_start` on, whose timestamp is at least `timestamp`.
fn first_record_at(
    batch: &RecordBatch,
    timestamp: TimestampMs,
    log_start: Offset,
) -> Result<Option<(TimestampMs, Offset)>, Error> {
    for record in batch.records().map_err(Error::corrupt)? {
        let record = record.map_err(|error| Error::CorruptBatch { reason: error.to_string() })?;
        if record.timestamp >= timestamp && record.offset >= log_start {
            return Ok(Some((record.timestamp, record.offset)));
        }
    }
    Ok(None)
}
