//! OffsetCommit (versions 2 to 10) and OffsetFetch (1 to 10). Owns topic names and ids, and the
//! way to the coordinators; who may commit is the coordinator's machine.
//!
//! From version 10 on both name topics by id. A topic that does not exist is answered here, with
//! UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION, and the others go on without it.

use std::collections::BTreeMap;

use coordinator::groups::offset_fetch::{groups_of, refused, response_of};
use coordinator::{GroupCommand, GroupResponse};
use futures_util::future::join_all;
use protocol::error_code::ErrorCode;
use protocol::ids::TopicId;
use protocol::messages::offset_commit_request::OffsetCommitRequestTopic;
use protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
};
use raft::MetadataImage;

use super::{CALL_DEADLINE, ask};
use crate::connection::context::RequestContext;

/// The first version of both that names topics by id.
const TOPIC_IDS_VERSION: i16 = 10;

/// Serves OffsetCommit.
pub async fn commit(
    context: &RequestContext,
    mut request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let image = context.directory.image();
    let by_id = context.version >= TOPIC_IDS_VERSION;
    let unknown =
        if by_id { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition };
    // What is answered here, by its place in the request.
    let mut answered: BTreeMap<usize, OffsetCommitResponseTopic> = BTreeMap::new();
    let mut known = Vec::with_capacity(request.topics.len());
    for (place, mut topic) in std::mem::take(&mut request.topics).into_iter().enumerate() {
        if complete(&image, by_id, &mut topic) {
            known.push(topic);
        } else {
            answered.insert(place, refuse_topic(&topic, unknown));
        }
    }
    let mut coordinated = Vec::new();
    if !known.is_empty() {
        request.topics.clone_from(&known);
        let group_id = request.group_id.clone();
        let deadline = context.directory.config.groups.offsets_commit_timeout;
        let command = GroupCommand::CommitOffsets(request);
        coordinated = match ask(context, &group_id, command, deadline).await {
            Ok(GroupResponse::CommitOffsets(response)) => response.topics,
            Ok(_) => refuse_all(&known, ErrorCode::UnknownServerError),
            Err(code) => refuse_all(&known, code),
        };
    }
    let mut topics = Vec::with_capacity(coordinated.len() + answered.len());
    let mut coordinated = coordinated.into_iter();
    loop {
        let next = answered.remove(&topics.len()).or_else(|| coordinated.next());
        match next {
            Some(topic) => topics.push(topic),
            None => break,
        }
    }
    OffsetCommitResponse { topics, ..OffsetCommitResponse::default() }
}

/// Gives a topic the one of name and id that the request does not carry. False for a topic that
/// does not exist.
fn complete(image: &MetadataImage, by_id: bool, topic: &mut OffsetCommitRequestTopic) -> bool {
    if by_id {
        let Some(name) = image.topics.name_of(TopicId(topic.topic_id)) else {
            return false;
        };
        topic.name = name.to_string();
    } else {
        let Some(id) = image.topics.id_of(&topic.name) else {
            return false;
        };
        topic.topic_id = id.0;
    }
    true
}

fn refuse_all(
    topics: &[OffsetCommitRequestTopic],
    code: ErrorCode,
) -> Vec<OffsetCommitResponseTopic> {
    topics.iter().map(|topic| refuse_topic(topic, code)).collect()
}

fn refuse_topic(topic: &OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic {
    let partitions = topic.partitions.iter().map(|partition| OffsetCommitResponsePartition {
        partition_index: partition.partition_index,
        error_code: code.code(),
    });
    OffsetCommitResponseTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: partitions.collect(),
    }
}

/// Serves OffsetFetch.
pub async fn fetch(context: &RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let groups = groups_of(request, context.version);
    let answers = groups.into_iter().map(|group| fetch_group(context, group));
    response_of(join_all(answers).await, context.version)
}

async fn fetch_group(
    context: &RequestContext,
    mut group: OffsetFetchRequestGroup,
) -> OffsetFetchResponseGroup {
    let image = context.directory.image();
    let by_id = context.version >= TOPIC_IDS_VERSION;
    let mut unknown = Vec::new();
    if by_id && let Some(topics) = &mut group.topics {
        topics.retain_mut(|topic| match image.topics.name_of(TopicId(topic.topic_id)) {
            Some(name) => {
                topic.name = name.to_string();
                true
            }
            None => {
                unknown.push(unknown_topic(topic));
                false
            }
        });
    }
    let command = GroupCommand::FetchOffsets(group.clone());
    let answer = match ask(context, &group.group_id, command, CALL_DEADLINE).await {
        Ok(GroupResponse::FetchOffsets(answer)) => answer,
        Ok(_) => refused(&group, ErrorCode::UnknownServerError),
        Err(code) => refused(&group, code),
    };
    let OffsetFetchResponseGroup { group_id, mut topics, error_code } = answer;
    if by_id {
        // Offsets of a topic that is gone cannot be named.
        topics.retain_mut(|topic| match image.topics.id_of(&topic.name) {
            Some(id) => {
                topic.topic_id = id.0;
                true
            }
            None => false,
        });
        topics.extend(unknown);
    }
    OffsetFetchResponseGroup { group_id, topics, error_code }
}

fn unknown_topic(topic: &OffsetFetchRequestTopics) -> OffsetFetchResponseTopics {
    let partitions = topic.partition_indexes.iter().map(|index| OffsetFetchResponsePartitions {
        partition_index: *index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(String::new()),
        error_code: ErrorCode::UnknownTopicId.code(),
    });
    OffsetFetchResponseTopics {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: partitions.collect(),
    }
}
