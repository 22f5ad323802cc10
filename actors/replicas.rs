//! Supervisor of this node's partitions and of the fetchers that keep its followers up to date. It
//! turns image deltas into running actors and assignments; it copies and answers nothing itself.

pub mod isr_changes;
pub mod replica_fetcher;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use log::LogId;
use protocol::ids::{BrokerEpoch, NodeId, PartitionEpoch, TopicId, TopicIdPartition, TopicName};
use ractor::{Actor, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use raft::{MetadataDelta, MetadataImage};

use crate::children::{Children, Ended};
use crate::directory::Directory;
use crate::partition::{Partition, PartitionArgs, PartitionHandle, PartitionMsg, PartitionShared};
use crate::replicas::isr_changes::{IsrChange, SharedQueue};
use crate::replicas::replica_fetcher::{
    ReplicaFetcher, ReplicaFetcherArgs, ReplicaFetcherHandle, ReplicaFetcherMsg,
};
use crate::runtimes::AbortOnDrop;
use crate::supervision::{ChildKind, Verdict};

/// A child of [`Replicas`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicasChild {
    /// A replica.
    Partition(TopicIdPartition),
    /// The fetcher of everything that one broker leads.
    Fetcher(NodeId),
}

type Started<M> = Result<ActorRef<M>, SpawnErr>;

/// What the supervisor can be told.
#[derive(Debug)]
pub enum ReplicasMsg {
    /// The image changed; the directory has it already.
    ImageChanged(Arc<MetadataDelta>),
    /// A partition's start succeeded or failed.
    PartitionStarted(TopicIdPartition, Started<PartitionMsg>),
    /// A fetcher's start succeeded or failed.
    FetcherStarted(NodeId, Started<ReplicaFetcherMsg>),
    /// A child's backoff is over.
    RestartTimeout(ReplicasChild),
    /// The broker is registered.
    Registered,
    /// The controller did not take the leadership of an offline partition back.
    ResignationLost(TopicIdPartition),
    /// Time for the leaders to look at their followers.
    Tick,
}

/// What the supervisor is started with.
#[derive(Debug, Clone)]
pub struct ReplicasArgs {
    /// The node.
    pub directory: Arc<Directory>,
    /// The queue of ISR changes; it survives restarts of this actor.
    pub isr_changes: SharedQueue,
}

/// The actor; everything mutable is in [`ReplicasState`].
#[derive(Debug)]
pub struct Replicas;

/// A cheap handle to the supervisor.
#[derive(Debug, Clone)]
pub struct ReplicasHandle {
    actor: ActorRef<ReplicasMsg>,
}

impl ReplicasHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<ReplicasMsg>) -> ReplicasHandle {
        ReplicasHandle { actor }
    }

    /// Tells it what changed in the image.
    pub fn image_changed(&self, delta: Arc<MetadataDelta>) {
        if self.actor.cast(ReplicasMsg::ImageChanged(delta)).is_err() {
            tracing::debug!("replicas are restarting: they read the whole image then");
        }
    }

    /// Tells it that the broker is registered.
    pub fn registered(&self) {
        if self.actor.cast(ReplicasMsg::Registered).is_err() {
            tracing::debug!("replicas are restarting: they look for themselves then");
        }
    }

    /// Tells it that the controller did not take the leadership of an offline partition back.
    pub fn resignation_lost(&self, id: TopicIdPartition) {
        if self.actor.cast(ReplicasMsg::ResignationLost(id)).is_err() {
            tracing::debug!("replicas are restarting: every partition starts again then");
        }
    }
}

/// The state of one incarnation of the supervisor.
#[derive(Debug)]
pub struct ReplicasState {
    directory: Arc<Directory>,
    myself: ActorRef<ReplicasMsg>,
    children: Children<ReplicasChild>,
    shared: BTreeMap<TopicIdPartition, Arc<PartitionShared>>,
    fetchers: BTreeMap<NodeId, ReplicaFetcherHandle>,
    /// Fetchers that were spawned and have not reported: a second one of the same leader would
    /// copy everything twice, and be told of no change.
    starting_fetchers: BTreeSet<NodeId>,
    /// Which leader each follower copies from.
    assigned: BTreeMap<TopicIdPartition, NodeId>,
    /// Partitions that ended too often, until this actor or the node starts again.
    offline: BTreeMap<TopicIdPartition, Resignation>,
    /// Whether the image has the registration of this life of the broker: an older one may name
    /// leaders and followers of long ago, and nothing is started on its word.
    caught_up: bool,
    _isr_changes: AbortOnDrop,
}

/// How far the leadership of an offline partition has been given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resignation {
    /// Nothing to give back, or not asked for yet.
    None,
    /// The controller was asked, on this registration of the partition.
    Asked(PartitionEpoch),
}

