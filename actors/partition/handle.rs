//! What the rest of the node holds of a partition: a handle to its actor, and the shared part that
//! outlives the actor's restarts. Callers see deadlines and typed errors, never the mailbox.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use log::{Lease, LogId, ReadView};
use protocol::ids::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicIdPartition, TopicName,
};
use ractor::{ActorCell, ActorRef, RpcReplyPort};
use tokio::sync::oneshot;

use super::waiters::FetchWaiters;
use super::{Append, AppendResult, FollowerPosition, PartitionMsg, ReplicaAppend};
use crate::directory::Directory;
use crate::error::Error;
use crate::mirrors::machine::MirrorInput;

const WHAT: &str = "the partition";

/// The part of a partition that its actor shares with fetches and that survives a restart.
#[derive(Debug)]
pub struct PartitionShared {
    /// The topic.
    pub topic: TopicName,
    /// Its id.
    pub topic_id: TopicId,
    /// The partition's index.
    pub partition: PartitionIndex,
    /// Parked fetches.
    pub waiters: Arc<FetchWaiters>,
    view: ArcSwapOption<ReadView>,
}

impl PartitionShared {
    /// A partition that no actor serves yet.
    pub fn new(topic: TopicName, topic_id: TopicId, partition: PartitionIndex) -> PartitionShared {
        PartitionShared {
            topic,
            topic_id,
            partition,
            waiters: Arc::default(),
            view: ArcSwapOption::empty(),
        }
    }

    /// Id of the partition.
    pub fn id(&self) -> TopicIdPartition {
        TopicIdPartition { topic_id: self.topic_id, partition: self.partition }
    }

    /// What can be read of the log; `None` before the first actor took its lease.
    pub fn view(&self) -> Option<Arc<ReadView>> {
        self.view.load_full()
    }

    /// Takes a new lease on the log: commands of older incarnations are dropped from now on.
    pub(super) async fn take_lease(&self, directory: &Directory) -> Result<Lease, Error> {
        let log_dir = directory.log_dir()?;
        let id = LogId {
            topic: self.topic.clone(),
            topic_id: self.topic_id,
            partition: self.partition,
        };
        let config = directory.log_config(&self.topic);
        let (sender, answer) = oneshot::channel();
        log_dir.lease(id, config, Box::new(move |lease| drop(sender.send(lease))));
        let lease = answer.await.map_err(|_| Error::NoAnswer { what: "the log directory" })??;
        Ok(lease)
    }

    /// Makes the view of a new lease the one that fetches read.
    pub(super) fn publish_view(&self, view: Arc<ReadView>) {
        let waiters = Arc::clone(&self.waiters);
        let weak = Arc::downgrade(&view);
        view.set_listener(Arc::new(move || {
            if let Some(view) = weak.upgrade() {
                waiters.wake_ready(&view);
            }
        }));
        self.view.store(Some(view));
        self.waiters.wake_all();
    }

    /// Shuts the view of a dead actor: its fetches answer NOT_LEADER_OR_FOLLOWER until a successor
    /// holds the lease.
    pub fn fence(&self) {
        if let Some(view) = self.view() {
            view.fence(view.incarnation());
        }
        self.waiters.wake_all();
    }
}

/// A cheap handle to a running partition.
#[derive(Debug, Clone)]
pub struct PartitionHandle {
    actor: ActorRef<PartitionMsg>,
    shared: Arc<PartitionShared>,
}

