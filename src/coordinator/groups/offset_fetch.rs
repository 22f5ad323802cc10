//! OffsetFetch, versions 1 to 10: one group in a request up to version 7, many from version 8 on
//! (KIP-709). Owns the answer of one group, and the two ways between requests and groups;
//! sending a group to its coordinator is the caller's.
//!
//! RequireStable changes nothing while no transaction can hold a pending commit.

use protocol::error_code::ErrorCode;
use protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use protocol::messages::{OffsetFetchRequest, OffsetFetchResponse};
use uuid::Uuid;

use super::GroupMachine;
use super::group::Committed;

/// The first version with many groups.
pub const MANY_GROUPS_VERSION: i16 = 8;

/// The first version with a code for the whole group.
const GROUP_CODE_VERSION: i16 = 2;

/// The groups of a request, each to be sent to its coordinator.
#[must_use]
pub fn groups_of(request: OffsetFetchRequest, api_version: i16) -> Vec<OffsetFetchRequestGroup> {
    if api_version >= MANY_GROUPS_VERSION {
        return request.groups;
    }
    let topics = request.topics.map(|topics| {
        topics
            .into_iter()
            .map(|topic| OffsetFetchRequestTopics {
                name: topic.name,
                topic_id: Uuid::nil(),
                partition_indexes: topic.partition_indexes,
            })
            .collect()
    });
    vec![OffsetFetchRequestGroup {
        group_id: request.group_id,
        topics,
        ..OffsetFetchRequestGroup::default()
    }]
}

/// The response of its groups' answers.
#[must_use]
pub fn response_of(
    groups: Vec<OffsetFetchResponseGroup>,
    api_version: i16,
) -> OffsetFetchResponse {
    if api_version >= MANY_GROUPS_VERSION {
        return OffsetFetchResponse { groups, ..OffsetFetchResponse::default() };
    }
    let group = groups.into_iter().next().unwrap_or_default();
    let code = group.error_code;
    let topics = group
        .topics
        .into_iter()
        .map(|topic| OffsetFetchResponseTopic {
            name: topic.name,
            partitions: topic
                .partitions
                .into_iter()
                .map(|partition| OffsetFetchResponsePartition {
                    partition_index: partition.partition_index,
                    committed_offset: partition.committed_offset,
                    committed_leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.metadata,
                    // Version 1 can say only in each partition what is wrong with the group.
                    error_code: if api_version < GROUP_CODE_VERSION && code != 0 {
                        code
                    } else {
                        partition.error_code
                    },
                })
                .collect(),
        })
        .collect();
    OffsetFetchResponse { topics, error_code: code, ..OffsetFetchResponse::default() }
}

/// The answer for a group that this broker cannot ask: every asked partition without an offset.
#[must_use]
pub fn refused(group: &OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup {
    let topics = group
        .topics
        .iter()
        .flatten()
        .map(|topic| OffsetFetchResponseTopics {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic.partition_indexes.iter().map(|index| found(*index, None)).collect(),
        })
        .collect();
    OffsetFetchResponseGroup { group_id: group.group_id.clone(), topics, error_code: code.code() }
}

fn found(partition: i32, committed: Option<&Committed>) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: partition,
        committed_offset: committed.map_or(-1, |committed| committed.offset),
        committed_leader_epoch: committed.map_or(-1, |committed| committed.leader_epoch),
        metadata: Some(committed.map_or_else(String::new, |committed| committed.metadata.clone())),
        error_code: 0,
    }
}

impl GroupMachine {
    pub(super) fn fetch_offsets(
        &self,
        request: &OffsetFetchRequestGroup,
    ) -> OffsetFetchResponseGroup {
        let Some(group) = self.groups.get(&request.group_id) else {
            return refused(request, ErrorCode::None);
        };
        let Some(asked) = &request.topics else {
            let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
            for ((topic, partition), committed) in &group.offsets {
                if topics.last().is_none_or(|last| &last.name != topic) {
                    topics.push(OffsetFetchResponseTopics {
                        name: topic.clone(),
                        topic_id: committed.topic_id,
                        partitions: Vec::new(),
                    });
                }
                if let Some(last) = topics.last_mut() {
                    last.partitions.push(found(*partition, Some(committed)));
                }
            }
            return OffsetFetchResponseGroup {
                group_id: request.group_id.clone(),
                topics,
                error_code: 0,
            };
        };
        let topics = asked
            .iter()
            .map(|topic| OffsetFetchResponseTopics {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                partitions: topic
                    .partition_indexes
                    .iter()
                    .map(|index| found(*index, group.offsets.get(&(topic.name.clone(), *index))))
                    .collect(),
            })
            .collect();
        OffsetFetchResponseGroup { group_id: request.group_id.clone(), topics, error_code: 0 }
    }
}
