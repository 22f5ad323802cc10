//! A file system in memory with what a crash would leave: every file has live and durable bytes,
//! every directory live and durable names. Owns the faults that tests order; never acts on its
//! own.
//!
//! Like a journalling file system taken at its word only: a name is durable when its directory
//! was synced, bytes when their file was. A crash takes everything back to what is durable;
//! handles from before it fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::DirectoryEntry;

type Inode = u64;

const ROOT: Inode = 0;

/// A file system in memory. Cloning shares it.
#[derive(Clone)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    nodes: BTreeMap<Inode, Node>,
    next: Inode,
    /// Counts the crashes; a handle of an earlier life fails.
    life: u64,
    locked: BTreeSet<PathBuf>,
    writes: u64,
    syncs: u64,
    fail_write_at: Option<u64>,
    fail_sync_at: Option<u64>,
    halt_at_sync: Option<u64>,
    halted: bool,
    ignore_syncs: bool,
}

enum Node {
    File(FileBytes),
    Dir(DirNames),
}

/// A file: `durable` equals `live` below `dirty_from`, and both end there or it is the first
/// difference.
#[derive(Default)]
struct FileBytes {
    live: Vec<u8>,
    durable: Vec<u8>,
    dirty_from: usize,
}

#[derive(Default)]
struct DirNames {
    live: BTreeMap<String, Inode>,
    durable: BTreeMap<String, Inode>,
}

impl Default for MemoryDisk {
    fn default() -> MemoryDisk {
        MemoryDisk::new()
    }
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(formatter, "MemoryDisk({} nodes, life {})", state.nodes.len(), state.life)
    }
}

impl MemoryDisk {
    /// An empty file system.
    #[must_use]
    pub fn new() -> MemoryDisk {
        let state = State {
            nodes: BTreeMap::from([(ROOT, Node::Dir(DirNames::default()))]),
            next: ROOT + 1,
            life: 0,
            locked: BTreeSet::new(),
            writes: 0,
            syncs: 0,
            fail_write_at: None,
            fail_sync_at: None,
            halt_at_sync: None,
            halted: false,
            ignore_syncs: false,
        };
        MemoryDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Loses everything that is not durable, frees all locks, and cancels the faults ordered
    /// before. Handles from before fail from now on.
    pub fn crash(&self) {
        self.crash_keeping(|_, _| 0);
    }

    /// Crashes, but of each file's bytes that were appended and not synced the first ones
    /// survive: as many as
    /// `keep(inode, unsynced bytes)` says. That is how a torn tail comes about.
    pub fn crash_keeping(&self, mut keep: impl FnMut(u64, u64) -> u64) {
        let mut state = self.state.lock();
        for (inode, node) in &mut state.nodes {
            match node {
                Node::File(file) => file.crash(|unsynced| keep(*inode, unsynced)),
                Node::Dir(names) => names.live = names.durable.clone(),
            }
        }
        state.forget_unreachable();
        state.life += 1;
        state.locked.clear();
        (state.fail_write_at, state.fail_sync_at, state.halt_at_sync) = (None, None, None);
        state.halted = false;
    }

    /// Makes the `nth` write from now fail after half of its bytes; 1 is the next.
    pub fn fail_write(&self, nth: u64) {
        let mut state = self.state.lock();
        state.fail_write_at = Some(state.writes + nth);
    }

    /// Makes the `nth` sync from now, of a file or a directory, fail without effect; 1 is the
    /// next.
    pub fn fail_sync(&self, nth: u64) {
        let mut state = self.state.lock();
        state.fail_sync_at = Some(state.syncs + nth);
    }

    /// Takes back what is to fail and has not yet.
    pub fn mend(&self) {
        let mut state = self.state.lock();
        (state.fail_write_at, state.fail_sync_at) = (None, None);
    }

    /// Lets no change through from the `nth` sync from now on, that one included, until the next
    /// crash.
    pub fn halt_at_sync(&self, nth: u64) {
        let mut state = self.state.lock();
        state.halt_at_sync = Some(state.syncs + nth);
    }

    /// With `true` every sync succeeds and makes nothing durable: a disk that lies.
    pub fn ignore_syncs(&self, ignore: bool) {
        self.state.lock().ignore_syncs = ignore;
    }

    /// How many writes there were.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    /// How many syncs there were.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    pub(super) fn open(&self, path: &Path) -> io::Result<MemoryFile> {
        let state = self.state.lock();
        let inode = state.find(path)?;
        state.file(inode)?;
        Ok(self.handle(inode, state.life))
    }

