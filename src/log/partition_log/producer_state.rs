//! A log's producers beside its batches: checked before an append, carried along with it, written
//! as snapshots and made anew from the batches. Never decides what a producer may send.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use protocol::batch::{BatchHeader, RecordBatch};
use protocol::ids::{Offset, TimestampMs};
use smallvec::SmallVec;

use super::PartitionLog;
use super::append::Placed;
use crate::aborted::AbortedTransaction;
use crate::disk::ReadMode;
use crate::error::Error;
use crate::lease::Origin;
use crate::open_files::Files;
use crate::producers::{ProducerSnapshots, ProducerStates};
use crate::scan::Scan;
use crate::segment::Segment;

/// Loading keeps every producer; those idle for too long go with the next tick, which has a clock.
const NOW_UNKNOWN: TimestampMs = TimestampMs(0);

impl PartitionLog {
    /// Checks that the batches follow from what their producers sent before.
    pub(super) fn check_producers(&self, origin: Origin, placed: &[Placed]) -> Result<(), Error> {
        self.view.with_producers(|states| {
            let mut update = states.begin(origin);
            for one in placed {
                update.add(&one.batch, one.header.base_offset)?;
            }
            Ok(())
        })
    }

    /// Takes a batch that was checked into the producers' state; the transactions it aborts.
    pub(super) fn commit_producers(
        &self,
        placed: &Placed,
    ) -> Result<SmallVec<[AbortedTransaction; 1]>, Error> {
        self.view.change_producers(|states| {
            let mut update = states.begin(Origin::Replica);
            update.add(&placed.batch, placed.header.base_offset)?;
            let changes = update.finish();
            Ok(states.commit(changes, placed.header.next_offset()))
        })
    }

    /// Writes the producers as they are at the log's end.
    pub(super) fn write_snapshot(&self) -> Result<(), Error> {
        let end = self.next_offset;
        let bytes = self.view.with_producers(ProducerStates::to_snapshot);
        write_snapshot_bytes(&self.files, &self.dir, end, &bytes)
    }

    /// Makes the producers anew: from the newest snapshot that still counts, and the batches
    /// behind it.
    pub(super) fn reload_producers(&mut self) -> Result<(), Error> {
        let start = self.view.log_start();
        let mut states = load_snapshot(&self.files, &self.dir, start, self.next_offset)?;
        replay(&self.files, &self.view.segments(), self.next_offset, &mut states)?;
        self.view.change_producers(|now| *now = states);
        self.view.refresh_transactions();
        Ok(())
    }

    /// Removes the snapshots that no recovery needs any more, as the log starts later.
    pub(super) fn remove_snapshots_below(&self, offset: Offset) -> Result<(), Error> {
        snapshots(&self.files, &self.dir).remove_below(offset)
    }
}

fn snapshots(files: &Files, dir: &Path) -> ProducerSnapshots {
    ProducerSnapshots::new(files.disk.clone(), dir)
}

/// The producers of the newest snapshot in a log of these bounds; batches from its end on are to
/// be [replayed](replay). Snapshots out of the bounds are removed.
pub(super) fn load_snapshot(
    files: &Files,
    dir: &Path,
    log_start: Offset,
    log_end: Offset,
) -> Result<ProducerStates, Error> {
    snapshots(files, dir).load(log_start, log_end, NOW_UNKNOWN, i64::MAX)
}

/// Writes the producers as they are at `end`.
pub(super) fn write_snapshot(
    files: &Files,
    dir: &Path,
    end: Offset,
    states: &ProducerStates,
) -> Result<(), Error> {
    write_snapshot_bytes(files, dir, end, &states.to_snapshot())
}

/// Not synced: a torn snapshot is told by its CRC and replaced from the batches.
fn write_snapshot_bytes(
    files: &Files,
    dir: &Path,
    end: Offset,
    bytes: &[u8],
) -> Result<(), Error> {
    let path = snapshots(files, dir).path(end);
    let written = files.disk.create(&path).and_then(|file| {
        file.set_len(0)?;
        file.write_at(0, bytes)
    });
    written.map_err(|error| Error::io("write", &path, &error))
}

/// Takes the batches from the states' end up to `to` into them.
pub(super) fn replay(
    files: &Files,
    segments: &[Arc<Segment>],
    to: Offset,
    states: &mut ProducerStates,
) -> Result<(), Error> {
    let from = states.end();
    let first = segments.partition_point(|segment| segment.base <= from).saturating_sub(1);
    for segment in &segments[first..] {
        if states.end() >= to {
            break;
        }
        let position = segment.with_indexes(files, ReadMode::MayBlock, |indexes| {
            indexes.offsets.lookup(from).map_or(0, |entry| u64::from(entry.position))
        })?;
        let mut scan =
            Scan::headers(segment, files, position, segment.bytes(), ReadMode::MayBlock);
        while let Some(found) = scan.next()? {
            if found.header.base_offset >= to {
                break;
            }
            if found.header.last_offset() < from {
                continue;
            }
            let control = found.header.is_control();
            let bytes = if control { scan.bytes_of(&found)? } else { Bytes::new() };
            replay_batch(states, &found.header, bytes);
        }
    }
    Ok(())
}

/// Takes a batch that is in the log into the producers' state; of a data batch the header is
/// enough.
pub(super) fn replay_batch(
    states: &mut ProducerStates,
    header: &BatchHeader,
    bytes: Bytes,
) -> Option<AbortedTransaction> {
    let replayed = states.replay(&RecordBatch { header: *header, bytes });
    replayed.unwrap_or_else(|error| {
        // No append lets such a batch in; what it meant cannot be known.
        tracing::warn!(offset = %header.base_offset, %error, "control batch passed over");
        None
    })
}
