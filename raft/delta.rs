//! What a batch of records changed: names only, the values are in the image.
//!
//! Owns the naming of changes. Never holds an old value but the names of topics that are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use protocol::ids::{NodeId, PartitionIndex, TopicId, TopicIdPartition, TopicName};

use crate::image::{ConfigResource, MetadataImage, TopicImage};
use crate::mirror_name::MirrorName;
use crate::records::{MetadataRecord, ResourceKind};

/// What changed between two images. Deltas of consecutive batches merge into one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataDelta {
    /// The cluster id or a feature level.
    pub cluster: bool,
    /// Brokers that registered, left, or changed their standing.
    pub brokers: BTreeSet<NodeId>,
    /// Topics that were created, or whose place in a mirror changed, and that still exist.
    pub topics: BTreeSet<TopicId>,
    /// Topics that are gone, with the name they had. One that is in `topics` too was removed and
    /// made again under its old id, as mirrors may: removals come before creations.
    pub removed_topics: BTreeMap<TopicId, TopicName>,
    /// Partitions that were created or changed (replicas, ISR, leader, epochs, mirror role) and
    /// still exist.
    pub partitions: BTreeSet<TopicIdPartition>,
    /// Partitions that went with their topic; one that is in `partitions` too was made again.
    pub removed_partitions: BTreeSet<TopicIdPartition>,
    /// Resources with a key set or removed.
    pub configs: BTreeSet<ConfigResource>,
    /// Mirrors whose configuration, source, or topics changed.
    pub mirrors: BTreeSet<MirrorName>,
}

impl MetadataDelta {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what came after this delta.
    pub fn merge(&mut self, later: Self) {
        self.cluster |= later.cluster;
        self.brokers.extend(later.brokers);
        self.topics.retain(|id| !later.removed_topics.contains_key(id));
        self.topics.extend(later.topics);
        self.removed_topics.extend(later.removed_topics);
        self.partitions.retain(|at| !later.removed_partitions.contains(at));
        self.partitions.extend(later.partitions);
        self.removed_partitions.extend(later.removed_partitions);
        self.configs.extend(later.configs);
        self.mirrors.extend(later.mirrors);
    }

    /// Notes what `record` will change of `before`, the image it is about to be replayed on.
    pub(crate) fn note(&mut self, before: &MetadataImage, record: &MetadataRecord) {
        match record {
            MetadataRecord::ClusterCreated(_) | MetadataRecord::FeatureLevel(_) => {
                self.cluster = true;
            }
            MetadataRecord::RegisterBroker(r) => self.note_broker(r.id),
            MetadataRecord::BrokerChanged(r) => self.note_broker(r.id),
            MetadataRecord::UnregisterBroker(r) => self.note_broker(r.id),
            MetadataRecord::Topic(r) => {
                self.topics.insert(r.topic_id);
            }
            MetadataRecord::RemoveTopic(r) => self.note_removed(before, r.topic_id),
            MetadataRecord::Partition(r) => self.note_partition(r.topic_id, r.partition),
            MetadataRecord::PartitionChange(r) => self.note_partition(r.topic_id, r.partition),
            MetadataRecord::Config(r) => {
                self.configs.insert(ConfigResource::new(r.resource, &r.name));
                if r.resource == ResourceKind::Mirror {
                    self.mirrors.insert(MirrorName::from(r.name.as_str()));
                }
            }
            MetadataRecord::ProducerIds(_) => {}
            MetadataRecord::MirrorSourceClusterId(r) => {
                self.mirrors.insert(r.mirror.clone());
            }
            MetadataRecord::MirrorTopicState(r) => {
                self.note_mirror_topic(before, r.topic_id);
                self.mirrors.insert(r.mirror.clone());
            }
            MetadataRecord::MirrorTopicRemoved(r) => self.note_mirror_topic(before, r.topic_id),
            MetadataRecord::MirrorPartitionStopped(r) => {
                self.note_partition(r.topic_id, r.partition);
            }
            MetadataRecord::MirrorPartitionStarted(r) => {
                self.note_partition(r.topic_id, r.partition);
            }
            MetadataRecord::MirrorTopicListing(r) => {
                self.mirrors.insert(r.mirror.clone());
            }
        }
    }

