//! Owner of the node's log directory: opens it (which recovers the logs), ticks it, closes it. The
//! writer thread and the logs are the log crate's.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use log::disk::Disk;
use log::{Driver, LogDir, LogDirOptions, OpenFiles};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::Notify;

use crate::directory::Directory;

/// How often the directory writes its checkpoints and rolls by time.
const TICK: Duration = Duration::from_secs(5);

/// What the owner can be told.
#[derive(Debug)]
pub enum StorageMsg {
    /// Time for checkpoints.
    Tick,
}

/// What it is started with.
#[derive(Debug, Clone)]
pub struct StorageArgs {
    /// The node.
    pub directory: Arc<Directory>,
    /// Where the logs lie.
    pub path: PathBuf,
    /// What they lie on.
    pub disk: Disk,
    /// Who runs the writer.
    pub driver: Driver,
}

/// The actor; everything mutable is in [`StorageState`].
#[derive(Debug)]
pub struct Storage;

/// The state of one incarnation.
pub struct StorageState {
    directory: Arc<Directory>,
    log_dir: Arc<LogDir>,
}

impl Actor for Storage {
    type Msg = StorageMsg;
    type State = StorageState;
    type Arguments = StorageArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let StorageArgs { directory, path, disk, driver } = args;
        // A killed owner leaves the directory open: its successor goes on with it.
        let log_dir = match directory.log_dir() {
            Ok(open) => open,
            Err(_not_open) => {
                let mut options = LogDirOptions { driver, ..LogDirOptions::default() };
                match driver {
                    Driver::Inline => {
                        let queued = Arc::new(Notify::new());
                        let wake = Arc::clone(&queued);
                        options.on_queued = Some(Arc::new(move || wake.notify_one()));
                        let opened = Arc::new(LogDir::open(disk, &path, options)?);
                        drive_inline(&directory, Arc::downgrade(&opened), queued);
                        opened
                    }
                    Driver::Thread => {
                        options.open_files = OpenFiles::of_process();
                        let open = move || LogDir::open(disk, &path, options);
                        Arc::new(tokio::task::spawn_blocking(open).await??)
                    }
                }
            }
        };
        directory.set_log_dir(Some(Arc::clone(&log_dir)));
        myself.send_interval(TICK, || StorageMsg::Tick);
        Ok(StorageState { directory, log_dir })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            StorageMsg::Tick => state.on_tick(),
        }
        Ok(())
    }
}

/// Runs an inline writer as a task: the simulation's form of the writer's thread.
fn drive_inline(directory: &Directory, log_dir: Weak<LogDir>, queued: Arc<Notify>) {
    let stopped = directory.stopped.clone();
    directory.runtimes.spawn_data(async move {
        loop {
            tokio::select! {
                biased;
                () = stopped.cancelled() => return,
                () = queued.notified() => {}
            }
            match log_dir.upgrade() {
                Some(log_dir) => log_dir.run_pending(),
                None => return,
            };
        }
    });
}

impl StorageState {
    fn on_tick(&self) {
        let now = self.directory.clock.now();
        self.log_dir.tick(
            now,
            Box::new(|result| {
                if let Err(error) = result {
                    tracing::warn!(%error, "the log directory's checkpoints were not written");
                }
            }),
        );
    }
}