    pub(super) fn create(&self, path: &Path) -> io::Result<MemoryFile> {
        let mut state = self.state.lock();
        if let Ok(inode) = state.find(path) {
            state.file(inode)?;
            return Ok(self.handle(inode, state.life));
        }
        state.check_running()?;
        let (parent, name) = state.parent(path)?;
        let inode = state.add(Node::File(FileBytes::default()));
        state.names(parent)?.live.insert(name, inode);
        Ok(self.handle(inode, state.life))
    }

    fn handle(&self, inode: Inode, life: u64) -> MemoryFile {
        MemoryFile { disk: self.clone(), inode, life }
    }

    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state.lock();
        state.file(state.find(path)?).map(|file| file.live.clone())
    }

    pub(super) fn size(&self, path: &Path) -> io::Result<u64> {
        let state = self.state.lock();
        state.file(state.find(path)?).map(|file| length(&file.live))
    }

    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state.lock().find(path).is_ok())
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut state = self.state.lock();
        let inode = state.find(dir)?;
        let names = state.names(inode)?.live.clone();
        let entries = names.into_iter().map(|(name, inode)| DirectoryEntry {
            name,
            is_dir: matches!(state.nodes.get(&inode), Some(Node::Dir(_))),
        });
        Ok(entries.collect())
    }

    pub(super) fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_running()?;
        let mut inode = ROOT;
        for name in names(dir)? {
            inode = match state.names(inode)?.live.get(&name) {
                Some(child) => *child,
                None => {
                    let child = state.add(Node::Dir(DirNames::default()));
                    state.names(inode)?.live.insert(name, child);
                    child
                }
            };
        }
        state.names(inode).map(|_| ())
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_running()?;
        let inode = state.find(from)?;
        let (from_parent, from_name) = state.parent(from)?;
        let (to_parent, to_name) = state.parent(to)?;
        if let Ok(replaced) = state.find(to) {
            state.file(replaced)?;
        }
        state.names(from_parent)?.live.remove(&from_name);
        state.names(to_parent)?.live.insert(to_name, inode);
        Ok(())
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_running()?;
        let inode = state.find(path)?;
        state.file(inode)?;
        let (parent, name) = state.parent(path)?;
        state.names(parent)?.live.remove(&name);
        Ok(())
    }

    pub(super) fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_running()?;
        let inode = state.find(dir)?;
        state.names(inode)?;
        let (parent, name) = state.parent(dir)?;
        state.names(parent)?.live.remove(&name);
        Ok(())
    }

    pub(super) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.find(dir)?;
        if state.begin_sync()? {
            let names = state.names(inode)?;
            names.durable = names.live.clone();
        }
        Ok(())
    }

    pub(super) fn try_lock(&self, path: &Path) -> io::Result<Option<MemoryLock>> {
        self.create(path)?;
        let mut state = self.state.lock();
        let life = state.life;
        let path = path.to_owned();
        let free = state.locked.insert(path.clone());
        Ok(free.then(|| MemoryLock { disk: self.clone(), path, life }))
    }
}

impl State {
    fn add(&mut self, node: Node) -> Inode {
        let inode = self.next;
        self.next += 1;
        self.nodes.insert(inode, node);
        inode
    }

    fn find(&self, path: &Path) -> io::Result<Inode> {
        let mut inode = ROOT;
        for name in names(path)? {
            inode = match self.nodes.get(&inode) {
                Some(Node::Dir(names)) => *names.live.get(&name).ok_or_else(|| missing(path))?,
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(missing(path)),
            };
        }
        Ok(inode)
    }

