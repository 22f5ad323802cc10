//! The one changer of every log in a directory: runs the commands in their order, gathers appends
//! into one write a log, and keeps the directory's checkpoints. Owns the logs; never waits for
//! anything but the disk.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use protocol::ids::{BrokerEpoch, TimestampMs, TopicId, TopicPartition};

use crate::checkpoint::mark_clean_shutdown;
use crate::checkpoints::{Checkpoints, Said};
use crate::command::Command;
use crate::config::LogConfig;
use crate::disk::DiskLock;
use crate::error::Error;
use crate::lease::{Append, Appended, Lease, LogId, Reply};
use crate::open_files::Files;
use crate::partition_log::{Checkpointed, Opening, PartitionLog};
use crate::syncer::{SyncJob, Syncer};

/// How long a file or an index may be unused before it is closed or forgotten.
const IDLE_MS: i64 = 60_000;

/// The directory's writer.
pub(crate) struct Writer {
    pub(crate) path: PathBuf,
    pub(crate) files: Files,
    /// By slot: a lease knows its log's.
    logs: Vec<Option<PartitionLog>>,
    slots: BTreeMap<TopicPartition, usize>,
    /// Slots of logs with staged appends, in the order of their first one.
    dirty: Vec<usize>,
    incarnations: u64,
    checkpoints: Checkpoints,
    /// Whether a log was cut, which the checkpoints are to say at the end of the group.
    cuts_due: bool,
    checkpoint_interval_ms: i64,
    checkpointed_at: Option<TimestampMs>,
    idle_closed_at: Option<TimestampMs>,
    broker_epoch: Arc<AtomicI64>,
    syncer: Syncer,
    _lock: DiskLock,
}

/// What a finished writer leaves to be answered, once it has let go of everything.
pub(crate) struct Stopped {
    pub(crate) reply: Reply<()>,
    pub(crate) outcome: Result<(), Error>,
}

/// What a writer starts from.
pub(crate) struct WriterParts {
    pub(crate) path: PathBuf,
    pub(crate) files: Files,
    pub(crate) logs: Vec<PartitionLog>,
    pub(crate) checkpoint_interval_ms: i64,
    pub(crate) checkpoints: Checkpoints,
    /// The broker epoch that a clean stop records.
    pub(crate) broker_epoch: Arc<AtomicI64>,
    pub(crate) syncer: Syncer,
    pub(crate) lock: DiskLock,
}

impl Writer {
    pub(crate) fn new(parts: WriterParts) -> Self {
        let slots =
            parts.logs.iter().enumerate().map(|(slot, log)| (log.id.key(), slot)).collect();
        Self {
            checkpoints: parts.checkpoints,
            path: parts.path,
            files: parts.files,
            logs: parts.logs.into_iter().map(Some).collect(),
            slots,
            dirty: Vec::new(),
            incarnations: 0,
            cuts_due: false,
            checkpoint_interval_ms: parts.checkpoint_interval_ms,
            checkpointed_at: None,
            idle_closed_at: None,
            broker_epoch: parts.broker_epoch,
            syncer: parts.syncer,
            _lock: parts.lock,
        }
    }

    /// Runs commands; appends of one log between other commands of it are written together. An
    /// answer means that the directory is closed and the rest was refused.
    pub(crate) fn run(&mut self, commands: VecDeque<Command>) -> Option<Stopped> {
        let mut commands = commands.into_iter();
        while let Some(command) = commands.next() {
            if let Command::Close { clean, reply } = command {
                self.flush();
                let outcome = if clean { self.stop_cleanly() } else { Ok(()) };
                let closed = Error::DirectoryClosed { path: self.path.clone() };
                commands.for_each(|command| command.refuse(closed.clone()));
                return Some(Stopped { reply, outcome });
            }
            self.run_one(command);
        }
        self.flush();
        None
    }

