//! One segment of a log as writer and readers share it: where its file is, how much of it may be
//! read, and its indexes. Owns the segment's file names; never decides what is appended.
//!
//! A segment is the file `<base offset, 20 digits>.log` of v2 record batches exactly as on the
//! wire, back to back, with `.index`, `.timeindex` and `.txnindex` of the same name beside it. The
//! last segment of a log is *active*: its indexes live in memory and reach their files when it is
//! sealed or the log is closed. A sealed segment's indexes are read when they are needed and
//! forgotten when nobody needs them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::RwLock;
use protocol::ids::{Offset, TimestampMs};

use crate::aborted::AbortedTransactions;
use crate::disk::{DiskFile, ReadMode};
use crate::error::Error;
use crate::offset_index::{self, OffsetIndex};
use crate::open_files::{FileSlot, Files};
use crate::time_index::{self, TimeIndex};

/// The files of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentFile {
    Log,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    ProducerSnapshot,
}

impl SegmentFile {
    /// All of them, the batches first.
    pub(crate) const ALL: [SegmentFile; 5] = [
        SegmentFile::Log,
        SegmentFile::OffsetIndex,
        SegmentFile::TimeIndex,
        SegmentFile::TransactionIndex,
        SegmentFile::ProducerSnapshot,
    ];

    fn suffix(self) -> &'static str {
        match self {
            SegmentFile::Log => "log",
            SegmentFile::OffsetIndex => "index",
            SegmentFile::TimeIndex => "timeindex",
            SegmentFile::TransactionIndex => "txnindex",
            SegmentFile::ProducerSnapshot => "snapshot",
        }
    }

    /// The file's path for the segment (or snapshot) at `base`.
    pub(crate) fn path(self, dir: &Path, base: Offset) -> PathBuf {
        dir.join(format!("{:020}.{}", base.0, self.suffix()))
    }

    /// Reads a file name back; `None` for a file that is none of ours.
    pub(crate) fn parse(name: &str) -> Option<(Offset, SegmentFile)> {
        let (digits, suffix) = name.split_once('.')?;
        let file = SegmentFile::ALL.into_iter().find(|file| file.suffix() == suffix)?;
        if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some((Offset(digits.parse().ok()?), file))
    }
}

/// A segment's indexes in memory.
#[derive(Debug, Clone)]
pub(crate) struct Indexes {
    pub(crate) offsets: OffsetIndex,
    pub(crate) times: TimeIndex,
}

impl Indexes {
    pub(crate) fn new(base: Offset) -> Self {
        Self { offsets: OffsetIndex::new(base), times: TimeIndex::new(base) }
    }

    /// Reads both files; `None` when one is missing, torn or does not fit `bytes` of batches.
    pub(crate) fn load(
        files: &Files,
        dir: &Path,
        base: Offset,
        bytes: u64,
    ) -> Result<Option<Self>, Error> {
        let Some(offsets) = read_file(files, &SegmentFile::OffsetIndex.path(dir, base))? else {
            return Ok(None);
        };
        let Some(times) = read_file(files, &SegmentFile::TimeIndex.path(dir, base))? else {
            return Ok(None);
        };
        let parsed = OffsetIndex::parse(base, &offsets, bytes).zip(TimeIndex::parse(base, &times));
        Ok(parsed.map(|(offsets, times)| Self { offsets, times }))
    }
}

