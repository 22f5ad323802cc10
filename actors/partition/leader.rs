//! The leader's part: admitting writes, acknowledging them, moving the high watermark, and keeping
//! the ISR honest. It never writes to a file itself.

use std::collections::BTreeSet;

use bytes::Bytes;
use log::Origin;
use protocol::error_code::ErrorCode;
use protocol::ids::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, TimestampMs};
use ractor::{ActorRef, RpcReplyPort};

use super::isr::ReplicaSet;
use super::pending::{PendingAcks, send};
use super::{Acks, Append, AppendResult, FollowerPosition, PartitionMsg, PartitionState, Role};
use crate::admission::AppendPermit;
use crate::clock::millis;
use crate::error::Error;
use crate::mirrors::machine::MirrorInput;
use crate::replicas::isr_changes::IsrChange;

type AppendReply = RpcReplyPort<Result<AppendResult, Error>>;

/// What a leader keeps for one leader epoch.
#[derive(Debug)]
pub struct LeaderState {
    epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
    /// The followers and the ISR.
    pub replicas: ReplicaSet,
    /// acks=all answers that wait.
    pub pending: PendingAcks,
    /// The topic's min.insync.replicas.
    pub min_isr: usize,
    /// Where this epoch begins in the log; followers below it may not join the ISR. Unknown until
    /// the log has taken the epoch.
    epoch_start: Option<Offset>,
    /// The fate of the asked ISR is not known: the next tick asks for the same again.
    ask_again: bool,
}

impl LeaderState {
    /// The start of a leadership.
    pub fn new(
        me: NodeId,
        replicas: impl IntoIterator<Item = NodeId>,
        isr: BTreeSet<NodeId>,
        epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        min_isr: usize,
        now: TimestampMs,
    ) -> LeaderState {
        LeaderState {
            epoch,
            partition_epoch,
            replicas: ReplicaSet::new(me, replicas, isr, now),
            pending: PendingAcks::default(),
            min_isr,
            epoch_start: None,
            ask_again: false,
        }
    }

    /// The leader epoch.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// The partition epoch of the newest registration seen.
    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// The same leader goes on in a new epoch.
    pub fn on_raised(&mut self, epoch: LeaderEpoch) {
        self.epoch = epoch;
        self.epoch_start = None;
    }

    /// Takes over a newer registration of the same leader epoch.
    pub fn on_registration(
        &mut self,
        replicas: impl IntoIterator<Item = NodeId>,
        isr: BTreeSet<NodeId>,
        partition_epoch: PartitionEpoch,
        now: TimestampMs,
    ) {
        self.partition_epoch = partition_epoch;
        self.ask_again = false;
        self.replicas.on_committed(replicas, isr, now);
    }
}

/// Casts to a partition; one that is gone has a successor that does not need the message.
pub(super) fn tell(partition: &ActorRef<PartitionMsg>, message: PartitionMsg) {
    if partition.cast(message).is_err() {
        tracing::trace!("the partition's actor is gone");
    }
}

impl PartitionState {
    pub(crate) fn on_append(&mut self, append: Append, reply: AppendReply) {
        let leader_epoch = match self.admit(&append) {
            Ok(leader_epoch) => leader_epoch,
            Err(error) => return send(reply, Err(error)),
        };
        self.submit(append, leader_epoch, reply);
    }

    /// Whether this write may go to the log, and in which epoch.
    fn admit(&self, append: &Append) -> Result<LeaderEpoch, Error> {
        let Role::Leader(leader) = &self.role else {
            return Err(Error::refused(ErrorCode::NotLeaderOrFollower));
        };
        if append.expected_epoch.is_some_and(|expected| expected != leader.epoch) {
            return Err(Error::refused(ErrorCode::NotLeaderOrFollower));
        }
        if append.origin == Origin::Client
            && let Some(mirror) = &self.mirror
        {
            mirror.check_writable()?;
        }
        let isr = leader.replicas.isr().len();
        if append.acks == Acks::All && isr < leader.min_isr {
            return Err(Error::refused_with(
                ErrorCode::NotEnoughReplicas,
                format!(
                    "partition {}-{} has {isr} in-sync replicas, {} are required",
                    self.shared.topic, self.shared.partition, leader.min_isr
                ),
            ));
        }
        Ok(leader.epoch)
    }