    fn run_one(&mut self, command: Command) {
        match command {
            Command::Append { lease, append, reply } => self.on_append(&lease, append, reply),
            Command::Lease { id, config, reply } => {
                self.flush();
                reply(self.lease(id, config));
            }
            Command::Configure { lease, config, reply } => {
                self.change(&lease, reply, |log| {
                    log.config = config;
                    Ok(())
                });
            }
            Command::Truncate { lease, to, reply } => {
                self.on_cut(&lease, reply, |log| log.truncate(to))
            }
            Command::Reset { lease, start, reply } => {
                self.on_cut(&lease, reply, |log| log.reset(start))
            }
            Command::SetLogStart { lease, start, reply } => {
                self.on_cut(&lease, reply, |log| log.set_log_start(start));
            }
            Command::StartLeaderEpoch { lease, epoch, reply } => {
                self.change(&lease, reply, |log| log.start_leader_epoch(epoch));
            }
            Command::Delete { id, reply } => {
                self.flush();
                reply(self.delete(&id));
            }
            Command::Synced(synced) => {
                if let Some(log) = self.logs.get_mut(synced.slot).and_then(Option::as_mut) {
                    log.on_synced(synced.truncations, synced.up_to, synced.outcome);
                }
            }
            Command::Tick { now, reply } => {
                self.flush();
                reply(self.on_tick(now));
            }
            Command::Close { reply, .. } => reply(Ok(())),
        }
    }

    fn on_append(&mut self, lease: &Lease, append: Append, reply: Reply<Appended>) {
        match held(&mut self.logs, lease) {
            Ok(log) => {
                let clean = !log.has_staged();
                log.stage(&append, reply);
                if clean && log.has_staged() {
                    self.dirty.push(lease.slot);
                }
            }
            Err(error) => reply(Err(error)),
        }
    }

    /// Runs a change of one log, after its staged appends were written.
    fn change<T>(
        &mut self,
        lease: &Lease,
        reply: Reply<T>,
        change: impl FnOnce(&mut PartitionLog) -> Result<T, Error>,
    ) {
        let outcome = held(&mut self.logs, lease).and_then(|log| {
            // A failed write closed the log, and the change says so.
            let _ = log.flush();
            change(log)
        });
        self.sync_sealed(lease.slot);
        reply(outcome);
    }

    /// Runs a change that takes records away. At the next start the recovery point should not be
    /// above the log's end, nor the start where it was: the checkpoints follow with the end of the
    /// group.
    fn on_cut<T>(
        &mut self,
        lease: &Lease,
        reply: Reply<T>,
        cut: impl FnOnce(&mut PartitionLog) -> Result<T, Error>,
    ) {
        let outcome = held(&mut self.logs, lease).and_then(|log| {
            let _ = log.flush();
            let durable = log.recovery_point();
            let start = log.view.log_start();
            let answer = cut(log)?;
            Ok((answer, log.recovery_point() < durable || log.view.log_start() != start))
        });
        self.sync_sealed(lease.slot);
        reply(outcome.map(|(answer, moved)| {
            self.cuts_due |= moved;
            answer
        }));
    }

    /// Writes what every log has staged.
    fn flush(&mut self) {
        for slot in std::mem::take(&mut self.dirty) {
            if let Some(log) = self.logs[slot].as_mut() {
                // A failed write closed the log and answered its appends.
                let _ = log.flush();
            }
            self.sync_sealed(slot);
        }
        if std::mem::take(&mut self.cuts_due)
            && let Err(error) = self.write_cuts()
        {
            tracing::error!(path = %self.path.display(), %error, "checkpoints not written");
        }
    }

    fn sync_sealed(&mut self, slot: usize) {
        let Some(log) = self.logs.get_mut(slot).and_then(Option::as_mut) else { return };
        let Some((segments, up_to)) = log.take_unsynced() else { return };
        let truncations = log.view.truncations();
        let dir = log.directory();
        let job = SyncJob { slot, truncations, dir, segments, up_to };
        if let Some(synced) = self.syncer.run(job, &self.files) {
            log.on_synced(synced.truncations, synced.up_to, synced.outcome);
        }
    }

    fn lease(&mut self, id: LogId, config: LogConfig) -> Result<Lease, Error> {
        let slot = match self.slots.get(&id.key()) {
            Some(slot) => *slot,
            None => self.create(&id, &config)?,
        };
        let log = self.logs[slot].as_mut().expect("a named slot holds a log");
        if log.id.topic_id == TopicId::ZERO {
            log.adopt_topic_id(id.topic_id)?;
        }
        if log.id.topic_id != id.topic_id {
            let (found, asked) = (log.id.topic_id, id.topic_id);
            return Err(Error::TopicIdMismatch { log: id.to_string(), found, asked });
        }
        if log.closed_because().is_some() {
            self.reopen(slot, &config)?;
        }
        let log = self.logs[slot].as_mut().expect("a named slot holds a log");
        log.config = config;
        self.incarnations += 1;
        log.view.begin_incarnation(self.incarnations);
        Ok(Lease { id, incarnation: self.incarnations, view: Arc::clone(&log.view), slot })
    }

