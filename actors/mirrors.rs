//! Supervisor of this node's mirrors: one actor a mirror, with its connections to the source.

pub mod machine;

use std::sync::Arc;

use ractor::ActorRef;
use raft::MetadataDelta;

/// What the supervisor can be told.
#[derive(Debug)]
pub enum MirrorsMsg {
    /// The image changed; the directory has it already.
    ImageChanged(Arc<MetadataDelta>),
}

/// A cheap handle to the supervisor.
#[derive(Debug, Clone)]
pub struct MirrorsHandle {
    actor: ActorRef<MirrorsMsg>,
}

impl MirrorsHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<MirrorsMsg>) -> MirrorsHandle {
        MirrorsHandle { actor }
    }

    /// Tells it what changed in the image.
    pub fn image_changed(&self, delta: Arc<MetadataDelta>) {
        if self.actor.cast(MirrorsMsg::ImageChanged(delta)).is_err() {
            tracing::debug!("mirrors are restarting: they read the whole image then");
        }
    }
}

/// What a mirror can be told.
#[derive(Debug)]
pub enum MirrorMsg {}

/// A cheap handle to a mirror.
#[derive(Debug, Clone)]
pub struct MirrorHandle {
    actor: ActorRef<MirrorMsg>,
}

impl MirrorHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<MirrorMsg>) -> MirrorHandle {
        MirrorHandle { actor }
    }

    /// The actor, for its supervisor and for chaos.
    pub fn cell(&self) -> ractor::ActorCell {
        self.actor.get_cell()
    }
}
