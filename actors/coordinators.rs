//! Supervisor of this node's coordinator shards, one for every partition of an internal topic that
//! this node leads. It follows the image and starts and ends shards; it answers no request itself.
//!
//! A shard whose node stays leader in the next leader epoch goes on, because nobody else can have
//! led in between. A greater step of the epoch may hide another leader: the shard loads again.

pub mod handle;
pub mod locate;
pub mod mirror_states;

pub mod coordinator_shard;

mod appends;
mod load;
mod timers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{GroupCommand, GroupMachine, MirrorStateCommand, MirrorStateMachine};
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, PartitionIndex, TopicId, TopicIdPartition, TopicName};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use raft::{MetadataDelta, MetadataImage};
use tokio::time::Instant;

use crate::children::{Children, Ended};
use crate::directory::Directory;
use crate::error::Error;
use crate::runtimes::AbortOnDrop;
use crate::supervision::{ChildKind, Verdict};
use appends::InFlight;
use coordinator_shard::{CoordinatorShard, CoordinatorShardArgs, ShardMachine};
pub use handle::{CoordinatorShardHandle, ShardHandle};
use load::Source;

/// How long the offsets and states of deleted topics are tried to be removed.
const FORGET_DEADLINE: Duration = Duration::from_secs(30);

/// Pause before they are tried again.
const FORGET_RETRY: Duration = Duration::from_millis(200);

/// Which machine a shard runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShardKind {
    /// Groups, on `__consumer_offsets`.
    Group,
    /// States of mirror partitions, on `__mirror_state`.
    MirrorState,
}

impl ShardKind {
    /// The topic it keeps its records in.
    pub const fn topic(self) -> &'static str {
        match self {
            ShardKind::Group => raft::CONSUMER_OFFSETS,
            ShardKind::MirrorState => raft::MIRROR_STATE,
        }
    }

    /// The kind whose topic this is.
    pub fn of_topic(topic: &str) -> Option<ShardKind> {
        [ShardKind::Group, ShardKind::MirrorState].into_iter().find(|kind| kind.topic() == topic)
    }
}

/// A shard: its kind and the partition of its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId {
    /// Which machine.
    pub kind: ShardKind,
    /// Which partition of the kind's topic.
    pub partition: PartitionIndex,
}

/// What the supervisor can be told.
#[derive(Debug)]
pub enum CoordinatorsMsg {
    /// The image changed; the directory has it already.
    ImageChanged(Arc<MetadataDelta>),
    /// A shard's backoff is over.
    RestartTimeout(ShardId),
}

/// What the supervisor is started with.
#[derive(Debug, Clone)]
pub struct CoordinatorsArgs {
    /// The node.
    pub directory: Arc<Directory>,
}

/// The actor; everything mutable is in [`CoordinatorsState`].
#[derive(Debug)]
pub struct Coordinators;

/// A cheap handle to the supervisor.
#[derive(Debug, Clone)]
pub struct CoordinatorsHandle {
    actor: ActorRef<CoordinatorsMsg>,
}

impl CoordinatorsHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<CoordinatorsMsg>) -> CoordinatorsHandle {
        CoordinatorsHandle { actor }
    }

    /// The actor, for chaos.
    pub fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Tells it what changed in the image.
    pub fn image_changed(&self, delta: Arc<MetadataDelta>) {
        if self.actor.cast(CoordinatorsMsg::ImageChanged(delta)).is_err() {
            tracing::debug!("coordinators are restarting: they read the whole image then");
        }
    }
}

/// A partition of an internal topic that this node leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Led {
    topic_id: TopicId,
    leader_epoch: LeaderEpoch,
}

/// The state of one incarnation of the supervisor.
#[derive(Debug)]
pub struct CoordinatorsState {
    directory: Arc<Directory>,
    myself: ActorRef<CoordinatorsMsg>,
    children: Children<ShardId>,
    led: BTreeMap<ShardId, Led>,
    /// Outlives the shards: a successor waits for the appends of the one before it.
    in_flight: BTreeMap<ShardId, InFlight>,
    forgetting: Vec<AbortOnDrop>,
}