impl Actor for Replicas {
    type Msg = ReplicasMsg;
    type State = ReplicasState;
    type Arguments = ReplicasArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let ReplicasArgs { directory, isr_changes } = args;
        // Before the image is read, so that no delta falls between.
        let handle = ReplicasHandle::new(myself.clone());
        directory.set_part(|parts| parts.replicas = Some(handle));
        let sender = isr_changes::spawn(Arc::clone(&directory), isr_changes);
        let mut state = ReplicasState {
            directory,
            myself: myself.clone(),
            children: Children::default(),
            shared: BTreeMap::new(),
            fetchers: BTreeMap::new(),
            starting_fetchers: BTreeSet::new(),
            assigned: BTreeMap::new(),
            offline: BTreeMap::new(),
            caught_up: false,
            _isr_changes: sender,
        };
        state.start_if_caught_up();
        let lag_max = state.directory.config.timing.replica_lag_time_max;
        myself.send_interval((lag_max / 2).max(Duration::from_millis(1)), || ReplicasMsg::Tick);
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ReplicasMsg::ImageChanged(delta) => state.on_image_changed(&delta),
            ReplicasMsg::Registered => state.start_if_caught_up(),
            ReplicasMsg::PartitionStarted(id, started) => state.on_partition_started(id, started),
            ReplicasMsg::FetcherStarted(node, started) => state.on_fetcher_started(node, started),
            ReplicasMsg::RestartTimeout(child) => state.on_restart_timeout(child),
            ReplicasMsg::ResignationLost(id) => state.on_resignation_lost(id),
            ReplicasMsg::Tick => state.on_tick(),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(ended) = state.children.on_event(&event) {
            state.on_child_ended(ended)?;
        }
        Ok(())
    }
}

impl ReplicasState {
    /// Starts everything, once, as soon as the image is not older than this life of the broker.
    fn start_if_caught_up(&mut self) {
        let epoch = self.directory.broker_epoch();
        let image = self.directory.image();
        let registered = image.cluster.broker(self.directory.node_id());
        if self.caught_up || registered.is_none_or(|broker| broker.epoch != epoch) {
            return;
        }
        self.caught_up = true;
        self.delete_strays(&image);
        self.start_everything();
    }

    /// Deletes the logs that were found at the start and are no replica's: their topics were
    /// deleted while this node was away.
    fn delete_strays(&self, image: &MetadataImage) {
        let (me, Ok(log_dir)) = (self.directory.node_id(), self.directory.log_dir()) else {
            return;
        };
        for log in log_dir.found() {
            let id = TopicIdPartition { topic_id: log.topic_id, partition: log.partition };
            // Without an id it cannot be told whose it is.
            let known = log.topic_id != TopicId::ZERO;
            if known
                && image.topics.partition(id).is_none_or(|partition| !partition.is_replica(me))
            {
                delete_log(&log_dir, log.clone());
            }
        }
    }

    /// At a (re)start: everything the image gives this node.
    fn start_everything(&mut self) {
        for dead in self.directory.partitions() {
            dead.shared().fence();
            self.directory.set_partition(dead.shared().id(), None);
        }
        let image = self.directory.image();
        for (id, _) in image.topics.partitions() {
            self.reconcile(&image, id);
        }
    }

    fn on_image_changed(&mut self, delta: &MetadataDelta) {
        if !self.caught_up {
            return self.start_if_caught_up();
        }
        let image = self.directory.image();
        for id in &delta.removed_partitions {
            let topic = delta.removed_topics.get(&id.topic_id);
            self.remove(*id, topic);
        }
        for id in &delta.partitions {
            self.reconcile(&image, *id);
        }
        // A topic's mirror or settings reach all its partitions.
        for topic_id in &delta.topics {
            self.touch_topic(&image, *topic_id);
        }
        for resource in &delta.configs {
            if resource.kind == raft::ResourceKind::Topic
                && let Some(topic_id) = image.topics.id_of(&resource.name)
            {
                self.touch_topic(&image, topic_id);
            }
        }
    }

    fn touch_topic(&mut self, image: &MetadataImage, topic_id: TopicId) {
        let Some(topic) = image.topics.by_id(topic_id) else {
            return;
        };
        for partition in topic.partitions.keys() {
            let id = TopicIdPartition { topic_id, partition: *partition };
            if let Some(handle) = self.directory.partition(id) {
                handle.image_changed();
            }
        }
    }

