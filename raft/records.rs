//! Everything the controller log can hold: one enum, one documented struct a variant.
//!
//! Owns the meaning of each record. Never decides anything and never touches the image: `decide_*`
//! makes records, `MetadataImage::replay` reads them.
//!
//! **Changing a record.** What is on disk is [`stored::StoredRecord`], whose variants carry a
//! version in their name and are only ever appended. To change a record: move its present struct
//! into `records/`, named after its old version, give it a `From` into the new one, append a new
//! `StoredRecord` variant, and add the bytes of both to the golden file.

mod stored;

#[cfg(test)]
pub(crate) mod tests;

use protocol::ids::{
    BrokerEpoch, DirectoryId, LeaderEpoch, NodeId, Offset, PartitionEpoch, PartitionIndex,
    ProducerId, TopicId, TopicName,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::mirror_name::MirrorName;

/// One fact the cluster agreed on. A Raft entry carries a batch of these, applied as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "stored::StoredRecord", from = "stored::StoredRecord")]
pub enum MetadataRecord {
    /// The cluster exists under this id. The first record of every log.
    ClusterCreated(ClusterCreated),
    /// A finalized feature has this level from here on.
    FeatureLevel(FeatureLevel),
    /// A broker registered, new or again; it replaces what was known of its id.
    RegisterBroker(BrokerRegistration),
    /// A registered broker was fenced, unfenced or began to shut down.
    BrokerChanged(BrokerChanged),
    /// A broker left the cluster for good.
    UnregisterBroker(UnregisterBroker),
    /// A topic exists, without partitions yet.
    Topic(TopicRecord),
    /// A topic and everything that hangs on it is gone.
    RemoveTopic(RemoveTopic),
    /// A partition of a topic exists.
    Partition(PartitionRecord),
    /// Replicas, ISR, leader or epoch of a partition changed.
    PartitionChange(PartitionChange),
    /// A configuration key of a resource was set or removed.
    Config(ConfigRecord),
    /// A block of producer ids was handed to a broker.
    ProducerIds(ProducerIds),
    /// The cluster id a mirror's source answered with.
    MirrorSourceClusterId(MirrorSourceClusterId),
    /// What the operator wants of a topic in a mirror (D1).
    MirrorTopicState(MirrorTopicState),
    /// A topic no longer belongs to any mirror.
    MirrorTopicRemoved(MirrorTopicRemoved),
    /// A partition is STOPPED: it takes writes when this is replayed (D3).
    MirrorPartitionStopped(MirrorPartitionStopped),
    /// A stopped partition mirrors again: it refuses writes when this is replayed.
    MirrorPartitionStarted(MirrorPartitionStarted),
    /// How a mirror's discovery treats one topic name (D6, D22).
    MirrorTopicListing(MirrorTopicListing),
}

/// The identity of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterCreated {
    /// The 22-character cluster id clients see.
    pub cluster_id: String,
}

/// The level of one finalized feature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureLevel {
    /// Kafka's name of the feature, such as `metadata.version`.
    pub name: String,
    /// The level; 0 removes the feature.
    pub level: i16,
}

/// What a broker said of itself when it registered, and what the controller thinks of it since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerRegistration {
    /// The broker's node id.
    pub id: NodeId,
    /// The metadata directory the broker runs on; the same directory is the same broker.
    pub directory_id: DirectoryId,
    /// The process incarnation: a new one at each start.
    pub incarnation_id: Uuid,
    /// Names this registration; the log index it was made at, so it only grows.
    pub epoch: BrokerEpoch,
    /// Where the broker is reached, in the order it gave.
    pub listeners: Vec<Listener>,
    /// The rack, if the broker has one.
    pub rack: Option<String>,
    /// The log directories it has online.
    pub log_dirs: Vec<DirectoryId>,
    /// The features it supports.
    pub features: Vec<SupportedFeature>,
    /// A fenced broker leads nothing and enters no ISR.
    pub fenced: bool,
    /// It asked to stop: it leads nothing and enters no ISR, and its leaderships are moving.
    pub in_controlled_shutdown: bool,
}

