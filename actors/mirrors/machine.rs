//! The mirror machine of one partition, run by the partition that leads it: events in, effects
//! out. The rules are the `mirror` crate's; this file keeps the machine in step with what happens,
//! the effects are carried out in `machine/effects.rs`.

mod effects;
mod log_start;
mod remote;
mod stop;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use log::Lease;
use mirror::retry::{Backoff, FailureRetries};
use mirror::truncation::LogFacts;
use mirror::{
    ControllerRecord, DesiredState, LeadershipEvent, LogEvent, MirrorEvent, MirrorState,
    PartitionMirror, StopEvent, StoredState, WriteAccess,
};
use protocol::batch;
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, Offset};
use ractor::{ActorRef, RpcReplyPort};
use raft::{MirrorDesired, MirrorName, MirrorRole, MirrorStop};

use self::log_start::SourceStart;
use super::SourcePartition;
use crate::clock::millis;
use crate::directory::Directory;
use crate::error::Error;
use crate::partition::pending::send;
use crate::partition::{PartitionMsg, PartitionShared, PartitionState};

/// Something that happened to a mirror partition.
#[derive(Debug)]
pub enum MirrorInput {
    /// From a fetcher, about the fetching of one leader epoch.
    Event {
        /// The epoch given to StartFetching.
        leader_epoch: LeaderEpoch,
        /// What happened.
        event: MirrorEvent,
    },
    /// The answer to an effect of one leadership.
    Answer {
        /// The leadership, by the runner's number.
        generation: u64,
        /// The answer.
        event: MirrorEvent,
    },
    /// The answer to an effect, to be given once the whole log is committed.
    AnswerOnceCommitted {
        /// The leadership, by the runner's number.
        generation: u64,
        /// The answer.
        event: MirrorEvent,
    },
    /// The timer of that number went off.
    Timer {
        /// The leadership.
        generation: u64,
        /// The timer's number: a replaced one is ignored.
        timer: u64,
    },
    /// A follower fetched.
    FollowersMoved,
    /// The high watermark may have moved.
    HighWatermarkMoved,
    /// The log did not take the source's log start.
    LogStartRefused {
        /// The leadership.
        generation: u64,
        /// The source's log start.
        wanted: Offset,
        /// What it was above.
        high_watermark: Offset,
    },
    /// The mirror's actor was restarted and fetches nothing yet.
    MirrorRestarted,
    /// An operator asks again for what is wanted already: FAILED tries at once.
    RetryNow,
    /// What to show of the partition.
    Describe(RpcReplyPort<MirrorReport>),
}

/// What a leader can say of its mirror partition.
#[derive(Debug, Clone)]
pub struct MirrorReport {
    /// The state.
    pub state: MirrorState,
    /// The newest durable row, while the machine has one.
    pub row: Option<StoredState>,
    /// The epoch it leads in.
    pub leader_epoch: LeaderEpoch,
    /// One past the last offset.
    pub log_end: Offset,
    /// The high watermark.
    pub high_watermark: Offset,
}

/// What the machine waits for of its own partition, looked at whenever something moves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Awaited {
    /// No follower that counts holds more than this.
    followers: Option<Offset>,
    /// The high watermark is the log end.
    high_watermark: bool,
    /// The same, for an answer that is ready but for that.
    committed: Option<MirrorEvent>,
}

/// The machine and what it needs to act.
#[derive(Debug)]
pub struct MirrorRunner {
    directory: Arc<Directory>,
    shared: Arc<PartitionShared>,
    lease: Lease,
    partition: ActorRef<PartitionMsg>,
    mirror: MirrorName,
    machine: PartitionMirror,
    leader_epoch: LeaderEpoch,
    desired: DesiredState,
    record: ControllerRecord,
    awaited: Awaited,
    source_start: SourceStart,
    /// Number of this leadership: answers to an earlier one's effects are dropped.
    generation: u64,
    timer: u64,
    /// Starts the fetching again when the mirror's actor is not up yet.
    fetching: Option<crate::runtimes::AbortOnDrop>,
}

impl MirrorRunner {
    /// A machine at the beginning of a leadership; [`PartitionState::on_mirror_lead`] starts it.
    fn new(
        partition: &PartitionState,
        role: &MirrorRole,
        leader_epoch: LeaderEpoch,
    ) -> Option<Self> {
        let (mirror, desired, record) = wish_of(role)?;
        Some(MirrorRunner {
            directory: Arc::clone(&partition.directory),
            shared: Arc::clone(&partition.shared),
            lease: partition.lease.clone(),
            partition: partition.myself.clone(),
            mirror,
            machine: PartitionMirror::default(),
            leader_epoch,
            desired,
            record,
            awaited: Awaited::default(),
            source_start: SourceStart::default(),
            generation: partition.directory.entropy.next_u64(),
            timer: 0,
            fetching: None,
        })
    }

