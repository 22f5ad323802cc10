//! Becoming leader, follower or nothing, as the image says. It takes no write and copies nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use log::{Role as ServingRole, Serving};
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, NodeId, TopicIdPartition};
use raft::{MetadataImage, MirrorRole, PartitionImage};

use super::leader::LeaderState;
use super::{PartitionMsg, PartitionState, Role};
use crate::error::Error;

impl PartitionState {
    /// Compares this replica with the image and takes the part the image gives it.
    pub(super) fn on_image_changed(&mut self) {
        let image = self.directory.image();
        let id = self.shared.id();
        let Some(registration) = image.topics.partition(id) else {
            self.become_idle();
            return;
        };
        let me = self.directory.node_id();
        if registration.leader == Some(me) {
            self.lead(&image, id, registration, me);
        } else if registration.replicas.contains(&me) {
            self.follow(registration.leader_epoch);
        } else {
            self.become_idle();
        }
    }

    fn lead(
        &mut self,
        image: &Arc<MetadataImage>,
        id: TopicIdPartition,
        registration: &PartitionImage,
        me: NodeId,
    ) {
        let now = self.directory.clock.now();
        let isr: BTreeSet<NodeId> = registration.isr.iter().copied().collect();
        let replicas = registration.replicas.iter().copied();
        let mirror_role = image
            .mirror_of(id.topic_id, id.partition)
            .unwrap_or(MirrorRole::None { last_stop: None });
        match &mut self.role {
            Role::Leader(leader) if leader.epoch() == registration.leader_epoch => {
                if registration.partition_epoch > leader.partition_epoch() {
                    leader.on_registration(replicas, isr, registration.partition_epoch, now);
                }
                leader.min_isr = self.directory.min_insync_replicas(&self.shared.topic);
            }
            Role::Leader(leader) if leader.epoch() < registration.leader_epoch => {
                // A bump: the same leader in a new epoch. Who waits for the ISR goes on waiting.
                leader.on_raised(registration.leader_epoch);
                leader.on_registration(replicas, isr, registration.partition_epoch, now);
                self.enter_epoch(registration.leader_epoch, mirror_role.is_read_only());
            }
            Role::Leader(_) | Role::Follower { .. } | Role::Idle => {
                self.step_down(ErrorCode::NotLeaderOrFollower);
                let epoch = registration.leader_epoch;
                let min_isr = self.directory.min_insync_replicas(&self.shared.topic);
                tracing::info!(
                    partition = %id, topic = %self.shared.topic, ?epoch,
                    log_end = %self.lease.view.log_end(), "leading"
                );
                self.role = Role::Leader(Box::new(LeaderState::new(
                    me,
                    replicas,
                    isr,
                    epoch,
                    registration.partition_epoch,
                    min_isr,
                    now,
                )));
                self.enter_epoch(epoch, mirror_role.is_read_only());
            }
        }
        self.on_mirror_lead(&mirror_role, registration.leader_epoch);
        self.maybe_advance_high_watermark();
    }

    fn follow(&mut self, leader_epoch: LeaderEpoch) {
        if matches!(self.role, Role::Follower { leader_epoch: epoch } if epoch == leader_epoch) {
            return;
        }
        self.step_down(ErrorCode::NotLeaderOrFollower);
        self.role = Role::Follower { leader_epoch };
        self.serve(ServingRole::Follower, leader_epoch);
        tracing::debug!(partition = %self.shared.id(), ?leader_epoch, "following");
    }

    fn become_idle(&mut self) {
        self.step_down(ErrorCode::NotLeaderOrFollower);
        self.role = Role::Idle;
        self.serve(ServingRole::Offline, LeaderEpoch::NONE);
    }

    /// Ends a leadership: everybody who waits for the high watermark is told to look elsewhere.
    fn step_down(&mut self, code: ErrorCode) {
        if let Role::Leader(leader) = &mut self.role {
            leader.pending.fail_all(&Error::refused(code));
        }
        self.on_mirror_lost();
    }

    /// Serves in a new epoch, and has the log note it. Until STOPPED only batches feed the epoch
    /// cache of a mirror partition (D8).
    fn enter_epoch(&mut self, epoch: LeaderEpoch, is_read_only: bool) {
        if is_read_only {
            self.on_epoch_started(epoch, Ok(()));
        } else {
            self.start_epoch(epoch);
        }
        self.serve(ServingRole::Leader, epoch);
    }

    fn serve(&self, role: ServingRole, leader_epoch: LeaderEpoch) {
        self.lease.view.set_serving(self.lease.incarnation, Serving { role, leader_epoch });
        self.shared.waiters.wake_all();
    }

    /// Enters this leader's epoch into the log's epoch cache, before any append of this epoch.
    pub(crate) fn start_epoch(&mut self, leader_epoch: LeaderEpoch) {
        let myself = self.myself.clone();
        let started = move |result: Result<_, log::Error>| {
            let result = result.map(|_| ()).map_err(Error::from);
            super::leader::tell(&myself, PartitionMsg::EpochStarted { leader_epoch, result });
        };
        match self.directory.log_dir() {
            Ok(log_dir) => {
                log_dir.start_leader_epoch(&self.lease, leader_epoch, Box::new(started));
            }
            Err(error) => self.on_epoch_started(leader_epoch, Err(error)),
        }
    }
}
