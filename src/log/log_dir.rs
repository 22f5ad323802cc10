//! One log directory: the handle through which everyone reaches its writer. Owns the queue and the
//! writer's life (opening, its thread, stopping, crashing); never changes a log itself.
//!
//! | name in the directory | content |
//! |---|---|
//! | `<topic>-<partition>/` | a log, see `partition_log.rs` |
//! | `<topic>-<partition>.<n>-delete/` | a deleted log that goes with the next start |
//! | `recovery-point-offset-checkpoint` | per log: below it everything is durable |
//! | `log-start-offset-checkpoint` | per log: its first offset |
//! | `replication-offset-checkpoint` | per log: its high watermark |
//! | `.kafka_cleanshutdown` | the last stop was clean |
//! | `.lock` | locked while a process uses the directory |

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::{JoinHandle, ThreadId};

use parking_lot::Mutex;
use protocol::ids::{BrokerEpoch, LeaderEpoch, Offset, TimestampMs};

use crate::command::{Command, Queue};
use crate::config::LogConfig;
use crate::disk::Disk;
use crate::error::Error;
use crate::lease::{Append, Appended, Lease, LogId, Reply, Truncated};
use crate::open_files::OpenFiles;
use crate::writer::{Stopped, Writer};

mod open;

pub use open::holds_logs;

/// Open files a process keeps if it is not told otherwise.
const OPEN_FILES: usize = 10_000;
/// How often the checkpoints are written (`replica.high.watermark.checkpoint.interval.ms`).
const CHECKPOINT_INTERVAL_MS: i64 = 5_000;

/// Who runs the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// A thread of the directory's own.
    Thread,
    /// Whoever calls [`LogDir::run_pending`]: the simulation's form.
    Inline,
}

