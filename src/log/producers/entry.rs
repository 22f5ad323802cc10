//! What is known of one producer. Owns the memory of its last batches; never judges a new one.

use protocol::batch::BatchHeader;
use protocol::ids::{Offset, ProducerEpoch, Sequence, TimestampMs};
use smallvec::SmallVec;

/// How many batches of a producer are remembered: as many as it may have in flight (KIP-98).
pub const REMEMBERED_BATCHES: usize = 5;

/// The coordinator epoch of a producer that saw no marker.
const NO_COORDINATOR: i32 = -1;

/// A batch that was appended with sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencedBatch {
    /// The sequence of its last record.
    pub last_sequence: Sequence,
    /// The offset of its last record.
    pub last_offset: Offset,
    /// Last offset − first offset, and last sequence − first sequence.
    pub offset_delta: i32,
    /// The largest timestamp in it.
    pub timestamp: TimestampMs,
}

impl SequencedBatch {
    /// The sequence of its first record.
    #[must_use]
    pub fn first_sequence(&self) -> Sequence {
        self.last_sequence.minus(self.offset_delta)
    }

    /// The offset of its first record.
    #[must_use]
    pub fn first_offset(&self) -> Offset {
        Offset(self.last_offset.0 - i64::from(self.offset_delta))
    }
}

/// What is known of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// Its newest epoch.
    pub epoch: ProducerEpoch,
    /// The epoch of the last coordinator that wrote a marker for it, −1 before the first.
    pub coordinator_epoch: i32,
    /// The time of its last batch or marker.
    pub last_timestamp: TimestampMs,
    /// Where its open transaction begins.
    pub transaction_start: Option<Offset>,
    /// Its last batches in this epoch, oldest first; at most [`REMEMBERED_BATCHES`].
    pub batches: SmallVec<[SequencedBatch; REMEMBERED_BATCHES]>,
}

impl ProducerEntry {
    pub(super) fn unknown(transaction_start: Option<Offset>) -> ProducerEntry {
        ProducerEntry {
            epoch: ProducerEpoch::NONE,
            coordinator_epoch: NO_COORDINATOR,
            last_timestamp: TimestampMs::NONE,
            transaction_start,
            batches: SmallVec::new(),
        }
    }

    /// The sequence of the last record; [`Sequence::NONE`] before the first in this epoch.
    #[must_use]
    pub fn last_sequence(&self) -> Sequence {
        self.batches.last().map_or(Sequence::NONE, |batch| batch.last_sequence)
    }

    /// The remembered batch that `header` is a resend of.
    #[must_use]
    pub fn duplicate(&self, header: &BatchHeader) -> Option<SequencedBatch> {
        if header.producer_epoch != self.epoch {
            return None;
        }
        self.batches.iter().copied().find(|batch| {
            batch.first_sequence() == header.base_sequence
                && batch.last_sequence == header.last_sequence()
        })
    }

    pub(super) fn set_epoch(&mut self, epoch: ProducerEpoch) {
        if self.epoch != epoch {
            self.batches.clear();
            self.epoch = epoch;
        }
    }

    pub(super) fn add(&mut self, header: &BatchHeader, base_offset: Offset) {
        self.set_epoch(header.producer_epoch);
        if self.batches.len() == REMEMBERED_BATCHES {
            self.batches.remove(0);
        }
        self.batches.push(SequencedBatch {
            last_sequence: header.last_sequence(),
            last_offset: Offset(base_offset.0 + i64::from(header.last_offset_delta)),
            offset_delta: header.last_offset_delta,
            timestamp: header.max_timestamp,
        });
        self.last_timestamp = header.max_timestamp;
    }
}
