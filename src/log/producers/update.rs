//! The check of one append against what is known of its producers. Owns Kafka's rules; never
//! changes what is known.

use std::collections::BTreeMap;

use protocol::batch::{BatchHeader, RecordBatch};
use protocol::control::{ControlRecord, TransactionEnd};
use protocol::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use smallvec::SmallVec;

use super::{CompletedTransaction, Error, OpenTransaction, ProducerEntry, ProducerStates};
use crate::lease::Origin;

/// What an append changes. Made by [`ProducerUpdate::finish`], taken over by
/// [`ProducerStates::commit`].
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub(super) entries: BTreeMap<ProducerId, ProducerEntry>,
    pub(super) started: SmallVec<[OpenTransaction; 1]>,
    pub(super) completed: SmallVec<[CompletedTransaction; 1]>,
    pub(super) reset: bool,
}

/// Which rules an origin is held to.
#[derive(Clone, Copy, Debug)]
struct Checks {
    sequences: bool,
    epochs: bool,
}

impl Checks {
    fn of(origin: Origin) -> Checks {
        match origin {
            Origin::Client => Checks { sequences: true, epochs: true },
            Origin::Coordinator => Checks { sequences: false, epochs: true },
            Origin::Replica | Origin::Mirror => Checks { sequences: false, epochs: false },
        }
    }
}

/// The check of one append, batch by batch. Dropping it leaves everything as it was.
#[derive(Debug)]
pub struct ProducerUpdate<'a> {
    states: &'a ProducerStates,
    checks: Checks,
    changes: Changes,
}

impl<'a> ProducerUpdate<'a> {
    pub(super) fn new(states: &'a ProducerStates, origin: Origin) -> ProducerUpdate<'a> {
        ProducerUpdate { states, checks: Checks::of(origin), changes: Changes::default() }
    }

    /// Checks the next batch, which is to lie at `base_offset`. Duplicates are for the caller to
    /// find first, with [`ProducerStates::duplicate`].
    ///
    /// # Errors
    /// The rule that the batch breaks.
    pub fn add(&mut self, batch: &RecordBatch, base_offset: Offset) -> Result<(), Error> {
        let header = &batch.header;
        if header.is_control() {
            // Compaction may have emptied it; then there is nothing left to end.
            return match ControlRecord::of_batch(batch)? {
                Some(record) => self.add_control(header, &record, base_offset),
                None => Ok(()),
            };
        }
        if !header.has_producer_id() {
            return Ok(());
        }
        self.add_data(header, base_offset)
    }

    /// What the append changes.
    #[must_use]
    pub fn finish(self) -> Changes {
        self.changes
    }

    fn add_data(&mut self, header: &BatchHeader, base_offset: Offset) -> Result<(), Error> {
        let producer_id = header.producer_id;
        let mut entry = self.entry(producer_id);
        self.check_epoch(producer_id, header.producer_epoch, &entry)?;
        if self.checks.sequences {
            check_sequence(header, &entry)?;
        }
        entry.add(header, base_offset);
        match entry.transaction_start {
            Some(first_offset) if !header.is_transactional() && self.checks.epochs => {
                return Err(Error::TransactionOpen { producer_id, first_offset });
            }
            None if header.is_transactional() => {
                entry.transaction_start = Some(base_offset);
                self.changes.started.push(OpenTransaction {
                    producer_id,
                    producer_epoch: header.producer_epoch,
                    first_offset: base_offset,
                });
            }
            Some(_) | None => {}
        }
        self.changes.entries.insert(producer_id, entry);
        Ok(())
    }

    fn add_control(
        &mut self,
        header: &BatchHeader,
        record: &ControlRecord,
        base_offset: Offset,
    ) -> Result<(), Error> {
        match record {
            ControlRecord::EndTransaction { end, coordinator_epoch } => {
                if !header.has_producer_id() {
                    return Ok(());
                }
                self.end_transaction(header, *end, *coordinator_epoch, base_offset)
            }
            ControlRecord::MirrorPidReset { .. } => {
                self.changes.entries.clear();
                self.changes.reset = true;
                Ok(())
            }
            ControlRecord::Other { .. } => Ok(()),
        }
    }

    fn end_transaction(
        &mut self,
        header: &BatchHeader,
        end: TransactionEnd,
        coordinator_epoch: i32,
        marker_offset: Offset,
    ) -> Result<(), Error> {
        let producer_id = header.producer_id;
        let mut entry = self.entry(producer_id);
        self.check_epoch(producer_id, header.producer_epoch, &entry)?;
        if self.checks.epochs && coordinator_epoch < entry.coordinator_epoch {
            return Err(Error::CoordinatorFenced {
                producer_id,
                epoch: coordinator_epoch,
                current: entry.coordinator_epoch,
            });
        }
        entry.set_epoch(header.producer_epoch);
        entry.coordinator_epoch = coordinator_epoch;
        entry.last_timestamp = header.max_timestamp;
        if let Some(first_offset) = entry.transaction_start.take() {
            let last_offset = marker_offset;
            self.changes.completed.push(CompletedTransaction {
                producer_id,
                first_offset,
                last_offset,
                end,
            });
        }
        self.changes.entries.insert(producer_id, entry);
        Ok(())
    }

    fn check_epoch(
        &self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        entry: &ProducerEntry,
    ) -> Result<(), Error> {
        if self.checks.epochs && epoch < entry.epoch {
            return Err(Error::InvalidProducerEpoch { producer_id, epoch, current: entry.epoch });
        }
        Ok(())
    }

    /// What is known of a producer after the batches so far.
    fn entry(&self, producer_id: ProducerId) -> ProducerEntry {
        if let Some(entry) = self.changes.entries.get(&producer_id) {
            return entry.clone();
        }
        match self.states.entries.get(&producer_id) {
            Some(entry) if !self.changes.reset => entry.clone(),
            Some(_) | None => ProducerEntry::unknown(self.orphaned_transaction(producer_id)),
        }
    }

    /// Where the producer's transaction begins that a reset took the entry from.
    fn orphaned_transaction(&self, producer_id: ProducerId) -> Option<Offset> {
        let completed = |first_offset: Offset| {
            self.changes.completed.iter().any(|completed| completed.first_offset == first_offset)
        };
        self.states
            .open
            .values()
            .chain(&self.changes.started)
            .find(|open| open.producer_id == producer_id && !completed(open.first_offset))
            .map(|open| open.first_offset)
    }
}

fn check_sequence(header: &BatchHeader, entry: &ProducerEntry) -> Result<(), Error> {
    if entry.epoch == ProducerEpoch::NONE {
        return Ok(());
    }
    let last_sequence = match entry.epoch == header.producer_epoch {
        true => entry.last_sequence(),
        false => Sequence::NONE,
    };
    if header.base_sequence == last_sequence.plus(1) {
        return Ok(());
    }
    Err(Error::OutOfOrderSequence {
        producer_id: header.producer_id,
        epoch: header.producer_epoch,
        sequence: header.base_sequence,
        last_sequence,
    })
}
