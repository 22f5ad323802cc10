//! One log directory: the handle through which everyone reaches its writer. Owns the queue and the
//! writer's life; never changes a log itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use crate::command::{Command, Queue};
use crate::config::LogConfig;
use crate::error::Error;
use crate::lease::{Append, Appended, Lease, LogId, Reply, Truncated};

/// Who runs the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// A thread of the directory's own.
    Thread,
    /// Whoever calls [`LogDir::run_pending`]: the simulation's form.
    Inline,
}

/// A handle to one log directory; cheap to clone.
///
/// Every method queues a command and returns; the reply is called on the writer's thread, in the
/// order of the commands of one log.
#[derive(Clone)]
pub struct LogDir {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    queue: Queue,
}

impl LogDir {
    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Creates or opens a log, ends its older leases and gives out a new one.
    ///
    /// A log that closed itself after a failed write is recovered first.
    ///
    /// # Errors
    /// [`Error::TopicIdMismatch`] when another topic's log of that name lies here: delete it first.
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

    /// Cuts the log so that it ends at `to`, or below it where `to` lies inside a batch.
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

    /// Removes a log and its files; its leases are stale from then on. A log that is not here is
    /// no error.
    pub fn delete(&self, id: LogId, reply: Reply<()>) {
        self.push(Command::Delete { id, reply });
    }

    /// Does what is due at `now`: checkpoints, removal of files, expiry of producers. To be called
    /// about once a second.
    pub fn tick(&self, now: TimestampMs, reply: Reply<()>) {
        self.push(Command::Tick { now, reply });
    }

    /// Ends the writer after the commands queued so far. A clean stop syncs every log and leaves
    /// the clean-stop file; then opening again recovers nothing.
    pub fn close(&self, clean: bool, reply: Reply<()>) {
        self.push(Command::Close { clean, reply });
    }

    fn push(&self, command: Command) {
        if let Err(refused) = self.shared.queue.push(command) {
            refused.refuse(Error::DirectoryClosed { path: self.shared.path.clone() });
        }
    }
}
