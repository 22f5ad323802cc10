//! What the rest of the node holds of a mirror: a handle to its actor, and the shared part that
//! outlives the actor's restarts. Callers see deadlines and typed errors, never the mailbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use mirror::describe::Lag;
use mirror::epochs::EpochEnd;
use mirror::{SourceError, SourceFacts};
use parking_lot::Mutex;
use protocol::ids::{
    LeaderEpoch, Offset, PartitionIndex, TimestampMs, TopicId, TopicIdPartition, TopicName,
};
use ractor::{ActorCell, ActorRef, RpcReplyPort};
use raft::{MirrorName, Settings};
use tokio::sync::oneshot;

use super::mirror::MirrorMsg;
use super::shared_budget::{MIRROR_BYTES_MAX, SharedBudget};
use super::source_offsets::SourceOffsets;
use crate::clock::Clock;
use crate::error::Error;

/// A partition that is mirrored, as the source's APIs need it named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePartition {
    /// The topic's name, the same on both sides.
    pub topic: TopicName,
    /// Its id here; the source's too, unless the source has no topic ids.
    pub topic_id: TopicId,
    /// The partition's index.
    pub partition: PartitionIndex,
}

impl SourcePartition {
    /// Its id here.
    pub fn id(&self) -> TopicIdPartition {
        TopicIdPartition { topic_id: self.topic_id, partition: self.partition }
    }
}

/// A topic as the source lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTopic {
    /// Its id; zero when the source has no topic ids.
    pub topic_id: TopicId,
    /// How many partitions it has.
    pub partitions: i32,
    /// Whether it is internal to the source.
    pub internal: bool,
}

/// What a look for topics on the source gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicListing {
    /// Topics by name.
    pub topics: BTreeMap<TopicName, ListedTopic>,
    /// Why others that were asked for by name are not among them.
    pub refused: BTreeMap<TopicName, SourceError>,
}

/// The part of a mirror that survives a restart of its actor.
#[derive(Debug)]
pub struct MirrorShared {
    /// The mirror.
    pub name: MirrorName,
    /// Source offsets as fetches saw them.
    pub offsets: SourceOffsets,
    /// What its fetchers here may hold in memory together.
    pub bytes: SharedBudget,
    clock: Clock,
    cluster_id: ArcSwapOption<String>,
    unreachable_since: Mutex<Option<TimestampMs>>,
}

impl MirrorShared {
    /// A mirror of whose source nothing is known.
    pub fn new(name: MirrorName, clock: Clock) -> MirrorShared {
        MirrorShared {
            name,
            offsets: SourceOffsets::default(),
            bytes: SharedBudget::new(MIRROR_BYTES_MAX),
            clock,
            cluster_id: ArcSwapOption::empty(),
            unreachable_since: Mutex::new(None),
        }
    }

    /// The source's cluster id as the source last said.
    pub fn cluster_id(&self) -> Option<Arc<String>> {
        self.cluster_id.load_full()
    }

    pub(super) fn set_cluster_id(&self, cluster_id: Option<String>) {
        self.cluster_id.store(cluster_id.map(Arc::new));
    }

    /// Since when no broker of the source answers, if so.
    pub fn unreachable_since(&self) -> Option<TimestampMs> {
        *self.unreachable_since.lock()
    }

    pub(super) fn set_unreachable_since(&self, since: Option<TimestampMs>) {
        *self.unreachable_since.lock() = since;
    }
}

/// A cheap handle to a running mirror.
#[derive(Debug, Clone)]
pub struct MirrorHandle {
    actor: ActorRef<MirrorMsg>,
    shared: Arc<MirrorShared>,
}