impl BrokerRegistration {
    /// Whether the broker may lead and be in sync: neither fenced nor shutting down.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// The listener with this name, compared as Kafka does, without regard to case.
    pub fn listener(&self, name: &str) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.name.eq_ignore_ascii_case(name))
    }
}

/// One address a broker is reached at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The listener's name, such as `PLAINTEXT`.
    pub name: String,
    /// Host name or address as advertised.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Kafka's security protocol id: 0 PLAINTEXT, 1 SSL, 2 `SASL_PLAINTEXT`, 3 `SASL_SSL`.
    pub security_protocol: i16,
}

/// The levels of a feature a broker can work at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupportedFeature {
    /// Kafka's name of the feature.
    pub name: String,
    /// The lowest level.
    pub min_level: i16,
    /// The highest level.
    pub max_level: i16,
}

/// A change of a registered broker's standing. `None` leaves a flag as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerChanged {
    /// The broker.
    pub id: NodeId,
    /// The registration this is about.
    pub epoch: BrokerEpoch,
    /// Fenced or unfenced from here on.
    pub fenced: Option<bool>,
    /// Shutting down or not from here on.
    pub in_controlled_shutdown: Option<bool>,
}

/// A broker that is no longer part of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnregisterBroker {
    /// The broker.
    pub id: NodeId,
    /// Its last registration.
    pub epoch: BrokerEpoch,
}

/// A topic's name and id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRecord {
    /// The name, unique among the topics that exist.
    pub name: TopicName,
    /// The id, never used again after the topic is gone, unless a mirror brings it back.
    pub topic_id: TopicId,
}

/// A topic that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveTopic {
    /// The topic.
    pub topic_id: TopicId,
}

/// A partition as it is created, or as a snapshot holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition's index in it.
    pub partition: PartitionIndex,
    /// The brokers that hold a replica, the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// The replicas in sync, never empty.
    pub isr: Vec<NodeId>,
    /// The leader; `None` while no member of the ISR can lead.
    pub leader: Option<NodeId>,
    /// Grows with every change of leader.
    pub leader_epoch: LeaderEpoch,
    /// Grows with every change of the partition.
    pub partition_epoch: PartitionEpoch,
}

/// A change of a partition; what is `None` stays. The partition epoch grows by one.
///
/// The new leader epoch is the larger of `min_leader_epoch + 1` and the present one, plus one if
/// `leader` is set (version 3 of Kafka's record, spec 3.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionChange {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition's index in it.
    pub partition: PartitionIndex,
    /// The new replica list.
    pub replicas: Option<Vec<NodeId>>,
    /// The new ISR.
    pub isr: Option<Vec<NodeId>>,
    /// The new leader, or none; set also for the same leader under a new epoch.
    pub leader: Option<Option<NodeId>>,
    /// The new leader epoch must be above this.
    pub min_leader_epoch: Option<LeaderEpoch>,
}

impl PartitionChange {
    /// A change of nothing yet.
    pub fn new(topic_id: TopicId, partition: PartitionIndex) -> Self {
        Self {
            topic_id,
            partition,
            replicas: None,
            isr: None,
            leader: None,
            min_leader_epoch: None,
        }
    }

    /// Whether the record would change nothing but the partition epoch.
    pub fn is_empty(&self) -> bool {
        self.replicas.is_none()
            && self.isr.is_none()
            && self.leader.is_none()
            && self.min_leader_epoch.is_none()
    }
}

/// Kafka's kinds of configuration resources that are stored here, with their wire numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceKind {
    /// 2: a topic, by name.
    Topic,
    /// 4: a broker by id, or every broker under the empty name.
    Broker,
    /// 64: a mirror, by name.
    Mirror,
}

