//! Topics and partitions, with what the controller knows of their mirroring.
//!
//! Owns the rule for a partition's epochs and for its role in a mirror. Never knows the actual
//! mirror state of a partition before STOPPED: that is the mirror coordinator's.

use std::sync::Arc;

use imbl::OrdMap;
use protocol::ids::{
    LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicId, TopicIdPartition, TopicName,
};

use super::{MetadataImage, edit};
use crate::error::ReplayError;
use crate::mirror_name::MirrorName;
use crate::records::{
    MirrorDesired, MirrorPartitionStarted, MirrorPartitionStopped, MirrorStop, MirrorTopicRemoved,
    MirrorTopicState, PartitionChange, PartitionRecord, RemoveTopic, TopicRecord,
};

/// Every topic, by id and by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicsImage {
    by_id: OrdMap<TopicId, Arc<TopicImage>>,
    by_name: OrdMap<TopicName, TopicId>,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    /// The topic's id.
    pub id: TopicId,
    /// The topic's name.
    pub name: TopicName,
    /// Its partitions, without a gap from 0.
    pub partitions: OrdMap<PartitionIndex, Arc<PartitionImage>>,
    /// The mirror the topic belongs to, stopped or not.
    pub mirror: Option<MirrorTopic>,
}

/// A topic's place in a mirror (D1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorTopic {
    /// The mirror.
    pub mirror: MirrorName,
    /// What the operator wants.
    pub desired: MirrorDesired,
    /// The topic existed before the mirror took it, so its log may hold local records (D7).
    pub adopted: bool,
}

impl MirrorTopic {
    /// The desired state: how far each partition has come only its own state says.
    pub fn state_word(&self) -> &'static str {
        match self.desired {
            MirrorDesired::Active => "ACTIVE",
            MirrorDesired::Paused => "PAUSED",
            MirrorDesired::Stopped => "STOPPING",
        }
    }

    /// The value revision 205 shows as the topic's `mirror.name`: the mirror with the desired
    /// state as a suffix.
    pub fn mirror_name_config(&self) -> String {
        match self.desired {
            MirrorDesired::Active => self.mirror.to_string(),
            MirrorDesired::Paused => format!("{}.paused", self.mirror),
            MirrorDesired::Stopped => format!("{}.stopped", self.mirror),
        }
    }
}

/// One partition.
///
/// Invariants: the ISR is not empty and holds only replicas; a leader is in the ISR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// The brokers with a replica, the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// The replicas in sync.
    pub isr: Vec<NodeId>,
    /// The leader; `None` while no member of the ISR can lead.
    pub leader: Option<NodeId>,
    /// Counts leaderships.
    pub leader_epoch: LeaderEpoch,
    /// Counts changes.
    pub partition_epoch: PartitionEpoch,
    /// How its last mirroring ended, and whether that still holds.
    pub stop: StopState,
}

/// What the controller log says of a partition's failover (D3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StopState {
    /// No mirroring of it ever ended here.
    #[default]
    Never,
    /// It is STOPPED: it takes writes.
    Stopped(Arc<MirrorStop>),
    /// It was stopped once and was started again since; the stop gives the truncation point (D7).
    Restarted(Arc<MirrorStop>),
}

impl StopState {
    /// The last stop, whether it still holds or not.
    pub fn last(&self) -> Option<&Arc<MirrorStop>> {
        match self {
            Self::Never => None,
            Self::Stopped(stop) | Self::Restarted(stop) => Some(stop),
        }
    }
}

/// What a partition is to mirroring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorRole {
    /// An ordinary partition: it takes writes. A stop it may have had is kept for D7.
    None {
        /// The last stop, under a mirror that is gone.
        last_stop: Option<Arc<MirrorStop>>,
    },
    /// A mirror partition that is not STOPPED: read-only.
    Mirroring {
        /// The mirror.
        mirror: MirrorName,
        /// What the operator wants.
        desired: MirrorDesired,
        /// The partition existed before the mirror took it, so its log may hold local records.
        adopted: bool,
        /// The last stop before this mirroring, under any mirror.
        last_stop: Option<Arc<MirrorStop>>,
    },
    /// A mirror partition that failed over: it takes writes.
    Stopped {
        /// The mirror.
        mirror: MirrorName,
        /// How it ended.
        stop: Arc<MirrorStop>,
    },
}

impl MirrorRole {
    /// Whether clients are refused: a mirror partition that is not STOPPED.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Mirroring { .. } => true,
            Self::None { .. } | Self::Stopped { .. } => false,
        }
    }
}

