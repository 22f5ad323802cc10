//! One partition's log as its writer sees it: the only thing that changes its files and the shared
//! view of it. Owns the order of every change (files, then what readers see, then the reply);
//! never decides who may ask for one: leases are the directory's business.
//!
//! A directory `<topic>-<partition>` holds, as Kafka's does:
//!
//! | file | content | when it reaches the disk |
//! |---|---|---|
//! | `<base>.log` | record batches | at each append; synced after a roll, at a stop or per group |
//! | `<base>.index`, `.timeindex` | sparse indexes | when the segment is sealed, at a clean stop |
//! | `<base>.txnindex` | aborted transactions | with the append of their marker |
//! | `<offset>.snapshot` | producer state at an offset | at each roll and at a clean stop |
//! | `leader-epoch-checkpoint` | epoch → first offset | at each new epoch |
//! | `partition.metadata` | the topic's id | when the log is made |
//!
//! Only `.log` files are trusted after a crash; the others are checked and rebuilt from them.
//!
//! After one failed write or sync the log is *closed*: every change answers why, until it is
//! opened again and recovered. Readers keep what was published.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use crate::aborted::AbortedTransaction;
use crate::active_segment::ActiveSegment;
use crate::config::LogConfig;
use crate::epochs::{Epochs, LEADER_EPOCH_FILE};
use crate::error::Error;
use crate::lease::{Appended, LogId, Reply};
use crate::open_files::Files;
use crate::producers::ProducerStates;
use crate::read_view::ReadView;
use crate::segment::Segment;

mod aborts;
mod append;
mod open;
mod producer_state;
mod recover;
mod truncate;

pub(crate) use open::{Checkpointed, Opening};

/// One log.
///
/// Invariants, see [`PartitionLog::check_invariants`]: log start ≤ high watermark ≤ log end; the
/// segments' bases rise, the last one is the active one; the recovery point is not above the log's
/// end; epochs rise in epoch and offset.
pub(crate) struct PartitionLog {
    pub(crate) id: LogId,
    dir: Arc<Path>,
    files: Files,
    pub(crate) config: LogConfig,
    pub(crate) view: Arc<ReadView>,
    active: ActiveSegment,
    /// The offset the next batch gets: the log's end, staged batches included.
    next_offset: Offset,
    /// Everything below is durable.
    recovery_point: Offset,
    /// Appends whose bytes are staged; answered once they are written.
    staged: Vec<(Reply<Appended>, Appended)>,
    /// Transactions aborted by staged markers, for the active segment's index.
    staged_aborts: Vec<AbortedTransaction>,
    closed: Option<Arc<str>>,
    /// Segments sealed since the last sync.
    to_sync: Vec<Arc<Segment>>,
    /// Renamed files that go with the next tick.
    removed: Vec<PathBuf>,
    /// Whether the directory's names and the epochs are durable.
    names_durable: bool,
    /// Whether anything changed since the log was opened.
    changed: bool,
}

impl PartitionLog {
    /// Where the log's files are.
    pub(crate) fn directory(&self) -> Arc<Path> {
        Arc::clone(&self.dir)
    }

    /// Everything below is durable.
    pub(crate) fn recovery_point(&self) -> Offset {
        self.recovery_point
    }

    /// Whether appends wait to be written.
    pub(crate) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// What the directory's checkpoints are to say of the log.
    pub(crate) fn checkpointed(&self) -> Checkpointed {
        Checkpointed {
            recovery_point: Some(self.recovery_point),
            log_start: Some(self.view.log_start()),
            high_watermark: Some(self.view.high_watermark()),
            clean: false,
        }
    }

    /// Lets go of indexes that nobody used for a while, and of producers that wrote nothing for
    /// too long.
    pub(crate) fn forget_idle(&self, now: TimestampMs) {
        let expiration_ms = self.config.producer_id_expiration_ms;
        self.view.change_producers(|states| states.expire(now, expiration_ms));
        for segment in self.view.segments().iter() {
            segment.forget_idle_indexes();
        }
    }

    /// Why the log takes no change any more.
    pub(crate) fn closed_because(&self) -> Option<&Arc<str>> {
        self.closed.as_ref()
    }

    /// Answers [`Error::Closed`] in a closed log.
    fn check_open(&self) -> Result<(), Error> {
        match &self.closed {
            None => Ok(()),
            Some(reason) => {
                Err(Error::Closed { log: self.id.to_string(), reason: Arc::clone(reason) })
            }
        }
    }

