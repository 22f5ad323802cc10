//! Supervisor of this node's mirrors: one actor a mirror, with its connections to the source.

pub mod handle;
pub mod machine;
pub mod mirror;
pub mod source_offsets;

use std::sync::Arc;

use ractor::ActorRef;
use raft::MetadataDelta;

pub use handle::{MirrorHandle, SourcePartition};

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
