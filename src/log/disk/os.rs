//! The machine's file system. Owns the system calls; never buffers.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{DirectoryEntry, ReadMode};

/// How many buffers one system call takes on Linux.
const IO_VECTORS_MAX: usize = 1_024;

/// The machine's file system.
#[derive(Clone, Debug)]
pub struct OsDisk {
    /// Some file systems cannot say whether a read would wait; once one did not, nothing asks it
    /// again.
    tells_cached: Arc<AtomicBool>,
}

impl Default for OsDisk {
    fn default() -> OsDisk {
        OsDisk::new()
    }
}

impl OsDisk {
    /// The machine's file system.
    #[must_use]
    pub fn new() -> OsDisk {
        OsDisk { tells_cached: Arc::new(AtomicBool::new(true)) }
    }

    pub(super) fn open(&self, path: &Path) -> io::Result<OsFile> {
        self.handle(OpenOptions::new().read(true).write(true), path)
    }

    pub(super) fn create(&self, path: &Path) -> io::Result<OsFile> {
        self.handle(OpenOptions::new().read(true).write(true).create(true).truncate(false), path)
    }

    fn handle(&self, options: &OpenOptions, path: &Path) -> io::Result<OsFile> {
        let file = Arc::new(options.open(path)?);
        Ok(OsFile { file, tells_cached: Arc::clone(&self.tells_cached) })
    }

    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    pub(super) fn size(&self, path: &Path) -> io::Result<u64> {
        fs::metadata(path).map(|metadata| metadata.len())
    }

    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(path)
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // A name that is no UTF-8 is none that a log has.
            let Ok(name) = entry.file_name().into_string() else { continue };
            entries.push(DirectoryEntry { name, is_dir: entry.file_type()?.is_dir() });
        }
        entries.sort();
        Ok(entries)
    }

    pub(super) fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    pub(super) fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(dir)
    }

    pub(super) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    pub(super) fn try_lock(&self, path: &Path) -> io::Result<Option<OsLock>> {
        let file = self.create(path)?;
        match file.file.try_lock() {
            Ok(()) => Ok(Some(OsLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// A locked file; the system unlocks it when it is closed, at the latest when the process ends.
#[derive(Debug)]
pub(super) struct OsLock {
    _file: OsFile,
}

/// A file of the machine.
#[derive(Clone, Debug)]
pub struct OsFile {
    file: Arc<File>,
    /// False once a file system in memory was met, which cannot tell what is cached: all of it is.
    tells_cached: Arc<AtomicBool>,
}

impl OsFile {
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn read_at(
        &self,
        position: u64,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> io::Result<usize> {
        let ask_cache = mode == ReadMode::CachedOnly && self.tells_cached.load(Ordering::Relaxed);
        if !ask_cache {
            return self.file.read_at(buffer, position);
        }
        match self.read_cached(position, buffer) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                if !self.is_in_memory() {
                    // It might wait for a disk, and there is no asking.
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                self.tells_cached.store(false, Ordering::Relaxed);
                self.file.read_at(buffer, position)
            }
            answer => answer,
        }
    }

    #[cfg(target_os = "linux")]
    fn is_in_memory(&self) -> bool {
        const TMPFS: u32 = 0x0102_1994;
        const RAMFS: u32 = 0x8584_58f6;
        rustix::fs::fstatfs(&*self.file).is_ok_and(|system| {
            u32::try_from(system.f_type).is_ok_and(|magic| [TMPFS, RAMFS].contains(&magic))
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn is_in_memory(&self) -> bool {
        false
    }

    #[cfg(target_os = "linux")]
    fn read_cached(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffers = [io::IoSliceMut::new(buffer)];
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        Ok(rustix::io::preadv2(&*self.file, &mut buffers, position, flags)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn read_cached(&self, _position: u64, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn write_vectored_at(
        &self,
        position: u64,
        parts: &mut [IoSlice<'_>],
    ) -> io::Result<()> {
        let mut parts = parts;
        let mut position = position;
        // Leaves out empty parts at the front, so that a write of nothing is not taken for a
        // full disk.
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let some = &parts[..parts.len().min(IO_VECTORS_MAX)];
            let written = match rustix::io::pwritev(&*self.file, some, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            position += u64::try_from(written).expect("a buffer is shorter than 2^64");
            IoSlice::advance_slices(&mut parts, written);
        }
        Ok(())
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    pub(super) fn size(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }
}
