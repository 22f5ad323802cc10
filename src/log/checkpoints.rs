//! What a directory remembers of its logs beside them: recovery points, starts, high watermarks,
//! in Kafka's three checkpoint files. Owns when they differ from what was last written, and which
//! of them can be done without when one is corrupt; never their form.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use protocol::ids::{Offset, TopicPartition};

use crate::checkpoint::{
    HIGH_WATERMARK_FILE, LOG_START_FILE, OffsetCheckpoint, RECOVERY_POINT_FILE, read_offsets,
    write_offsets,
};
use crate::disk::Disk;
use crate::error::Error;
use crate::partition_log::Checkpointed;

/// The checkpoints of one directory, as they were last written or read.
pub(crate) struct Checkpoints {
    recovery_points: One,
    log_starts: One,
    high_watermarks: One,
    /// Whether the recovery points were lost, so that no log is trusted without a look.
    suspect: bool,
}

/// A log and what is to be remembered of it.
pub(crate) type Said<'a> = (&'a TopicPartition, Checkpointed);

/// One of the three files.
struct One {
    path: PathBuf,
    written: OffsetCheckpoint,
    /// Whether what lies on the disk is something else than `written`, and corrupt.
    corrupt: bool,
}

impl One {
    fn read(disk: &Disk, path: PathBuf) -> Result<Self, Error> {
        let written = read_offsets(disk, &path)?;
        Ok(Self { path, written, corrupt: false })
    }

    /// Reads a file that can be made anew: a corrupt one counts as empty.
    fn read_or_forget(disk: &Disk, path: PathBuf, instead: &'static str) -> Result<Self, Error> {
        match read_offsets(disk, &path) {
            Ok(written) => Ok(Self { path, written, corrupt: false }),
            Err(error @ Error::CorruptFile { .. }) => {
                tracing::warn!(%error, "the file is made anew: {instead}");
                Ok(Self { path, written: OffsetCheckpoint::new(), corrupt: true })
            }
            Err(error) => Err(error),
        }
    }

    fn says<'a>(&self, offsets: impl Iterator<Item = (&'a TopicPartition, Offset)>) -> bool {
        let mut written = self.written.iter();
        let same = |(log, offset)| written.next().is_some_and(|known| known == (log, &offset));
        let mut offsets = offsets;
        offsets.all(same) && written.next().is_none()
    }

    /// Writes the file if it would say something else.
    fn write<'a>(
        &mut self,
        disk: &Disk,
        offsets: impl Iterator<Item = (&'a TopicPartition, Offset)> + Clone,
    ) -> Result<(), Error> {
        if !self.corrupt && self.says(offsets.clone()) {
            return Ok(());
        }
        let now: BTreeMap<_, _> = offsets.map(|(log, offset)| (log.clone(), offset)).collect();
        write_offsets(disk, &self.path, &now)?;
        self.written = now;
        self.corrupt = false;
        Ok(())
    }
}

impl Checkpoints {
    /// Reads the files of a directory; those that are not there count as empty, and so do corrupt
    /// ones whose content the logs themselves tell.
    pub(crate) fn read(disk: &Disk, dir: &Path) -> Result<Self, Error> {
        let recovery_points = One::read_or_forget(
            disk,
            dir.join(RECOVERY_POINT_FILE),
            "every log is checked from its start",
        )?;
        let high_watermarks = One::read_or_forget(
            disk,
            dir.join(HIGH_WATERMARK_FILE),
            "every high watermark rises again from the start of its log",
        )?;
        let log_starts = One::read(disk, dir.join(LOG_START_FILE)).map_err(with_advice)?;
        let suspect = recovery_points.corrupt;
        Ok(Self { recovery_points, log_starts, high_watermarks, suspect })
    }

    /// What the files say of one log.
    pub(crate) fn of(&self, log: &TopicPartition, clean: bool) -> Checkpointed {
        Checkpointed {
            recovery_point: self.recovery_points.written.get(log).copied(),
            log_start: self.log_starts.written.get(log).copied(),
            high_watermark: self.high_watermarks.written.get(log).copied(),
            clean: clean && !self.suspect,
        }
    }

    /// Writes the files that differ from what the logs, sorted by name, say now.
    pub(crate) fn write(&mut self, disk: &Disk, logs: &[Said<'_>]) -> Result<(), Error> {
        self.high_watermarks.write(disk, pick(logs, |said| said.high_watermark))?;
        self.write_cuts(disk, logs)
    }

    /// The same without the high watermarks: after logs were cut at an end.
    ///
    /// The recovery points come last: a log must not be trusted above its own end.
    pub(crate) fn write_cuts(&mut self, disk: &Disk, logs: &[Said<'_>]) -> Result<(), Error> {
        self.log_starts.write(disk, pick(logs, |said| said.log_start))?;
        self.recovery_points.write(disk, pick(logs, |said| said.recovery_point))
    }
}

/// No log tells where it starts above its first segment, and a lower start would bring back what
/// was deleted: that is the operator's to decide.
fn with_advice(error: Error) -> Error {
    let Error::CorruptFile { path, reason } = error else {
        return error;
    };
    let reason = format!(
        "{reason}; bring the file back from a copy, or remove it: then every log starts at its \
         first segment, and records that were deleted before may be read again"
    );
    Error::CorruptFile { path, reason }
}

fn pick<'a>(
    logs: &'a [Said<'a>],
    which: fn(&Checkpointed) -> Option<Offset>,
) -> impl Iterator<Item = (&'a TopicPartition, Offset)> + Clone {
    logs.iter().filter_map(move |(log, said)| Some((*log, which(said)?)))
}
