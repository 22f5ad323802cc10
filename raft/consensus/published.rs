//! What the state machine hands out: the image for readers, every delta for the one subscriber.
//! Owns the order of the two; never drops a delta.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::{MetadataDelta, MetadataImage};

/// One step of the metadata: what changed, and the image with the change in it.
#[derive(Clone, Debug)]
pub struct Published {
    /// The image after the change.
    pub image: Arc<MetadataImage>,
    /// What changed since the last `Published` of this receiver. The first one holds all of the
    /// image.
    pub delta: MetadataDelta,
    /// The Raft index the image stands at; -1 stands for an image no entry has touched.
    pub index: i64,
}

/// The image and its subscriber.
#[derive(Debug)]
pub(crate) struct Publisher {
    image: Arc<ArcSwap<MetadataImage>>,
    subscription: Mutex<Subscription>,
}

#[derive(Debug)]
struct Subscription {
    index: i64,
    /// Unbounded, but fed only by applied entries: its length is bounded by the Raft log's growth
    /// while the subscriber is late. None while nobody listens.
    sender: Option<mpsc::UnboundedSender<Published>>,
}

impl Publisher {
    pub(crate) fn new() -> Publisher {
        Publisher {
            image: Arc::new(ArcSwap::from_pointee(MetadataImage::default())),
            subscription: Mutex::new(Subscription { index: -1, sender: None }),
        }
    }

    /// The image now.
    pub(crate) fn image(&self) -> Arc<MetadataImage> {
        self.image.load_full()
    }

    /// The cell readers load the image from.
    pub(crate) fn image_cell(&self) -> Arc<ArcSwap<MetadataImage>> {
        Arc::clone(&self.image)
    }

    /// Replaces the image and tells the subscriber.
    pub(crate) fn publish(&self, image: Arc<MetadataImage>, delta: MetadataDelta, index: u64) {
        let mut subscription = self.subscription.lock();
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        self.image.store(Arc::clone(&image));
        subscription.index = index;
        if let Some(sender) = &subscription.sender {
            let sent = sender.send(Published { image, delta, index });
            if sent.is_err() {
                subscription.sender = None;
            }
        }
    }

    /// Starts a subscription with all of the present image, and ends the one before.
    pub(crate) fn subscribe(&self) -> mpsc::UnboundedReceiver<Published> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut subscription = self.subscription.lock();
        let image = self.image();
        let delta = MetadataDelta::between(&MetadataImage::default(), &image);
        let first = Published { image, delta, index: subscription.index };
        let sent = sender.send(first);
        assert!(sent.is_ok(), "the receiver is in this function's hands");
        subscription.sender = Some(sender);
        receiver
    }
}
