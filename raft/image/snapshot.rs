//! The image as the records that make it. Owns their order: what a record needs comes before it.

use super::{MetadataImage, StopState, TopicImage};
use crate::error::ReplayError;
use crate::records::{
    ClusterCreated, ConfigRecord, FeatureLevel, MetadataRecord, MirrorPartitionStarted,
    MirrorPartitionStopped, MirrorSourceClusterId, MirrorTopicListing, MirrorTopicState,
    PartitionRecord, ProducerIds, TopicRecord,
};
use protocol::ids::{BrokerEpoch, NodeId};

impl MetadataImage {
    /// The shortest log whose replay gives this image.
    pub fn to_records(&self) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        if let Some(cluster_id) = self.cluster.id() {
            let cluster_id = cluster_id.to_owned();
            records.push(MetadataRecord::ClusterCreated(ClusterCreated { cluster_id }));
        }
        records.extend(self.features.iter().map(|(name, level)| {
            MetadataRecord::FeatureLevel(FeatureLevel { name: name.to_string(), level: *level })
        }));
        records.extend(
            self.cluster
                .brokers
                .values()
                .map(|broker| MetadataRecord::RegisterBroker((**broker).clone())),
        );
        for topic in self.topics.iter() {
            push_topic(&mut records, topic);
        }
        self.push_configs(&mut records);
        self.push_mirrors(&mut records);
        if *self != Self::default() {
            records.push(MetadataRecord::ProducerIds(ProducerIds {
                broker: NodeId::NONE,
                broker_epoch: BrokerEpoch::NONE,
                next_producer_id: self.next_producer_id.0,
            }));
        }
        records
    }

    fn push_configs(&self, records: &mut Vec<MetadataRecord>) {
        for (resource, keys) in self.configs.iter() {
            for (key, value) in keys.iter() {
                records.push(MetadataRecord::Config(ConfigRecord {
                    resource: resource.kind,
                    name: resource.name.to_string(),
                    key: key.to_string(),
                    value: Some(value.to_string()),
                }));
            }
        }
    }

    fn push_mirrors(&self, records: &mut Vec<MetadataRecord>) {
        for (mirror, image) in self.mirrors.iter() {
            if let Some(cluster_id) = &image.source_cluster_id {
                records.push(MetadataRecord::MirrorSourceClusterId(MirrorSourceClusterId {
                    mirror: mirror.clone(),
                    cluster_id: cluster_id.to_string(),
                }));
            }
            for (topic, listing) in &image.listings {
                records.push(MetadataRecord::MirrorTopicListing(MirrorTopicListing {
                    mirror: mirror.clone(),
                    topic: topic.clone(),
                    listing: Some(*listing),
                }));
            }
        }
    }
}

fn push_topic(records: &mut Vec<MetadataRecord>, topic: &TopicImage) {
    let topic_id = topic.id;
    records.push(MetadataRecord::Topic(TopicRecord { name: topic.name.clone(), topic_id }));
    for (partition, image) in &topic.partitions {
        let partition = *partition;
        records.push(MetadataRecord::Partition(PartitionRecord {
            topic_id,
            partition,
            replicas: image.replicas.clone(),
            isr: image.isr.clone(),
            leader: image.leader,
            leader_epoch: image.leader_epoch,
            partition_epoch: image.partition_epoch,
        }));
        if let Some(stop) = image.stop.last() {
            let stop = (**stop).clone();
            records.push(MetadataRecord::MirrorPartitionStopped(MirrorPartitionStopped {
                topic_id,
                partition,
                stop,
            }));
        }
        if matches!(image.stop, StopState::Restarted(_)) {
            records.push(MetadataRecord::MirrorPartitionStarted(MirrorPartitionStarted {
                topic_id,
                partition,
            }));
        }
    }
    if let Some(mirror) = &topic.mirror {
        records.push(MetadataRecord::MirrorTopicState(MirrorTopicState {
            topic_id,
            mirror: mirror.mirror.clone(),
            desired: mirror.desired,
            adopted: mirror.adopted,
        }));
    }
}

impl From<MetadataImage> for Vec<MetadataRecord> {
    fn from(image: MetadataImage) -> Self {
        image.to_records()
    }
}

impl TryFrom<Vec<MetadataRecord>> for MetadataImage {
    type Error = ReplayError;

    fn try_from(records: Vec<MetadataRecord>) -> Result<Self, ReplayError> {
        let mut image = Self::default();
        for record in &records {
            image.replay(record)?;
        }
        Ok(image)
    }
}