    fn parent(&self, path: &Path) -> io::Result<(Inode, String)> {
        let name = names(path)?.pop().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.find(path.parent().unwrap_or(Path::new("")))?, name))
    }

    fn names(&mut self, inode: Inode) -> io::Result<&mut DirNames> {
        match self.nodes.get_mut(&inode) {
            Some(Node::Dir(names)) => Ok(names),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file(&self, inode: Inode) -> io::Result<&FileBytes> {
        match self.nodes.get(&inode) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn file_mut(&mut self, inode: Inode) -> io::Result<&mut FileBytes> {
        match self.nodes.get_mut(&inode) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn check_running(&self) -> io::Result<()> {
        if self.halted { Err(io::Error::other("the disk has halted")) } else { Ok(()) }
    }

    /// Counts a sync; says whether it is to have an effect.
    fn begin_sync(&mut self) -> io::Result<bool> {
        self.syncs += 1;
        if self.halt_at_sync == Some(self.syncs) {
            self.halted = true;
        }
        self.check_running()?;
        if self.fail_sync_at == Some(self.syncs) {
            self.fail_sync_at = None;
            return Err(io::Error::other("a sync failed on purpose"));
        }
        Ok(!self.ignore_syncs)
    }

    fn forget_unreachable(&mut self) {
        let mut reachable = BTreeSet::new();
        let mut pending = vec![ROOT];
        while let Some(inode) = pending.pop() {
            reachable.insert(inode);
            if let Some(Node::Dir(names)) = self.nodes.get(&inode) {
                pending.extend(names.live.values());
            }
        }
        self.nodes.retain(|inode, _| reachable.contains(inode));
    }
}

impl FileBytes {
    fn write(&mut self, position: usize, bytes: &[u8]) {
        let end = position + bytes.len();
        if self.live.len() < end {
            self.dirty_from = self.dirty_from.min(self.live.len());
            self.live.resize(end, 0);
        }
        self.live[position..end].copy_from_slice(bytes);
        self.dirty_from = self.dirty_from.min(position);
    }

    fn set_len(&mut self, len: usize) {
        self.dirty_from = self.dirty_from.min(len).min(self.live.len());
        self.live.resize(len, 0);
    }

    fn sync(&mut self) {
        self.durable.truncate(self.dirty_from);
        self.durable.extend_from_slice(&self.live[self.dirty_from..]);
        self.dirty_from = self.live.len();
    }

    fn crash(&mut self, keep: impl FnOnce(u64) -> u64) {
        let appended = if self.dirty_from >= self.durable.len() {
            self.live.split_off(self.durable.len())
        } else {
            Vec::new()
        };
        self.live.truncate(self.dirty_from);
        self.live.extend_from_slice(&self.durable[self.live.len()..]);
        if !appended.is_empty() {
            let kept = usize::try_from(keep(length(&appended))).unwrap_or(usize::MAX);
            self.live.extend_from_slice(&appended[..kept.min(appended.len())]);
            self.durable = self.live.clone();
        }
        self.dirty_from = self.live.len();
    }
}

/// A locked path.
#[derive(Debug)]
pub(super) struct MemoryLock {
    disk: MemoryDisk,
    path: PathBuf,
    life: u64,
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.life == self.life {
            state.locked.remove(&self.path);
        }
    }
}

/// A file in memory.
#[derive(Clone, Debug)]
pub struct MemoryFile {
    disk: MemoryDisk,
    inode: Inode,
    life: u64,
}

impl MemoryFile {
    fn state(&self) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.disk.state.lock();
        if state.life == self.life {
            Ok(state)
        } else {
            Err(io::Error::other("the disk crashed since the file was opened"))
        }
    }

    pub(super) fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.state()?;
        let live = &state.file(self.inode)?.live;
        let from = usize::try_from(position).unwrap_or(usize::MAX).min(live.len());
        let count = buffer.len().min(live.len() - from);
        buffer[..count].copy_from_slice(&live[from..from + count]);
        Ok(count)
    }

    pub(super) fn write_vectored_at(
        &self,
        position: u64,
        parts: &mut [IoSlice<'_>],
    ) -> io::Result<()> {
        let position = in_memory(position)?;
        let bytes = parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>();
        let mut state = self.state()?;
        state.check_running()?;
        state.writes += 1;
        let fails = state.fail_write_at == Some(state.writes);
        let file = state.file_mut(self.inode)?;
        if fails {
            file.write(position, &bytes[..bytes.len() / 2]);
            state.fail_write_at = None;
            return Err(io::Error::other("a write failed on purpose"));
        }
        file.write(position, &bytes);
        Ok(())
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state()?;
        if state.begin_sync()? {
            state.file_mut(self.inode)?.sync();
        }
        Ok(())
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        let len = in_memory(len)?;
        let mut state = self.state()?;
        state.check_running()?;
        state.file_mut(self.inode)?.set_len(len);
        Ok(())
    }

    pub(super) fn size(&self) -> io::Result<u64> {
        self.state()?.file(self.inode).map(|file| length(&file.live))
    }
}

/// The names a path leads through; `.` and the root count for nothing.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => {
                names.push(name.to_str().ok_or(io::ErrorKind::InvalidFilename)?.to_owned());
            }
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::ErrorKind::InvalidFilename.into());
            }
        }
    }
    Ok(names)
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} is not there", path.display()))
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("bytes in memory are fewer than 2^64")
}