impl Indexes {
    /// Whether both files of a sealed segment are there and whole, without reading all of them:
    /// then the segment's largest timestamp.
    pub(crate) fn probe(
        files: &Files,
        dir: &Path,
        base: Offset,
    ) -> Result<Option<TimestampMs>, Error> {
        let offsets = bytes_of(files, &SegmentFile::OffsetIndex.path(dir, base))?;
        let path = SegmentFile::TimeIndex.path(dir, base);
        let (Some(offsets), Some(times)) = (offsets, bytes_of(files, &path)?) else {
            return Ok(None);
        };
        let (entry, time_entry) =
            (offset_index::ENTRY_BYTES as u64, time_index::ENTRY_BYTES as u64);
        if !offsets.is_multiple_of(entry) || !times.is_multiple_of(time_entry) {
            return Ok(None);
        }
        let Some(at) = times.checked_sub(time_entry) else { return Ok(Some(TimestampMs::NONE)) };
        let file = files.disk.open(&path).map_err(|error| Error::io("open", &path, &error))?;
        let mut last = [0; size_of::<i64>()];
        let read = file
            .read_at(at, &mut last, ReadMode::MayBlock)
            .map_err(|error| Error::io("read", &path, &error))?;
        Ok((read == last.len()).then(|| TimestampMs(i64::from_be_bytes(last))))
    }
}

/// One segment.
pub(crate) struct Segment {
    pub(crate) base: Offset,
    dir: Arc<Path>,
    log: Arc<FileSlot>,
    /// Bytes of the file that may be read.
    bytes: AtomicU64,
    /// Largest timestamp of its batches; -1 without one.
    max_timestamp: AtomicI64,
    /// `None`: not in memory. Always there in the active segment.
    indexes: RwLock<Option<Indexes>>,
    aborted: RwLock<AbortedTransactions>,
    active: AtomicBool,
    used: AtomicBool,
}

impl Segment {
    /// A segment whose file holds `bytes` of batches. With `indexes` it is the active one.
    pub(crate) fn new(
        dir: &Arc<Path>,
        base: Offset,
        bytes: u64,
        max_timestamp: TimestampMs,
        indexes: Option<Indexes>,
    ) -> Arc<Self> {
        Arc::new(Self {
            base,
            dir: Arc::clone(dir),
            log: FileSlot::new(SegmentFile::Log.path(dir, base)),
            bytes: AtomicU64::new(bytes),
            max_timestamp: AtomicI64::new(max_timestamp.0),
            active: AtomicBool::new(indexes.is_some()),
            indexes: RwLock::new(indexes),
            aborted: RwLock::default(),
            used: AtomicBool::new(false),
        })
    }

