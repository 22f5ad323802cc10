//! One mirror on one node.
use mirror::epochs::EpochEnd;
use mirror::{SourceError, SourceFacts};
use protocol::ids::{LeaderEpoch, TopicIdPartition, TopicName};
use ractor::RpcReplyPort;
use raft::Settings;
use std::collections::BTreeMap;

use super::handle::{SourcePartition, TopicListing};

type Reply<T> = RpcReplyPort<Result<T, SourceError>>;

/// What a mirror can be told.
#[derive(Debug)]
pub enum MirrorMsg {
    /// See [`super::handle::MirrorHandle::ask_source`].
    AskSource {
        /// Which partition.
        partition: SourcePartition,
        /// The answer.
        reply: Reply<SourceFacts>,
    },
    /// See [`super::handle::MirrorHandle::ask_source_epoch_end`].
    AskSourceEpochEnd {
        /// Which partition.
        partition: SourcePartition,
        /// The epoch.
        epoch: LeaderEpoch,
        /// The answer.
        reply: Reply<Option<EpochEnd>>,
    },
    /// See [`super::handle::MirrorHandle::probe`].
    Probe {
        /// The answer.
        reply: Reply<()>,
    },
    /// See [`super::handle::MirrorHandle::start_fetching`].
    StartFetching {
        /// Which partition.
        partition: SourcePartition,
        /// The bound of every batch's epoch.
        leader_epoch: LeaderEpoch,
    },
    /// See [`super::handle::MirrorHandle::stop_fetching`].
    StopFetching {
        /// Which partition.
        partition: TopicIdPartition,
        /// Answered when nothing is under way.
        reply: RpcReplyPort<()>,
    },
    /// See [`super::handle::MirrorHandle::list_topics`].
    ListTopics {
        /// Which topics; all if `None`.
        names: Option<Vec<TopicName>>,
        /// The answer.
        reply: Reply<TopicListing>,
    },
    /// See [`super::handle::MirrorHandle::topic_configs`].
    TopicConfigs {
        /// Which topics.
        topics: Vec<TopicName>,
        /// The answer.
        reply: Reply<BTreeMap<TopicName, Settings>>,
    },
}
