//! Taking batches away: from the end (divergence), all of them (reset), or from the start (the log
//! start rises). Readers are told before a file changes. Never decides where to cut.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::ids::Offset;

use super::PartitionLog;
use crate::active_segment::ActiveSegment;
use crate::disk::ReadMode;
use crate::epochs::Epochs;
use crate::error::Error;
use crate::lease::Truncated;
use crate::scan::Scan;
use crate::segment::{Segment, SegmentFile};

/// Where a log is cut: in which of its segments, at which byte, and where it ends then.
struct Cut {
    segment: usize,
    position: u64,
    log_end: Offset,
}

impl PartitionLog {
    /// Cuts the log so that it ends at `to`; a batch that `to` lies inside of goes whole.
    pub(crate) fn truncate(&mut self, to: Offset) -> Result<Truncated, Error> {
        self.flush()?;
        self.check_open()?;
        let (start, end) = (self.view.log_start(), self.next_offset);
        if to >= end {
            self.forget_empty_epochs()?;
            return Ok(Truncated { log_end: end, records_cut: 0 });
        }
        if to < start {
            return Err(Error::OffsetOutOfRange { offset: to, start, end });
        }
        let cut = self.find_cut(to)?;
        self.changed = true;
        let log_end = cut.log_end;
        let applied = self.apply_cut(&cut);
        self.or_close(applied)?;
        self.check_in_debug();
        let records_cut = u64::try_from(end.since(log_end)).unwrap_or(0);
        Ok(Truncated { log_end, records_cut })
    }

    /// Drops an epoch that begins at the end of the log: this replica led in it and wrote nothing,
    /// and the log it is cut to match may not know it.
    fn forget_empty_epochs(&mut self) -> Result<(), Error> {
        let end = self.next_offset;
        if !self.view.change_epochs(|epochs| epochs.truncate_from_end(end)) {
            return Ok(());
        }
        let written = self.write_epochs();
        self.or_close(written)
    }

    fn find_cut(&self, to: Offset) -> Result<Cut, Error> {
        let segments = self.view.segments();
        let start = self.view.log_start();
        let after = segments.partition_point(|segment| segment.base <= to);
        let at = after.checked_sub(1).expect("the log start is in a segment");
        let segment = &segments[at];
        let hint = segment.with_indexes(&self.files, ReadMode::MayBlock, |indexes| {
            indexes.offsets.lookup(to).map_or(0, |entry| u64::from(entry.position))
        })?;
        let bytes = segment.bytes();
        let mut scan = Scan::headers(segment, &self.files, hint, bytes, ReadMode::MayBlock);
        let cut = match scan.seek(to)? {
            None => Cut { segment: at, position: bytes, log_end: to },
            Some(found) => {
                let log_end = to.min(found.header.base_offset).max(start);
                Cut { segment: at, position: found.position, log_end }
            }
        };
        Ok(cut)
    }

    fn apply_cut(&mut self, cut: &Cut) -> Result<(), Error> {
        let segments = self.view.segments();
        let kept = &segments[cut.segment];
        let removed = &segments[cut.segment + 1..];
        if !removed.is_empty() {
            self.reactivate(kept)?;
        }
        self.view.lower_end(cut.log_end);
        self.active.cut(cut.position, cut.log_end);
        self.view.replace_segments(segments[..=cut.segment].to_vec());
        self.view.count_truncation();
        // From here on no reader returns what lay behind the cut.
        self.next_offset = cut.log_end;
        self.recovery_point = self.recovery_point.min(cut.log_end);
        self.to_sync.retain(|segment| segment.base < kept.base);
        self.remove_segments(removed)?;
        self.active.cut_files(&self.files, &self.dir)?;
        self.refresh_first_timestamp()?;
        self.view.change_epochs(|epochs| epochs.truncate_from_end(cut.log_end));
        self.write_epochs()?;
        self.cut_aborts(cut.log_end)?;
        self.reload_producers()
    }

    /// Makes a sealed segment the active one again.
    fn reactivate(&mut self, segment: &Arc<Segment>) -> Result<(), Error> {
        let indexes =
            segment.with_indexes(&self.files, ReadMode::MayBlock, |indexes| indexes.clone())?;
        segment.activate(indexes);
        let mut active = ActiveSegment::over(Arc::clone(segment));
        active.resume(segment.bytes(), None);
        self.active = active;
        Ok(())
    }

