//! One replica of one partition, leader or follower. It decides who may write and what is
//! committed; the bytes belong to the log directory, whose lease it holds.
//!
//! The actor never touches a file: it casts commands to the log directory's writer and takes the
//! answers as messages. Fetches do not pass through it: they read the partition's `ReadView`.

pub mod handle;
pub mod isr;
pub mod pending;
pub mod waiters;

mod follower;
mod leader;
mod roles;

use std::sync::Arc;

use bytes::Bytes;
use log::{Lease, Origin};
use protocol::ids::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName,
};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::admission::AppendPermit;
use crate::crash_point::panic_point;
use crate::directory::Directory;
use crate::error::Error;
use crate::mirrors::machine::{MirrorInput, MirrorRunner};
pub use handle::{PartitionHandle, PartitionShared};
use leader::LeaderState;

/// Where an appended batch landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendResult {
    /// Offset of the first record.
    pub first_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// The broker's timestamp in milliseconds when the topic uses LogAppendTime, else −1.
    pub log_append_time: i64,
    /// First offset of the log.
    pub log_start: Offset,
}

/// Which acknowledgement a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// The leader's log has it (acks 0 and 1).
    Leader,
    /// Every member of the ISR has it, and there are at least min.insync.replicas of them.
    All,
    /// Every member of the ISR has it, however few they are: the abort and reset batches of a
    /// failover, which must not depend on min.insync.replicas (D10).
    IsrOnly,
}

/// A write by a client or a coordinator.
#[derive(Debug)]
pub struct Append {
    /// Whole record batches, checked by the connection.
    pub batches: Bytes,
    /// Who writes.
    pub origin: Origin,
    /// What the answer waits for.
    pub acks: Acks,
    /// The leader epoch the writer counts on; `None` for clients, which name none.
    pub expected_epoch: Option<LeaderEpoch>,
    /// Admission, held until the answer.
    pub permit: AppendPermit,
}

/// What a follower learned from its leader in one fetch.
#[derive(Debug)]
pub struct ReplicaAppend {
    /// The leader epoch the fetch was made under; older ones are dropped.
    pub leader_epoch: LeaderEpoch,
    /// Whole batches, untouched; may be empty.
    pub batches: Bytes,
    /// The leader's high watermark.
    pub high_watermark: Offset,
    /// The leader's first offset.
    pub log_start: Offset,
}

/// Where a follower's log stands after an append or a truncation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerPosition {
    /// One past the last offset.
    pub log_end: Offset,
    /// Epoch of the last batch, −1 in an empty log.
    pub last_epoch: LeaderEpoch,
}

/// What a partition can be told.
#[derive(Debug)]
pub enum PartitionMsg {
    /// A write by a client or a coordinator.
    Append(Append, RpcReplyPort<Result<AppendResult, Error>>),
    /// The writer answered an append of this leader.
    Appended {
        /// What the append waits for.
        acks: Acks,
        /// Where it landed, or why not.
        result: Result<AppendResult, Error>,
        /// Admission, held until the answer.
        permit: AppendPermit,
        /// Who waits; `None` when the writer's thread has answered already.
        reply: Option<RpcReplyPort<Result<AppendResult, Error>>>,
    },
    /// Batches from the source cluster, appended by the leader with their offsets and bytes.
    MirrorAppend {
        /// Whole batches, untouched.
        batches: Bytes,
        /// The source's first offset.
        source_log_start: Offset,
        /// Where the log stands afterwards.
        reply: RpcReplyPort<Result<FollowerPosition, Error>>,
    },
    /// Batches from the leader.
    ReplicaAppend(ReplicaAppend, RpcReplyPort<Result<FollowerPosition, Error>>),
    /// The leader's and this follower's logs differ from here on.
    Diverged {
        /// The leader epoch the fetch was made under.
        leader_epoch: LeaderEpoch,
        /// The leader's largest epoch not above ours, and where it ends there.
        diverging_epoch: LeaderEpoch,
        /// End of that epoch in the leader's log.
        end_offset: Offset,
        /// Where the log stands afterwards.
        reply: RpcReplyPort<Result<FollowerPosition, Error>>,
    },
    /// The follower's log end lies outside the leader's log: start over at the leader's start.
    OutOfRange {
        /// The leader epoch the fetch was made under.
        leader_epoch: LeaderEpoch,
        /// First offset of the leader's log.
        leader_log_start: Offset,
        /// One past the last offset of the leader's log.
        leader_log_end: Offset,
        /// Where the log stands afterwards.
        reply: RpcReplyPort<Result<FollowerPosition, Error>>,
    },
    /// A follower fetched from this leader at this offset.
    FollowerFetched {
        /// The leader epoch the fetch was checked under; one of an earlier leadership says
        /// nothing.
        leader_epoch: LeaderEpoch,
        /// The follower.
        replica: NodeId,
        /// Its incarnation.
        broker_epoch: BrokerEpoch,
        /// Its log end.
        log_end: Offset,
    },
    /// The image of the cluster changed in something about this partition.
    ImageChanged,
    /// The controller answered a change of the ISR.
    IsrAnswered {
        /// The leader epoch it was asked under.
        leader_epoch: LeaderEpoch,
        /// Refused or lost changes are asked again when still wanted.
        result: Result<(), Error>,
    },
    /// The log has taken this leader's epoch: appends may go on.
    EpochStarted {
        /// Which epoch.
        leader_epoch: LeaderEpoch,
        /// The log's answer.
        result: Result<(), Error>,
    },
    /// Time to look for lagging followers.
    Tick,
    /// Something for the mirror machine of this partition.
    Mirror(MirrorInput),
}