    /// Whether clients may write.
    ///
    /// # Errors
    /// POLICY_VIOLATION with topic, mirror and state while they may not; NOT_LEADER_OR_FOLLOWER,
    /// which clients retry, while the state is not known yet (D3).
    pub fn check_writable(&self) -> Result<(), Error> {
        match self.machine.write_access() {
            WriteAccess::Allowed => Ok(()),
            WriteAccess::NotYet => Err(Error::refused(ErrorCode::NotLeaderOrFollower)),
            WriteAccess::ReadOnly(state) => Err(Error::refused_with(
                ErrorCode::PolicyViolation,
                format!(
                    "topic {} is read-only: it is {} in mirror {}; stop mirroring it to write",
                    self.shared.topic,
                    state.name(),
                    self.mirror
                ),
            )),
        }
    }

    /// Whether batches of the source may be appended in this leader epoch.
    ///
    /// # Errors
    /// When the machine is not mirroring, or a batch's epoch is above ours (D8).
    pub fn admit_batches(&self, batches: &Bytes, leader_epoch: LeaderEpoch) -> Result<(), Error> {
        if self.machine.state() != MirrorState::Mirroring {
            return Err(Error::refused_with(
                ErrorCode::NotLeaderOrFollower,
                format!("the partition is {}, not MIRRORING", self.machine.state().name()),
            ));
        }
        for found in batch::split(batches.clone()) {
            let epoch = match found {
                Ok(found) => found.header.leader_epoch,
                // The log names what is wrong with it.
                Err(_broken) => return Ok(()),
            };
            if !mirror::epochs::may_append(leader_epoch, epoch) {
                return Err(Error::refused_with(
                    ErrorCode::FencedLeaderEpoch,
                    format!("a batch of epoch {epoch} is above the leader epoch {leader_epoch}"),
                ));
            }
        }
        Ok(())
    }

    /// The source's partition that this one copies.
    fn source_partition(&self) -> SourcePartition {
        SourcePartition {
            topic: self.shared.topic.clone(),
            topic_id: self.shared.topic_id,
            partition: self.shared.partition,
        }
    }

    fn facts(&self) -> LogFacts {
        let view = &self.lease.view;
        let mut open: Vec<_> =
            view.open_transactions().iter().map(|open| open.producer_id).collect();
        open.sort_unstable();
        LogFacts {
            start: view.log_start(),
            end: view.log_end(),
            newest_epoch: view.last_epoch(),
            open_transactions: open,
        }
    }

    fn report(&self) -> MirrorReport {
        MirrorReport {
            state: self.machine.state(),
            row: self.machine.row().cloned(),
            leader_epoch: self.leader_epoch,
            log_end: self.lease.view.log_end(),
            high_watermark: self.lease.view.high_watermark(),
        }
    }

    /// Feeds events and carries out their effects until nothing more happens at once.
    fn feed(&mut self, partition: &mut PartitionState, event: impl Into<MirrorEvent>) {
        let mut events = VecDeque::from([event.into()]);
        while let Some(event) = events.pop_front() {
            let name = event.name();
            match mirror::next(&self.machine, event, self.directory.clock.now()) {
                Ok((machine, effects)) => {
                    self.machine = machine;
                    for effect in effects {
                        events.extend(self.execute(partition, effect));
                    }
                }
                Err(error) => {
                    tracing::debug!(
                        partition = %self.shared.id(), event = name, %error, "event refused"
                    );
                }
            }
        }
    }

    /// Looks whether something awaited has come.
    fn look(&mut self, partition: &mut PartitionState) {
        self.follow_source_start();
        if let Some(end) = self.awaited.followers
            && partition.followers_hold_at_most(end)
        {
            self.awaited.followers = None;
            self.feed(partition, LogEvent::FollowersAligned);
        }
        let view = &self.lease.view;
        if view.high_watermark() < view.log_end() {
            return;
        }
        if std::mem::take(&mut self.awaited.high_watermark) {
            let facts = self.facts();
            self.feed(partition, StopEvent::HighWatermarkReached(facts));
        }
        if let Some(event) = self.awaited.committed.take() {
            self.feed(partition, event);
        }
    }

    fn on_input(&mut self, partition: &mut PartitionState, input: MirrorInput) {
        match input {
            MirrorInput::Event { leader_epoch, event } => {
                if leader_epoch == self.leader_epoch {
                    self.feed(partition, event);
                }
            }
            MirrorInput::Answer { generation, event } => {
                if generation == self.generation {
                    self.feed(partition, event);
                }
            }
            MirrorInput::AnswerOnceCommitted { generation, event } => {
                if generation == self.generation {
                    self.awaited.committed = Some(event);
                    self.look(partition);
                }
            }
            MirrorInput::Timer { generation, timer } => {
                if generation == self.generation && timer == self.timer {
                    self.feed(partition, MirrorEvent::Woke);
                }
            }
            MirrorInput::FollowersMoved | MirrorInput::HighWatermarkMoved => self.look(partition),
            MirrorInput::LogStartRefused { generation, wanted, high_watermark } => {
                if generation == self.generation {
                    self.on_log_start_refused(wanted, high_watermark);
                }
            }
            MirrorInput::MirrorRestarted => {
                if self.machine.state() == MirrorState::Mirroring {
                    self.start_fetching(self.leader_epoch);
                }
            }
            MirrorInput::RetryNow => {
                let (desired, record) = (self.desired, self.record);
                self.feed(partition, LeadershipEvent::ControllerChanged { desired, record });
            }
            MirrorInput::Describe(reply) => send(reply, self.report()),
        }
    }