impl TopicsImage {
    /// A topic by id.
    pub fn by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.by_id.get(&id)
    }

    /// A topic by name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.by_name.get(name).and_then(|id| self.by_id.get(id))
    }

    /// The id of a topic.
    pub fn id_of(&self, name: &str) -> Option<TopicId> {
        self.by_name.get(name).copied()
    }

    /// The name of a topic.
    pub fn name_of(&self, id: TopicId) -> Option<&TopicName> {
        self.by_id.get(&id).map(|topic| &topic.name)
    }

    /// A partition.
    pub fn partition(&self, at: TopicIdPartition) -> Option<&Arc<PartitionImage>> {
        self.by_id.get(&at.topic_id).and_then(|topic| topic.partitions.get(&at.partition))
    }

    /// Every topic, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_id.values()
    }

    /// Every topic, by name.
    pub fn iter_by_name(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_name.values().filter_map(|id| self.by_id.get(id))
    }

    /// Every topic's name, in order.
    pub fn names(&self) -> impl Iterator<Item = &TopicName> {
        self.by_name.keys()
    }

    /// How many topics there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is no topic.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Every partition, by topic id and index.
    pub fn partitions(&self) -> impl Iterator<Item = (TopicIdPartition, &Arc<PartitionImage>)> {
        self.by_id.values().flat_map(|topic| {
            topic.partitions.iter().map(|(partition, image)| {
                (TopicIdPartition { topic_id: topic.id, partition: *partition }, image)
            })
        })
    }

    /// The maps by id, for a comparison of two images.
    pub(crate) fn map(&self) -> &OrdMap<TopicId, Arc<TopicImage>> {
        &self.by_id
    }

    fn topic_mut(&mut self, id: TopicId) -> Result<&mut Arc<TopicImage>, ReplayError> {
        self.by_id.get_mut(&id).ok_or(ReplayError::UnknownTopic { topic_id: id })
    }

    fn edit_partition(
        &mut self,
        topic_id: TopicId,
        partition: PartitionIndex,
        change: impl FnOnce(&mut PartitionImage),
    ) -> Result<(), ReplayError> {
        let topic = Arc::make_mut(self.topic_mut(topic_id)?);
        let image = topic
            .partitions
            .get_mut(&partition)
            .ok_or(ReplayError::UnknownPartition { topic_id, partition })?;
        edit(image, change);
        Ok(())
    }
}

impl TopicImage {
    /// How many partitions the topic has.
    pub fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).expect("a topic has fewer than 2^31 partitions")
    }

    /// How many replicas its first partition has; 0 without partitions.
    pub fn replication_factor(&self) -> i16 {
        self.partitions.get(&PartitionIndex(0)).map_or(0, |partition| {
            i16::try_from(partition.replicas.len()).expect("replicas are fewer than 2^15")
        })
    }

    /// What one of the topic's partitions is to mirroring.
    pub fn mirror_role(&self, partition: &PartitionImage) -> MirrorRole {
        let last_stop = partition.stop.last().filter(|stop| stop.was_mirrored()).cloned();
        let Some(topic) = &self.mirror else { return MirrorRole::None { last_stop } };
        let local = partition.stop.last().is_some_and(|stop| !stop.was_mirrored());
        let mirror = topic.mirror.clone();
        match &partition.stop {
            StopState::Stopped(stop) => MirrorRole::Stopped { mirror, stop: Arc::clone(stop) },
            StopState::Never | StopState::Restarted(_) => MirrorRole::Mirroring {
                mirror,
                desired: topic.desired,
                adopted: topic.adopted || local,
                last_stop,
            },
        }
    }

    /// Whether the topic is in a mirror and one of its partitions is not STOPPED yet.
    pub fn is_read_only(&self) -> bool {
        self.partitions.values().any(|partition| self.mirror_role(partition).is_read_only())
    }
}

impl PartitionImage {
    /// Whether the broker holds a replica.
    pub fn is_replica(&self, broker: NodeId) -> bool {
        self.replicas.contains(&broker)
    }

    /// Whether the broker is in sync.
    pub fn is_in_sync(&self, broker: NodeId) -> bool {
        self.isr.contains(&broker)
    }

    /// The leader's id on the wire: −1 for none.
    pub fn leader_id(&self) -> NodeId {
        self.leader.unwrap_or(NodeId::NONE)
    }

