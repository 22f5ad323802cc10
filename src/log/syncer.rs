//! Makes sealed segments durable beside the writer, so that no append waits for a gigabyte to
//! reach the disk. Never changes a log: the outcome comes back as a command.

use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Weak};

use protocol::ids::Offset;

use crate::command::{Command, Queue};
use crate::error::Error;
use crate::open_files::Files;
use crate::partition_log::{sync_names, sync_segment};
use crate::segment::Segment;

/// Sealed segments of one log.
pub(crate) struct SyncJob {
    pub(crate) slot: usize,
    /// The log's truncations when the job was made; after another one the outcome is void.
    pub(crate) truncations: u64,
    /// The log's directory.
    pub(crate) dir: Arc<Path>,
    pub(crate) segments: Vec<Arc<Segment>>,
    /// Where the first segment that is not among them begins.
    pub(crate) up_to: Offset,
}

/// What came of a job.
pub(crate) struct Synced {
    pub(crate) slot: usize,
    pub(crate) truncations: u64,
    pub(crate) up_to: Offset,
    pub(crate) outcome: Result<(), Error>,
}

/// Who syncs.
pub(crate) enum Syncer {
    /// The writer itself, before it goes on: the simulation's form.
    Inline,
    /// A thread of its own; it ends with the sender.
    Thread(mpsc::Sender<SyncJob>),
}

impl Syncer {
    /// Starts the thread; outcomes go into `queue`.
    pub(crate) fn start(files: Files, queue: Weak<Queue>, name: String) -> std::io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<SyncJob>();
        std::thread::Builder::new().name(name).spawn(move || {
            for job in jobs {
                let Some(queue) = queue.upgrade() else { return };
                if queue.is_closed() {
                    return;
                }
                // A closed queue needs no outcome any more.
                let _ = queue.push(Command::Synced(sync(&job, &files)));
            }
        })?;
        Ok(Syncer::Thread(sender))
    }

    /// Does the job, or passes it on and answers `None`.
    pub(crate) fn run(&self, job: SyncJob, files: &Files) -> Option<Synced> {
        match self {
            Syncer::Inline => Some(sync(&job, files)),
            Syncer::Thread(sender) => match sender.send(job) {
                Ok(()) => None,
                // The thread is gone: nobody else would do it.
                Err(mpsc::SendError(job)) => Some(sync(&job, files)),
            },
        }
    }
}

fn sync(job: &SyncJob, files: &Files) -> Synced {
    let outcome = job
        .segments
        .iter()
        .try_for_each(|segment| sync_segment(files, segment))
        .and_then(|()| sync_names(files, &job.dir));
    Synced { slot: job.slot, truncations: job.truncations, up_to: job.up_to, outcome }
}