    fn submit(&self, append: Append, leader_epoch: LeaderEpoch, reply: AppendReply) {
        let log_dir = match self.directory.log_dir() {
            Ok(log_dir) => log_dir,
            Err(error) => return send(reply, Err(error)),
        };
        let Append { batches, origin, acks, expected_epoch: _, permit } = append;
        let now = self.directory.clock.now();
        let myself = self.myself.clone();
        let command = log::Append { batches, leader_epoch, origin, now, crc_verified: true };
        log_dir.append(
            &self.lease,
            command,
            Box::new(move |result| {
                let result = result.map(AppendResult::from).map_err(Error::from);
                // What waits for nobody else is answered here, on the writer's thread.
                let reply = match acks {
                    Acks::Leader => {
                        send(reply, result.clone());
                        None
                    }
                    Acks::All | Acks::IsrOnly => Some(reply),
                };
                tell(&myself, PartitionMsg::Appended { acks, result, permit, reply });
            }),
        );
    }

    pub(super) fn on_appended(
        &mut self,
        acks: Acks,
        result: Result<AppendResult, Error>,
        permit: AppendPermit,
        reply: Option<AppendReply>,
    ) {
        let Role::Leader(leader) = &mut self.role else {
            if let Some(reply) = reply {
                send(reply, Err(Error::refused(ErrorCode::NotLeaderOrFollower)));
            }
            return;
        };
        match (result, reply) {
            (Ok(result), Some(reply)) => {
                let isr = leader.replicas.isr().len();
                if acks == Acks::All && isr < leader.min_isr {
                    send(reply, Err(Error::refused(ErrorCode::NotEnoughReplicasAfterAppend)));
                } else {
                    leader.pending.push(acks, result, reply, permit);
                }
            }
            (Err(error), Some(reply)) => send(reply, Err(error)),
            (_, None) => {}
        }
        self.maybe_advance_high_watermark();
    }

    /// Appends what the source's leader sent, offsets and bytes untouched.
    pub(super) fn on_mirror_append(
        &mut self,
        batches: Bytes,
        source_log_start: Offset,
        reply: RpcReplyPort<Result<FollowerPosition, Error>>,
    ) {
        let Role::Leader(leader) = &self.role else {
            return send(reply, Err(Error::refused(ErrorCode::NotLeaderOrFollower)));
        };
        let leader_epoch = leader.epoch;
        let admitted = match &mut self.mirror {
            Some(mirror) => {
                mirror.on_source_start(source_log_start);
                mirror.admit_batches(&batches, leader_epoch)
            }
            None => Err(Error::refused(ErrorCode::NotLeaderOrFollower)),
        };
        let log_dir = match admitted.and_then(|()| self.directory.log_dir()) {
            Ok(log_dir) => log_dir,
            Err(error) => return send(reply, Err(error)),
        };
        let now = self.directory.clock.now();
        let view = std::sync::Arc::clone(&self.lease.view);
        if batches.is_empty() {
            return send(reply, Ok(FollowerPosition::of(&view)));
        }
        let myself = self.myself.clone();
        let origin = Origin::Mirror;
        let command = log::Append { batches, leader_epoch, origin, now, crc_verified: false };
        log_dir.append(
            &self.lease,
            command,
            Box::new(move |result| {
                let result = result.map(AppendResult::from).map_err(Error::from);
                let position = result.clone().map(|_| FollowerPosition::of(&view));
                send(reply, position);
                let permit = AppendPermit::internal();
                let acks = Acks::Leader;
                tell(&myself, PartitionMsg::Appended { acks, result, permit, reply: None });
            }),
        );
    }

    pub(super) fn on_follower_fetched(
        &mut self,
        replica: NodeId,
        broker_epoch: BrokerEpoch,
        log_end: Offset,
    ) {
        let now = self.directory.clock.now();
        let leader_end = self.lease.view.log_end();
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        if !leader.replicas.on_fetch(replica, broker_epoch, log_end, leader_end, now) {
            return;
        }
        self.maybe_advance_high_watermark();
        self.maybe_expand_isr(replica);
        if self.mirror.is_some() {
            self.on_mirror(MirrorInput::FollowersMoved);
        }
    }

    /// Moves the high watermark to what every counting replica has, and answers who waited.
    pub(super) fn maybe_advance_high_watermark(&mut self) {
        let view = &self.lease.view;
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        if let Some(end) = leader.replicas.committed_end(view.log_end())
            && end > view.high_watermark()
        {
            view.advance_high_watermark(self.lease.incarnation, end);
        }
        let enough = leader.replicas.isr().len() >= leader.min_isr;
        leader.pending.complete_up_to(view.high_watermark(), enough);
        if self.mirror.is_some() {
            self.on_mirror(MirrorInput::HighWatermarkMoved);
        }
    }