/// What a partition is started with, again and again.
#[derive(Debug, Clone)]
pub struct PartitionArgs {
    /// The node.
    pub directory: Arc<Directory>,
    /// What outlives the actor: the read view and its waiters.
    pub shared: Arc<PartitionShared>,
}

/// The actor; everything mutable is in [`PartitionState`].
#[derive(Debug)]
pub struct Partition;

/// What this replica is at the moment.
#[derive(Debug)]
pub enum Role {
    /// Takes writes and answers fetches.
    Leader(Box<LeaderState>),
    /// Copies from its leader.
    Follower {
        /// The leader's epoch, known from the image.
        leader_epoch: LeaderEpoch,
    },
    /// No replica here, or not known yet.
    Idle,
}

/// The state of one incarnation of the actor.
#[derive(Debug)]
pub struct PartitionState {
    pub(crate) directory: Arc<Directory>,
    pub(crate) shared: Arc<PartitionShared>,
    pub(crate) lease: Lease,
    role: Role,
    pub(crate) mirror: Option<MirrorRunner>,
    pub(crate) myself: ActorRef<PartitionMsg>,
}

impl Actor for Partition {
    type Msg = PartitionMsg;
    type State = PartitionState;
    type Arguments = PartitionArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let PartitionArgs { directory, shared } = args;
        let lease = shared.take_lease(&directory).await?;
        shared.publish_view(Arc::clone(&lease.view));
        let mut state =
            PartitionState { directory, shared, lease, role: Role::Idle, mirror: None, myself };
        state.on_image_changed();
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            PartitionMsg::Append(append, reply) => {
                panic_point("partition-append", state.topic());
                state.on_append(append, reply);
            }
            PartitionMsg::Appended { acks, result, permit, reply } => {
                state.on_appended(acks, result, permit, reply);
            }
            PartitionMsg::MirrorAppend { batches, source_log_start, reply } => {
                state.on_mirror_append(batches, source_log_start, reply);
            }
            PartitionMsg::ReplicaAppend(append, reply) => state.on_replica_append(append, reply),
            PartitionMsg::Diverged { leader_epoch, diverging_epoch, end_offset, reply } => {
                state.on_diverged(leader_epoch, diverging_epoch, end_offset, reply);
            }
            PartitionMsg::OutOfRange { leader_epoch, leader_log_start, leader_log_end, reply } => {
                state.on_out_of_range(leader_epoch, leader_log_start, leader_log_end, reply);
            }
            PartitionMsg::FollowerFetched { leader_epoch, replica, broker_epoch, log_end } => {
                if state.leading_epoch() == Some(leader_epoch) {
                    state.on_follower_fetched(replica, broker_epoch, log_end);
                }
            }
            PartitionMsg::ImageChanged => state.on_image_changed(),
            PartitionMsg::IsrAnswered { leader_epoch, result } => {
                state.on_isr_answered(leader_epoch, result);
            }
            PartitionMsg::EpochStarted { leader_epoch, result } => {
                state.on_epoch_started(leader_epoch, result);
            }
            PartitionMsg::Tick => {
                state.check_log()?;
                state.on_tick();
            }
            PartitionMsg::Mirror(input) => state.on_mirror(input),
        }
        Ok(())
    }
}

impl PartitionState {
    /// A log that closed itself ends the actor: its successor's lease opens the log again, and
    /// when that has failed often enough another replica leads.
    fn check_log(&self) -> Result<(), ActorProcessingErr> {
        if self.lease.view.is_closed() {
            let log = self.lease.view.id();
            return Err(format!("the log of {log} closed itself: it is to be opened again").into());
        }
        Ok(())
    }

    /// The topic's id.
    pub fn topic_id(&self) -> TopicId {
        self.shared.topic_id
    }

    /// The topic's name.
    pub fn topic(&self) -> &TopicName {
        &self.shared.topic
    }

    /// The partition's index.
    pub fn partition(&self) -> PartitionIndex {
        self.shared.partition
    }

    /// The epoch this replica leads in, if it leads.
    pub fn leading_epoch(&self) -> Option<LeaderEpoch> {
        match &self.role {
            Role::Leader(leader) => Some(leader.epoch()),
            Role::Follower { .. } | Role::Idle => None,
        }
    }
}