    fn create(&mut self, id: &LogId, config: &LogConfig) -> Result<usize, Error> {
        let log = PartitionLog::create(&self.files, &self.path, id.clone(), config.clone())?;
        let slot = match self.logs.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.logs.push(None);
                self.logs.len() - 1
            }
        };
        self.logs[slot] = Some(log);
        self.slots.insert(id.key(), slot);
        Ok(slot)
    }

    /// Recovers a log that closed itself.
    fn reopen(&mut self, slot: usize, config: &LogConfig) -> Result<(), Error> {
        let closed = self.logs[slot].as_ref().expect("a named slot holds a log");
        let view = Arc::clone(&closed.view);
        let opening = Opening {
            files: &self.files,
            dir: closed.directory(),
            config: config.clone(),
            checkpointed: Checkpointed {
                recovery_point: Some(closed.recovery_point()),
                log_start: Some(view.log_start()),
                high_watermark: Some(view.high_watermark()),
                clean: false,
            },
            view: Some(view),
        };
        let log = PartitionLog::open(closed.id.clone(), opening)?;
        tracing::info!(log = %log.id, end = %log.view.log_end(), "log opened again");
        self.logs[slot] = Some(log);
        Ok(())
    }

    fn delete(&mut self, id: &LogId) -> Result<(), Error> {
        let Some(slot) = self.slots.get(&id.key()).copied() else { return Ok(()) };
        let log = self.logs[slot].as_ref().expect("a named slot holds a log");
        if log.id.topic_id != id.topic_id && id.topic_id != TopicId::ZERO {
            return Ok(());
        }
        log.view.set_deleted();
        let from = log.directory();
        self.slots.remove(&id.key());
        self.logs[slot] = None;
        self.incarnations += 1;
        let to = self.path.join(format!("{}.{}-delete", id.directory_name(), self.incarnations));
        let disk = &self.files.disk;
        disk.rename(&from, &to).map_err(|error| Error::io("rename", &from, &error))?;
        disk.sync_dir(&self.path).map_err(|error| Error::io("sync", &self.path, &error))?;
        disk.remove_dir(&to).map_err(|error| Error::io("remove", &to, &error))
    }

    fn on_tick(&mut self, now: TimestampMs) -> Result<(), Error> {
        for log in self.logs.iter_mut().flatten() {
            log.remove_deleted();
        }
        if is_due(self.idle_closed_at, now, IDLE_MS) {
            self.idle_closed_at = Some(now);
            self.files.open.close_idle();
            for log in self.logs.iter().flatten() {
                log.forget_idle(now);
            }
        }
        if is_due(self.checkpointed_at, now, self.checkpoint_interval_ms) {
            self.checkpointed_at = Some(now);
            self.write_checkpoints()?;
        }
        Ok(())
    }

    fn write_checkpoints(&mut self) -> Result<(), Error> {
        let said = said(&self.slots, &self.logs);
        self.checkpoints.write(&self.files.disk, &said)
    }

    fn write_cuts(&mut self) -> Result<(), Error> {
        let said = said(&self.slots, &self.logs);
        self.checkpoints.write_cuts(&self.files.disk, &said)
    }

    /// Makes every log durable and says so in the clean-stop file.
    fn stop_cleanly(&mut self) -> Result<(), Error> {
        for log in self.logs.iter_mut().flatten() {
            log.stop_cleanly()?;
        }
        self.write_checkpoints()?;
        let broker_epoch = BrokerEpoch(self.broker_epoch.load(Ordering::Acquire));
        mark_clean_shutdown(&self.files.disk, &self.path, broker_epoch)
    }
}

/// What the checkpoints are to say of every log.
fn said<'a>(
    slots: &'a BTreeMap<TopicPartition, usize>,
    logs: &[Option<PartitionLog>],
) -> Vec<Said<'a>> {
    let said = slots.iter().map(|(name, slot)| {
        let log = logs[*slot].as_ref().expect("a named slot holds a log");
        (name, log.checkpointed())
    });
    said.collect()
}

fn is_due(last: Option<TimestampMs>, now: TimestampMs, interval_ms: i64) -> bool {
    last.is_none_or(|last| now.0.saturating_sub(last.0) >= interval_ms)
}

/// The log of a lease that still counts.
fn held<'a>(
    logs: &'a mut [Option<PartitionLog>],
    lease: &Lease,
) -> Result<&'a mut PartitionLog, Error> {
    let log = logs.get_mut(lease.slot).and_then(Option::as_mut);
    log.filter(|log| log.view.incarnation() == lease.incarnation)
        .ok_or_else(|| lease.view.stale(lease.incarnation))
}
