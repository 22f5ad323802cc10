//! The open files of a process: a segment's file is opened when it is needed and closed when it
//! was not for a while, or when too many are open. Owns which are open; never reads or writes one.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::disk::{Disk, DiskFile};
use crate::error::Error;

/// More open files than this are never asked for.
const FILES_MAX: usize = 1 << 20;

/// The files of one or more log directories that are open now, at most a limit of them.
///
/// Closing goes by second chance: a file used since the last look stays open once more.
pub struct OpenFiles {
    limit: usize,
    open: Mutex<VecDeque<Weak<FileSlot>>>,
}

impl OpenFiles {
    /// Keeps at most `limit` files open (a few more while several are opened at once).
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), open: Mutex::new(VecDeque::new()) })
    }

    /// The open files of all log directories of this process. The first call raises the limit the
    /// system sets the process as far as it goes; half of it is for logs, the rest for sockets.
    #[must_use]
    pub fn of_process() -> Arc<Self> {
        static OF_PROCESS: OnceLock<Arc<OpenFiles>> = OnceLock::new();
        Arc::clone(OF_PROCESS.get_or_init(|| OpenFiles::new(raised_limit() / 2)))
    }

    /// How many files are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Closes the files that nobody used since the last call.
    pub fn close_idle(&self) {
        self.open.lock().retain(|slot| slot.upgrade().is_some_and(|slot| !slot.close_if_unused()));
    }

    fn admit(&self, slot: &Arc<FileSlot>) {
        let mut open = self.open.lock();
        let mut looks = open.len() * 2;
        while open.len() >= self.limit && looks > 0 {
            looks -= 1;
            let Some(oldest) = open.pop_front() else { break };
            let kept = oldest.upgrade().is_some_and(|slot| !slot.close_if_unused());
            if kept {
                open.push_back(oldest);
            }
        }
        open.push_back(Arc::downgrade(slot));
    }
}

/// How many files the system lets this process open, once it was asked for as many as it allows.
fn raised_limit() -> usize {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => now.maximum,
        Err(error) => {
            tracing::warn!(limit = now.current, %error, "the limit of open files stays");
            now.current
        }
    };
    limit.and_then(|limit| usize::try_from(limit).ok()).map_or(FILES_MAX, |it| it.min(FILES_MAX))
}

/// One file that may be open.
pub(crate) struct FileSlot {
    path: PathBuf,
    file: ArcSwapOption<DiskFile>,
    used: AtomicBool,
}

impl FileSlot {
    pub(crate) fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, file: ArcSwapOption::empty(), used: AtomicBool::new(false) })
    }

    /// Where the file was when this slot was made; it may have been renamed since.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is open.
    pub(crate) fn is_open(&self) -> bool {
        self.file.load().is_some()
    }

    /// The open file; opens it if it exists.
    pub(crate) fn get(self: &Arc<Self>, files: &Files) -> Result<Arc<DiskFile>, Error> {
        self.get_or(files, |disk| disk.open(&self.path))
    }

    /// The open file; creates it if it does not exist.
    pub(crate) fn create(self: &Arc<Self>, files: &Files) -> Result<Arc<DiskFile>, Error> {
        self.get_or(files, |disk| disk.create(&self.path))
    }

    fn get_or(
        self: &Arc<Self>,
        files: &Files,
        open: impl FnOnce(&Disk) -> std::io::Result<DiskFile>,
    ) -> Result<Arc<DiskFile>, Error> {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        if let Some(file) = self.file.load_full() {
            return Ok(file);
        }
        let opened = open(&files.disk).map_err(|error| Error::io("open", &self.path, &error))?;
        let opened = Arc::new(opened);
        let before = self.file.swap(Some(Arc::clone(&opened)));
        if before.is_none() {
            files.open.admit(self);
        }
        Ok(opened)
    }

    fn close_if_unused(&self) -> bool {
        let unused = !self.used.swap(false, Ordering::Relaxed);
        if unused {
            self.file.store(None);
        }
        unused
    }
}

/// A disk and its open files: what a log needs to reach its bytes.
#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) disk: Disk,
    pub(crate) open: Arc<OpenFiles>,
}