    /// Closes the log because of `error`, and answers what the caller gets.
    fn close_because(&mut self, error: &Error) -> Error {
        if self.closed.is_none() {
            tracing::error!(
                log = %self.id, %error,
                "the log is closed to writes and will be opened again a few times: mend what \
                 failed (free space on a full disk, allow more open files); if its partition \
                 goes offline meanwhile, restart the node"
            );
            self.view.set_closed();
            self.closed = Some(Arc::from(error.to_string()));
        }
        let failure = self.check_open().expect_err("it was closed above");
        for (reply, _) in self.staged.drain(..) {
            reply(Err(failure.clone()));
        }
        failure
    }

    /// Runs a change of files; a failure closes the log.
    fn or_close<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        outcome.map_err(|error| self.close_because(&error))
    }

    /// Writes what is staged, syncs it if the log's settings say so, shows it to readers and
    /// answers the appends.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        if self.staged.is_empty() && !self.active.has_staged() {
            return Ok(());
        }
        self.check_open()?;
        let sync = self.next_offset.0 - self.recovery_point.0 >= self.config.flush_messages;
        let written = self.write_staged(sync);
        self.or_close(written)?;
        self.active.publish();
        self.view.set_log_end(self.next_offset);
        if sync {
            self.recovery_point = self.next_offset;
        }
        let log_start = self.view.log_start();
        for (reply, appended) in self.staged.drain(..) {
            reply(Ok(Appended { log_start, ..appended }));
        }
        self.check_in_debug();
        Ok(())
    }

    fn write_staged(&mut self, sync: bool) -> Result<(), Error> {
        self.active.write_staged(&self.files)?;
        self.write_aborts()?;
        if sync {
            self.sync_all()?;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    fn sync_all(&mut self) -> Result<(), Error> {
        if !self.names_durable {
            sync_names(&self.files, &self.dir)?;
            self.names_durable = true;
        }
        for segment in std::mem::take(&mut self.to_sync) {
            sync_segment(&self.files, &segment)?;
        }
        self.active.sync(&self.files)
    }

    /// Seals the active segment and goes on in a new one that starts at the log's end.
    fn roll(&mut self) -> Result<(), Error> {
        self.flush()?;
        let rolled = self.try_roll();
        self.or_close(rolled)
    }

    fn try_roll(&mut self) -> Result<(), Error> {
        self.active.complete_indexes(&self.files, &self.dir)?;
        self.write_snapshot()?;
        self.names_durable = false;
        let next = ActiveSegment::create(&self.files, &self.dir, self.next_offset)?;
        let sealed = std::mem::replace(&mut self.active, next);
        sealed.segment.seal();
        self.to_sync.push(Arc::clone(&sealed.segment));
        self.view.push_segment(Arc::clone(&self.active.segment));
        Ok(())
    }

    /// The sealed segments that are not yet durable, and the offset below which the log is durable
    /// once they and the names are.
    pub(crate) fn take_unsynced(&mut self) -> Option<(Vec<Arc<Segment>>, Offset)> {
        if self.to_sync.is_empty() {
            return None;
        }
        Some((std::mem::take(&mut self.to_sync), self.active.segment.base))
    }

    /// A sync of sealed segments has ended.
    pub(crate) fn on_synced(
        &mut self,
        truncations: u64,
        up_to: Offset,
        outcome: Result<(), Error>,
    ) {
        match outcome {
            // What was synced may have been cut and written anew since.
            Ok(()) if truncations != self.view.truncations() => {}
            Ok(()) => self.recovery_point = self.recovery_point.max(up_to.min(self.next_offset)),
            Err(error) => {
                self.close_because(&error);
            }
        }
    }

    /// Notes that batches from the log's end on are of `epoch`; a lower one changes nothing.
    pub(crate) fn start_leader_epoch(&mut self, epoch: LeaderEpoch) -> Result<(), Error> {
        self.check_open()?;
        self.flush()?;
        self.assign_epoch(epoch, self.next_offset)
    }

    /// Notes the epoch of a batch at `offset`, durably before the batch.
    fn assign_epoch(&mut self, epoch: LeaderEpoch, offset: Offset) -> Result<(), Error> {
        if epoch <= self.view.last_epoch()
            || !self.view.change_epochs(|epochs| epochs.assign(epoch, offset))
        {
            return Ok(());
        }
        let written = self.write_epochs();
        self.or_close(written)
    }

    /// Puts the epochs into their file; durable with the next sync of the log.
    fn write_epochs(&mut self) -> Result<(), Error> {
        let path = self.dir.join(LEADER_EPOCH_FILE);
        let text = self.view.with_epochs(Epochs::to_text);
        self.names_durable = false;
        self.changed = true;
        replace_file(&self.files, &path, text.as_bytes())
    }

    /// Makes everything durable, so that opening the log again recovers nothing.
    pub(crate) fn stop_cleanly(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.check_open()?;
        if !self.changed && self.recovery_point == self.next_offset {
            return Ok(());
        }
        let stopped = self.try_stop();
        self.or_close(stopped)
    }

    fn try_stop(&mut self) -> Result<(), Error> {
        self.active.complete_indexes(&self.files, &self.dir)?;
        self.write_snapshot()?;
        self.sync_all()?;
        self.recovery_point = self.next_offset;
        Ok(())
    }

    /// Removes the files that no reader can want any more.
    pub(crate) fn remove_deleted(&mut self) {
        for path in std::mem::take(&mut self.removed) {
            // What stays is removed when the log is opened again.
            if let Err(error) = open::remove(&self.files, &path) {
                tracing::warn!(log = %self.id, %error, "a deleted file stays for now");
            }
        }
    }

    fn check_in_debug(&self) {
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// Asserts what must always hold.
    pub(crate) fn check_invariants(&self) {
        let (start, end) = (self.view.log_start(), self.view.log_end());
        let high_watermark = self.view.high_watermark();
        assert!(start <= high_watermark, "{}: start {start} above {high_watermark}", self.id);
        assert!(high_watermark <= end, "{}: {high_watermark} above end {end}", self.id);
        assert!(
            end <= self.next_offset,
            "{}: published {end} above {}",
            self.id,
            self.next_offset
        );
        assert!(
            self.recovery_point <= self.next_offset,
            "{}: recovery point {} above end {}",
            self.id,
            self.recovery_point,
            self.next_offset
        );
        let segments = self.view.segments();
        assert!(
            segments.windows(2).all(|pair| pair[0].base < pair[1].base),
            "{}: segments do not rise",
            self.id
        );
        let last = segments.last().expect("a log has an active segment");
        assert!(Arc::ptr_eq(last, &self.active.segment), "{}: the last is not active", self.id);
        let first = segments.first().expect("a log has an active segment");
        assert!(first.base <= start, "{}: first segment {} above {start}", self.id, first.base);
        assert!(last.base <= self.next_offset, "{}: {} above the end", self.id, last.base);
        self.active.check_invariants();
        self.view.with_epochs(Epochs::check_invariants);
        self.view.with_producers(ProducerStates::check_invariants);
    }
}

/// Makes a segment's batches durable, and what else of it cannot be made anew without them.
pub(crate) fn sync_segment(files: &Files, segment: &Segment) -> Result<(), Error> {
    match segment.file(files) {
        Ok(file) => {
            file.sync_data().map_err(|error| Error::io("sync", segment.path(), &error))?;
            segment.sync_aborted(files)
        }
        // It was removed meanwhile: nothing is left to be durable.
        Err(Error::Io { kind: std::io::ErrorKind::NotFound, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the names in a log's directory durable, the directory's own name, and the epochs.
pub(crate) fn sync_names(files: &Files, dir: &Path) -> Result<(), Error> {
    let epochs = dir.join(LEADER_EPOCH_FILE);
    match files.disk.open(&epochs).and_then(|file| file.sync_data()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("sync", &epochs, &error));
        }
        Ok(()) | Err(_) => {}
    }
    for dir in [Some(dir), dir.parent()].into_iter().flatten() {
        files.disk.sync_dir(dir).map_err(|error| Error::io("sync", dir, &error))?;
    }
    Ok(())
}

/// Replaces a file, whole or not at all for whoever opens it, and without waiting for the disk.
fn replace_file(files: &Files, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let written = files.disk.create(temporary).and_then(|file| {
        file.set_len(0)?;
        file.write_at(0, bytes)?;
        files.disk.rename(temporary, path)
    });
    written.map_err(|error| Error::io("write", path, &error))
}