impl PartitionHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<PartitionMsg>, shared: Arc<PartitionShared>) -> PartitionHandle {
        PartitionHandle { actor, shared }
    }

    /// The shared part.
    pub fn shared(&self) -> &Arc<PartitionShared> {
        &self.shared
    }

    /// The actor, for its supervisor and for chaos.
    pub fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Hands a write over now, in the order of calls, and answers later. The write may still
    /// happen when the answer is an error of waiting.
    pub fn append(
        &self,
        append: Append,
    ) -> impl Future<Output = Result<AppendResult, Error>> + Send + use<> {
        let (sender, answer) = oneshot::channel();
        let sent = self.actor.cast(PartitionMsg::Append(append, RpcReplyPort::from(sender)));
        async move {
            if sent.is_err() {
                return Err(Error::NoAnswer { what: WHAT });
            }
            answer.await.unwrap_or(Err(Error::NoAnswer { what: WHAT }))
        }
    }

    /// Appends batches of the source cluster.
    ///
    /// # Errors
    /// The partition's refusal, or no answer within `deadline`.
    pub async fn mirror_append(
        &self,
        batches: Bytes,
        source_log_start: Offset,
        deadline: Duration,
    ) -> Result<FollowerPosition, Error> {
        self.ask(deadline, |reply| PartitionMsg::MirrorAppend { batches, source_log_start, reply })
            .await
    }

    /// Appends batches of the leader to this follower.
    ///
    /// # Errors
    /// The partition's refusal (a newer leader epoch, a closed log), or no answer in time.
    pub async fn replica_append(
        &self,
        append: ReplicaAppend,
        deadline: Duration,
    ) -> Result<FollowerPosition, Error> {
        self.ask(deadline, |reply| PartitionMsg::ReplicaAppend(append, reply)).await
    }

    /// Cuts this follower's log where it parts from the leader's.
    ///
    /// # Errors
    /// As [`PartitionHandle::replica_append`].
    pub async fn diverged(
        &self,
        leader_epoch: LeaderEpoch,
        diverging_epoch: LeaderEpoch,
        end_offset: Offset,
        deadline: Duration,
    ) -> Result<FollowerPosition, Error> {
        self.ask(deadline, |reply| PartitionMsg::Diverged {
            leader_epoch,
            diverging_epoch,
            end_offset,
            reply,
        })
        .await
    }

    /// Starts this follower's log over at the leader's start.
    ///
    /// # Errors
    /// As [`PartitionHandle::replica_append`].
    pub async fn out_of_range(
        &self,
        leader_epoch: LeaderEpoch,
        leader_log_start: Offset,
        leader_log_end: Offset,
        deadline: Duration,
    ) -> Result<FollowerPosition, Error> {
        self.ask(deadline, |reply| PartitionMsg::OutOfRange {
            leader_epoch,
            leader_log_start,
            leader_log_end,
            reply,
        })
        .await
    }

    /// Tells the leader how far a follower is.
    pub fn follower_fetched(
        &self,
        leader_epoch: LeaderEpoch,
        replica: NodeId,
        broker_epoch: BrokerEpoch,
        log_end: Offset,
    ) {
        self.tell(PartitionMsg::FollowerFetched { leader_epoch, replica, broker_epoch, log_end });
    }

    /// Tells the partition that its part of the image changed.
    pub fn image_changed(&self) {
        self.tell(PartitionMsg::ImageChanged);
    }

    /// Tells the leader how its change of the ISR went.
    pub fn isr_answered(&self, leader_epoch: LeaderEpoch, result: Result<(), Error>) {
        self.tell(PartitionMsg::IsrAnswered { leader_epoch, result });
    }

    /// Lets the leader look for lagging followers.
    pub fn tick(&self) {
        self.tell(PartitionMsg::Tick);
    }

    /// Hands something to the mirror machine.
    pub fn mirror(&self, input: MirrorInput) {
        self.tell(PartitionMsg::Mirror(input));
    }

    fn tell(&self, message: PartitionMsg) {
        if self.actor.cast(message).is_err() {
            tracing::trace!(partition = %self.shared.id(), "the partition's actor is gone");
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        deadline: Duration,
        message: impl FnOnce(RpcReplyPort<Result<T, Error>>) -> PartitionMsg,
    ) -> Result<T, Error> {
        let (sender, answer) = oneshot::channel();
        let no_answer = || Error::NoAnswer { what: WHAT };
        self.actor.cast(message(RpcReplyPort::from(sender))).map_err(|_| no_answer())?;
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_closed)) => Err(no_answer()),
            Err(_elapsed) => Err(no_answer()),
        }
    }
}
