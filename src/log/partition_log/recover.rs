//! What a log's directory holds, found out when it is opened. Batches are trusted below the
//! recovery point; above it every one is checked, the first that is torn or corrupt ends the log,
//! and indexes, epochs, aborted transactions and producer state are made anew. Never trusts a file
//! beside the batches without checking it.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use protocol::batch::RecordBatch;
use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use super::aborts::{read_aborted, replace_aborted};
use super::open::{Checkpointed, remove};
use super::producer_state::{load_snapshot, replay, replay_batch, write_snapshot};
use crate::aborted::AbortedTransactions;
use crate::active_segment::{ActiveSegment, set_len};
use crate::config::LogConfig;
use crate::disk::ReadMode;
use crate::epochs::Epochs;
use crate::error::Error;
use crate::open_files::Files;
use crate::producers::ProducerStates;
use crate::scan::{Found, Scan};
use crate::segment::{Indexes, Segment, SegmentFile};

/// A log as it was found.
pub(super) struct Recovered {
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) active: ActiveSegment,
    pub(super) log_start: Offset,
    pub(super) log_end: Offset,
    pub(super) epochs: Epochs,
    /// Whether `epochs` differs from its file.
    pub(super) epochs_changed: bool,
    pub(super) producers: ProducerStates,
    /// Sealed segments that may not be durable.
    pub(super) unsynced: Vec<Arc<Segment>>,
}

impl Recovered {
    /// Looks at the segments that start at `bases`. `epochs` is `None` where their file cannot be
    /// used: then all batches are looked at.
    pub(super) fn of(
        files: &Files,
        dir: &Arc<Path>,
        config: &LogConfig,
        checkpointed: &Checkpointed,
        bases: &[Offset],
        epochs: Option<Epochs>,
    ) -> Result<Self, Error> {
        let first = bases.first().copied().unwrap_or(Offset::ZERO);
        let log_start = checkpointed.log_start.unwrap_or(first).max(first);
        let aborted = read_all_aborted(files, dir, bases)?;
        let suspect = match &epochs {
            None => Some(first),
            Some(_) => {
                bases.iter().zip(&aborted).find(|(_, one)| one.is_none()).map(|(at, _)| *at)
            }
        };
        let mut walk = Walk {
            files,
            dir,
            config,
            log_start,
            segments: Vec::with_capacity(bases.len()),
            epochs_changed: epochs.is_none(),
            epochs: epochs.unwrap_or_default(),
            producers: ProducerStates::new(log_start),
            next_offset: first,
        };
        let active = match (bases, suspect) {
            ([], _) => None,
            (_, None) if checkpointed.clean => Some(walk.trust(bases, aborted)?),
            (_, suspect) => {
                let known = checkpointed.recovery_point.unwrap_or(first);
                let from = suspect.map_or(known, |suspect| suspect.min(known));
                Some(walk.check(bases, aborted, from)?)
            }
        };
        walk.finish(active, checkpointed.clean)
    }
}

/// Every segment's aborted transactions; `None` for one whose file cannot be used.
fn read_all_aborted(
    files: &Files,
    dir: &Path,
    bases: &[Offset],
) -> Result<Vec<Option<AbortedTransactions>>, Error> {
    let ends = bases.iter().skip(1).copied().chain([Offset(i64::MAX)]);
    bases.iter().zip(ends).map(|(base, end)| read_aborted(files, dir, *base, end)).collect()
}

/// A walk over a log's segments, from the first to the last.
struct Walk<'a> {
    files: &'a Files,
    dir: &'a Arc<Path>,
    config: &'a LogConfig,
    log_start: Offset,
    /// The sealed segments so far.
    segments: Vec<Arc<Segment>>,
    epochs: Epochs,
    epochs_changed: bool,
    producers: ProducerStates,
    next_offset: Offset,
}