impl MirrorHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<MirrorMsg>, shared: Arc<MirrorShared>) -> MirrorHandle {
        MirrorHandle { actor, shared }
    }

    /// The actor, for its supervisor and for chaos.
    pub fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// The shared part.
    pub fn shared(&self) -> &Arc<MirrorShared> {
        &self.shared
    }

    /// Asks the source for a partition's leader epoch, its last mirror epoch for this cluster, and
    /// a loop. Questions that come together share their requests.
    ///
    /// # Errors
    /// What the source or the link to it said. While the actor restarts it is `NotLeader`, which
    /// is asked again soon and fails nothing.
    pub async fn ask_source(
        &self,
        partition: SourcePartition,
        deadline: Duration,
    ) -> Result<SourceFacts, SourceError> {
        self.ask(deadline, |reply| MirrorMsg::AskSource { partition, reply }).await
    }

    /// OffsetsForLeaderEpoch at the partition's leader on the source; `None` when the source knows
    /// no epoch that old.
    ///
    /// # Errors
    /// As [`MirrorHandle::ask_source`].
    pub async fn ask_source_epoch_end(
        &self,
        partition: SourcePartition,
        epoch: LeaderEpoch,
        deadline: Duration,
    ) -> Result<Option<EpochEnd>, SourceError> {
        self.ask(deadline, |reply| MirrorMsg::AskSourceEpochEnd { partition, epoch, reply }).await
    }

    /// Finds out whether the source answers and is the cluster it was. One probe serves all who
    /// ask meanwhile.
    ///
    /// # Errors
    /// As [`MirrorHandle::ask_source`].
    pub async fn probe(&self, deadline: Duration) -> Result<(), SourceError> {
        self.ask(deadline, |reply| MirrorMsg::Probe { reply }).await
    }

    /// Fetches the partition from its log end on, in this leader epoch; from scratch if it does
    /// already. What happens is told to the partition.
    pub fn start_fetching(&self, partition: SourcePartition, leader_epoch: LeaderEpoch) {
        if self.actor.cast(MirrorMsg::StartFetching { partition, leader_epoch }).is_err() {
            // Its successor asks every partition that is led here to announce itself.
            tracing::debug!(mirror = %self.shared.name, "the mirror is restarting");
        }
    }

    /// Ends the fetching of a partition. Returns when no append of a mirror fetcher for it is
    /// under way or will come; at once when nothing fetches.
    ///
    /// # Errors
    /// The fetcher did not let go within `deadline`.
    pub async fn stop_fetching(
        &self,
        partition: SourcePartition,
        deadline: Duration,
    ) -> Result<(), Error> {
        let (sender, released) = oneshot::channel();
        let reply = RpcReplyPort::from(sender);
        let partition = partition.id();
        if self.actor.cast(MirrorMsg::StopFetching { partition, reply }).is_err() {
            return Ok(());
        }
        match tokio::time::timeout(deadline, released).await {
            // A mirror that died took its fetchers with it.
            Ok(Ok(()) | Err(_)) => Ok(()),
            Err(_elapsed) => Err(Error::NoAnswer { what: "the mirror fetcher" }),
        }
    }

    /// Lists topics of the source: the named ones, or all when `names` is `None`.
    ///
    /// # Errors
    /// As [`MirrorHandle::ask_source`].
    pub async fn list_topics(
        &self,
        names: Option<Vec<TopicName>>,
        deadline: Duration,
    ) -> Result<TopicListing, SourceError> {
        self.ask(deadline, |reply| MirrorMsg::ListTopics { names, reply }).await
    }

    /// The settings that are explicitly set on topics of the source.
    ///
    /// # Errors
    /// As [`MirrorHandle::ask_source`].
    pub async fn topic_configs(
        &self,
        topics: Vec<TopicName>,
        deadline: Duration,
    ) -> Result<BTreeMap<TopicName, Settings>, SourceError> {
        self.ask(deadline, |reply| MirrorMsg::TopicConfigs { topics, reply }).await
    }

    /// The source's cluster id as the source last said.
    pub fn source_cluster_id(&self) -> Option<Arc<String>> {
        self.shared.cluster_id()
    }

    /// The offsets that describe shows of a partition whose log here ends at `log_end`.
    pub fn lag(&self, partition: TopicIdPartition, log_end: Offset) -> Lag {
        self.shared.offsets.lag(partition, log_end, self.shared.clock.now())
    }

    pub(super) fn tell(&self, message: MirrorMsg) {
        if self.actor.cast(message).is_err() {
            tracing::debug!(mirror = %self.shared.name, "the mirror is gone");
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        deadline: Duration,
        message: impl FnOnce(RpcReplyPort<Result<T, SourceError>>) -> MirrorMsg,
    ) -> Result<T, SourceError> {
        let asked_at = self.shared.clock.now();
        let (sender, answer) = oneshot::channel();
        if self.actor.cast(message(RpcReplyPort::from(sender))).is_err() {
            return Err(SourceError::NotLeader);
        }
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_actor_gone)) => Err(SourceError::NotLeader),
            Err(_elapsed) => {
                let since = self.shared.unreachable_since().unwrap_or(asked_at);
                Err(SourceError::Unreachable { since })
            }
        }
    }
}