impl Actor for Coordinators {
    type Msg = CoordinatorsMsg;
    type State = CoordinatorsState;
    type Arguments = CoordinatorsArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let CoordinatorsArgs { directory } = args;
        // Before the image is read, so that no delta falls between.
        let handle = CoordinatorsHandle::new(myself.clone());
        directory.set_part(|parts| parts.coordinators = Some(handle));
        let mut state = CoordinatorsState {
            directory,
            myself,
            children: Children::default(),
            led: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            forgetting: Vec::new(),
        };
        state.start_everything().await?;
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CoordinatorsMsg::ImageChanged(delta) => state.on_image_changed(&delta).await,
            CoordinatorsMsg::RestartTimeout(id) => state.on_restart_timeout(id).await,
        }
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match state.children.on_event(&event) {
            Some(ended) => state.on_child_ended(&ended),
            None => Ok(()),
        }
    }
}

impl CoordinatorsState {
    /// At a (re)start: a shard for everything the image lets this node lead.
    async fn start_everything(&mut self) -> Result<(), ActorProcessingErr> {
        for (id, dead) in self.directory.shards() {
            self.in_flight.insert(id, dead.in_flight());
            dead.resign();
            self.directory.set_shard(id, None);
        }
        let image = self.directory.image();
        for kind in [ShardKind::Group, ShardKind::MirrorState] {
            let Some(topic) = image.topics.by_name(kind.topic()) else {
                continue;
            };
            for partition in topic.partitions.keys() {
                let at = TopicIdPartition { topic_id: topic.id, partition: *partition };
                self.reconcile(&image, kind, at).await?;
            }
        }
        Ok(())
    }

    async fn on_image_changed(&mut self, delta: &MetadataDelta) -> Result<(), ActorProcessingErr> {
        let image = self.directory.image();
        for at in &delta.removed_partitions {
            let shards = self
                .led
                .iter()
                .filter(|(id, led)| led.topic_id == at.topic_id && id.partition == at.partition);
            for id in shards.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.resign(id);
            }
        }
        for at in &delta.partitions {
            let kind =
                image.topics.name_of(at.topic_id).and_then(|name| ShardKind::of_topic(name));
            if let Some(kind) = kind {
                self.reconcile(&image, kind, *at).await?;
            }
        }
        self.forget_topics(delta);
        Ok(())
    }

    /// Brings the shard of one partition in line with the image.
    async fn reconcile(
        &mut self,
        image: &MetadataImage,
        kind: ShardKind,
        at: TopicIdPartition,
    ) -> Result<(), ActorProcessingErr> {
        let me = self.directory.node_id();
        let id = ShardId { kind, partition: at.partition };
        let wanted = image.topics.partition(at).filter(|found| found.leader == Some(me));
        let wanted =
            wanted.map(|found| Led { topic_id: at.topic_id, leader_epoch: found.leader_epoch });
        let before = self.led.get(&id).copied();
        match (before, wanted) {
            (None, None) => Ok(()),
            (Some(before), Some(wanted)) if before == wanted => Ok(()),
            (Some(before), Some(wanted)) if before.topic_id == wanted.topic_id => {
                self.led.insert(id, wanted);
                let next = LeaderEpoch(before.leader_epoch.0.saturating_add(1));
                if let Some(shard) = self.directory.shard(id) {
                    shard.leader_epoch_changed(wanted.leader_epoch, wanted.leader_epoch == next);
                }
                Ok(())
            }
            (_, Some(wanted)) => {
                self.resign(id);
                self.led.insert(id, wanted);
                self.spawn(id).await
            }
            (Some(_), None) => {
                self.resign(id);
                Ok(())
            }
        }
    }

    /// Ends a shard that leads no more. It answers who waits before it goes.
    fn resign(&mut self, id: ShardId) {
        self.led.remove(&id);
        self.children.forget(&id);
        if let Some(shard) = self.directory.shard(id) {
            self.directory.set_shard(id, None);
            shard.resign();
        }
    }

    async fn spawn(&mut self, id: ShardId) -> Result<(), ActorProcessingErr> {
        let Some(led) = self.led.get(&id) else {
            return Ok(());
        };
        let in_flight = self.in_flight.entry(id).or_default().clone();
        let partition = TopicIdPartition { topic_id: led.topic_id, partition: id.partition };
        let directory = Arc::clone(&self.directory);
        let leader_epoch = led.leader_epoch;
        let source = Source { directory, partition, leader_epoch, in_flight };
        // A shard's start only begins its load, so this waits for nothing.
        let started = match id.kind {
            ShardKind::Group => start::<GroupMachine>(source, &self.myself).await,
            ShardKind::MirrorState => start::<MirrorStateMachine>(source, &self.myself).await,
        };
        match started {
            Ok(shard) => {
                self.children.on_started(id, ChildKind::CoordinatorShard, shard.cell());
                self.directory.set_shard(id, Some(shard));
                Ok(())
            }
            Err(error) => {
                let kind = ChildKind::CoordinatorShard;
                let ended = self.children.on_start_failed(id, kind, &error);
                self.on_child_ended(&ended)
            }
        }
    }

    fn on_child_ended(&mut self, ended: &Ended<ShardId>) -> Result<(), ActorProcessingErr> {
        let id = ended.key;
        self.directory.set_shard(id, None);
        match ended.verdict {
            Verdict::Restart(delay) => {
                self.myself.send_after(delay, move || CoordinatorsMsg::RestartTimeout(id));
                Ok(())
            }
            Verdict::Stop => Ok(()),
            Verdict::GiveUp => {
                tracing::error!(shard = ?id, "ended too often: it stays offline");
                Ok(())
            }
            Verdict::Escalate => Err(format!("{id:?} ended too often").into()),
        }
    }

    async fn on_restart_timeout(&mut self, id: ShardId) -> Result<(), ActorProcessingErr> {
        if self.directory.stopped.is_cancelled() || self.directory.shard(id).is_some() {
            return Ok(());
        }
        self.spawn(id).await
    }

    /// Has the offsets and states of deleted topics removed by the shards of this node; the other
    /// nodes see the same delta.
    fn forget_topics(&mut self, delta: &MetadataDelta) {
        let topics: Vec<(TopicId, TopicName)> = delta
            .removed_topics
            .iter()
            .filter(|(_, name)| ShardKind::of_topic(name).is_none())
            .map(|(id, name)| (*id, name.clone()))
            .collect();
        if topics.is_empty() || self.led.is_empty() {
            return;
        }
        self.forgetting.retain(|task| !task.is_finished());
        let directory = Arc::clone(&self.directory);
        let shards: Vec<ShardId> = self.led.keys().copied().collect();
        let forget = async move { forget(&directory, shards, &topics).await };
        self.forgetting.push(AbortOnDrop::new(self.directory.runtimes.spawn_data(forget)));
    }
}

