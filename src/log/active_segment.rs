//! The segment a log appends to, as its writer sees it: what is staged for the next write, the
//! upkeep of its indexes, and when it must give way to the next one. Never assigns offsets and
//! never judges a batch.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use protocol::batch::{BatchHeader, PREFIX_BYTES};
use protocol::ids::{Offset, TimestampMs};

use crate::config::LogConfig;
use crate::disk::DiskFile;
use crate::error::Error;
use crate::offset_index::{self, relative_offset};
use crate::open_files::Files;
use crate::segment::{Indexes, Segment, SegmentFile};
use crate::time_index::{self, TimeEntry};

/// Bytes to be written next.
pub(crate) enum Chunk {
    /// The rewritten start of a batch.
    Prefix([u8; PREFIX_BYTES]),
    /// A batch or several, or the untouched rest of one.
    Shared(Bytes),
}

impl Chunk {
    fn as_slice(&self) -> &[u8] {
        match self {
            Chunk::Prefix(bytes) => bytes,
            Chunk::Shared(bytes) => bytes,
        }
    }
}

/// The last segment of a log.
///
/// Invariants: `segment.bytes() <= bytes`, and the staged chunks are exactly the difference.
pub(crate) struct ActiveSegment {
    pub(crate) segment: Arc<Segment>,
    /// Where the next batch goes: what is written and what is staged.
    bytes: u64,
    staged: Vec<Chunk>,
    bytes_since_entry: u64,
    /// The largest timestamp so far.
    largest: TimeEntry,
    /// The first batch's largest timestamp: what `segment.ms` counts from.
    first_timestamp: Option<TimestampMs>,
    /// How many entries of each index are in its file.
    persisted: Persisted,
}

#[derive(Clone, Copy, Default)]
struct Persisted {
    offsets: usize,
    times: usize,
}

impl ActiveSegment {
    /// A new, empty segment that starts at `base`; its file is made, its name is not yet durable.
    pub(crate) fn create(files: &Files, dir: &Arc<Path>, base: Offset) -> Result<Self, Error> {
        let indexes = Some(Indexes::new(base));
        let segment = Segment::new(dir, base, 0, TimestampMs::NONE, indexes);
        segment.create_file(files)?;
        Ok(Self::over(segment))
    }

    /// The writer's side of a segment whose batches are still to be [noted](Self::note).
    pub(crate) fn over(segment: Arc<Segment>) -> Self {
        Self {
            segment,
            bytes: 0,
            staged: Vec::new(),
            bytes_since_entry: 0,
            largest: TimeEntry::NONE,
            first_timestamp: None,
            persisted: Persisted::default(),
        }
    }

    /// Continues a segment whose batches below `position` are in its indexes already, all of which
    /// are in their files.
    pub(crate) fn resume(&mut self, position: u64, first_timestamp: Option<TimestampMs>) {
        self.bytes = position;
        self.first_timestamp = first_timestamp;
        let (persisted, largest) = self.segment.change_indexes(|indexes| {
            let persisted =
                Persisted { offsets: indexes.offsets.len(), times: indexes.times.len() };
            (persisted, indexes.times.last())
        });
        self.persisted = persisted;
        self.largest = largest.unwrap_or(TimeEntry::NONE);
    }