/// How a directory is opened.
#[derive(Clone)]
pub struct LogDirOptions {
    /// Who runs the commands.
    pub driver: Driver,
    /// The process's open files, shared by all its directories.
    pub open_files: Arc<OpenFiles>,
    /// The settings logs are recovered with, until a lease brings theirs.
    pub config: LogConfig,
    /// How often [`LogDir::tick`] writes the checkpoints.
    pub checkpoint_interval_ms: i64,
    /// Called when a command was queued, with [`Driver::Inline`] only: to have
    /// [`LogDir::run_pending`] called soon.
    pub on_queued: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Default for LogDirOptions {
    fn default() -> Self {
        Self {
            driver: Driver::Thread,
            open_files: OpenFiles::new(OPEN_FILES),
            config: LogConfig::default(),
            checkpoint_interval_ms: CHECKPOINT_INTERVAL_MS,
            on_queued: None,
        }
    }
}

/// A handle to one log directory; cheap to clone.
///
/// Every method queues a command and returns; the reply is called on the writer's thread, in the
/// order of the commands of one log. Dropping the last handle is a [crash](LogDir::crash).
#[derive(Clone)]
pub struct LogDir {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    queue: Arc<Queue>,
    broker_epoch: Arc<AtomicI64>,
    previous_broker_epoch: Option<BrokerEpoch>,
    found: Vec<LogId>,
    on_queued: Option<Arc<dyn Fn() + Send + Sync>>,
    run: Run,
}

/// Who has the writer.
enum Run {
    Thread { id: ThreadId, thread: Mutex<Option<JoinHandle<()>>> },
    Inline(Mutex<Option<Box<Writer>>>),
}

impl LogDir {
    /// Opens a directory, which is made if it is not there, and recovers its logs. May take long
    /// after an unclean stop.
    ///
    /// # Errors
    /// [`Error::Locked`] when another process (or another handle) uses it; [`Error::Io`] and
    /// [`Error::CorruptFile`] when it cannot be read.
    pub fn open(disk: Disk, path: &Path, options: LogDirOptions) -> Result<LogDir, Error> {
        open::open(disk, path, options).map(|shared| LogDir { shared: Arc::new(shared) })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The logs that were here when the directory was opened, sorted.
    #[must_use]
    pub fn found(&self) -> &[LogId] {
        &self.shared.found
    }

    /// The broker epoch of the last stop if that was clean; `None` after a crash and in a new
    /// directory.
    #[must_use]
    pub fn previous_broker_epoch(&self) -> Option<BrokerEpoch> {
        self.shared.previous_broker_epoch
    }

    /// Sets the broker epoch that a clean stop records.
    pub fn set_broker_epoch(&self, epoch: BrokerEpoch) {
        self.shared.broker_epoch.store(epoch.0, Ordering::Release);
    }

    /// Creates or opens a log, ends its older leases and gives out a new one.
    ///
    /// A log that closed itself after a failed write is recovered first.
    ///
    /// # Errors
    /// [`Error::TopicIdMismatch`] when another topic's log of that name lies here: delete it
    /// first.
    pub fn lease(&self, id: LogId, config: LogConfig, reply: Reply<Lease>) {
        self.push(Command::Lease { id, config, reply });
    }

    /// Puts new settings in force, from the next append on.
    pub fn configure(&self, lease: &Lease, config: LogConfig, reply: Reply<()>) {
        self.push(Command::Configure { lease: lease.clone(), config, reply });
    }

    /// Appends batches.
    pub fn append(&self, lease: &Lease, append: Append, reply: Reply<Appended>) {
        self.push(Command::Append { lease: lease.clone(), append, reply });
    }

    /// Cuts the log so that it ends at `to`, or below it where `to` lies inside a batch. A log
    /// that ends at or below `to` is left as it is.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] when `to` lies below the log's start: reset it instead.
    pub fn truncate(&self, lease: &Lease, to: Offset, reply: Reply<Truncated>) {
        self.push(Command::Truncate { lease: lease.clone(), to, reply });
    }

    /// Empties the log and lets it start (and end) at `start`.
    pub fn reset(&self, lease: &Lease, start: Offset, reply: Reply<Truncated>) {
        self.push(Command::Reset { lease: lease.clone(), start, reply });
    }

    /// Raises the log's start; a lower one changes nothing. Answers the start in force.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] above the high watermark.
    pub fn set_log_start(&self, lease: &Lease, start: Offset, reply: Reply<Offset>) {
        self.push(Command::SetLogStart { lease: lease.clone(), start, reply });
    }

    /// Notes that batches from the log's end on are of `epoch`. A leader's first act, except on a
    /// mirror that is not stopped (only batches feed its epochs).
    pub fn start_leader_epoch(&self, lease: &Lease, epoch: LeaderEpoch, reply: Reply<()>) {
        self.push(Command::StartLeaderEpoch { lease: lease.clone(), epoch, reply });
    }

    /// Removes a log and its files; its leases are stale from then on. A log that is not here, or
    /// that belongs to another topic id, is no error; with the zero id any log of the name goes.
    pub fn delete(&self, id: LogId, reply: Reply<()>) {
        self.push(Command::Delete { id, reply });
    }

    /// Does what is due at `now`: checkpoints, removal of files, expiry of producers. To be called
    /// about once a second.
    pub fn tick(&self, now: TimestampMs, reply: Reply<()>) {
        self.push(Command::Tick { now, reply });
    }

    /// Ends the writer after the commands queued so far; later ones answer
    /// [`Error::DirectoryClosed`]. A clean stop syncs every log and leaves the clean-stop file;
    /// then opening again recovers nothing. When the reply comes the directory may be opened
    /// again.
    pub fn close(&self, clean: bool, reply: Reply<()>) {
        self.push(Command::Close { clean, reply });
    }

    /// Stops as a killed process would: drops the queue without an answer, closes the files
    /// unsynced, leaves no clean-stop file. Returns when the directory may be opened again; blocks
    /// for the write that is under way.
    pub fn crash(&self) {
        self.shared.crash();
    }

    /// Runs everything queued, on this thread, with [`Driver::Inline`]; returns whether there was
    /// anything. Does nothing beside a thread, or when called from a reply.
    pub fn run_pending(&self) -> bool {
        let Run::Inline(writer) = &self.shared.run else { return false };
        let Some(mut slot) = writer.try_lock() else { return false };
        let Some(writer) = &mut *slot else { return false };
        let mut any = false;
        loop {
            let commands = self.shared.queue.take_ready();
            if commands.is_empty() {
                return any;
            }
            any = true;
            if let Some(stopped) = writer.run(commands) {
                *slot = None;
                drop(slot);
                self.shared.finish(stopped);
                return true;
            }
            if self.shared.queue.is_closed() {
                // A reply crashed the directory.
                *slot = None;
                return true;
            }
        }
    }

    fn push(&self, command: Command) {
        match self.shared.queue.push(command) {
            Ok(()) => {
                if let Some(on_queued) = &self.shared.on_queued {
                    on_queued();
                }
            }
            Err(refused) => {
                refused.refuse(Error::DirectoryClosed { path: self.shared.path.clone() });
            }
        }
    }
}

impl Shared {
    fn finish(&self, stopped: Stopped) {
        finish(&self.queue, &self.path, stopped);
    }

    fn crash(&self) {
        // Dropped unanswered: whoever waits sees its reply port close.
        drop(self.queue.close());
        match &self.run {
            // Held by somebody who runs commands: it sees the closed queue and drops the writer.
            Run::Inline(writer) => {
                if let Some(mut writer) = writer.try_lock() {
                    *writer = None;
                }
            }
            Run::Thread { id, thread } if *id != std::thread::current().id() => {
                let mut thread = thread.lock();
                if thread.take().is_some_and(|thread| thread.join().is_err()) {
                    tracing::error!(path = %self.path.display(), "the log writer had panicked");
                }
            }
            // From a reply: the thread ends when the reply returns.
            Run::Thread { .. } => {}
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.crash();
    }
}

/// Ends a directory whose writer is gone.
fn finish(queue: &Queue, path: &Path, stopped: Stopped) {
    for command in queue.close() {
        command.refuse(Error::DirectoryClosed { path: path.to_owned() });
    }
    (stopped.reply)(stopped.outcome);
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod transaction_tests;