    /// The image says something else of the partition, or its leader epoch was bumped.
    fn on_role_changed(
        &mut self,
        partition: &mut PartitionState,
        role: &MirrorRole,
        leader_epoch: LeaderEpoch,
    ) {
        if leader_epoch > self.leader_epoch {
            self.leader_epoch = leader_epoch;
            self.feed(partition, LeadershipEvent::LeaderEpochRaised { leader_epoch });
        }
        let Some((_, desired, record)) = wish_of(role) else {
            return;
        };
        if (desired, record) != (self.desired, self.record) {
            (self.desired, self.record) = (desired, record);
            self.feed(partition, LeadershipEvent::ControllerChanged { desired, record });
        }
    }
}

/// What a broker's `mirror.failed.retry.*` say.
fn retries(config: &config::MirrorBrokerConfig) -> FailureRetries {
    FailureRetries {
        backoff: Backoff {
            initial_ms: millis(config.failed_retry_initial_backoff),
            max_ms: millis(config.failed_retry_max_backoff),
            ..FailureRetries::default().backoff
        },
        attempts_max: i16::try_from(config.failed_retry_max_attempts).unwrap_or(i16::MAX),
    }
}

impl PartitionState {
    /// Hands something to the machine, if there is one.
    pub(crate) fn on_mirror(&mut self, input: MirrorInput) {
        if let Some(mut runner) = self.mirror.take() {
            runner.on_input(self, input);
            self.mirror = Some(runner);
        }
    }

    /// Keeps the machine in step with the image while this replica leads.
    pub(crate) fn on_mirror_lead(&mut self, role: &MirrorRole, leader_epoch: LeaderEpoch) {
        if let Some(mut runner) = self.mirror.take() {
            if wish_of(role).is_some_and(|(mirror, ..)| mirror == runner.mirror) {
                runner.on_role_changed(self, role, leader_epoch);
                self.mirror = Some(runner);
                return;
            }
            runner.feed(self, LeadershipEvent::LostLeadership);
        }
        if let Some(mut runner) = MirrorRunner::new(self, role, leader_epoch) {
            let (desired, record) = (runner.desired, runner.record);
            let jitter_seed = runner.generation;
            let retries = retries(&self.directory.config.mirror);
            runner.feed(
                self,
                LeadershipEvent::BecameLeader {
                    leader_epoch,
                    desired,
                    record,
                    jitter_seed,
                    retries,
                },
            );
            self.mirror = Some(runner);
        }
    }

    /// Ends the machine with the leadership.
    pub(crate) fn on_mirror_lost(&mut self) {
        if let Some(mut runner) = self.mirror.take() {
            runner.feed(self, LeadershipEvent::LostLeadership);
        }
    }
}

/// What the image wants of a mirror partition; `None` for an ordinary one.
fn wish_of(role: &MirrorRole) -> Option<(MirrorName, DesiredState, ControllerRecord)> {
    match role {
        MirrorRole::None { .. } => None,
        MirrorRole::Mirroring { mirror, desired, adopted, last_stop } => {
            let stop = last_stop.as_deref().filter(|stop| stop.was_mirrored());
            // What a topic of the mirror's own making holds came from the source until a stop.
            let mirrored_before = stop.is_some() || (last_stop.is_none() && !adopted);
            let record = record_of(stop, mirrored_before, false);
            let desired = match desired {
                MirrorDesired::Active => DesiredState::Active,
                MirrorDesired::Paused => DesiredState::Paused,
                MirrorDesired::Stopped => DesiredState::Stopped,
            };
            Some((mirror.clone(), desired, record))
        }
        MirrorRole::Stopped { mirror, stop } => {
            let record = record_of(Some(stop), true, true);
            Some((mirror.clone(), DesiredState::Stopped, record))
        }
    }
}

fn record_of(stop: Option<&MirrorStop>, mirrored_before: bool, stopped: bool) -> ControllerRecord {
    ControllerRecord {
        mirrored_before,
        nothing_mirrored: stop.is_some_and(|stop| stop.last_mirror_epoch == LeaderEpoch::NONE),
        stopped,
        last_mirror_epoch: stop.map_or(LeaderEpoch::NONE, |stop| stop.last_mirror_epoch),
        last_mirrored_offset: stop.map_or(Offset::NONE, |stop| stop.last_mirrored_offset),
    }
}
