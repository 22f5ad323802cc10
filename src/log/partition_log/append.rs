//! Appending to a log: everything is checked before anything changes, then the batches are staged
//! for the group's write. Never writes by itself, except where a segment must roll in between.

use bytes::Bytes;
use protocol::batch::{self, BatchHeader, PREFIX_BYTES, RecordBatch, TimestampType, prefix};
use protocol::ids::{LeaderEpoch, Offset, TimestampMs};
use smallvec::SmallVec;

use super::PartitionLog;
use crate::active_segment::{ActiveSegment, Chunk};
use crate::config::TimestampKind;
use crate::error::Error;
use crate::lease::{Append, Appended, Origin, Reply};
use crate::producers::SequencedBatch;

/// A batch and the place it gets or has in the log.
pub(super) struct Placed {
    /// As it came.
    pub(super) batch: RecordBatch,
    /// As it is written: with the offset and epoch that were assigned or kept.
    pub(super) header: BatchHeader,
}

type Batches = SmallVec<[Placed; 1]>;

impl PartitionLog {
    /// Takes an append in; the reply comes with the group's [`PartitionLog::flush`], or at once if
    /// it is refused.
    pub(crate) fn stage(&mut self, append: &Append, reply: Reply<Appended>) {
        match self.try_stage(append) {
            Ok(appended) => self.staged.push((reply, appended)),
            Err(error) => reply(Err(error)),
        }
    }

    fn try_stage(&mut self, append: &Append) -> Result<Appended, Error> {
        self.check_open()?;
        let mut batches = split_batches(append)?;
        if append.origin.assigns_offsets() {
            if let Some(duplicate) = self.find_duplicate(append.origin, &batches) {
                return Ok(duplicate);
            }
            self.assign(append, &mut batches)?;
            self.check_producers(append.origin, &batches)?;
            self.stage_assigned(append, &batches)
        } else {
            self.check_kept(append, &batches)?;
            self.check_producers(append.origin, &batches)?;
            self.begin_below_start(&batches[0].header)?;
            self.stage_kept(append, &batches)
        }
    }

    /// The answer to a client's batch that is here already.
    fn find_duplicate(&self, origin: Origin, batches: &Batches) -> Option<Appended> {
        if origin != Origin::Client {
            return None;
        }
        let earlier: SequencedBatch = self.view.with_producers(|states| {
            batches.iter().find_map(|placed| states.duplicate(&placed.header))
        })?;
        Some(Appended {
            first_offset: earlier.first_offset(),
            last_offset: earlier.last_offset,
            log_append_time: match self.config.timestamp_type {
                TimestampKind::CreateTime => TimestampMs::NONE,
                TimestampKind::LogAppendTime => earlier.timestamp,
            },
            log_start: self.view.log_start(),
            log_end: self.next_offset,
            duplicate: true,
        })
    }

    /// Checks what a client or coordinator sent and gives it its place.
    fn assign(&self, append: &Append, batches: &mut Batches) -> Result<(), Error> {
        let mut next = self.next_offset;
        let (epoch, latest) = (append.leader_epoch, self.view.last_epoch());
        if epoch < latest {
            return Err(Error::EpochDecreased { base_offset: next, epoch, latest });
        }
        for placed in batches {
            self.check_size(append.origin, placed.batch.bytes.len())?;
            if append.origin == Origin::Client {
                if placed.header.is_control() {
                    let producer_id = placed.header.producer_id;
                    return Err(Error::ControlFromClient { producer_id });
                }
                self.stamp(placed, append.now);
            }
            placed.header.base_offset = next;
            placed.header.leader_epoch = append.leader_epoch;
            placed.header.check_offsets().map_err(Error::corrupt)?;
            next = placed.header.next_offset();
        }
        Ok(())
    }

    fn check_size(&self, origin: Origin, bytes: usize) -> Result<(), Error> {
        let segment = usize::try_from(self.config.segment_bytes).unwrap_or(usize::MAX);
        let message = usize::try_from(self.config.max_message_bytes).unwrap_or(usize::MAX);
        let max = match origin {
            Origin::Client => segment.min(message),
            Origin::Coordinator => segment,
            Origin::Replica | Origin::Mirror => usize::MAX,
        };
        if bytes > max {
            return Err(Error::BatchTooLarge { bytes, max });
        }
        Ok(())
    }

    /// Gives the batch the broker's time, where the topic wants that and the connection has not
    /// done it.
    fn stamp(&self, placed: &mut Placed, now: TimestampMs) {
        let wanted = match self.config.timestamp_type {
            TimestampKind::CreateTime => return,
            TimestampKind::LogAppendTime => TimestampType::LogAppendTime,
        };
        if placed.header.timestamp_type() != wanted {
            placed.batch = placed.batch.with_timestamps(wanted, now);
            placed.header = placed.batch.header;
        }
    }

