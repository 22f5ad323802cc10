//! DescribeTopicPartitions: topics with their partitions, in order of name, page by page. A cursor
//! names the first partition of the next page, whether its topic still exists or not.

use std::collections::BTreeSet;

use protocol::error_code::ErrorCode;
use protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use protocol::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use raft::{MetadataImage, TopicImage};

use super::context::RequestContext;
use super::listener_view::{ListenerView, TOPIC_OPERATIONS};
use super::produce::is_internal;

/// Most partitions of one page, whatever the client would take.
const PARTITIONS_MAX: usize = 2_000;

/// Answers DescribeTopicPartitions.
pub fn describe_topic_partitions(
    context: &RequestContext,
    request: &DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let image = context.directory.image();
    describe(&image, &context.listener_name, request)
}

fn describe(
    image: &MetadataImage,
    listener: &str,
    request: &DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let all = request.topics.is_empty();
    let from = request.cursor.as_ref().map(|cursor| cursor.topic_name.as_str());
    let names: BTreeSet<&str> = if all {
        image.topics.names().map(|name| name.as_str()).collect()
    } else {
        request.topics.iter().map(|topic| topic.name.as_str()).collect()
    };
    if request.cursor.as_ref().is_some_and(|cursor| cursor.partition_index < 0) {
        return unreadable(&names);
    }
    let view = ListenerView::new(image, listener);
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let mut left = limit.clamp(1, PARTITIONS_MAX);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names.into_iter().filter(|name| from.is_none_or(|from| *name >= from)) {
        if left == 0 {
            response.next_cursor = Some(cursor(name, 0));
            break;
        }
        let Some(topic) = image.topics.by_name(name) else {
            response.topics.push(unknown(name));
            continue;
        };
        let first = match &request.cursor {
            Some(cursor) if cursor.topic_name == name => cursor.partition_index,
            Some(_) | None => 0,
        };
        let told = page(view, topic, first, left);
        left -= told.partitions.len();
        let next = first + i32::try_from(told.partitions.len()).unwrap_or(i32::MAX);
        response.topics.push(told);
        if next < topic.partition_count() {
            response.next_cursor = Some(cursor(name, next));
            break;
        }
    }
    response
}

fn page(
    view: ListenerView<'_>,
    topic: &TopicImage,
    first: i32,
    limit: usize,
) -> DescribeTopicPartitionsResponseTopic {
    let partitions = topic.partitions.iter().filter(|(index, _)| index.0 >= first).take(limit);
    let partitions = partitions.map(|(index, partition)| {
        let told = view.partition(*index, partition);
        DescribeTopicPartitionsResponsePartition {
            error_code: told.error.code(),
            partition_index: told.index,
            leader_id: told.leader_id,
            leader_epoch: told.leader_epoch,
            replica_nodes: told.replicas,
            isr_nodes: told.isr,
            // Eligible leader replicas (KIP-966) are not kept: the feature's level is 0.
            eligible_leader_replicas: Some(Vec::new()),
            last_known_elr: Some(Vec::new()),
            offline_replicas: told.offline,
        }
    });
    DescribeTopicPartitionsResponseTopic {
        name: Some(topic.name.to_string()),
        topic_id: topic.id.0,
        is_internal: is_internal(&topic.name),
        partitions: partitions.collect(),
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn unknown(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let code = match raft::name_fault(name) {
        Some(_) => ErrorCode::InvalidTopicException,
        None => ErrorCode::UnknownTopicOrPartition,
    };
    failed(name, code)
}

fn failed(name: &str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        error_code: code.code(),
        name: Some(name.to_owned()),
        is_internal: is_internal(name),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn unreadable(names: &BTreeSet<&str>) -> DescribeTopicPartitionsResponse {
    let topics = names.iter().map(|name| failed(name, ErrorCode::InvalidRequest));
    DescribeTopicPartitionsResponse {
        topics: topics.collect(),
        ..DescribeTopicPartitionsResponse::default()
    }
}

fn cursor(topic: &str, partition_index: i32) -> Cursor {
    Cursor { topic_name: topic.to_owned(), partition_index }
}

#[cfg(test)]
mod tests {
    use protocol::ids::{LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicId, TopicName};
    use protocol::messages::describe_topic_partitions_request::{
        Cursor as RequestCursor, TopicRequest,
    };
    use raft::{MetadataRecord, PartitionRecord, TopicRecord};

    use super::*;

    fn image(topics: &[(&str, i32)]) -> MetadataImage {
        let mut image = MetadataImage::default();
        for (at, (name, partitions)) in (1u128..).zip(topics) {
            let topic_id = TopicId(uuid::Uuid::from_u128(at));
            let topic = TopicRecord { name: TopicName::from(*name), topic_id };
            image.replay(&MetadataRecord::Topic(topic)).unwrap();
            for partition in 0..*partitions {
                let record = PartitionRecord {
                    topic_id,
                    partition: PartitionIndex(partition),
                    replicas: vec![NodeId(1)],
                    isr: vec![NodeId(1)],
                    leader: Some(NodeId(1)),
                    leader_epoch: LeaderEpoch(0),
                    partition_epoch: PartitionEpoch(0),
                };
                image.replay(&MetadataRecord::Partition(record)).unwrap();
            }
        }
        image
    }

    /// Pages as (topics with the indexes told, next cursor).
    fn pages(image: &MetadataImage, names: &[&str], limit: i32) -> Vec<Vec<(String, Vec<i32>)>> {
        let mut pages = Vec::new();
        let mut cursor = None;
        loop {
            let request = DescribeTopicPartitionsRequest {
                topics: names
                    .iter()
                    .map(|name| TopicRequest { name: (*name).to_owned() })
                    .collect(),
                response_partition_limit: limit,
                cursor: cursor.take(),
            };
            let response = describe(image, "PLAINTEXT", &request);
            let told = response.topics.into_iter().map(|topic| {
                let indexes = topic.partitions.iter().map(|p| p.partition_index).collect();
                (topic.name.unwrap(), indexes)
            });
            pages.push(told.collect());
            match response.next_cursor {
                Some(next) => {
                    cursor = Some(RequestCursor {
                        topic_name: next.topic_name,
                        partition_index: next.partition_index,
                    });
                }
                None => return pages,
            }
        }
    }

    #[test]
    fn pages_hold_every_partition_once() {
        let image = image(&[("b", 3), ("a", 2), ("c", 1)]);
        let told = pages(&image, &[], 2);
        let of = |name: &str, indexes: &[i32]| (name.to_owned(), indexes.to_vec());
        assert_eq!(
            told,
            [vec![of("a", &[0, 1])], vec![of("b", &[0, 1])], vec![of("b", &[2]), of("c", &[0])]]
        );
    }

    #[test]
    fn unknown_topics_are_told_when_they_are_named() {
        let image = image(&[("a", 1)]);
        let request = DescribeTopicPartitionsRequest {
            topics: vec![
                TopicRequest { name: "no".to_owned() },
                TopicRequest { name: "not a name".to_owned() },
            ],
            ..DescribeTopicPartitionsRequest::default()
        };
        let response = describe(&image, "PLAINTEXT", &request);
        let codes: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, [3, 17]);
    }
}