    fn maybe_expand_isr(&mut self, follower: NodeId) {
        let (high_watermark, log_end) =
            (self.lease.view.high_watermark(), self.lease.view.log_end());
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        let Some(epoch_start) = leader.epoch_start else {
            return;
        };
        // A mirror that was started again has cut its log below where the epoch began, and its
        // source may never have as much: who holds all there is holds all of the epoch before.
        let epoch_start = epoch_start.min(log_end);
        if !leader.replicas.may_join(follower, high_watermark, epoch_start)
            || !self.directory.may_be_in_sync(follower)
        {
            return;
        }
        let mut isr = leader.replicas.isr().clone();
        isr.insert(follower);
        self.ask_isr(isr);
    }

    pub(crate) fn on_tick(&mut self) {
        let now = self.directory.clock.now();
        let lag_max_ms = millis(self.directory.config.timing.replica_lag_time_max);
        let log_end = self.lease.view.log_end();
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        leader.pending.drop_abandoned();
        if std::mem::take(&mut leader.ask_again)
            && let Some(asked) = leader.replicas.asked().cloned()
        {
            return self.ask_isr(asked);
        }
        let lagging = leader.replicas.lagging(log_end, now, lag_max_ms);
        if lagging.is_empty() {
            return;
        }
        let isr: BTreeSet<NodeId> = leader.replicas.isr().difference(&lagging).copied().collect();
        tracing::info!(
            partition = %self.shared.id(), topic = %self.shared.topic, ?lagging,
            "asking the controller to shrink the ISR"
        );
        self.ask_isr(isr);
    }

    /// Whether no follower that counts holds more than `end`, as far as each has told.
    pub(crate) fn followers_hold_at_most(&self, end: Offset) -> bool {
        match &self.role {
            Role::Leader(leader) => leader.replicas.hold_at_most(end),
            Role::Follower { .. } | Role::Idle => false,
        }
    }

    fn ask_isr(&mut self, isr: BTreeSet<NodeId>) {
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        let me = self.directory.node_id();
        let my_epoch = self.directory.broker_epoch();
        let with_epochs = isr
            .iter()
            .map(|id| (*id, if *id == me { my_epoch } else { leader.replicas.broker_epoch(*id) }))
            .collect();
        leader.replicas.ask(isr);
        self.directory.ask_isr_change(IsrChange {
            partition: self.shared.id(),
            leader_epoch: leader.epoch,
            partition_epoch: leader.partition_epoch,
            isr: with_epochs,
        });
    }

    pub(super) fn on_isr_answered(
        &mut self,
        leader_epoch: LeaderEpoch,
        result: Result<(), Error>,
    ) {
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        if leader.epoch != leader_epoch {
            return;
        }
        // Success is taken over when the image brings it, with its partition epoch.
        let Err(error) = result else {
            return;
        };
        tracing::debug!(partition = %self.shared.id(), %error, "the ISR change was not taken");
        match error.code() {
            // Certain: the controller holds what the image has.
            ErrorCode::IneligibleReplica
            | ErrorCode::InvalidRequest
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId => leader.replicas.forget_asked(),
            // An answer that was lost, or an epoch that may have moved by this very change. A new
            // leader might be elected from the set that was asked for, so its members go on
            // counting until the image tells; the next tick asks again.
            _ => leader.ask_again = true,
        }
    }

    pub(super) fn on_epoch_started(
        &mut self,
        leader_epoch: LeaderEpoch,
        result: Result<(), Error>,
    ) {
        let log_end = self.lease.view.log_end();
        let Role::Leader(leader) = &mut self.role else {
            return;
        };
        if leader.epoch != leader_epoch {
            return;
        }
        match result {
            // At or after the true start: a follower that has this much has all of the epoch
            // before.
            Ok(()) => leader.epoch_start = Some(log_end),
            // The node ends: it was elected because another one of its process went first.
            Err(error) if self.directory.stopped.is_cancelled() => {
                tracing::debug!(partition = %self.shared.id(), %error, "the epoch was not stored");
            }
            Err(error) => {
                tracing::error!(partition = %self.shared.id(), %error, "the epoch was not stored");
            }
        }
    }
}

impl From<log::Appended> for AppendResult {
    fn from(appended: log::Appended) -> AppendResult {
        AppendResult {
            first_offset: appended.first_offset,
            last_offset: appended.last_offset,
            log_append_time: appended.log_append_time.0,
            log_start: appended.log_start,
        }
    }
}