    fn note_broker(&mut self, id: NodeId) {
        self.brokers.insert(id);
    }

    fn note_partition(&mut self, topic_id: TopicId, partition: PartitionIndex) {
        self.partitions.insert(TopicIdPartition { topic_id, partition });
    }

    /// A topic's place in a mirror is a part of the role of every partition.
    fn note_mirror_topic(&mut self, before: &MetadataImage, topic_id: TopicId) {
        self.topics.insert(topic_id);
        let Some(topic) = before.topics.by_id(topic_id) else { return };
        self.partitions.extend(partitions_of(topic));
        self.mirrors.extend(topic.mirror.as_ref().map(|mirror| mirror.mirror.clone()));
    }

    fn note_removed(&mut self, before: &MetadataImage, topic_id: TopicId) {
        self.topics.remove(&topic_id);
        let Some(topic) = before.topics.by_id(topic_id) else { return };
        self.removed_topics.insert(topic_id, topic.name.clone());
        for at in partitions_of(topic) {
            self.partitions.remove(&at);
            self.removed_partitions.insert(at);
        }
        if before.configs.topic(&topic.name).is_some() {
            self.configs.insert(ConfigResource::new(ResourceKind::Topic, &topic.name));
        }
        self.mirrors.extend(topic.mirror.as_ref().map(|mirror| mirror.mirror.clone()));
    }

    /// The difference of two images, for one that came as a snapshot.
    pub fn between(before: &MetadataImage, after: &MetadataImage) -> Self {
        let mut delta = Self {
            cluster: before.cluster.cluster_id != after.cluster.cluster_id
                || before.features != after.features,
            brokers: differing(&before.cluster.brokers, &after.cluster.brokers),
            configs: differing(before.configs.map(), after.configs.map()),
            mirrors: differing(before.mirrors.map(), after.mirrors.map()),
            ..Self::default()
        };
        for resource in &delta.configs {
            if resource.kind == ResourceKind::Mirror {
                delta.mirrors.insert(MirrorName::from(&*resource.name));
            }
        }
        for id in differing(before.topics.map(), after.topics.map()) {
            delta.compare_topic(id, before.topics.by_id(id), after.topics.by_id(id));
        }
        delta
    }

    fn compare_topic(
        &mut self,
        id: TopicId,
        before: Option<&Arc<TopicImage>>,
        after: Option<&Arc<TopicImage>>,
    ) {
        let Some(after) = after else {
            let before = before.expect("a differing topic is in one of the images");
            self.removed_topics.insert(id, before.name.clone());
            self.removed_partitions.extend(partitions_of(before));
            return;
        };
        let same_mirror = before.is_some_and(|before| before.mirror == after.mirror);
        if !same_mirror {
            self.topics.insert(id);
            self.mirrors.extend(after.mirror.as_ref().map(|mirror| mirror.mirror.clone()));
        }
        for (partition, image) in &after.partitions {
            let unchanged = same_mirror
                && before.is_some_and(|before| before.partitions.get(partition) == Some(image));
            if !unchanged {
                self.note_partition(id, *partition);
            }
        }
    }
}

fn partitions_of(topic: &TopicImage) -> impl Iterator<Item = TopicIdPartition> + '_ {
    topic
        .partitions
        .keys()
        .map(|partition| TopicIdPartition { topic_id: topic.id, partition: *partition })
}

fn differing<K: Ord + Clone, V: Clone + PartialEq>(
    before: &OrdMap<K, V>,
    after: &OrdMap<K, V>,
) -> BTreeSet<K> {
    before
        .diff(after)
        .map(|item| match item {
            imbl::ordmap::DiffItem::Add(key, _)
            | imbl::ordmap::DiffItem::Remove(key, _)
            | imbl::ordmap::DiffItem::Update { old: (key, _), .. } => key.clone(),
        })
        .collect()
}