impl Walk<'_> {
    /// Takes all segments as they are; reads only the end of the last one.
    fn trust(
        &mut self,
        bases: &[Offset],
        aborted: Vec<Option<AbortedTransactions>>,
    ) -> Result<ActiveSegment, Error> {
        let (last, sealed) = bases.split_last().expect("called with at least one segment");
        let mut aborted = aborted.into_iter().flatten();
        for base in sealed {
            self.push_sealed(*base, aborted.next())?;
        }
        let active = self.resume_last(*last)?;
        give_aborted(&active.segment, aborted.next());
        self.producers = load_snapshot(self.files, self.dir, self.log_start, self.next_offset)?;
        let mut segments = self.segments.clone();
        segments.push(Arc::clone(&active.segment));
        replay(self.files, &segments, self.next_offset, &mut self.producers)?;
        Ok(active)
    }

    /// Checks every batch of the segments that reach above `recovery_point`.
    fn check(
        &mut self,
        bases: &[Offset],
        aborted: Vec<Option<AbortedTransactions>>,
        recovery_point: Offset,
    ) -> Result<ActiveSegment, Error> {
        let after = bases.partition_point(|base| *base <= recovery_point).max(1);
        let (trusted, unchecked) = bases.split_at(after - 1);
        for (base, aborted) in trusted.iter().zip(aborted) {
            self.push_sealed(*base, aborted)?;
        }
        let from = unchecked[0];
        let known = self.epochs.clone();
        self.epochs.truncate_from_end(from);
        let active = self.check_all(unchecked)?;
        self.epochs_changed |= self.epochs != known;
        Ok(active)
    }

    /// Checks the segments from the first of `unchecked` on, up to the first bad batch.
    fn check_all(&mut self, unchecked: &[Offset]) -> Result<ActiveSegment, Error> {
        let from = unchecked[0];
        self.producers = load_snapshot(self.files, self.dir, self.log_start, from)?;
        replay(self.files, &self.segments, from, &mut self.producers)?;
        let (last, earlier) = unchecked.split_last().expect("the last segment is always checked");
        for (at, base) in earlier.iter().enumerate() {
            let (mut active, whole) = self.check_segment(*base)?;
            if !whole {
                self.remove_segments(&unchecked[at + 1..])?;
                return Ok(active);
            }
            active.complete_indexes(self.files, self.dir)?;
            active.segment.seal();
            write_snapshot(self.files, self.dir, unchecked[at + 1], &self.producers)?;
            self.segments.push(active.segment);
        }
        Ok(self.check_segment(*last)?.0)
    }

    /// What was found, completed: a log that ends below its start begins anew there.
    fn finish(mut self, active: Option<ActiveSegment>, clean: bool) -> Result<Recovered, Error> {
        let active = match active {
            Some(active) if self.next_offset >= self.log_start => active,
            Some(_) | None => {
                self.discard()?;
                ActiveSegment::create(self.files, self.dir, self.log_start)?
            }
        };
        let unsynced = if clean { Vec::new() } else { self.segments.clone() };
        self.segments.push(Arc::clone(&active.segment));
        self.epochs_changed |= self.epochs.truncate_from_end(self.next_offset);
        self.epochs_changed |= self.epochs.truncate_from_start(self.log_start);
        Ok(Recovered {
            segments: self.segments,
            active,
            log_start: self.log_start,
            log_end: self.next_offset,
            epochs: self.epochs,
            epochs_changed: self.epochs_changed,
            producers: self.producers,
            unsynced,
        })
    }

    /// Checks one segment's batches and makes what belongs to it anew; whether all of it was good.
    /// What was not is cut off.
    fn check_segment(&mut self, base: Offset) -> Result<(ActiveSegment, bool), Error> {
        let bytes = self.size_of(base)?;
        let indexes = Some(Indexes::new(base));
        let segment = Segment::new(self.dir, base, bytes, TimestampMs::NONE, indexes);
        for file in [SegmentFile::OffsetIndex, SegmentFile::TimeIndex] {
            remove(self.files, &file.path(self.dir, base))?;
        }
        self.next_offset = self.next_offset.max(base);
        let mut active = ActiveSegment::over(Arc::clone(&segment));
        let mut aborted = AbortedTransactions::new();
        let mut scan = Scan::whole(&segment, self.files, 0, bytes);
        let fault = loop {
            match self.next_good(&mut scan) {
                Ok(None) => break None,
                Ok(Some((found, bytes))) => {
                    let epoch = found.header.leader_epoch;
                    if epoch > self.epochs.latest() {
                        self.epochs.assign(epoch, found.header.base_offset);
                    }
                    active.note(&found.header, self.config);
                    self.next_offset = found.header.next_offset();
                    if let Some(one) = replay_batch(&mut self.producers, &found.header, bytes) {
                        aborted.append(one);
                    }
                }
                Err(error @ Error::CorruptBatch { .. }) => break Some(error),
                Err(error) => return Err(error),
            }
        };
        if let Some(error) = &fault {
            let (path, kept) = (segment.path(), active.bytes());
            tracing::warn!(path = %path.display(), kept, bytes, %error, "log cut at a bad batch");
            set_len(&*segment.file(self.files)?, kept, path)?;
        }
        active.publish();
        replace_aborted(self.files, self.dir, base, &aborted)?;
        give_aborted(&segment, Some(aborted));
        Ok((active, fault.is_none()))
    }

    /// The next batch, if it is whole, unchanged and in its place.
    fn next_good(&self, scan: &mut Scan<'_>) -> Result<Option<(Found, Bytes)>, Error> {
        let Some(found) = scan.next()? else { return Ok(None) };
        found.header.check_offsets().map_err(Error::corrupt)?;
        if found.header.base_offset < self.next_offset {
            let (base_offset, log_end) = (found.header.base_offset, self.next_offset);
            return Err(Error::CorruptBatch {
                reason: format!("offset {base_offset} comes behind offset {log_end}"),
            });
        }
        let (epoch, latest) = (found.header.leader_epoch, self.epochs.latest());
        if epoch >= LeaderEpoch(0) && epoch < latest {
            // A segment that a truncation had removed and a power cut brought back.
            return Err(Error::CorruptBatch {
                reason: format!("leader epoch {epoch} comes behind epoch {latest}"),
            });
        }
        let bytes = scan.bytes_of(&found)?;
        let batch = RecordBatch { header: found.header, bytes: bytes.clone() };
        batch.verify_crc().map_err(Error::corrupt)?;
        Ok(Some((found, bytes)))
    }

    /// Adds a segment that is not looked into; its indexes are made anew if they are missing or
    /// torn.
    fn push_sealed(
        &mut self,
        base: Offset,
        aborted: Option<AbortedTransactions>,
    ) -> Result<(), Error> {
        let bytes = self.size_of(base)?;
        let segment = match Indexes::probe(self.files, self.dir, base)? {
            Some(largest) => Segment::new(self.dir, base, bytes, largest, None),
            None => {
                let mut active = self.index_again(base, bytes)?;
                active.complete_indexes(self.files, self.dir)?;
                active.segment.seal();
                active.segment
            }
        };
        give_aborted(&segment, aborted);
        self.segments.push(segment);
        Ok(())
    }

    fn index_again(&self, base: Offset, bytes: u64) -> Result<ActiveSegment, Error> {
        let indexes = Some(Indexes::new(base));
        let segment = Segment::new(self.dir, base, bytes, TimestampMs::NONE, indexes);
        let mut active = ActiveSegment::over(Arc::clone(&segment));
        let mut scan = Scan::headers(&segment, self.files, 0, bytes, ReadMode::MayBlock);
        while let Some(found) = scan.next()? {
            active.note(&found.header, self.config);
        }
        Ok(active)
    }

    /// The last segment after a clean stop: its indexes are complete, its end gives the log's.
    fn resume_last(&mut self, base: Offset) -> Result<ActiveSegment, Error> {
        let bytes = self.size_of(base)?;
        self.next_offset = base;
        let mut active = match Indexes::load(self.files, self.dir, base, bytes)? {
            None => self.index_again(base, bytes)?,
            Some(indexes) => {
                let from = indexes.offsets.last().map_or(0, |entry| u64::from(entry.position));
                let largest =
                    indexes.times.last().map_or(TimestampMs::NONE, |last| last.timestamp);
                let segment = Segment::new(self.dir, base, bytes, largest, Some(indexes));
                let mut active = ActiveSegment::over(segment);
                active.resume(bytes, self.first_timestamp(&active.segment)?);
                active.set_bytes_since_entry(bytes - from);
                active
            }
        };
        let segment = Arc::clone(&active.segment);
        let from = segment.with_indexes(self.files, ReadMode::MayBlock, |indexes| {
            indexes.offsets.last().map_or(0, |entry| u64::from(entry.position))
        })?;
        let mut scan = Scan::headers(&segment, self.files, from, bytes, ReadMode::MayBlock);
        while let Some(found) = scan.next()? {
            self.next_offset = found.header.next_offset();
            active.note_timestamp(&found.header);
        }
        Ok(active)
    }

    fn first_timestamp(&self, segment: &Segment) -> Result<Option<TimestampMs>, Error> {
        let end = segment.bytes();
        let mut scan = Scan::headers(segment, self.files, 0, end, ReadMode::MayBlock);
        Ok(scan.next()?.map(|found| found.header.max_timestamp))
    }

    fn size_of(&self, base: Offset) -> Result<u64, Error> {
        let path = SegmentFile::Log.path(self.dir, base);
        self.files.disk.size(&path).map_err(|error| Error::io("look at", &path, &error))
    }

    /// Removes segments behind a cut, the last one first, so that a crash leaves no gap.
    fn remove_segments(&self, bases: &[Offset]) -> Result<(), Error> {
        for base in bases.iter().rev() {
            tracing::warn!(dir = %self.dir.display(), %base, "segment behind the cut removed");
            for file in SegmentFile::ALL {
                remove(self.files, &file.path(self.dir, *base))?;
            }
        }
        Ok(())
    }

    /// Removes everything: the log begins anew at its start.
    fn discard(&mut self) -> Result<(), Error> {
        let names =
            self.files.disk.list(self.dir).map_err(|error| Error::io("list", self.dir, &error))?;
        for (base, file) in names.iter().filter_map(|entry| SegmentFile::parse(&entry.name)) {
            remove(self.files, &file.path(self.dir, base))?;
        }
        self.segments.clear();
        self.epochs_changed |= !self.epochs.entries().is_empty();
        self.epochs.clear();
        self.producers = ProducerStates::new(self.log_start);
        self.next_offset = self.log_start;
        Ok(())
    }
}

fn give_aborted(segment: &Segment, aborted: Option<AbortedTransactions>) {
    segment.change_aborted(|now| *now = aborted.unwrap_or_default());
}
