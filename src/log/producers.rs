//! What a log knows of the producers that write to it: their last sequences, so that a retry is
//! told from a new batch, and their open transactions, so that readers of committed records know
//! where to stop. Owns the rules; never reads or writes the log.
//!
//! An append goes in two steps: [`ProducerStates::begin`] and [`ProducerUpdate::add`] check each
//! batch and change nothing; [`ProducerStates::commit`] takes the outcome over once the batches
//! are written. Recovery and replicas use the same steps with [`Origin::Replica`], which refuses
//! nothing that a leader accepted.
//!
//! Rules for a client's batch with a producer id, as in Kafka 4.4:
//!
//! - epoch, first and last sequence as those of one of the last five batches: a duplicate;
//! - a producer that is not known: any sequence (its state may have expired);
//! - an epoch below the known one: INVALID_PRODUCER_EPOCH;
//! - an epoch above it: the sequence must be 0;
//! - the same epoch: the sequence must follow the last one (0 follows 2³¹ − 1);
//! - no batch outside of a transaction while the producer has one open.
//!
//! A marker ends the producer's transaction and may raise its epoch. MIRROR_PID_RESET removes
//! every producer; open transactions stay until their markers come.

use std::collections::BTreeMap;

use protocol::batch::{BatchHeader, RecordBatch};
use protocol::control::{self, EndTransactionMarker, TransactionEnd};
use protocol::error_code::ErrorCode;
use protocol::ids::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use smallvec::SmallVec;

use crate::aborted::AbortedTransaction;
use crate::lease::Origin;

pub use self::entry::{ProducerEntry, REMEMBERED_BATCHES, SequencedBatch};
pub use self::snapshot::{ProducerSnapshots, SnapshotError};
pub use self::update::{Changes, ProducerUpdate};

mod entry;
mod snapshot;
mod update;

/// A transaction without a marker yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Whose.
    pub producer_id: ProducerId,
    /// In which epoch of the producer it began.
    pub producer_epoch: ProducerEpoch,
    /// Its first record.
    pub first_offset: Offset,
}

/// A transaction whose marker was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// Its marker.
    pub last_offset: Offset,
    /// How it ended.
    pub end: TransactionEnd,
}

/// Why a batch of a producer is refused. Never for [`Origin::Replica`] and [`Origin::Mirror`],
/// but for a control record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The sequence does not follow the last one.
    #[error(
        "producer {producer_id} sent sequence {sequence} after {last_sequence} in epoch {epoch}"
    )]
    OutOfOrderSequence {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's epoch.
        epoch: ProducerEpoch,
        /// The batch's first sequence.
        sequence: Sequence,
        /// The last one known, −1 if none in this epoch.
        last_sequence: Sequence,
    },
    /// A newer incarnation of the producer has written.
    #[error("producer {producer_id} has epoch {epoch}, behind {current}")]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's epoch.
        epoch: ProducerEpoch,
        /// The newest known.
        current: ProducerEpoch,
    },
    /// A batch outside of a transaction while one is open.
    #[error("producer {producer_id} wrote outside of its transaction open since {first_offset}")]
    TransactionOpen {
        /// The producer.
        producer_id: ProducerId,
        /// Where the transaction begins.
        first_offset: Offset,
    },
    /// A newer transaction coordinator has written a marker.
    #[error("coordinator epoch {epoch} for producer {producer_id} is behind {current}")]
    CoordinatorFenced {
        /// The producer.
        producer_id: ProducerId,
        /// The marker's coordinator epoch.
        epoch: i32,
        /// The newest known.
        current: i32,
    },
    /// A control batch that cannot be read.
    #[error("{reason}")]
    Control {
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// Kafka's error code for it.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
            Error::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            Error::TransactionOpen { .. } => ErrorCode::InvalidTxnState,
            Error::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
            Error::Control { .. } => ErrorCode::InvalidRecord,
        }
    }
}

impl From<control::Error> for Error {
    fn from(error: control::Error) -> Error {
        Error::Control { reason: error.to_string() }
    }
}

/// The producers of one log, up to some offset of it.
///
/// Invariant: every entry with a transaction start has an open transaction there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerStates {
    entries: BTreeMap<ProducerId, ProducerEntry>,
    /// Without a marker, by first offset.
    open: BTreeMap<Offset, OpenTransaction>,
    /// With a marker at or above the high watermark, by first offset.
    unreplicated: BTreeMap<Offset, CompletedTransaction>,
    end: Offset,
}

impl ProducerStates {
    /// No producers, in a log that is read from `start` on.
    #[must_use]
    pub fn new(start: Offset) -> ProducerStates {
        ProducerStates {
            entries: BTreeMap::new(),
            open: BTreeMap::new(),
            unreplicated: BTreeMap::new(),
            end: start,
        }
    }

