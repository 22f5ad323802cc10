//! The file operations a log needs, on a real disk or on one in memory that can lose what was
//! not synced. Owns the choice between the two; never keeps a file open by itself and never
//! retries.
//!
//! What a caller may rely on after a crash, and nothing more:
//!
//! - bytes of a file that [`DiskFile::sync_data`] was called for after they were written;
//! - a file's name, or its absence, that [`Disk::sync_dir`] was called for on its directory after
//!   the file was created, renamed or removed.

use std::io::{self, IoSlice};
use std::path::Path;

pub use self::memory::{MemoryDisk, MemoryFile};
pub use self::os::{OsDisk, OsFile};

mod memory;
mod os;

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadMode {
    /// Answer from the page cache, or fail with [`io::ErrorKind::WouldBlock`] at once.
    CachedOnly,
    /// Wait for the disk where that is needed.
    MayBlock,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// The name without its path.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A lock on a directory, held until it is dropped.
#[derive(Debug)]
pub struct DiskLock(#[expect(dead_code, reason = "held for its drop")] LockKind);

#[derive(Debug)]
enum LockKind {
    Os(#[expect(dead_code, reason = "held for its drop")] os::OsLock),
    Memory(#[expect(dead_code, reason = "held for its drop")] memory::MemoryLock),
}

/// Where log directories lie. Cloning shares the disk.
#[derive(Clone, Debug)]
pub enum Disk {
    /// The machine's file system.
    Os(OsDisk),
    /// A file system in memory, for simulations.
    Memory(MemoryDisk),
}

impl Disk {
    /// The machine's file system.
    #[must_use]
    pub fn os() -> Disk {
        Disk::Os(OsDisk::new())
    }

    /// An empty file system in memory.
    #[must_use]
    pub fn memory() -> Disk {
        Disk::Memory(MemoryDisk::new())
    }

    /// Opens a file that exists, for reading and writing.
    pub fn open(&self, path: &Path) -> io::Result<DiskFile> {
        match self {
            Disk::Os(disk) => disk.open(path).map(DiskFile::Os),
            Disk::Memory(disk) => disk.open(path).map(DiskFile::Memory),
        }
    }

    /// Opens a file for reading and writing, and creates it if it is not there. Keeps what it
    /// holds.
    pub fn create(&self, path: &Path) -> io::Result<DiskFile> {
        match self {
            Disk::Os(disk) => disk.create(path).map(DiskFile::Os),
            Disk::Memory(disk) => disk.create(path).map(DiskFile::Memory),
        }
    }

    /// All bytes of a file; for small ones.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self {
            Disk::Os(disk) => disk.read(path),
            Disk::Memory(disk) => disk.read(path),
        }
    }

    /// Bytes of the file at `path`.
    pub fn size(&self, path: &Path) -> io::Result<u64> {
        match self {
            Disk::Os(disk) => disk.size(path),
            Disk::Memory(disk) => disk.size(path),
        }
    }

    /// Whether a file or directory is at `path`.
    pub fn exists(&self, path: &Path) -> io::Result<bool> {
        match self {
            Disk::Os(disk) => disk.exists(path),
            Disk::Memory(disk) => disk.exists(path),
        }
    }

    /// Whether opening a file may wait for a device.
    pub fn may_block(&self) -> bool {
        match self {
            Disk::Os(_) => true,
            Disk::Memory(_) => false,
        }
    }

    /// The names in a directory, sorted.
    pub fn list(&self, dir: &Path) -> io::Result<Vec<DirectoryEntry>> {
        match self {
            Disk::Os(disk) => disk.list(dir),
            Disk::Memory(disk) => disk.list(dir),
        }
    }

    /// Creates a directory and its parents where they are missing.
    pub fn create_dir(&self, dir: &Path) -> io::Result<()> {
        match self {
            Disk::Os(disk) => disk.create_dir(dir),
            Disk::Memory(disk) => disk.create_dir(dir),
        }
    }

    /// Renames a file or directory, over a file of the new name.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self {
            Disk::Os(disk) => disk.rename(from, to),
            Disk::Memory(disk) => disk.rename(from, to),
        }
    }

    /// Removes a file. Open handles of it keep working.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        match self {
            Disk::Os(disk) => disk.remove(path),
            Disk::Memory(disk) => disk.remove(path),
        }
    }

    /// Removes a directory with all it holds.
    pub fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        match self {
            Disk::Os(disk) => disk.remove_dir(dir),
            Disk::Memory(disk) => disk.remove_dir(dir),
        }
    }

    /// Makes the names in a directory durable.
    pub fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match self {
            Disk::Os(disk) => disk.sync_dir(dir),
            Disk::Memory(disk) => disk.sync_dir(dir),
        }
    }

    /// Takes the lock file at `path`, which it creates; `None` if somebody else holds it.
    pub fn try_lock(&self, path: &Path) -> io::Result<Option<DiskLock>> {
        let lock = match self {
            Disk::Os(disk) => disk.try_lock(path)?.map(LockKind::Os),
            Disk::Memory(disk) => disk.try_lock(path)?.map(LockKind::Memory),
        };
        Ok(lock.map(DiskLock))
    }

    /// Replaces the file at `path` by one that holds `bytes`: after a crash it is the old or the
    /// new one, whole. The new one is written beside it with `.tmp` added to its name.
    pub fn write_atomically(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = Path::new(&temporary);
        let file = self.create(temporary)?;
        file.set_len(0)?;
        file.write_at(0, bytes)?;
        file.sync_data()?;
        self.rename(temporary, path)?;
        match path.parent() {
            Some(dir) => self.sync_dir(dir),
            None => Ok(()),
        }
    }
}