    /// Learns the first and the largest timestamp of the active segment anew from its batches.
    pub(super) fn refresh_first_timestamp(&mut self) -> Result<(), Error> {
        let segment = Arc::clone(&self.active.segment);
        let end = segment.bytes();
        let mut scan = Scan::headers(&segment, &self.files, 0, end, ReadMode::MayBlock);
        let first = scan.next()?.map(|found| found.header.max_timestamp);
        self.active.set_first_timestamp(first);
        let from = segment.with_indexes(&self.files, ReadMode::MayBlock, |indexes| {
            indexes.offsets.last().map_or(0, |entry| u64::from(entry.position))
        })?;
        let mut scan = Scan::headers(&segment, &self.files, from, end, ReadMode::MayBlock);
        while let Some(found) = scan.next()? {
            self.active.note_timestamp(&found.header);
        }
        Ok(())
    }

    /// Empties the log and lets it start and end at `start`.
    pub(crate) fn reset(&mut self, start: Offset) -> Result<Truncated, Error> {
        self.flush()?;
        self.check_open()?;
        if start < Offset::ZERO {
            let (first, end) = (self.view.log_start(), self.next_offset);
            return Err(Error::OffsetOutOfRange { offset: start, start: first, end });
        }
        let cut = self.next_offset.since(self.view.log_start());
        self.changed = true;
        let applied = self.apply_reset(start);
        self.or_close(applied)?;
        self.check_in_debug();
        Ok(Truncated { log_end: start, records_cut: u64::try_from(cut).unwrap_or(0) })
    }

    fn apply_reset(&mut self, start: Offset) -> Result<(), Error> {
        let removed = self.view.segments();
        self.view.set_emptied(start);
        self.view.count_truncation();
        self.to_sync.clear();
        self.remove_segments(&removed)?;
        self.active = ActiveSegment::create(&self.files, &self.dir, start)?;
        self.view.replace_segments(vec![Arc::clone(&self.active.segment)]);
        self.next_offset = start;
        self.recovery_point = start;
        self.view.change_epochs(Epochs::clear);
        self.write_epochs()?;
        self.reload_producers()
    }

    /// Raises the log's start to `start`; segments that lie below it whole are removed. A lower
    /// start changes nothing. Answers the start in force.
    pub(crate) fn set_log_start(&mut self, start: Offset) -> Result<Offset, Error> {
        self.flush()?;
        self.check_open()?;
        let (now, high_watermark) = (self.view.log_start(), self.view.high_watermark());
        if start <= now {
            return Ok(now);
        }
        if start > high_watermark {
            return Err(Error::OffsetOutOfRange {
                offset: start,
                start: now,
                end: high_watermark,
            });
        }
        if start == self.next_offset && self.active.bytes() > 0 {
            self.roll()?;
        }
        self.changed = true;
        self.view.set_log_start(start);
        let removed = self.remove_below(start);
        self.or_close(removed)?;
        self.check_in_debug();
        Ok(start)
    }

    fn remove_below(&mut self, start: Offset) -> Result<(), Error> {
        let segments = self.view.segments();
        let keep_from = segments.partition_point(|segment| segment.base <= start).max(1) - 1;
        let (removed, kept) = segments.split_at(keep_from);
        if !removed.is_empty() {
            self.view.replace_segments(kept.to_vec());
            for segment in removed {
                self.remove_segment_files(segment)?;
            }
            let first = kept.first().map_or(start, |segment| segment.base);
            self.remove_snapshots_below(first)?;
        }
        self.view.change_producers(|states| states.advance_log_start(start));
        self.view.refresh_transactions();
        if self.view.change_epochs(|epochs| epochs.truncate_from_start(start)) {
            self.write_epochs()?;
        }
        Ok(())
    }

    /// Removes segments from the log's end, durably, before others take their place: a power cut
    /// must not bring them back behind what is written next.
    fn remove_segments(&mut self, removed: &[Arc<Segment>]) -> Result<(), Error> {
        for segment in removed.iter().rev() {
            self.remove_segment_files(segment)?;
        }
        if removed.iter().any(|segment| segment.bytes() > 0) {
            let synced = self.files.disk.sync_dir(&self.dir);
            synced.map_err(|error| Error::io("sync", &self.dir, &error))?;
        }
        Ok(())
    }

    /// Renames a segment's files so that no opening takes them for part of the log; they are
    /// removed with the next tick, when readers have let go of them.
    pub(super) fn remove_segment_files(&mut self, segment: &Segment) -> Result<(), Error> {
        self.names_durable = false;
        for file in SegmentFile::ALL {
            if file == SegmentFile::ProducerSnapshot {
                continue;
            }
            let path = file.path(&self.dir, segment.base);
            let deleted = deleted_name(&path);
            match self.files.disk.rename(&path, &deleted) {
                Ok(()) => self.removed.push(deleted),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("rename", &path, &error)),
            }
        }
        Ok(())
    }
}

/// The name of a file that waits to be removed.
fn deleted_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".deleted");
    name.into()
}