    fn apply(&mut self, change: &PartitionChange) {
        if let Some(replicas) = &change.replicas {
            self.replicas.clone_from(replicas);
        }
        if let Some(isr) = &change.isr {
            self.isr.clone_from(isr);
        }
        let mut epoch = self.leader_epoch.0;
        if let Some(leader) = change.leader {
            self.leader = leader;
            epoch += 1;
        }
        if let Some(min) = change.min_leader_epoch {
            epoch = epoch.max(min.0 + 1);
        }
        self.leader_epoch = LeaderEpoch(epoch);
        self.partition_epoch = PartitionEpoch(self.partition_epoch.0 + 1);
        debug_assert!(!self.isr.is_empty(), "the ISR keeps its last member");
        debug_assert!(
            self.leader.is_none_or(|leader| self.isr.contains(&leader)),
            "leader {:?} is not in the ISR {:?}",
            self.leader,
            self.isr
        );
    }
}

impl MetadataImage {
    /// What a partition is to mirroring; `None` for one that does not exist.
    pub fn mirror_of(&self, topic_id: TopicId, partition: PartitionIndex) -> Option<MirrorRole> {
        let topic = self.topics.by_id(topic_id)?;
        topic.partitions.get(&partition).map(|image| topic.mirror_role(image))
    }

    pub(super) fn replay_topic(&mut self, record: &TopicRecord) -> Result<(), ReplayError> {
        if self.topics.by_id.contains_key(&record.topic_id) {
            return Err(ReplayError::TopicExists { topic_id: record.topic_id });
        }
        let topic = TopicImage {
            id: record.topic_id,
            name: record.name.clone(),
            partitions: OrdMap::new(),
            mirror: None,
        };
        self.topics.by_name.insert(record.name.clone(), record.topic_id);
        self.topics.by_id.insert(record.topic_id, Arc::new(topic));
        Ok(())
    }

    pub(super) fn replay_remove_topic(&mut self, record: &RemoveTopic) -> Result<(), ReplayError> {
        let topic = self
            .topics
            .by_id
            .remove(&record.topic_id)
            .ok_or(ReplayError::UnknownTopic { topic_id: record.topic_id })?;
        self.topics.by_name.remove(&topic.name);
        self.forget_topic_configs(&topic.name);
        Ok(())
    }

    pub(super) fn replay_partition(
        &mut self,
        record: &PartitionRecord,
    ) -> Result<(), ReplayError> {
        let partition = PartitionImage {
            replicas: record.replicas.clone(),
            isr: record.isr.clone(),
            leader: record.leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            stop: StopState::Never,
        };
        let topic = self.topics.topic_mut(record.topic_id)?;
        edit(topic, |topic| {
            topic.partitions.insert(record.partition, Arc::new(partition));
        });
        Ok(())
    }

    pub(super) fn replay_partition_change(
        &mut self,
        record: &PartitionChange,
    ) -> Result<(), ReplayError> {
        self.topics.edit_partition(record.topic_id, record.partition, |image| image.apply(record))
    }

    pub(super) fn replay_mirror_topic_state(
        &mut self,
        record: &MirrorTopicState,
    ) -> Result<(), ReplayError> {
        let topic = self.topics.topic_mut(record.topic_id)?;
        edit(topic, |topic| {
            topic.mirror = Some(MirrorTopic {
                mirror: record.mirror.clone(),
                desired: record.desired,
                adopted: record.adopted,
            });
        });
        Ok(())
    }

    pub(super) fn replay_mirror_topic_removed(
        &mut self,
        record: &MirrorTopicRemoved,
    ) -> Result<(), ReplayError> {
        edit(self.topics.topic_mut(record.topic_id)?, |topic| topic.mirror = None);
        Ok(())
    }

    pub(super) fn replay_partition_stopped(
        &mut self,
        record: &MirrorPartitionStopped,
    ) -> Result<(), ReplayError> {
        self.topics.edit_partition(record.topic_id, record.partition, |image| {
            image.stop = StopState::Stopped(Arc::new(record.stop.clone()));
        })
    }

    pub(super) fn replay_partition_started(
        &mut self,
        record: &MirrorPartitionStarted,
    ) -> Result<(), ReplayError> {
        self.topics.edit_partition(record.topic_id, record.partition, |image| {
            if let StopState::Stopped(stop) = &image.stop {
                image.stop = StopState::Restarted(Arc::clone(stop));
            }
        })
    }
}