    /// Up to where the log's batches are known here.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.end
    }

    /// What is known of one producer.
    #[must_use]
    pub fn get(&self, producer_id: ProducerId) -> Option<&ProducerEntry> {
        self.entries.get(&producer_id)
    }

    /// All producers by id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ProducerId, &ProducerEntry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// The transactions without a marker, by first offset.
    pub fn open_transactions(&self) -> impl ExactSizeIterator<Item = &OpenTransaction> {
        self.open.values()
    }

    /// Whether the producer has a transaction open in this epoch: a transactional batch needs no
    /// verification.
    #[must_use]
    pub fn has_open_transaction(&self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool {
        self.entries
            .get(&producer_id)
            .is_some_and(|entry| entry.epoch == epoch && entry.transaction_start.is_some())
    }

    /// The earlier append that this client's batch is a resend of.
    #[must_use]
    pub fn duplicate(&self, header: &BatchHeader) -> Option<SequencedBatch> {
        if !header.has_producer_id() || header.is_control() {
            return None;
        }
        self.entries.get(&header.producer_id)?.duplicate(header)
    }

    /// Begins the check of an append.
    #[must_use]
    pub fn begin(&self, origin: Origin) -> ProducerUpdate<'_> {
        ProducerUpdate::new(self, origin)
    }

    /// Takes over what an append changed, once it is written up to `end`. Returns the aborted
    /// transactions for the segment's index.
    pub fn commit(&mut self, changes: Changes, end: Offset) -> SmallVec<[AbortedTransaction; 1]> {
        if changes.reset {
            self.entries.clear();
        }
        self.entries.extend(changes.entries);
        self.open.extend(changes.started.into_iter().map(|open| (open.first_offset, open)));
        let mut aborted = SmallVec::new();
        for completed in changes.completed {
            if completed.end == TransactionEnd::Abort {
                aborted.push(AbortedTransaction {
                    producer_id: completed.producer_id,
                    first_offset: completed.first_offset,
                    last_offset: completed.last_offset,
                    last_stable_offset: self.stable_offset_after(&completed),
                });
            }
            self.open.remove(&completed.first_offset);
            self.unreplicated.insert(completed.first_offset, completed);
        }
        self.end = end;
        self.check_invariants();
        aborted
    }

    /// Checks a batch that is in the log already and takes it over: recovery. Its aborted
    /// transaction, if it ended one so, is for the segment's index.
    ///
    /// # Errors
    /// [`Error::Control`] where a control batch cannot be read.
    pub fn replay(&mut self, batch: &RecordBatch) -> Result<Option<AbortedTransaction>, Error> {
        let mut update = self.begin(Origin::Replica);
        update.add(batch, batch.header.base_offset)?;
        let changes = update.finish();
        Ok(self.commit(changes, batch.header.next_offset()).pop())
    }

    /// The first offset whose fate is open: of a transaction without a marker, or with one that
    /// is not yet on every replica.
    #[must_use]
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        let open = self.open.keys().next();
        let unreplicated = self.unreplicated.keys().next();
        open.into_iter().chain(unreplicated).min().copied()
    }

    /// Up to where a reader of committed records may read, in a log with these bounds.
    #[must_use]
    pub fn last_stable_offset(&self, log_start: Offset, high_watermark: Offset) -> Offset {
        match self.first_unstable_offset() {
            Some(unstable) => unstable.max(log_start).min(high_watermark),
            None => high_watermark,
        }
    }

    /// The high watermark moved: transactions with a marker below it are decided for good.
    pub fn advance_high_watermark(&mut self, high_watermark: Offset) {
        self.unreplicated.retain(|_, completed| completed.last_offset >= high_watermark);
    }

    /// The log now starts at `log_start`: transactions that ended below it are forgotten.
    /// Producers stay, as in Kafka, so that their sequences go on.
    pub fn advance_log_start(&mut self, log_start: Offset) {
        self.unreplicated.retain(|_, completed| completed.last_offset >= log_start);
        self.end = self.end.max(log_start);
    }

    /// Forgets producers without an open transaction that wrote nothing for `expiration_ms`.
    /// Returns how many.
    pub fn expire(&mut self, now: TimestampMs, expiration_ms: i64) -> usize {
        let before = self.entries.len();
        self.entries.retain(|_, entry| !expired(entry, now, expiration_ms));
        before - self.entries.len()
    }

    /// The markers that abort every open transaction, by first offset: what ends mirroring.
    #[must_use]
    pub fn abort_markers(&self, now: TimestampMs) -> Vec<EndTransactionMarker> {
        let marker = |open: &OpenTransaction| {
            let entry = self.entries.get(&open.producer_id);
            EndTransactionMarker {
                end: TransactionEnd::Abort,
                producer_id: open.producer_id,
                producer_epoch: entry.map_or(open.producer_epoch, |entry| entry.epoch),
                coordinator_epoch: entry.map_or(0, |entry| entry.coordinator_epoch.max(0)),
                timestamp: now,
            }
        };
        self.open.values().map(marker).collect()
    }

    /// Panics where the type's invariant is broken; for tests and debug builds.
    pub fn check_invariants(&self) {
        debug_assert!(
            self.entries.iter().all(|(id, entry)| entry.transaction_start.is_none_or(|start| {
                self.open.get(&start).is_some_and(|open| open.producer_id == *id)
            })),
            "an entry's transaction is not open: {self:?}"
        );
        debug_assert!(
            self.entries.values().all(|entry| entry.batches.len() <= REMEMBERED_BATCHES),
            "too many batches: {self:?}"
        );
    }

    /// Where readers of committed records may read to once `completed` has its marker: to the
    /// next transaction of another producer, or past the marker.
    fn stable_offset_after(&self, completed: &CompletedTransaction) -> Offset {
        self.open
            .values()
            .find(|open| open.producer_id != completed.producer_id)
            .map_or(completed.last_offset.next(), |open| open.first_offset)
    }
}

fn expired(entry: &ProducerEntry, now: TimestampMs, expiration_ms: i64) -> bool {
    entry.transaction_start.is_none()
        && now.0.saturating_sub(entry.last_timestamp.0) >= expiration_ms
}

#[cfg(test)]
mod tests;
