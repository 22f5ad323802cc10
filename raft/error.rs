//! Why a decision refuses a request, and why a record cannot be replayed.
//!
//! Owns the one mapping from a refusal to a code of the wire. Never logs and never retries.

use protocol::ids::{BrokerEpoch, NodeId, PartitionIndex, TopicId};

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