    /// Brings one partition of this node in line with the image.
    fn reconcile(&mut self, image: &MetadataImage, id: TopicIdPartition) {
        let me = self.directory.node_id();
        let Some(partition) = image.topics.partition(id) else {
            return;
        };
        if !partition.is_replica(me) {
            return self.remove(id, image.topics.name_of(id.topic_id));
        }
        if let Some(handle) = self.directory.partition(id) {
            handle.image_changed();
        } else if !self.shared.contains_key(&id)
            && let Some(topic) = image.topics.name_of(id.topic_id)
        {
            let shared = PartitionShared::new(topic.clone(), id.topic_id, id.partition);
            self.shared.insert(id, Arc::new(shared));
            self.spawn_partition(id);
        }
        self.assign(image, id);
        self.resign_if_offline(image, id);
    }

    /// Gives the leadership of an offline partition back to the controller, which has another
    /// member of the ISR lead. Without one the partition has no leader until this node restarts.
    fn resign_if_offline(&mut self, image: &MetadataImage, id: TopicIdPartition) {
        let Some(resignation) = self.offline.get_mut(&id) else {
            return;
        };
        let me = self.directory.node_id();
        let Some(partition) = image.topics.partition(id).filter(|p| p.leader == Some(me)) else {
            *resignation = Resignation::None;
            return;
        };
        let asked = Resignation::Asked(partition.partition_epoch);
        if *resignation == asked {
            return;
        }
        *resignation = asked;
        tracing::error!(partition = %id, "giving the leadership of an offline partition back");
        let others = partition.isr.iter().filter(|member| **member != me);
        self.directory.ask_isr_change(IsrChange {
            partition: id,
            leader_epoch: partition.leader_epoch,
            partition_epoch: partition.partition_epoch,
            // The partition's epoch guards against members that registered again since.
            isr: others.map(|member| (*member, BrokerEpoch::NONE)).collect(),
        });
    }

    fn on_resignation_lost(&mut self, id: TopicIdPartition) {
        // The next tick asks again.
        if let Some(resignation) = self.offline.get_mut(&id) {
            *resignation = Resignation::None;
        }
    }

    /// Gives a follower to the fetcher of its leader, or takes it away.
    fn assign(&mut self, image: &MetadataImage, id: TopicIdPartition) {
        let me = self.directory.node_id();
        let wanted = image.topics.partition(id).and_then(|partition| {
            let leader = partition.leader.filter(|leader| *leader != me)?;
            if self.offline.contains_key(&id) {
                return None;
            }
            partition.is_replica(me).then_some((leader, partition.leader_epoch))
        });
        let before = self.assigned.get(&id).copied();
        if let Some(old) = before
            && wanted.map(|(leader, _)| leader) != Some(old)
        {
            self.assigned.remove(&id);
            if let Some(fetcher) = self.fetchers.get(&old) {
                fetcher.unassign(id);
            }
        }
        let (Some((leader, leader_epoch)), Some(shared)) = (wanted, self.shared.get(&id)) else {
            return;
        };
        self.assigned.insert(id, leader);
        let child = ReplicasChild::Fetcher(leader);
        match self.fetchers.get(&leader) {
            Some(fetcher) => fetcher.assign(id, leader_epoch, Arc::clone(shared)),
            None if !self.children.contains(&child) => self.spawn_fetcher(leader),
            // It is starting, and gets everything assigned to it then.
            None => {}
        }
    }

    fn remove(&mut self, id: TopicIdPartition, topic: Option<&TopicName>) {
        if let Some(leader) = self.assigned.remove(&id)
            && let Some(fetcher) = self.fetchers.get(&leader)
        {
            fetcher.unassign(id);
        }
        self.children.stop_and_forget(&ReplicasChild::Partition(id));
        self.offline.remove(&id);
        self.directory.set_partition(id, None);
        let Some(shared) = self.shared.remove(&id) else {
            return;
        };
        shared.fence();
        if let (Some(topic), Ok(log_dir)) = (topic, self.directory.log_dir()) {
            let log =
                LogId { topic: topic.clone(), topic_id: id.topic_id, partition: id.partition };
            delete_log(&log_dir, log);
        }
    }

    fn spawn_partition(&mut self, id: TopicIdPartition) {
        let Some(shared) = self.shared.get(&id) else {
            return;
        };
        let args =
            PartitionArgs { directory: Arc::clone(&self.directory), shared: Arc::clone(shared) };
        let myself = self.myself.clone();
        // Spawned apart: taking the lease waits for the log's writer, and many start together.
        self.directory.runtimes.spawn_data(async move {
            let started = Actor::spawn_linked(None, Partition, args, myself.get_cell()).await;
            let started = started.map(|(actor, _join)| actor);
            if myself.cast(ReplicasMsg::PartitionStarted(id, started)).is_err() {
                tracing::debug!(partition = %id, "replicas are gone before the partition started");
            }
        });
    }

