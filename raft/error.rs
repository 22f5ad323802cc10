//! Why a decision refuses a request, and why a record cannot be replayed.
//!
//! Owns the one mapping from a refusal to a code of the wire. Never logs and never retries.

use protocol::error_code::{ErrorCode, MirrorErrorCode};
use protocol::ids::{
    BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicId, TopicName,
};

use crate::mirror_name::MirrorName;

/// Why a request is refused. Every one is an answer to the client: nothing is retried here and
/// nothing stops. The text is the message of the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A broker spoke under an epoch that is not its registration's.
    #[error("broker {broker} spoke at epoch {request}, but is registered at {current}")]
    StaleBrokerEpoch { broker: NodeId, request: BrokerEpoch, current: BrokerEpoch },
    /// No broker is registered under this id.
    #[error("broker {broker} is not registered")]
    UnknownBroker { broker: NodeId },
    /// Another live broker has this id.
    #[error(
        "another broker with id {broker} is alive on directory {registered}; the one that asks \
         runs on {request}"
    )]
    DuplicateBroker {
        broker: NodeId,
        registered: protocol::ids::DirectoryId,
        request: protocol::ids::DirectoryId,
    },
    /// A cluster id that is not ours, or not the one a mirror knows.
    #[error("expected cluster id {expected}, but got {actual}")]
    InconsistentClusterId { expected: String, actual: String },
    /// A registration that cannot be right.
    #[error("{reason}")]
    InvalidRegistration { reason: String },
    /// No topic of this name.
    #[error("The topic '{topic}' does not exist.")]
    UnknownTopic { topic: String },
    /// No topic with this id.
    #[error("No topic has the id {topic_id}.")]
    UnknownTopicId { topic_id: TopicId },
    /// No such partition.
    #[error("Topic '{topic}' has no partition {partition}.")]
    UnknownPartition { topic: TopicName, partition: PartitionIndex },
    /// The name is taken.
    #[error("Topic '{topic}' already exists.")]
    TopicExists { topic: String },
    /// The id is taken by another name.
    #[error("The topic id {topic_id} is already used by topic '{used_by}'.")]
    TopicIdInUse { topic_id: TopicId, used_by: TopicName },
    /// The name exists here under another id.
    #[error(
        "Topic '{topic}' exists here with id {here}, but the source's has id {source_id}. Delete \
         the topic here, or mirror it to another cluster."
    )]
    InconsistentTopicId { topic: String, here: TopicId, source_id: TopicId },
    /// A name that no topic can have.
    #[error("{reason}")]
    InvalidTopic { reason: String },
    /// A partition count that is not possible.
    #[error("{reason}")]
    InvalidPartitions { reason: String },
    /// A replication factor that is not possible now.
    #[error("{reason}")]
    InvalidReplicationFactor { reason: String },
    /// A manual assignment that is not possible.
    #[error("{reason}")]
    InvalidReplicaAssignment { reason: String },
    /// A configuration key or value that is refused.
    #[error("{reason}")]
    InvalidConfig { reason: String },
    /// A request that makes no sense.
    #[error("{reason}")]
    InvalidRequest { reason: String },
    /// A client's command on a topic that a mirror feeds.
    #[error(
        "Topic '{topic}' belongs to mirror '{mirror}' and is {state}: {command} is refused until \
         it is stopped there."
    )]
    MirrorTopic {
        topic: TopicName,
        mirror: MirrorName,
        state: &'static str,
        command: &'static str,
    },
    /// A topic the cluster needs for itself.
    #[error("Topic '{topic}' is needed while mirrors exist.")]
    TopicNeeded { topic: TopicName },
    /// The request knows more than this controller does.
    #[error("epoch {request} is ahead of {current}, which is all this controller knows")]
    AheadOfController { request: i32, current: i32 },
    /// The leader that asks was replaced.
    #[error("leader epoch {request} is behind {current}")]
    FencedLeaderEpoch { request: LeaderEpoch, current: LeaderEpoch },
    /// The partition changed since the leader looked.
    #[error("partition epoch {request} is behind {current}")]
    InvalidUpdateVersion { request: PartitionEpoch, current: PartitionEpoch },
    /// A replica that may not be in sync now.
    #[error("replicas {replicas:?} are fenced, shutting down, or registered again since")]
    IneligibleReplica { replicas: Vec<NodeId> },
    /// A feature level that is not finalized.
    #[error("{feature} must be at level {needed} or above, but is at {level}")]
    FeatureLevel { feature: &'static str, needed: i16, level: i16 },
    /// A mirror's name that breaks the rules.
    #[error("{reason}")]
    InvalidMirrorName { reason: String },
    /// The mirror's name is taken.
    #[error("Mirror '{mirror}' already exists.")]
    MirrorExists { mirror: String },
    /// No such mirror.
    #[error("Mirror '{mirror}' not found or has no configuration.")]
    UnknownMirror { mirror: String },
    /// Another mirror feeds the topic.
    #[error("Topic '{topic}' is {state} in mirror '{mirror}'. It must be stopped there first.")]
    TopicAlreadyInMirror { topic: TopicName, mirror: MirrorName, state: &'static str },
    /// The topic is not in this mirror.
    #[error("Topic '{topic}' does not belong to mirror '{mirror}'.")]
    TopicNotInMirror { topic: TopicName, mirror: String },
    /// A partition is in a state that does not allow the command.
    #[error("Partition {partition} of topic '{topic}' is {state}: {remedy}.")]
    InvalidMirrorStates {
        topic: TopicName,
        partition: PartitionIndex,
        state: &'static str,
        remedy: &'static str,
    },
    /// All producer ids are given out.
    #[error("no producer ids are left after {last}")]
    ProducerIdsExhausted { last: i64 },
}

impl Error {
    /// The code of the answer. Codes of mirroring stand only in answers of keys 94 to 105.
    pub fn code(&self) -> i16 {
        match self {
            Self::StaleBrokerEpoch { .. } => ErrorCode::StaleBrokerEpoch.code(),
            Self::UnknownBroker { .. } => ErrorCode::BrokerIdNotRegistered.code(),
            Self::DuplicateBroker { .. } => ErrorCode::DuplicateBrokerRegistration.code(),
            Self::InconsistentClusterId { .. } => ErrorCode::InconsistentClusterId.code(),
            Self::InvalidRegistration { .. } => ErrorCode::InvalidRegistration.code(),
            Self::UnknownTopic { .. } | Self::UnknownPartition { .. } => {
                ErrorCode::UnknownTopicOrPartition.code()
            }
            Self::UnknownTopicId { .. } => ErrorCode::UnknownTopicId.code(),
            Self::TopicExists { .. } | Self::TopicIdInUse { .. } => {
                ErrorCode::TopicAlreadyExists.code()
            }
            Self::InconsistentTopicId { .. } => ErrorCode::InconsistentTopicId.code(),
            Self::InvalidTopic { .. } => ErrorCode::InvalidTopicException.code(),
            Self::InvalidPartitions { .. } => ErrorCode::InvalidPartitions.code(),
            Self::InvalidReplicationFactor { .. } => ErrorCode::InvalidReplicationFactor.code(),
            Self::InvalidReplicaAssignment { .. } => ErrorCode::InvalidReplicaAssignment.code(),
            Self::InvalidConfig { .. } => ErrorCode::InvalidConfig.code(),
            Self::InvalidRequest { .. } => ErrorCode::InvalidRequest.code(),
            Self::MirrorTopic { .. } | Self::TopicNeeded { .. } => {
                ErrorCode::PolicyViolation.code()
            }
            Self::AheadOfController { .. } => ErrorCode::NotController.code(),
            Self::FencedLeaderEpoch { .. } => ErrorCode::FencedLeaderEpoch.code(),
            Self::InvalidUpdateVersion { .. } => ErrorCode::InvalidUpdateVersion.code(),
            Self::IneligibleReplica { .. } => ErrorCode::IneligibleReplica.code(),
            Self::FeatureLevel { .. } => ErrorCode::UnsupportedVersion.code(),
            Self::InvalidMirrorName { .. } => MirrorErrorCode::InvalidMirrorName.code(),
            Self::MirrorExists { .. } => MirrorErrorCode::MirrorAlreadyExists.code(),
            Self::UnknownMirror { .. } => MirrorErrorCode::UnknownMirror.code(),
            Self::TopicAlreadyInMirror { .. } => MirrorErrorCode::TopicAlreadyInMirror.code(),
            Self::TopicNotInMirror { .. } => MirrorErrorCode::TopicNotInMirror.code(),
            Self::InvalidMirrorStates { .. } => MirrorErrorCode::InvalidMirrorStates.code(),
            Self::ProducerIdsExhausted { .. } => ErrorCode::UnknownServerError.code(),
        }
    }
}

/// A record that does not fit the image it is replayed on. Deterministic: every replica of the log
/// meets it at the same place, so the node stops and says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The broker is not registered.
    #[error("the log changes broker {broker}, which is not registered")]
    UnknownBroker {
        /// The broker.
        broker: NodeId,
    },
    /// The record is about an older registration.
    #[error("the log changes broker {broker} at epoch {record}, but it is registered at {image}")]
    BrokerEpoch {
        /// The broker.
        broker: NodeId,
        /// The epoch in the record.
        record: BrokerEpoch,
        /// The epoch in the image.
        image: BrokerEpoch,
    },
    /// The topic does not exist.
    #[error("the log changes topic {topic_id}, which does not exist")]
    UnknownTopic {
        /// The topic.
        topic_id: TopicId,
    },
    /// The topic exists already.
    #[error("the log creates topic {topic_id}, which exists")]
    TopicExists {
        /// The topic.
        topic_id: TopicId,
    },
    /// The partition does not exist.
    #[error("the log changes partition {partition} of topic {topic_id}, which does not exist")]
    UnknownPartition {
        /// The topic.
        topic_id: TopicId,
        /// The partition.
        partition: PartitionIndex,
    },
}
