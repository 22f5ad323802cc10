//! Hands every image and what changed in it to the node, in order. It reacts to nothing itself.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use raft::consensus::{Consensus, Published};

use crate::directory::Directory;
use crate::runtimes::AbortOnDrop;

/// What the publisher can be told.
#[derive(Debug)]
pub enum MetadataPublisherMsg {
    /// Raft applied records.
    Published(Box<Published>),
    /// Raft publishes no more: its core is gone.
    Ended,
}

/// What it is started with.
#[derive(Debug, Clone)]
pub struct MetadataPublisherArgs {
    /// The node.
    pub directory: Arc<Directory>,
    /// The Raft member.
    pub consensus: Consensus,
}

/// The actor; everything mutable is in [`MetadataPublisherState`].
#[derive(Debug)]
pub struct MetadataPublisher;

/// The state of one incarnation.
#[derive(Debug)]
pub struct MetadataPublisherState {
    directory: Arc<Directory>,
    _receiver: AbortOnDrop,
}

impl Actor for MetadataPublisher {
    type Msg = MetadataPublisherMsg;
    type State = MetadataPublisherState;
    type Arguments = MetadataPublisherArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        // A new subscription begins with the whole image, so a successor misses nothing.
        let mut published = args.consensus.published();
        let receive = async move {
            while let Some(next) = published.recv().await {
                if myself.cast(MetadataPublisherMsg::Published(Box::new(next))).is_err() {
                    return;
                }
            }
            if myself.cast(MetadataPublisherMsg::Ended).is_err() {
                tracing::trace!("the publisher is gone");
            }
        };
        let receiver = AbortOnDrop::new(tokio::spawn(receive));
        Ok(MetadataPublisherState { directory: args.directory, _receiver: receiver })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            MetadataPublisherMsg::Published(published) => {
                let Published { image, delta, index } = *published;
                let version = u64::try_from(index.max(0)).unwrap_or(0);
                state.directory.publish(image, &Arc::new(delta), version);
                Ok(())
            }
            MetadataPublisherMsg::Ended => Err("the Raft core is gone".into()),
        }
    }
}
