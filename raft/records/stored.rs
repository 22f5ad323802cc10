//! The records as they are written: one variant for each version a record ever had.
//!
//! Owns the order of the variants, which is the format: only append. Every variant here can be
//! read for ever; only the newest of each record is written.

use serde::{Deserialize, Serialize};

use super::{
    BrokerChanged, BrokerRegistration, ClusterCreated, ConfigRecord, FeatureLevel, MetadataRecord,
    MirrorPartitionStarted, MirrorPartitionStopped, MirrorSourceClusterId, MirrorTopicListing,
    MirrorTopicRemoved, MirrorTopicState, PartitionChange, PartitionRecord, ProducerIds,
    RemoveTopic, TopicRecord, UnregisterBroker,
};

/// A record in a version. The variant's position is its number on disk.
#[derive(Serialize, Deserialize)]
pub(super) enum StoredRecord {
    ClusterCreatedV1(ClusterCreated),
    FeatureLevelV1(FeatureLevel),
    RegisterBrokerV1(BrokerRegistration),
    BrokerChangedV1(BrokerChanged),
    UnregisterBrokerV1(UnregisterBroker),
    TopicV1(TopicRecord),
    RemoveTopicV1(RemoveTopic),
    PartitionV1(PartitionRecord),
    PartitionChangeV1(PartitionChange),
    ConfigV1(ConfigRecord),
    ProducerIdsV1(ProducerIds),
    MirrorSourceClusterIdV1(MirrorSourceClusterId),
    MirrorTopicStateV1(MirrorTopicState),
    MirrorTopicRemovedV1(MirrorTopicRemoved),
    MirrorPartitionStoppedV1(MirrorPartitionStopped),
    MirrorPartitionStartedV1(MirrorPartitionStarted),
    MirrorTopicListingV1(MirrorTopicListing),
}

impl From<MetadataRecord> for StoredRecord {
    fn from(record: MetadataRecord) -> Self {
        match record {
            MetadataRecord::ClusterCreated(r) => Self::ClusterCreatedV1(r),
            MetadataRecord::FeatureLevel(r) => Self::FeatureLevelV1(r),
            MetadataRecord::RegisterBroker(r) => Self::RegisterBrokerV1(r),
            MetadataRecord::BrokerChanged(r) => Self::BrokerChangedV1(r),
            MetadataRecord::UnregisterBroker(r) => Self::UnregisterBrokerV1(r),
            MetadataRecord::Topic(r) => Self::TopicV1(r),
            MetadataRecord::RemoveTopic(r) => Self::RemoveTopicV1(r),
            MetadataRecord::Partition(r) => Self::PartitionV1(r),
            MetadataRecord::PartitionChange(r) => Self::PartitionChangeV1(r),
            MetadataRecord::Config(r) => Self::ConfigV1(r),
            MetadataRecord::ProducerIds(r) => Self::ProducerIdsV1(r),
            MetadataRecord::MirrorSourceClusterId(r) => Self::MirrorSourceClusterIdV1(r),
            MetadataRecord::MirrorTopicState(r) => Self::MirrorTopicStateV1(r),
            MetadataRecord::MirrorTopicRemoved(r) => Self::MirrorTopicRemovedV1(r),
            MetadataRecord::MirrorPartitionStopped(r) => Self::MirrorPartitionStoppedV1(r),
            MetadataRecord::MirrorPartitionStarted(r) => Self::MirrorPartitionStartedV1(r),
            MetadataRecord::MirrorTopicListing(r) => Self::MirrorTopicListingV1(r),
        }
    }
}

impl From<StoredRecord> for MetadataRecord {
    fn from(stored: StoredRecord) -> Self {
        match stored {
            StoredRecord::ClusterCreatedV1(r) => Self::ClusterCreated(r),
            StoredRecord::FeatureLevelV1(r) => Self::FeatureLevel(r),
            StoredRecord::RegisterBrokerV1(r) => Self::RegisterBroker(r),
            StoredRecord::BrokerChangedV1(r) => Self::BrokerChanged(r),
            StoredRecord::UnregisterBrokerV1(r) => Self::UnregisterBroker(r),
            StoredRecord::TopicV1(r) => Self::Topic(r),
            StoredRecord::RemoveTopicV1(r) => Self::RemoveTopic(r),
            StoredRecord::PartitionV1(r) => Self::Partition(r),
            StoredRecord::PartitionChangeV1(r) => Self::PartitionChange(r),
            StoredRecord::ConfigV1(r) => Self::Config(r),
            StoredRecord::ProducerIdsV1(r) => Self::ProducerIds(r),
            StoredRecord::MirrorSourceClusterIdV1(r) => Self::MirrorSourceClusterId(r),
            StoredRecord::MirrorTopicStateV1(r) => Self::MirrorTopicState(r),
            StoredRecord::MirrorTopicRemovedV1(r) => Self::MirrorTopicRemoved(r),
            StoredRecord::MirrorPartitionStoppedV1(r) => Self::MirrorPartitionStopped(r),
            StoredRecord::MirrorPartitionStartedV1(r) => Self::MirrorPartitionStarted(r),
            StoredRecord::MirrorTopicListingV1(r) => Self::MirrorTopicListing(r),
        }
    }
}