    /// How many bytes of batches may be read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
    }

    /// The largest timestamp of its batches.
    pub(crate) fn max_timestamp(&self) -> TimestampMs {
        TimestampMs(self.max_timestamp.load(Ordering::Acquire))
    }

    pub(crate) fn set_max_timestamp(&self, timestamp: TimestampMs) {
        self.max_timestamp.store(timestamp.0, Ordering::Release);
    }

    /// The path of the batches.
    pub(crate) fn path(&self) -> &Path {
        self.log.path()
    }

    /// The file of the batches.
    pub(crate) fn file(&self, files: &Files) -> Result<Arc<DiskFile>, Error> {
        self.log.get(files)
    }

    /// The file of the batches, created if it is not there.
    pub(crate) fn create_file(&self, files: &Files) -> Result<Arc<DiskFile>, Error> {
        self.log.create(files)
    }

    /// Fills `buffer` from `position` as far as the file reaches; returns how much that was.
    pub(crate) fn read_at(
        &self,
        files: &Files,
        position: u64,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> Result<usize, Error> {
        if mode == ReadMode::CachedOnly && !self.log.is_open() && files.disk.may_block() {
            return Err(Error::WouldBlock);
        }
        let file = self.file(files)?;
        let mut filled = 0;
        while filled < buffer.len() {
            let at = position + u64::try_from(filled).expect("a buffer's length fits");
            match file.read_at(at, &mut buffer[filled..], mode) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return if filled > 0 { Ok(filled) } else { Err(Error::WouldBlock) };
                }
                Err(error) => return Err(Error::io("read", self.path(), &error)),
            }
        }
        Ok(filled)
    }

    /// Runs `look` on the indexes, which are read from their files if they are not in memory.
    pub(crate) fn with_indexes<T>(
        &self,
        files: &Files,
        mode: ReadMode,
        look: impl FnOnce(&Indexes) -> T,
    ) -> Result<T, Error> {
        self.used.store(true, Ordering::Relaxed);
        if let Some(indexes) = &*self.indexes.read() {
            return Ok(look(indexes));
        }
        match mode {
            ReadMode::CachedOnly => return Err(Error::WouldBlock),
            ReadMode::MayBlock => {}
        }
        let loaded = Indexes::load(files, &self.dir, self.base, self.bytes())?;
        // A sealed segment's index was checked when the log was opened; one that went bad since
        // costs a scan from the start of the segment and no more.
        let loaded = loaded.unwrap_or_else(|| Indexes::new(self.base));
        let answer = look(&loaded);
        let mut indexes = self.indexes.write();
        if indexes.is_none() {
            *indexes = Some(loaded);
        }
        Ok(answer)
    }

    /// Changes the active segment's indexes.
    pub(crate) fn change_indexes<T>(&self, change: impl FnOnce(&mut Indexes) -> T) -> T {
        let mut indexes = self.indexes.write();
        change(indexes.as_mut().expect("the active segment's indexes are in memory"))
    }

    /// Makes this the active segment again, with these indexes.
    pub(crate) fn activate(&self, indexes: Indexes) {
        *self.indexes.write() = Some(indexes);
        self.active.store(true, Ordering::Release);
    }

    /// Looks at the transactions aborted by markers in this segment.
    pub(crate) fn with_aborted<T>(&self, look: impl FnOnce(&AbortedTransactions) -> T) -> T {
        look(&self.aborted.read())
    }

    /// Changes the aborted transactions; the caller keeps their file in step.
    pub(crate) fn change_aborted<T>(
        &self,
        change: impl FnOnce(&mut AbortedTransactions) -> T,
    ) -> T {
        change(&mut self.aborted.write())
    }

    /// Makes the transaction index durable, if there is one.
    pub(crate) fn sync_aborted(&self, files: &Files) -> Result<(), Error> {
        if self.with_aborted(|aborted| aborted.entries().is_empty()) {
            return Ok(());
        }
        let path = SegmentFile::TransactionIndex.path(&self.dir, self.base);
        let synced = files.disk.open(&path).and_then(|file| file.sync_data());
        match synced.and_then(|()| files.disk.sync_dir(&self.dir)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("sync", &path, &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// From now on the indexes' files are complete.
    pub(crate) fn seal(&self) {
        self.active.store(false, Ordering::Release);
    }

    /// Forgets the indexes of a sealed segment that nobody used since the last call.
    pub(crate) fn forget_idle_indexes(&self) {
        let idle = !self.used.swap(false, Ordering::Relaxed);
        if idle && !self.active.load(Ordering::Acquire) {
            *self.indexes.write() = None;
        }
    }
}

/// The bytes of a small file; `None` if there is no such file.
pub(crate) fn read_file(files: &Files, path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match files.disk.read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, &error)),
    }
}

/// How large a file is; `None` if there is no such file.
fn bytes_of(files: &Files, path: &Path) -> Result<Option<u64>, Error> {
    match files.disk.size(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("look at", path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_kafkas() {
        let dir = Path::new("t-0");
        let path = SegmentFile::TimeIndex.path(dir, Offset(42));
        assert_eq!(path, Path::new("t-0/00000000000000000042.timeindex"));
        assert_eq!(
            SegmentFile::parse("00000000000000000042.timeindex"),
            Some((Offset(42), SegmentFile::TimeIndex))
        );
        assert_eq!(SegmentFile::parse("00000000000000000042.log.deleted"), None);
        assert_eq!(SegmentFile::parse("42.log"), None);
        assert_eq!(SegmentFile::parse("leader-epoch-checkpoint"), None);
    }
}
