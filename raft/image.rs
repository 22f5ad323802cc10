//! What the cluster agreed on, as one immutable value: cheap to clone, changed only by `replay`.
//!
//! Owns the shape of the image and the order of replay. Decides nothing: the `decide_*` functions
//! of the area files read it. Every map is ordered, so two replays of one log give equal images.

mod cluster;
mod configs;
mod invariants;
mod mirrors;
mod snapshot;
mod topics;

pub use cluster::ClusterImage;
pub use configs::{ConfigResource, ConfigsImage, Settings};
pub use mirrors::{MirrorImage, MirrorsImage};
pub use topics::{MirrorRole, MirrorTopic, PartitionImage, StopState, TopicImage, TopicsImage};

#[cfg(test)]
mod tests;

use std::sync::Arc;

use imbl::OrdMap;
use protocol::ids::ProducerId;
use serde::{Deserialize, Serialize};

use crate::delta::MetadataDelta;
use crate::error::ReplayError;
use crate::records::MetadataRecord;

/// The metadata of the cluster after some record of the controller log.
///
/// Serializes as the records that make it, so a snapshot is read as any log is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<MetadataRecord>", try_from = "Vec<MetadataRecord>")]
pub struct MetadataImage {
    /// The cluster's id and its brokers.
    pub cluster: ClusterImage,
    /// Topics and partitions.
    pub topics: TopicsImage,
    /// Configuration of topics, brokers and mirrors, as it was set.
    pub configs: ConfigsImage,
    /// What mirrors know beyond their configuration.
    pub mirrors: MirrorsImage,
    /// Finalized feature levels, by name; a level of 0 is not in it.
    pub features: OrdMap<Arc<str>, i16>,
    /// The first producer id that no block holds, from 0.
    pub next_producer_id: ProducerIdCursor,
}

/// The first producer id that no broker was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdCursor(pub ProducerId);

impl Default for ProducerIdCursor {
    fn default() -> Self {
        Self(ProducerId(0))
    }
}

impl MetadataImage {
    /// Applies one record. The only way an image ever changes.
    ///
    /// # Errors
    /// The record speaks of something that is not there. A decided record never does, so the
    /// caller stops its node: every replica fails at the same record.
    pub fn replay(&mut self, record: &MetadataRecord) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::ClusterCreated(r) => self.replay_cluster_created(r),
            MetadataRecord::FeatureLevel(r) => self.replay_feature_level(r),
            MetadataRecord::RegisterBroker(r) => self.replay_register_broker(r),
            MetadataRecord::BrokerChanged(r) => self.replay_broker_changed(r)?,
            MetadataRecord::UnregisterBroker(r) => self.replay_unregister_broker(r)?,
            MetadataRecord::Topic(r) => self.replay_topic(r)?,
            MetadataRecord::RemoveTopic(r) => self.replay_remove_topic(r)?,
            MetadataRecord::Partition(r) => self.replay_partition(r)?,
            MetadataRecord::PartitionChange(r) => self.replay_partition_change(r)?,
            MetadataRecord::Config(r) => self.replay_config(r),
            MetadataRecord::ProducerIds(r) => self.replay_producer_ids(r),
            MetadataRecord::MirrorSourceClusterId(r) => self.replay_source_cluster_id(r),
            MetadataRecord::MirrorTopicState(r) => self.replay_mirror_topic_state(r)?,
            MetadataRecord::MirrorTopicRemoved(r) => self.replay_mirror_topic_removed(r)?,
            MetadataRecord::MirrorPartitionStopped(r) => self.replay_partition_stopped(r)?,
            MetadataRecord::MirrorPartitionStarted(r) => self.replay_partition_started(r)?,
            MetadataRecord::MirrorTopicListing(r) => self.replay_topic_listing(r),
        }
        Ok(())
    }

    /// Applies the records of one Raft entry and says what they changed.
    ///
    /// # Errors
    /// As [`Self::replay`]; the image then holds the records before the faulty one.
    pub fn replay_batch(
        &mut self,
        records: &[MetadataRecord],
    ) -> Result<MetadataDelta, ReplayError> {
        let mut delta = MetadataDelta::default();
        for record in records {
            delta.note(self, record);
            self.replay(record)?;
        }
        Ok(delta)
    }
}

/// Replaces the value behind `entry` by an edited copy: what others hold of it stays as it was.
fn edit<T: Clone>(entry: &mut Arc<T>, change: impl FnOnce(&mut T)) {
    change(Arc::make_mut(entry));
}