/// An open file. Cloning shares the handle; it is closed with the last clone.
#[derive(Clone, Debug)]
pub enum DiskFile {
    /// A file of the machine.
    Os(OsFile),
    /// A file in memory.
    Memory(MemoryFile),
}

impl DiskFile {
    /// Reads from `position` into `buffer`; returns how many bytes there were, 0 at the end. May
    /// read fewer than there are.
    pub fn read_at(&self, position: u64, buffer: &mut [u8], mode: ReadMode) -> io::Result<usize> {
        match self {
            DiskFile::Os(file) => file.read_at(position, buffer, mode),
            DiskFile::Memory(file) => file.read_at(position, buffer),
        }
    }

    /// Writes all of `parts`, one after the other, from `position` on. A failure may leave a
    /// part written.
    pub fn write_vectored_at(&self, position: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        match self {
            DiskFile::Os(file) => file.write_vectored_at(position, parts),
            DiskFile::Memory(file) => file.write_vectored_at(position, parts),
        }
    }

    /// Writes all of `bytes` from `position` on.
    pub fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_vectored_at(position, &mut [IoSlice::new(bytes)])
    }

    /// Makes the bytes durable.
    pub fn sync_data(&self) -> io::Result<()> {
        match self {
            DiskFile::Os(file) => file.sync_data(),
            DiskFile::Memory(file) => file.sync_data(),
        }
    }

    /// Cuts the file to `len` bytes, or adds zeros up to there.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        match self {
            DiskFile::Os(file) => file.set_len(len),
            DiskFile::Memory(file) => file.set_len(len),
        }
    }

    /// Bytes of the file.
    pub fn size(&self) -> io::Result<u64> {
        match self {
            DiskFile::Os(file) => file.size(),
            DiskFile::Memory(file) => file.size(),
        }
    }

    /// The file for `sendfile`; `None` in memory.
    #[must_use]
    pub fn os_file(&self) -> Option<&std::fs::File> {
        match self {
            DiskFile::Os(file) => Some(file.file()),
            DiskFile::Memory(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn read_all(file: &DiskFile) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
        let read = file.read_at(0, &mut bytes, ReadMode::MayBlock).unwrap();
        assert_eq!(read, bytes.len());
        bytes
    }

    /// Both disks must do the same.
    fn on_both(check: impl Fn(&Disk, PathBuf)) {
        let folder = tempfile::tempdir().unwrap();
        check(&Disk::os(), folder.path().join("d"));
        check(&Disk::memory(), PathBuf::from("/logs/d"));
    }

    #[test]
    fn files_hold_what_is_written_where_it_is_written() {
        on_both(|disk, dir| {
            disk.create_dir(&dir).unwrap();
            let path = dir.join("a");
            assert_eq!(disk.open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
            let file = disk.create(&path).unwrap();
            let mut parts = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")];
            file.write_vectored_at(2, &mut parts).unwrap();
            assert_eq!(read_all(&file), b"\0\0one two");
            file.write_at(0, b"> ").unwrap();
            file.set_len(5).unwrap();
            assert_eq!(disk.read(&path).unwrap(), b"> one");
            assert_eq!((disk.size(&path).unwrap(), file.size().unwrap()), (5, 5));
            assert_eq!(file.read_at(5, &mut [0; 4], ReadMode::MayBlock).unwrap(), 0);
            assert_eq!(file.read_at(90, &mut [0; 4], ReadMode::MayBlock).unwrap(), 0);
            file.sync_data().unwrap();
            let again = disk.create(&path).unwrap();
            assert_eq!(read_all(&again), b"> one");
        });
    }

    #[test]
    fn fresh_bytes_are_read_from_the_cache() {
        on_both(|disk, dir| {
            disk.create_dir(&dir).unwrap();
            let file = disk.create(&dir.join("a")).unwrap();
            file.write_at(0, b"cached").unwrap();
            let mut buffer = [0; 6];
            assert_eq!(file.read_at(0, &mut buffer, ReadMode::CachedOnly).unwrap(), 6);
            assert_eq!(&buffer, b"cached");
        });
    }

    #[test]
    fn many_parts_are_one_write() {
        on_both(|disk, dir| {
            disk.create_dir(&dir).unwrap();
            let file = disk.create(&dir.join("a")).unwrap();
            let bytes: Vec<u8> = (0..3_000u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut parts: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
            file.write_vectored_at(0, &mut parts).unwrap();
            assert_eq!(read_all(&file), bytes);
        });
    }

    #[test]
    fn names_are_listed_sorted_and_can_be_changed() {
        on_both(|disk, dir| {
            disk.create_dir(&dir.join("t-0")).unwrap();
            disk.create(&dir.join("b")).unwrap();
            disk.create(&dir.join("a")).unwrap();
            disk.create(&dir.join("t-0").join("inner")).unwrap();
            let names = |dir: &Path| -> Vec<String> {
                disk.list(dir).unwrap().into_iter().map(|entry| entry.name).collect()
            };
            assert_eq!(names(&dir), ["a", "b", "t-0"]);
            assert!(disk.list(&dir).unwrap()[2].is_dir);
            disk.rename(&dir.join("a"), &dir.join("b")).unwrap();
            disk.rename(&dir.join("t-0"), &dir.join("t-1")).unwrap();
            assert_eq!(names(&dir), ["b", "t-1"]);
            assert_eq!(names(&dir.join("t-1")), ["inner"]);
            disk.remove(&dir.join("b")).unwrap();
            assert!(!disk.exists(&dir.join("b")).unwrap());
            disk.remove_dir(&dir.join("t-1")).unwrap();
            disk.sync_dir(&dir).unwrap();
            assert!(names(&dir).is_empty());
            assert!(disk.list(&dir.join("t-1")).is_err());
        });
    }

    #[test]
    fn a_removed_file_stays_readable_through_its_handle() {
        on_both(|disk, dir| {
            disk.create_dir(&dir).unwrap();
            let file = disk.create(&dir.join("a")).unwrap();
            file.write_at(0, b"still here").unwrap();
            disk.remove(&dir.join("a")).unwrap();
            assert_eq!(read_all(&file), b"still here");
        });
    }

    #[test]
    fn a_lock_has_one_holder() {
        on_both(|disk, dir| {
            disk.create_dir(&dir).unwrap();
            let lock = disk.try_lock(&dir.join(".lock")).unwrap();
            assert!(lock.is_some());
            assert!(disk.try_lock(&dir.join(".lock")).unwrap().is_none());
            drop(lock);
            assert!(disk.try_lock(&dir.join(".lock")).unwrap().is_some());
        });
    }

    #[test]
    fn an_atomic_write_replaces_the_file() {
        on_both(|disk, dir| {
            disk.create_dir(&dir).unwrap();
            let path = dir.join("checkpoint");
            disk.write_atomically(&path, b"a longer first text").unwrap();
            disk.write_atomically(&path, b"second").unwrap();
            assert_eq!(disk.read(&path).unwrap(), b"second");
            assert!(!disk.exists(&dir.join("checkpoint.tmp")).unwrap());
        });
    }
}