    /// Where the next batch goes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether something waits to be written.
    pub(crate) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Whether `header`'s batch belongs into a new segment (Kafka's rules).
    pub(crate) fn is_full_for(
        &self,
        header: &BatchHeader,
        config: &LogConfig,
        now: TimestampMs,
    ) -> bool {
        if relative_offset(self.segment.base, header.last_offset()).is_none() {
            return true;
        }
        if self.bytes == 0 {
            return false;
        }
        let size = crate::scan::size_of_batch(header);
        if self.bytes + size > u64::from(config.segment_bytes) {
            return true;
        }
        let clock =
            if header.max_timestamp >= TimestampMs(0) { header.max_timestamp } else { now };
        let waited = self.first_timestamp.map_or(0, |first| clock.0.saturating_sub(first.0));
        waited > config.segment_ms || self.indexes_full(config)
    }

    fn indexes_full(&self, config: &LogConfig) -> bool {
        let bytes = usize::try_from(config.segment_index_bytes).unwrap_or(usize::MAX);
        self.segment.change_indexes(|indexes| {
            indexes.offsets.len() >= bytes / offset_index::ENTRY_BYTES
                // One entry stays free for the segment's largest timestamp.
                || indexes.times.len() + 1 >= bytes / time_index::ENTRY_BYTES
        })
    }

    /// Counts a batch at the end of the segment and indexes it if an entry is due.
    pub(crate) fn note(&mut self, header: &BatchHeader, config: &LogConfig) {
        let size = crate::scan::size_of_batch(header);
        if header.max_timestamp > self.largest.timestamp {
            let offset = header.last_offset();
            self.largest = TimeEntry { timestamp: header.max_timestamp, offset };
            self.segment.set_max_timestamp(header.max_timestamp);
        }
        if self.first_timestamp.is_none() && header.max_timestamp >= TimestampMs(0) {
            self.first_timestamp = Some(header.max_timestamp);
        }
        if self.bytes_since_entry > u64::from(config.index_interval_bytes) {
            let position = u32::try_from(self.bytes).expect("a segment is below 2 GiB");
            let largest = self.largest;
            self.segment.change_indexes(|indexes| {
                indexes.offsets.push(header.last_offset(), position);
                indexes.times.maybe_push(largest);
            });
            self.bytes_since_entry = 0;
        }
        self.bytes += size;
        self.bytes_since_entry += size;
    }

    /// Adds bytes to what is written next. Each of their batches has been noted.
    pub(crate) fn stage(&mut self, chunk: Chunk) {
        self.staged.push(chunk);
    }

    /// Writes what is staged in one go; readers see it when the caller calls
    /// [`Self::publish`].
    pub(crate) fn write_staged(&mut self, files: &Files) -> Result<(), Error> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let file = self.segment.file(files)?;
        let mut parts: Vec<IoSlice<'_>> =
            self.staged.iter().map(|chunk| IoSlice::new(chunk.as_slice())).collect();
        file.write_vectored_at(self.segment.bytes(), &mut parts)
            .map_err(|error| Error::io("write", self.segment.path(), &error))?;
        self.staged.clear();
        Ok(())
    }

    /// Lets readers see what was written.
    pub(crate) fn publish(&self) {
        debug_assert!(self.staged.is_empty(), "published before it was written");
        self.segment.set_bytes(self.bytes);
    }

    /// Makes the batches durable.
    pub(crate) fn sync(&self, files: &Files) -> Result<(), Error> {
        let file = self.segment.file(files)?;
        file.sync_data().map_err(|error| Error::io("sync", self.segment.path(), &error))
    }

    /// Ends the segment: its largest timestamp becomes the time index's last entry and both
    /// indexes reach their files. More may be appended afterwards (a clean stop does not seal).
    pub(crate) fn complete_indexes(&mut self, files: &Files, dir: &Path) -> Result<(), Error> {
        let largest = self.largest;
        let from = self.persisted;
        let (offsets, times, now) = self.segment.change_indexes(|indexes| {
            indexes.times.maybe_push(largest);
            let now = Persisted { offsets: indexes.offsets.len(), times: indexes.times.len() };
            let offsets = indexes.offsets.encode_from(from.offsets);
            (offsets, indexes.times.encode_from(from.times), now)
        });
        let base = self.segment.base;
        extend(files, &SegmentFile::OffsetIndex.path(dir, base), from.offsets * 8, &offsets)?;
        extend(files, &SegmentFile::TimeIndex.path(dir, base), from.times * 12, &times)?;
        self.persisted = now;
        Ok(())
    }

    /// Forgets everything from the batch at `position` on, whose first offset is `offset`; nothing
    /// may be staged. The file itself is cut by [`Self::cut_files`], after the caller has counted
    /// the truncation.
    pub(crate) fn cut(&mut self, position: u64, offset: Offset) {
        assert!(self.staged.is_empty(), "cut while bytes are staged");
        self.bytes = position;
        self.bytes_since_entry = 0;
        let largest = self.segment.change_indexes(|indexes| {
            indexes.offsets.truncate_to_position(position);
            indexes.times.truncate_to_offset(offset);
            indexes.times.last()
        });
        self.largest = largest.unwrap_or(TimeEntry::NONE);
        if position == 0 {
            self.first_timestamp = None;
        }
        self.segment.set_bytes(position);
    }

    /// Cuts the segment's files to what [`Self::cut`] left.
    pub(crate) fn cut_files(&mut self, files: &Files, dir: &Path) -> Result<(), Error> {
        let file = self.segment.file(files)?;
        set_len(&file, self.bytes, self.segment.path())?;
        let kept = self.segment.change_indexes(|indexes| Persisted {
            offsets: indexes.offsets.len(),
            times: indexes.times.len(),
        });
        let offsets = kept.offsets.min(self.persisted.offsets);
        let times = kept.times.min(self.persisted.times);
        let base = self.segment.base;
        if offsets < self.persisted.offsets {
            shorten(files, &SegmentFile::OffsetIndex.path(dir, base), offsets * 8)?;
        }
        if times < self.persisted.times {
            shorten(files, &SegmentFile::TimeIndex.path(dir, base), times * 12)?;
        }
        self.persisted = Persisted { offsets, times };
        Ok(())
    }

    /// Raises the largest timestamp known: of a batch that is in no index entry.
    pub(crate) fn note_timestamp(&mut self, header: &BatchHeader) {
        if header.max_timestamp > self.largest.timestamp {
            let offset = header.last_offset();
            self.largest = TimeEntry { timestamp: header.max_timestamp, offset };
        }
        self.segment.set_max_timestamp(self.largest.timestamp);
    }

    /// Sets what `segment.ms` counts from.
    pub(crate) fn set_first_timestamp(&mut self, first: Option<TimestampMs>) {
        self.first_timestamp = first.filter(|first| *first >= TimestampMs(0));
    }

    /// Tells how many bytes of batches follow the last index entry's.
    pub(crate) fn set_bytes_since_entry(&mut self, bytes: u64) {
        self.bytes_since_entry = bytes;
    }

    /// Asserts what must always hold.
    pub(crate) fn check_invariants(&self) {
        let staged: usize = self.staged.iter().map(|chunk| chunk.as_slice().len()).sum();
        let staged = u64::try_from(staged).expect("a length fits");
        assert_eq!(
            self.segment.bytes() + staged,
            self.bytes,
            "published and staged bytes of segment {} are not all",
            self.segment.base
        );
        let last = self.segment.change_indexes(|indexes| indexes.offsets.last());
        if let Some(last) = last {
            assert!(
                u64::from(last.position) < self.bytes,
                "index of segment {} reaches {}, behind its {} bytes",
                self.segment.base,
                last.position,
                self.bytes
            );
        }
    }
}

/// Writes `bytes` at `at`, where the index file is to end.
fn extend(files: &Files, path: &Path, at: usize, bytes: &[u8]) -> Result<(), Error> {
    let file = files.disk.create(path).map_err(|error| Error::io("open", path, &error))?;
    let at = u64::try_from(at).expect("a length fits");
    file.write_at(at, bytes).map_err(|error| Error::io("write", path, &error))?;
    set_len(&file, at + u64::try_from(bytes.len()).expect("a length fits"), path)
}

fn shorten(files: &Files, path: &Path, bytes: usize) -> Result<(), Error> {
    let file = files.disk.create(path).map_err(|error| Error::io("open", path, &error))?;
    set_len(&file, u64::try_from(bytes).expect("a length fits"), path)
}

/// Cuts or extends a file.
pub(crate) fn set_len(file: &DiskFile, bytes: u64, path: &Path) -> Result<(), Error> {
    file.set_len(bytes).map_err(|error| Error::io("set the length", path, &error))
}
