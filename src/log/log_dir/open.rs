//! Opening a log directory: lock, clean-stop file, checkpoints, every log, then the writer. Never
//! runs a command.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use parking_lot::Mutex;
use protocol::ids::{BrokerEpoch, PartitionIndex, TopicId, TopicName};

use super::{Driver, LogDirOptions, Run, Shared, finish};
use crate::checkpoint::{read_topic_id, take_clean_shutdown};
use crate::checkpoints::Checkpoints;
use crate::command::Queue;
use crate::config::LogConfig;
use crate::disk::{Disk, DiskLock};
use crate::error::Error;
use crate::lease::LogId;
use crate::open_files::Files;
use crate::partition_log::{Opening, PartitionLog};
use crate::syncer::Syncer;
use crate::writer::{Writer, WriterParts};

/// The file that is locked while the directory is in use.
const LOCK_FILE: &str = ".lock";

pub(super) fn open(disk: Disk, path: &Path, options: LogDirOptions) -> Result<Shared, Error> {
    make_directory(&disk, path)?;
    let lock = take_lock(&disk, path)?;
    // From here on a stop is unclean until the writer says otherwise.
    let previous_broker_epoch = take_clean_shutdown(&disk, path)?;
    let checkpoints = Checkpoints::read(&disk, path)?;
    let files = Files { disk, open: options.open_files };
    let clean = previous_broker_epoch.is_some();
    let logs = open_logs(&files, path, &options.config, &checkpoints, clean)?;
    let found = logs.iter().map(|log| log.id.clone()).collect();
    let queue = Arc::new(Queue::default());
    let broker_epoch = Arc::new(AtomicI64::new(BrokerEpoch::NONE.0));
    let name = path.file_name().map_or("logs".into(), |name| name.to_string_lossy());
    let syncer = match options.driver {
        Driver::Inline => Syncer::Inline,
        Driver::Thread => {
            Syncer::start(files.clone(), Arc::downgrade(&queue), format!("sync-{name}"))
                .map_err(|error| Error::io("start a thread for", path, &error))?
        }
    };
    let writer = Writer::new(WriterParts {
        path: path.to_owned(),
        files,
        logs,
        checkpoint_interval_ms: options.checkpoint_interval_ms,
        checkpoints,
        broker_epoch: Arc::clone(&broker_epoch),
        syncer,
        lock,
    });
    let run = match options.driver {
        Driver::Inline => Run::Inline(Mutex::new(Some(Box::new(writer)))),
        Driver::Thread => start_thread(writer, &queue, path, format!("log-{name}"))?,
    };
    Ok(Shared {
        path: path.to_owned(),
        queue,
        broker_epoch,
        previous_broker_epoch,
        found,
        on_queued: options.on_queued.filter(|_| options.driver == Driver::Inline),
        run,
    })
}

/// Makes the directory and those above it where they are missing, durably.
fn make_directory(disk: &Disk, path: &Path) -> Result<(), Error> {
    let mut parents = Vec::new();
    for dir in path.ancestors() {
        if disk.exists(dir).map_err(|error| Error::io("look at", dir, &error))? {
            break;
        }
        parents.extend(dir.parent().filter(|parent| !parent.as_os_str().is_empty()));
    }
    disk.create_dir(path).map_err(|error| Error::io("create", path, &error))?;
    let sync = |dir: &&Path| disk.sync_dir(dir).map_err(|error| Error::io("sync", dir, &error));
    parents.iter().rev().try_for_each(sync)
}

fn take_lock(disk: &Disk, path: &Path) -> Result<DiskLock, Error> {
    let file = path.join(LOCK_FILE);
    let lock = disk.try_lock(&file).map_err(|error| Error::io("lock", &file, &error))?;
    lock.ok_or_else(|| Error::Locked { path: path.to_owned() })
}

/// Closes the queue when the writer's thread ends, by whatever way: nobody waits for a dead
/// writer.
struct CloseOnExit(Arc<Queue>);

impl Drop for CloseOnExit {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

fn start_thread(
    mut writer: Writer,
    queue: &Arc<Queue>,
    path: &Path,
    name: String,
) -> Result<Run, Error> {
    let queue = CloseOnExit(Arc::clone(queue));
    let dir = path.to_owned();
    let run = move || {
        let queue = queue;
        while let Some(commands) = queue.0.take_all() {
            if let Some(stopped) = writer.run(commands) {
                drop(writer);
                finish(&queue.0, &dir, stopped);
                return;
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name(name)
        .spawn(run)
        .map_err(|error| Error::io("start a thread for", path, &error))?;
    Ok(Run::Thread { id: thread.thread().id(), thread: Mutex::new(Some(thread)) })
}

/// Opens every log of the directory, sorted by name.
fn open_logs(
    files: &Files,
    path: &Path,
    config: &LogConfig,
    checkpoints: &Checkpoints,
    clean: bool,
) -> Result<Vec<PartitionLog>, Error> {
    let entries = files.disk.list(path).map_err(|error| Error::io("list", path, &error))?;
    let mut logs = Vec::new();
    for entry in entries.into_iter().filter(|entry| entry.is_dir) {
        let dir = path.join(&entry.name);
        if entry.name.ends_with("-delete") {
            let removed = files.disk.remove_dir(&dir);
            removed.map_err(|error| Error::io("remove", &dir, &error))?;
            continue;
        }
        let Some((topic, partition)) = parse_name(&entry.name) else { continue };
        let topic_id = topic_id_of(files, &dir)?;
        let id = LogId { topic, topic_id, partition };
        let checkpointed = checkpoints.of(&id.key(), clean);
        let dir = Arc::from(dir);
        let config = config.clone();
        logs.push(PartitionLog::open(
            id,
            Opening { files, dir, config, checkpointed, view: None },
        )?);
    }
    logs.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(logs)
}

/// Whether a folder holds the log of a partition.
///
/// # Errors
/// The folder cannot be read.
pub fn holds_logs(disk: &Disk, folder: &Path) -> io::Result<bool> {
    if !disk.exists(folder)? {
        return Ok(false);
    }
    let entries = disk.list(folder)?;
    Ok(entries.iter().any(|entry| {
        entry.is_dir && !entry.name.ends_with("-delete") && parse_name(&entry.name).is_some()
    }))
}

/// The id of the topic that a log belongs to; zero where a crash took the file that says so.
fn topic_id_of(files: &Files, dir: &Path) -> Result<TopicId, Error> {
    match read_topic_id(&files.disk, dir) {
        Ok(topic_id) => Ok(topic_id.unwrap_or(TopicId::ZERO)),
        Err(error @ Error::CorruptFile { .. }) => {
            tracing::warn!(%error, "the log takes the topic id of its next lease");
            Ok(TopicId::ZERO)
        }
        Err(error) => Err(error),
    }
}

/// Reads `<topic>-<partition>`; `None` for a directory that is no log.
fn parse_name(name: &str) -> Option<(TopicName, PartitionIndex)> {
    let (topic, digits) = name.rsplit_once('-')?;
    let canonical = digits == "0" || !digits.starts_with('0');
    if topic.is_empty() || !canonical || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((TopicName::from(topic), PartitionIndex(digits.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_log_directories_are_taken_for_logs() {
        assert_eq!(parse_name("a-b-12"), Some((TopicName::from("a-b"), PartitionIndex(12))));
        for name in ["a", "a-", "-1", "a-01", "a-x", "a-0.3-delete", "lost+found"] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
