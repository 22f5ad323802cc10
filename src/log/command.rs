//! The queue between everyone who wants a log changed and the one writer of its directory. Owns
//! the commands and their order; never looks at a log.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use crate::config::LogConfig;
use crate::error::Error;
use crate::lease::{Append, Appended, Lease, LogId, Reply, Truncated};
use crate::syncer::Synced;

/// One thing for the writer to do.
pub(crate) enum Command {
    /// Create or open a log and end its older leases.
    Lease { id: LogId, config: LogConfig, reply: Reply<Lease> },
    /// Put new settings in force.
    Configure { lease: Lease, config: LogConfig, reply: Reply<()> },
    /// Append batches.
    Append { lease: Lease, append: Append, reply: Reply<Appended> },
    /// Cut the log's end.
    Truncate { lease: Lease, to: Offset, reply: Reply<Truncated> },
    /// Empty the log and let it start at an offset.
    Reset { lease: Lease, start: Offset, reply: Reply<Truncated> },
    /// Raise the log's start.
    SetLogStart { lease: Lease, start: Offset, reply: Reply<Offset> },
    /// Note that the next batches are of a new leader epoch.
    StartLeaderEpoch { lease: Lease, epoch: LeaderEpoch, reply: Reply<()> },
    /// Remove a log and its files.
    Delete { id: LogId, reply: Reply<()> },
    /// A sync that ran beside the writer has ended.
    Synced(Synced),
    /// Do what is due at `now`: checkpoints, removals, expiry.
    Tick { now: TimestampMs, reply: Reply<()> },
    /// Stop; a clean stop leaves nothing to recover.
    Close { clean: bool, reply: Reply<()> },
}

/// Commands in the order they were given. Not bounded: what queues here holds a permit.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
}

#[derive(Default)]
struct QueueState {
    commands: VecDeque<Command>,
    closed: bool,
}

impl Queue {
    /// Adds a command; gives it back when the queue is closed.
    pub(crate) fn push(&self, command: Command) -> Result<(), Box<Command>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Box::new(command));
        }
        state.commands.push_back(command);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Takes everything queued, waiting for the first command. `None` once the queue is closed.
    pub(crate) fn take_all(&self) -> Option<VecDeque<Command>> {
        let mut state = self.state.lock();
        while state.commands.is_empty() && !state.closed {
            self.filled.wait(&mut state);
        }
        if state.closed { None } else { Some(std::mem::take(&mut state.commands)) }
    }

    /// Takes everything queued, without waiting.
    pub(crate) fn take_ready(&self) -> VecDeque<Command> {
        std::mem::take(&mut self.state.lock().commands)
    }

    /// Whether nothing more is let in.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Lets nothing more in and returns what was still queued.
    pub(crate) fn close(&self) -> VecDeque<Command> {
        let mut state = self.state.lock();
        state.closed = true;
        let left = std::mem::take(&mut state.commands);
        drop(state);
        self.filled.notify_all();
        left
    }
}

impl Command {
    /// Answers `error` instead of running.
    pub(crate) fn refuse(self, error: Error) {
        match self {
            Command::Lease { reply, .. } => reply(Err(error)),
            Command::Append { reply, .. } => reply(Err(error)),
            Command::Truncate { reply, .. } | Command::Reset { reply, .. } => reply(Err(error)),
            Command::SetLogStart { reply, .. } => reply(Err(error)),
            Command::Configure { reply, .. }
            | Command::StartLeaderEpoch { reply, .. }
            | Command::Delete { reply, .. }
            | Command::Tick { reply, .. }
            | Command::Close { reply, .. } => reply(Err(error)),
            Command::Synced(_) => {}
        }
    }
}
