//! What the rest of the node holds of a coordinator: a handle to its actor, with admission and
//! deadlines. Callers never see the mailbox.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{GroupMachine, MirrorStateMachine};
use protocol::error_code::ErrorCode;
use protocol::ids::LeaderEpoch;
use ractor::{ActorCell, ActorRef, RpcReplyPort};
use tokio::sync::{Semaphore, oneshot};

use super::appends::InFlight;
use super::coordinator_shard::{CoordinatorShardMsg, ShardMachine};
use crate::error::Error;

/// Requests that one shard has under way at a time, waiting joins and syncs included.
const SHARD_REQUESTS_MAX: usize = 16_384;

/// A cheap handle to a running shard.
pub struct CoordinatorShardHandle<M: ShardMachine> {
    actor: ActorRef<CoordinatorShardMsg<M>>,
    requests: Arc<Semaphore>,
    in_flight: InFlight,
}

/// The coordinator of some groups.
pub type GroupShardHandle = CoordinatorShardHandle<GroupMachine>;

/// The coordinator of some mirror partitions' states.
pub type MirrorStateShardHandle = CoordinatorShardHandle<MirrorStateMachine>;

impl<M: ShardMachine> Clone for CoordinatorShardHandle<M> {
    fn clone(&self) -> Self {
        CoordinatorShardHandle {
            actor: self.actor.clone(),
            requests: Arc::clone(&self.requests),
            in_flight: self.in_flight.clone(),
        }
    }
}

impl<M: ShardMachine> fmt::Debug for CoordinatorShardHandle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CoordinatorShardHandle").field(&self.actor.get_id()).finish()
    }
}

impl<M: ShardMachine> CoordinatorShardHandle<M> {
    /// A handle to `actor`, whose appends `in_flight` counts.
    pub fn new(
        actor: ActorRef<CoordinatorShardMsg<M>>,
        in_flight: InFlight,
    ) -> CoordinatorShardHandle<M> {
        let requests = Arc::new(Semaphore::new(SHARD_REQUESTS_MAX));
        CoordinatorShardHandle { actor, requests, in_flight }
    }

    /// Asks the coordinator. The request may still take effect when the answer is an error of
    /// waiting.
    ///
    /// # Errors
    /// COORDINATOR_LOAD_IN_PROGRESS while the log is read, NOT_COORDINATOR when the leadership
    /// ended before the answer, COORDINATOR_NOT_AVAILABLE when none came within `deadline`.
    pub async fn call(
        &self,
        command: M::Command,
        deadline: Duration,
    ) -> Result<M::Response, Error> {
        let ask = async {
            let gone = || Error::refused(ErrorCode::NotCoordinator);
            let permit = Arc::clone(&self.requests).acquire_owned().await.map_err(|_| gone())?;
            let (sender, answer) = oneshot::channel();
            let reply = RpcReplyPort::from(sender);
            let request = CoordinatorShardMsg::Request { command, permit, reply };
            self.actor.cast(request).map_err(|_| gone())?;
            answer.await.unwrap_or_else(|_closed| Err(gone()))
        };
        match tokio::time::timeout(deadline, ask).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(Error::refused_with(
                ErrorCode::CoordinatorNotAvailable,
                format!("the coordinator did not answer within {} ms", deadline.as_millis()),
            )),
        }
    }

    pub(super) fn leader_epoch_changed(&self, leader_epoch: LeaderEpoch, continued: bool) {
        self.tell(CoordinatorShardMsg::LeaderEpochChanged { leader_epoch, continued });
    }

    pub(super) fn resign(&self) {
        self.tell(CoordinatorShardMsg::Resign);
    }

    fn tell(&self, message: CoordinatorShardMsg<M>) {
        if self.actor.cast(message).is_err() {
            tracing::trace!(kind = ?M::KIND, "the coordinator is gone already");
        }
    }
}

/// A handle to a shard of any kind, as the directory keeps it.
#[derive(Debug, Clone)]
pub enum ShardHandle {
    /// Groups.
    Group(GroupShardHandle),
    /// States of mirror partitions.
    MirrorState(MirrorStateShardHandle),
}

impl ShardHandle {
    /// The coordinator of groups, if it is one.
    pub fn group(self) -> Option<GroupShardHandle> {
        match self {
            ShardHandle::Group(handle) => Some(handle),
            ShardHandle::MirrorState(_) => None,
        }
    }

    /// The coordinator of mirror states, if it is one.
    pub fn mirror_state(self) -> Option<MirrorStateShardHandle> {
        match self {
            ShardHandle::MirrorState(handle) => Some(handle),
            ShardHandle::Group(_) => None,
        }
    }

    /// The actor, for its supervisor and for chaos.
    pub fn cell(&self) -> ActorCell {
        match self {
            ShardHandle::Group(handle) => handle.actor.get_cell(),
            ShardHandle::MirrorState(handle) => handle.actor.get_cell(),
        }
    }

    pub(super) fn in_flight(&self) -> InFlight {
        match self {
            ShardHandle::Group(handle) => handle.in_flight.clone(),
            ShardHandle::MirrorState(handle) => handle.in_flight.clone(),
        }
    }

    pub(super) fn leader_epoch_changed(&self, leader_epoch: LeaderEpoch, continued: bool) {
        match self {
            ShardHandle::Group(handle) => handle.leader_epoch_changed(leader_epoch, continued),
            ShardHandle::MirrorState(handle) => {
                handle.leader_epoch_changed(leader_epoch, continued);
            }
        }
    }

    pub(super) fn resign(&self) {
        match self {
            ShardHandle::Group(handle) => handle.resign(),
            ShardHandle::MirrorState(handle) => handle.resign(),
        }
    }
}