fn in_memory(position: u64) -> io::Result<usize> {
    usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(file: &MemoryFile, position: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_vectored_at(position, &mut [IoSlice::new(bytes)])
    }

    #[test]
    fn a_crash_takes_back_what_was_not_synced() {
        let disk = MemoryDisk::new();
        let path = Path::new("/d/a");
        disk.create_dir(Path::new("/d")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let file = disk.create(path).unwrap();
        written(&file, 0, b"synced").unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        written(&file, 6, b" and not").unwrap();
        written(&file, 0, b"S").unwrap();
        disk.create(Path::new("/d/b")).unwrap();
        disk.crash();
        assert_eq!(disk.read(path).unwrap(), b"synced");
        assert!(!disk.exists(Path::new("/d/b")).unwrap());
        assert!(file.size().is_err(), "a handle from before the crash fails");
        assert_eq!(disk.open(path).unwrap().size().unwrap(), 6);
    }

    #[test]
    fn names_are_durable_with_their_directory_only() {
        let disk = MemoryDisk::new();
        disk.create_dir(Path::new("/d")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let file = disk.create(Path::new("/d/a.tmp")).unwrap();
        written(&file, 0, b"x").unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.rename(Path::new("/d/a.tmp"), Path::new("/d/a")).unwrap();
        disk.crash();
        assert!(disk.exists(Path::new("/d/a.tmp")).unwrap());
        disk.rename(Path::new("/d/a.tmp"), Path::new("/d/a")).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.remove(Path::new("/d/a")).unwrap();
        disk.crash();
        assert_eq!(disk.read(Path::new("/d/a")).unwrap(), b"x");
    }

    #[test]
    fn a_crash_can_leave_a_torn_tail() {
        let disk = MemoryDisk::new();
        let file = disk.create(Path::new("/a")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        written(&file, 0, b"safe").unwrap();
        file.sync_data().unwrap();
        written(&file, 4, b"torn tail").unwrap();
        disk.crash_keeping(|_, unsynced| unsynced - 5);
        assert_eq!(disk.read(Path::new("/a")).unwrap(), b"safetorn");
    }

    #[test]
    fn ordered_faults_come_when_ordered() {
        let disk = MemoryDisk::new();
        let file = disk.create(Path::new("/a")).unwrap();
        disk.fail_write(2);
        written(&file, 0, b"one").unwrap();
        assert!(written(&file, 3, b"four").is_err());
        assert_eq!(disk.read(Path::new("/a")).unwrap(), b"onefo", "half of it was written");
        written(&file, 3, b"four").unwrap();
        disk.fail_sync(1);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        disk.halt_at_sync(1);
        assert!(file.sync_data().is_err());
        assert!(written(&file, 0, b"x").is_err());
        assert!(disk.create(Path::new("/b")).is_err());
    }

    #[test]
    fn a_lying_disk_makes_nothing_durable() {
        let disk = MemoryDisk::new();
        disk.ignore_syncs(true);
        disk.create(Path::new("/a")).unwrap().sync_data().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.crash();
        assert!(!disk.exists(Path::new("/a")).unwrap());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        SetLen(u64),
        Sync,
        Crash,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..40, proptest::collection::vec(any::<u8>(), 0..20))
                .prop_map(|(position, bytes)| Step::Write(position, bytes)),
            1 => (0u64..60).prop_map(Step::SetLen),
            2 => Just(Step::Sync),
            1 => Just(Step::Crash),
        ]
    }

    proptest! {
        #[test]
        fn a_crash_always_leaves_the_last_synced_bytes(
            steps in proptest::collection::vec(step(), 0..40),
        ) {
            let path = Path::new("/a");
            let disk = MemoryDisk::new();
            let mut file = disk.create(path).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            let (mut live, mut durable) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Write(position, bytes) => {
                        written(&file, position, &bytes).unwrap();
                        let position = usize::try_from(position).unwrap();
                        let end = position + bytes.len();
                        live.resize(live.len().max(end), 0);
                        live[position..end].copy_from_slice(&bytes);
                    }
                    Step::SetLen(len) => {
                        file.set_len(len).unwrap();
                        live.resize(usize::try_from(len).unwrap(), 0);
                    }
                    Step::Sync => {
                        file.sync_data().unwrap();
                        durable.clone_from(&live);
                    }
                    Step::Crash => {
                        disk.crash();
                        file = disk.open(path).unwrap();
                        live.clone_from(&durable);
                    }
                }
                prop_assert_eq!(&disk.read(path).unwrap(), &live);
            }
        }
    }
}
