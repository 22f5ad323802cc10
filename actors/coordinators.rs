//! Supervisor of this node's coordinator shards, one for every partition of an internal topic that
//! this node leads.

use std::sync::Arc;

use ractor::ActorRef;
use raft::MetadataDelta;

/// Which machine a shard runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShardKind {
    /// Groups, on `__consumer_offsets`.
    Group,
    /// States of mirror partitions, on `__mirror_state`.
    MirrorState,
}

/// A shard: its kind and the partition of its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId {
    /// Which machine.
    pub kind: ShardKind,
    /// Which partition of the kind's topic.
    pub partition: protocol::ids::PartitionIndex,
}

/// What the supervisor can be told.
#[derive(Debug)]
pub enum CoordinatorsMsg {
    /// The image changed; the directory has it already.
    ImageChanged(Arc<MetadataDelta>),
}

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

    /// Tells it what changed in the image.
    pub fn image_changed(&self, delta: Arc<MetadataDelta>) {
        if self.actor.cast(CoordinatorsMsg::ImageChanged(delta)).is_err() {
            tracing::debug!("coordinators are restarting: they read the whole image then");
        }
    }
}

/// What a shard can be told.
#[derive(Debug)]
pub enum ShardMsg {}

/// A cheap handle to a shard.
#[derive(Debug, Clone)]
pub struct ShardHandle {
    actor: ActorRef<ShardMsg>,
}

impl ShardHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<ShardMsg>) -> ShardHandle {
        ShardHandle { actor }
    }

    /// The actor, for its supervisor and for chaos.
    pub fn cell(&self) -> ractor::ActorCell {
        self.actor.get_cell()
    }
}