async fn start<M: ShardMachine>(
    source: Source,
    supervisor: &ActorRef<CoordinatorsMsg>,
) -> Result<ShardHandle, SpawnErr> {
    let in_flight = source.in_flight.clone();
    let args = CoordinatorShardArgs { source };
    let (actor, _join) =
        Actor::spawn_linked(None, CoordinatorShard::<M>::default(), args, supervisor.get_cell())
            .await?;
    Ok(M::wrap(CoordinatorShardHandle::new(actor, in_flight)))
}

/// Tells shards that topics are gone, those that load as soon as they serve.
async fn forget(
    directory: &Arc<Directory>,
    mut shards: Vec<ShardId>,
    topics: &[(TopicId, TopicName)],
) {
    let end = Instant::now() + FORGET_DEADLINE;
    while !shards.is_empty() && Instant::now() < end && !directory.stopped.is_cancelled() {
        let mut again = Vec::new();
        for id in shards {
            // One that is led elsewhere by now is that node's concern.
            if let Some(shard) = directory.shard(id)
                && let Err(error) = forget_in(directory, shard, topics).await
                && error.code() == ErrorCode::CoordinatorLoadInProgress
            {
                again.push(id);
            }
        }
        shards = again;
        if !shards.is_empty() {
            tokio::time::sleep(FORGET_RETRY).await;
        }
    }
}

async fn forget_in(
    directory: &Directory,
    shard: ShardHandle,
    topics: &[(TopicId, TopicName)],
) -> Result<(), Error> {
    let image = directory.image();
    match shard {
        ShardHandle::Group(shard) => {
            // A name that is in use again has offsets of the new topic.
            let gone = topics.iter().filter(|(_, name)| image.topics.by_name(name).is_none());
            let gone: Vec<String> = gone.map(|(_, name)| name.to_string()).collect();
            if !gone.is_empty() {
                shard.call(GroupCommand::TopicsDeleted(gone), FORGET_DEADLINE).await?;
            }
        }
        ShardHandle::MirrorState(shard) => {
            // A mirror may bring a topic back under its id.
            for (id, _) in topics.iter().filter(|(id, _)| image.topics.by_id(*id).is_none()) {
                let command = MirrorStateCommand::TopicDeleted { topic_id: id.0 };
                shard.call(command, FORGET_DEADLINE).await?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
