//! Where a key is coordinated: the internal topic's partition, its leader, and this node's shard
//! of it. It asks no coordinator anything; it has the topic made when it is missing.

use std::sync::Arc;
use std::time::Duration;

use coordinator::partition_for;
use mirror::keys::coordinator_of_partition;
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{NodeId, PartitionIndex, TopicIdPartition};
use protocol::messages::CreateTopicsRequest;
use protocol::messages::create_topics_request::CreatableTopic;
use raft::{MetadataImage, PartitionImage};

use super::handle::{GroupShardHandle, MirrorStateShardHandle, ShardHandle};
use super::{ShardId, ShardKind};
use crate::controller::client::{self, Forwarding};
use crate::directory::Directory;

/// The partition of `__consumer_offsets` that coordinates a group; `None` before the topic exists.
pub fn group_partition(image: &MetadataImage, group_id: &str) -> Option<PartitionIndex> {
    let count = partition_count(image, ShardKind::Group)?;
    Some(partition_for(group_id, count))
}

/// The partition of `__mirror_state` that keeps the state of a mirror partition; `None` before the
/// topic exists.
pub fn mirror_partition(
    image: &MetadataImage,
    mirror: &str,
    at: TopicIdPartition,
) -> Option<PartitionIndex> {
    let count = partition_count(image, ShardKind::MirrorState)?;
    Some(coordinator_of_partition(mirror, at.topic_id, at.partition, count))
}

/// How many partitions the kind's topic has; `None` before it exists.
pub fn partition_count(image: &MetadataImage, kind: ShardKind) -> Option<i32> {
    image.topics.by_name(kind.topic()).map(|topic| topic.partition_count())
}

/// Which broker coordinates a shard's keys, if its partition has a leader.
pub fn leader(image: &MetadataImage, id: ShardId) -> Option<NodeId> {
    partition(image, id).and_then(|partition| partition.leader)
}

fn partition(image: &MetadataImage, id: ShardId) -> Option<&Arc<PartitionImage>> {
    image.topics.by_name(id.kind.topic())?.partitions.get(&id.partition)
}

/// This node's coordinator of a group.
///
/// # Errors
/// NOT_COORDINATOR when another node leads the group's partition, or none;
/// COORDINATOR_LOAD_IN_PROGRESS while the shard is being started.
pub fn group_shard(directory: &Directory, group_id: &str) -> Result<GroupShardHandle, ErrorCode> {
    let partition =
        group_partition(&directory.image(), group_id).ok_or(ErrorCode::NotCoordinator)?;
    let id = ShardId { kind: ShardKind::Group, partition };
    shard(directory, id)?.group().ok_or(ErrorCode::NotCoordinator)
}

/// This node's coordinator over one partition of `__mirror_state`.
///
/// # Errors
/// As [`group_shard`].
pub fn mirror_state_shard(
    directory: &Directory,
    partition: PartitionIndex,
) -> Result<MirrorStateShardHandle, ErrorCode> {
    let id = ShardId { kind: ShardKind::MirrorState, partition };
    shard(directory, id)?.mirror_state().ok_or(ErrorCode::NotCoordinator)
}

fn shard(directory: &Directory, id: ShardId) -> Result<ShardHandle, ErrorCode> {
    if let Some(shard) = directory.shard(id) {
        return Ok(shard);
    }
    if leader(&directory.image(), id) == Some(directory.node_id()) {
        Err(ErrorCode::CoordinatorLoadInProgress)
    } else {
        Err(ErrorCode::NotCoordinator)
    }
}

/// Has the kind's topic made if there is none, and waits until its partitions have leaders, at
/// most `deadline` long.
///
/// # Errors
/// COORDINATOR_NOT_AVAILABLE when that does not happen in time.
pub async fn ensure_topic(
    directory: &Arc<Directory>,
    kind: ShardKind,
    deadline: Duration,
) -> Result<(), ErrorCode> {
    let ready = |image: &MetadataImage| {
        image.topics.by_name(kind.topic()).is_some_and(|topic| {
            topic.partitions.values().all(|partition| partition.leader.is_some())
        })
    };
    if partition_count(&directory.image(), kind).is_some() {
        return Ok(());
    }
    let make = async {
        create_topic(directory, kind).await;
        directory.wait_for_image(deadline, ready).await
    };
    match tokio::time::timeout(deadline, make).await {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err(ErrorCode::CoordinatorNotAvailable),
    }
}

async fn create_topic(directory: &Arc<Directory>, kind: ShardKind) {
    // The controller knows the topic by its name and makes it as the settings say.
    let topic = CreatableTopic {
        name: kind.topic().to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    let answer =
        client::forward(directory, Forwarding::default(), &Request::CreateTopics(request)).await;
    let (code, why) = match answer {
        Ok(Response::CreateTopics(response)) => match response.topics.into_iter().next() {
            Some(topic) => (ErrorCode::from_code(topic.error_code), topic.error_message),
            None => (ErrorCode::UnknownServerError, None),
        },
        Ok(_) => (ErrorCode::UnknownServerError, None),
        Err(error) => (error.code(), Some(error.to_string())),
    };
    if code != ErrorCode::None && code != ErrorCode::TopicAlreadyExists {
        let why = why.unwrap_or_else(|| code.message().to_owned());
        tracing::warn!(topic = kind.topic(), ?code, why, "the internal topic was not created");
    }
}
