//! Opening a log: a new one is made, an old one is read from its directory. After a clean stop
//! nothing but the end of the last segment is looked at; otherwise [`super::recover`] does the
//! rest. Never writes into batches.

use std::path::Path;
use std::sync::Arc;

use protocol::ids::{Offset, TopicId};

use super::recover::Recovered;
use super::{PartitionLog, replace_file};
use crate::checkpoint::{PARTITION_METADATA_FILE, topic_id_text};
use crate::config::LogConfig;
use crate::disk::DirectoryEntry;
use crate::epochs::{Epochs, LEADER_EPOCH_FILE};
use crate::error::Error;
use crate::lease::LogId;
use crate::open_files::Files;
use crate::read_view::{Opened, ReadView};
use crate::segment::{SegmentFile, read_file};

/// What the directory's checkpoints say of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checkpointed {
    /// Everything below was durable. `None`: not known, everything is checked.
    pub(crate) recovery_point: Option<Offset>,
    /// Where the log started.
    pub(crate) log_start: Option<Offset>,
    /// The high watermark.
    pub(crate) high_watermark: Option<Offset>,
    /// Whether the directory was stopped cleanly.
    pub(crate) clean: bool,
}

/// How a log is opened.
pub(crate) struct Opening<'a> {
    pub(crate) files: &'a Files,
    pub(crate) dir: Arc<Path>,
    pub(crate) config: LogConfig,
    pub(crate) checkpointed: Checkpointed,
    /// The view that readers of the same log already hold, if it is opened again.
    pub(crate) view: Option<Arc<ReadView>>,
}

impl PartitionLog {
    /// Makes the directory and the files of a new, empty log.
    pub(crate) fn create(
        files: &Files,
        parent: &Path,
        id: LogId,
        config: LogConfig,
    ) -> Result<Self, Error> {
        let dir: Arc<Path> = Arc::from(parent.join(id.directory_name()));
        files.disk.create_dir(&dir).map_err(|error| Error::io("create", &dir, &error))?;
        write_metadata(files, &dir, id.topic_id)?;
        let checkpointed = Checkpointed {
            recovery_point: None,
            log_start: None,
            high_watermark: None,
            clean: false,
        };
        Self::open(id, Opening { files, dir, config, checkpointed, view: None })
    }

    /// Gives a log whose directory does not say which topic it belongs to that topic's id.
    pub(crate) fn adopt_topic_id(&mut self, topic_id: TopicId) -> Result<(), Error> {
        write_metadata(&self.files, &self.dir, topic_id)?;
        self.id.topic_id = topic_id;
        Ok(())
    }

    /// Reads a log from its directory, and recovers what a crash may have left in it.
    pub(crate) fn open(id: LogId, opening: Opening<'_>) -> Result<Self, Error> {
        let Opening { files, dir, config, checkpointed, view } = opening;
        let bases = tidy_directory(files, &dir)?;
        let epochs = load_epochs(files, &dir)?;
        let recovered = Recovered::of(files, &dir, &config, &checkpointed, &bases, epochs)?;
        let high_watermark = checkpointed.high_watermark.unwrap_or(recovered.log_start);
        let high_watermark = high_watermark.clamp(recovered.log_start, recovered.log_end);
        let recovery_point = match checkpointed.clean {
            true => recovered.log_end,
            false => checkpointed
                .recovery_point
                .unwrap_or(recovered.log_start)
                .clamp(recovered.log_start, recovered.log_end),
        };
        let view = match view {
            Some(view) => view,
            None => Arc::new(ReadView::new(id.clone(), files.clone())),
        };
        let epochs_changed = recovered.epochs_changed;
        let (next_offset, log_start) = (recovered.log_end, recovered.log_start);
        view.install(Opened {
            segments: recovered.segments,
            epochs: recovered.epochs,
            producers: recovered.producers,
            log_start,
            high_watermark,
            log_end: next_offset,
        });
        let mut log = PartitionLog {
            id,
            dir,
            files: files.clone(),
            config,
            view,
            active: recovered.active,
            next_offset,
            recovery_point,
            staged: Vec::new(),
            staged_aborts: Vec::new(),
            closed: None,
            to_sync: recovered.unsynced,
            removed: Vec::new(),
            names_durable: false,
            changed: !checkpointed.clean,
        };
        if epochs_changed {
            log.write_epochs()?;
        }
        log.check_in_debug();
        Ok(log)
    }
}

/// Says in the directory which topic the log belongs to. Not synced: a log that a crash leaves
/// without it takes the id of its next lease.
fn write_metadata(files: &Files, dir: &Path, topic_id: TopicId) -> Result<(), Error> {
    if topic_id == TopicId::ZERO {
        return Ok(());
    }
    let path = dir.join(PARTITION_METADATA_FILE);
    replace_file(files, &path, topic_id_text(topic_id).as_bytes())
}

/// Removes what a crash left half done and returns the bases of the segments, in order.
fn tidy_directory(files: &Files, dir: &Path) -> Result<Vec<Offset>, Error> {
    let names = files.disk.list(dir).map_err(|error| Error::io("list", dir, &error))?;
    let mut bases = Vec::new();
    let mut others = Vec::new();
    for DirectoryEntry { name, .. } in names {
        match SegmentFile::parse(&name) {
            Some((base, SegmentFile::Log)) => bases.push(base),
            Some((base, file)) => others.push((base, file)),
            None if is_leftover(&name) => remove(files, &dir.join(name))?,
            None => {}
        }
    }
    bases.sort_unstable();
    for (base, file) in others {
        if file != SegmentFile::ProducerSnapshot && bases.binary_search(&base).is_err() {
            remove(files, &file.path(dir, base))?;
        }
    }
    Ok(bases)
}

fn is_leftover(name: &str) -> bool {
    [".deleted", ".cleaned", ".swap", ".tmp"].iter().any(|suffix| name.ends_with(suffix))
}

/// Reads a log's epochs. A file that cannot be used counts as empty: recovery has the batches.
fn load_epochs(files: &Files, dir: &Path) -> Result<Option<Epochs>, Error> {
    let path = dir.join(LEADER_EPOCH_FILE);
    let Some(bytes) = read_file(files, &path)? else { return Ok(Some(Epochs::new())) };
    match Epochs::parse(&String::from_utf8_lossy(&bytes)) {
        Ok(epochs) => Ok(Some(epochs)),
        Err(reason) => {
            tracing::warn!(path = %path.display(), reason, "epochs are made anew");
            Ok(None)
        }
    }
}

/// Removes a file, if it is there.
pub(super) fn remove(files: &Files, path: &Path) -> Result<(), Error> {
    match files.disk.remove(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("remove", path, &error)),
    }
}