impl ResourceKind {
    /// The number on the wire.
    pub fn code(self) -> i8 {
        match self {
            Self::Topic => 2,
            Self::Broker => 4,
            Self::Mirror => 64,
        }
    }

    /// The kind with this number, if it is one whose configuration is stored here.
    pub fn from_code(code: i8) -> Option<Self> {
        match code {
            2 => Some(Self::Topic),
            4 => Some(Self::Broker),
            64 => Some(Self::Mirror),
            _ => None,
        }
    }
}

/// One key of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigRecord {
    /// What kind of resource.
    pub resource: ResourceKind,
    /// The resource's name; empty for the default of all brokers.
    pub name: String,
    /// The configuration key.
    pub key: String,
    /// The value; `None` removes the key.
    pub value: Option<String>,
}

/// A block of producer ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerIds {
    /// Who got the block.
    pub broker: NodeId,
    /// Under which registration.
    pub broker_epoch: BrokerEpoch,
    /// The first id no block holds yet.
    pub next_producer_id: ProducerId,
}

/// The source cluster a mirror copies from, learned once and kept (D5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorSourceClusterId {
    /// The mirror.
    pub mirror: MirrorName,
    /// The source's cluster id.
    pub cluster_id: String,
}

/// What an operator can want of a mirror topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MirrorDesired {
    /// Copy from the source.
    Active,
    /// Copy nothing, stay read-only.
    Paused,
    /// Fail over: end the copy and take writes.
    Stopped,
}

/// The desired state of a topic in a mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorTopicState {
    /// The topic.
    pub topic_id: TopicId,
    /// The mirror.
    pub mirror: MirrorName,
    /// What is wanted.
    pub desired: MirrorDesired,
    /// The topic existed here before the mirror took it, so its log may hold local records (D7).
    pub adopted: bool,
}

/// The end of a topic's association with a mirror; its partitions take writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorTopicRemoved {
    /// The topic.
    pub topic_id: TopicId,
}

/// A partition whose failover is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorPartitionStopped {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition's index in it.
    pub partition: PartitionIndex,
    /// The stop, kept after a later start for the truncation point (D7).
    pub stop: MirrorStop,
}

/// What is known of the end of one mirroring of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorStop {
    /// The mirror that ended.
    pub mirror: MirrorName,
    /// The leader epoch of the leader that reported it; [`LeaderEpoch::NONE`] for a partition that
    /// was added to a stopped topic and counts as stopped without ever having been mirrored.
    pub leader_epoch: LeaderEpoch,
    /// The epoch of the last mirrored batch; [`LeaderEpoch::NONE`] for an empty log.
    pub last_mirror_epoch: LeaderEpoch,
    /// The offset of the last mirrored record; −1 for none, [`mirror::NEVER_COMPARED`] if the log
    /// was never compared.
    pub last_mirrored_offset: Offset,
}

impl MirrorStop {
    /// Whether a mirroring ended here: the partition was not just added to a stopped topic, and
    /// its log had been compared with the source's.
    pub fn was_mirrored(&self) -> bool {
        self.leader_epoch != LeaderEpoch::NONE
            && self.last_mirrored_offset != mirror::NEVER_COMPARED
    }
}

/// A stopped partition that a mirror started again; its last stop stays known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorPartitionStarted {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition's index in it.
    pub partition: PartitionIndex,
}

/// How discovery treats a topic name, before it looks at any pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Listing {
    /// Started by its literal name: exclude patterns do not touch it.
    Explicit,
    /// Deleted here or stopped by name: discovery leaves it alone.
    Excluded,
}

/// A topic name a mirror treats by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorTopicListing {
    /// The mirror.
    pub mirror: MirrorName,
    /// The topic's name on the source.
    pub topic: TopicName,
    /// The treatment; `None` leaves the name to the patterns again.
    pub listing: Option<Listing>,
}
