//! The mirror machine of one partition, run by the partition that leads it: events in, effects
//! out. The rules are `mirror`'s; this file executes them.

use std::sync::Arc;

use bytes::Bytes;
use log::Lease;
use mirror::{MirrorEvent, MirrorState, StoredState};
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, Offset};
use ractor::{ActorRef, RpcReplyPort};
use raft::MirrorRole;

use crate::directory::Directory;
use crate::error::Error;
use crate::partition::{PartitionMsg, PartitionShared, PartitionState};

/// Something that happened to a mirror partition.
#[derive(Debug)]
pub enum MirrorInput {
    /// Something happened at the source or to the fetcher.
    Event {
        /// The leader epoch that the fetcher was started in; one of an earlier leadership is
        /// dropped.
        leader_epoch: LeaderEpoch,
        /// What happened.
        event: MirrorEvent,
    },
    /// The mirror's actor is a new one that fetches nothing yet: a partition that is MIRRORING
    /// starts fetching again.
    MirrorRestarted,
    /// What describe shows of the partition.
    Describe(RpcReplyPort<MirrorReport>),
    /// A follower fetched.
    FollowersMoved,
    /// The high watermark may have moved.
    HighWatermarkMoved,
}

/// What describe shows of a mirror partition that is led here.
#[derive(Debug, Clone)]
pub struct MirrorReport {
    /// The newest durable state; UNKNOWN while it is not known yet.
    pub state: MirrorState,
    /// The newest durable row, where it is known.
    pub row: Option<StoredState>,
    /// The log's end.
    pub log_end: Offset,
    /// Its high watermark.
    pub high_watermark: Offset,
    /// The partition's leader epoch.
    pub leader_epoch: LeaderEpoch,
}

/// The machine and what it needs to act.
#[derive(Debug)]
pub struct MirrorRunner {
    shared: Arc<PartitionShared>,
    role: MirrorRole,
    leader_epoch: LeaderEpoch,
}

impl MirrorRunner {
    /// Starts the machine at the beginning of a leadership.
    pub fn start(
        _directory: Arc<Directory>,
        shared: Arc<PartitionShared>,
        _lease: Lease,
        _partition: ActorRef<PartitionMsg>,
        role: &MirrorRole,
        leader_epoch: LeaderEpoch,
    ) -> MirrorRunner {
        MirrorRunner { shared, role: role.clone(), leader_epoch }
    }

    /// The image says something else of the partition, or its leader epoch was bumped.
    pub fn on_role_changed(&mut self, role: &MirrorRole, leader_epoch: LeaderEpoch) {
        self.role = role.clone();
        self.leader_epoch = leader_epoch;
    }

    /// Whether clients may write.
    ///
    /// # Errors
    /// POLICY_VIOLATION with topic, mirror and state while they may not.
    pub fn check_writable(&self) -> Result<(), Error> {
        match &self.role {
            MirrorRole::None { .. } | MirrorRole::Stopped { .. } => Ok(()),
            MirrorRole::Mirroring { mirror, .. } => Err(Error::refused_with(
                ErrorCode::PolicyViolation,
                format!("topic {} is read-only: mirror {mirror}", self.shared.topic),
            )),
        }
    }

    /// Whether batches of the source may be appended in this leader epoch.
    ///
    /// # Errors
    /// When the machine is not mirroring, or a batch's epoch is above ours (D8).
    pub fn admit_batches(
        &self,
        _batches: &Bytes,
        _leader_epoch: LeaderEpoch,
    ) -> Result<(), Error> {
        if self.role.is_read_only() {
            Ok(())
        } else {
            Err(Error::refused(ErrorCode::PolicyViolation))
        }
    }
}

impl PartitionState {
    pub(crate) fn on_mirror(&mut self, input: MirrorInput) {
        match input {
            MirrorInput::Event { .. }
            | MirrorInput::MirrorRestarted
            | MirrorInput::Describe(_)
            | MirrorInput::FollowersMoved
            | MirrorInput::HighWatermarkMoved => {}
        }
    }
}