    fn on_partition_started(&mut self, id: TopicIdPartition, started: Started<PartitionMsg>) {
        let child = ReplicasChild::Partition(id);
        match started {
            Ok(actor) => {
                let Some(shared) = self.shared.get(&id).cloned() else {
                    // Deleted while it started.
                    return actor.stop(None);
                };
                self.children.on_started(child, ChildKind::Partition, actor.get_cell());
                let handle = PartitionHandle::new(actor, shared);
                self.directory.set_partition(id, Some(handle.clone()));
                // What changed while it started.
                handle.image_changed();
            }
            Err(error) => {
                let ended = self.children.on_start_failed(child, ChildKind::Partition, &error);
                if let Err(error) = self.on_child_ended(ended) {
                    tracing::error!(partition = %id, %error, "the partition does not start");
                }
            }
        }
    }

    fn spawn_fetcher(&mut self, leader: NodeId) {
        if !self.starting_fetchers.insert(leader) {
            return;
        }
        let args = ReplicaFetcherArgs { directory: Arc::clone(&self.directory), leader };
        let myself = self.myself.clone();
        self.directory.runtimes.spawn_data(async move {
            let started = Actor::spawn_linked(None, ReplicaFetcher, args, myself.get_cell()).await;
            let started = started.map(|(actor, _join)| actor);
            if myself.cast(ReplicasMsg::FetcherStarted(leader, started)).is_err() {
                tracing::debug!(%leader, "replicas are gone before the fetcher started");
            }
        });
    }

    fn on_fetcher_started(&mut self, leader: NodeId, started: Started<ReplicaFetcherMsg>) {
        self.starting_fetchers.remove(&leader);
        let child = ReplicasChild::Fetcher(leader);
        match started {
            Ok(actor) => {
                self.children.on_started(child, ChildKind::ReplicaFetcher, actor.get_cell());
                let fetcher = ReplicaFetcherHandle::new(actor);
                let image = self.directory.image();
                for (id, _) in self.assigned.iter().filter(|(_, to)| **to == leader) {
                    if let (Some(shared), Some(partition)) =
                        (self.shared.get(id), image.topics.partition(*id))
                    {
                        fetcher.assign(*id, partition.leader_epoch, Arc::clone(shared));
                    }
                }
                self.fetchers.insert(leader, fetcher);
            }
            Err(error) => {
                let ended =
                    self.children.on_start_failed(child, ChildKind::ReplicaFetcher, &error);
                if let Err(error) = self.on_child_ended(ended) {
                    tracing::error!(%leader, %error, "the fetcher does not start");
                }
            }
        }
    }

    fn on_child_ended(&mut self, ended: Ended<ReplicasChild>) -> Result<(), ActorProcessingErr> {
        match ended.key {
            ReplicasChild::Partition(id) => {
                self.directory.set_partition(id, None);
                if let Some(shared) = self.shared.get(&id) {
                    shared.fence();
                }
            }
            ReplicasChild::Fetcher(leader) => {
                self.fetchers.remove(&leader);
            }
        }
        match ended.verdict {
            Verdict::Restart(delay) => {
                let child = ended.key;
                self.myself.send_after(delay, move || ReplicasMsg::RestartTimeout(child));
                Ok(())
            }
            Verdict::Stop => Ok(()),
            Verdict::GiveUp => {
                tracing::error!(child = ?ended.key, "ended too often: it stays offline");
                if let ReplicasChild::Partition(id) = ended.key {
                    self.offline.insert(id, Resignation::None);
                    let image = self.directory.image();
                    self.assign(&image, id);
                    self.resign_if_offline(&image, id);
                }
                Ok(())
            }
            Verdict::Escalate => Err(format!("{:?} ended too often", ended.key).into()),
        }
    }

    fn on_restart_timeout(&mut self, child: ReplicasChild) {
        if self.directory.stopped.is_cancelled() {
            return;
        }
        match child {
            ReplicasChild::Partition(id) => self.spawn_partition(id),
            ReplicasChild::Fetcher(leader) => self.spawn_fetcher(leader),
        }
    }

    fn on_tick(&mut self) {
        for partition in self.directory.partitions() {
            partition.tick();
        }
        let image = self.directory.image();
        for id in self.offline.keys().copied().collect::<Vec<_>>() {
            self.resign_if_offline(&image, id);
        }
    }
}

fn delete_log(log_dir: &log::LogDir, log: LogId) {
    let name = log.to_string();
    log_dir.delete(
        log,
        Box::new(move |result| match result {
            Ok(()) => tracing::info!(log = name, "deleted"),
            // The node ends, and deletes it when it starts again.
            Err(error @ log::Error::DirectoryClosed { .. }) => {
                tracing::debug!(log = name, %error, "the log was not deleted");
            }
            Err(error) => tracing::error!(log = name, %error, "the log was not deleted"),
        }),
    );
}