    /// Checks what a leader sent, here or at a mirror's source: it is kept as it is or refused.
    fn check_kept(&self, append: &Append, batches: &Batches) -> Result<(), Error> {
        let mut next = self.next_offset;
        let mut latest = self.view.last_epoch();
        for (at, placed) in batches.iter().enumerate() {
            let BatchHeader { base_offset, leader_epoch: epoch, .. } = placed.header;
            placed.header.check_offsets().map_err(Error::corrupt)?;
            if base_offset < next && (at > 0 || !self.may_begin_below(&placed.header)) {
                return Err(Error::NotContiguous { base_offset, log_end: next });
            }
            if epoch > LeaderEpoch::NONE && epoch < latest {
                return Err(Error::EpochDecreased { base_offset, epoch, latest });
            }
            if epoch > append.leader_epoch {
                let leader_epoch = append.leader_epoch;
                return Err(Error::EpochAboveLeader { base_offset, epoch, leader_epoch });
            }
            latest = latest.max(epoch);
            next = placed.header.next_offset();
        }
        Ok(())
    }

    /// An empty log that starts inside a batch keeps that batch whole (D21).
    fn may_begin_below(&self, header: &BatchHeader) -> bool {
        self.is_empty() && header.next_offset() > self.next_offset
    }

    /// Whether the log holds no batch, not even a staged one.
    fn is_empty(&self) -> bool {
        self.view.segments().len() == 1 && self.active.bytes() == 0
    }

    /// Lets an empty log's segment begin where a batch that reaches below the log's start begins.
    fn begin_below_start(&mut self, first: &BatchHeader) -> Result<(), Error> {
        if first.base_offset >= self.active.segment.base {
            return Ok(());
        }
        let begun = self.restart_segment_at(first.base_offset);
        self.or_close(begun)
    }

    fn restart_segment_at(&mut self, base: Offset) -> Result<(), Error> {
        let old = self.active.segment.clone();
        self.remove_segment_files(&old)?;
        self.active = ActiveSegment::create(&self.files, &self.dir, base)?;
        self.view.replace_segments(vec![self.active.segment.clone()]);
        Ok(())
    }

    fn stage_assigned(&mut self, append: &Append, batches: &Batches) -> Result<Appended, Error> {
        let first_offset = self.next_offset;
        for placed in batches {
            self.admit(placed, append.now)?;
            let BatchHeader { base_offset, batch_length, leader_epoch, .. } = placed.header;
            self.active.stage(Chunk::Prefix(prefix(base_offset, batch_length, leader_epoch)));
            self.active.stage(Chunk::Shared(placed.batch.bytes.slice(PREFIX_BYTES..)));
        }
        let last = batches.last().expect("split gives at least one batch");
        let log_append_time = match last.header.timestamp_type() {
            TimestampType::CreateTime => TimestampMs::NONE,
            TimestampType::LogAppendTime => last.header.max_timestamp,
        };
        Ok(self.appended(first_offset, log_append_time))
    }

    fn stage_kept(&mut self, append: &Append, batches: &Batches) -> Result<Appended, Error> {
        // Batches lie back to back in the buffer they came in: one slice for all of a segment.
        let mut position = 0;
        let mut begin = 0;
        for placed in batches {
            if self.active.is_full_for(&placed.header, &self.config, append.now) {
                self.stage_slice(&append.batches, begin, position);
                begin = position;
            }
            self.admit(placed, append.now)?;
            position += placed.batch.bytes.len();
        }
        self.stage_slice(&append.batches, begin, position);
        Ok(self.appended(batches[0].header.base_offset, TimestampMs::NONE))
    }

    fn stage_slice(&mut self, buffer: &Bytes, begin: usize, end: usize) {
        if begin < end {
            self.active.stage(Chunk::Shared(buffer.slice(begin..end)));
        }
    }

    /// Takes one batch into the log's state: segment, epochs, producers, end. Its bytes are staged
    /// by the caller.
    fn admit(&mut self, placed: &Placed, now: TimestampMs) -> Result<(), Error> {
        let header = &placed.header;
        if self.active.is_full_for(header, &self.config, now) {
            self.roll()?;
        }
        self.assign_epoch(header.leader_epoch, header.base_offset)?;
        self.changed = true;
        self.active.note(header, &self.config);
        self.next_offset = header.next_offset();
        let committed = self.commit_producers(placed);
        let aborted = self.or_close(committed)?;
        self.staged_aborts.extend(aborted);
        Ok(())
    }

    fn appended(&self, first_offset: Offset, log_append_time: TimestampMs) -> Appended {
        Appended {
            first_offset,
            last_offset: Offset(self.next_offset.0 - 1),
            log_append_time,
            log_start: self.view.log_start(),
            log_end: self.next_offset,
            duplicate: false,
        }
    }
}

/// Cuts an append into its batches and checks their CRCs.
fn split_batches(append: &Append) -> Result<Batches, Error> {
    let mut batches = Batches::new();
    for batch in batch::split(append.batches.clone()) {
        match batch {
            Ok(batch) => {
                if !append.crc_verified {
                    batch.verify_crc().map_err(Error::corrupt)?;
                }
                batches.push(Placed { header: batch.header, batch });
            }
            // A fetch is cut at its limit, not at a batch.
            Err(batch::Error::Torn { .. }) if !append.origin.assigns_offsets() => break,
            Err(error) => return Err(Error::corrupt(error)),
        }
    }
    if batches.is_empty() {
        return Err(Error::NoWholeBatch { bytes: append.batches.len() });
    }
    Ok(batches)
}
