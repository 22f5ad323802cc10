//! OffsetCommit, versions 2 to 10. Owns who may commit, and that an offset counts only once its
//! record is committed. The caller has checked topics and turned ids into names.

use std::collections::BTreeMap;

use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};

use super::group::{Committed, Group, GroupState};
use super::{Context, GroupMachine, GroupResponse, Pending, records};
use crate::machine::{Effects, RequestId, client_code};
use crate::record_form::KEY_STRING_BYTES_MAX;

/// A commit that is being appended.
#[derive(Debug)]
pub(super) struct Commit {
    response: OffsetCommitResponse,
    offsets: Vec<((String, i32), Committed)>,
}

impl Commit {
    /// The offsets it stores in this group.
    pub(super) fn names<'a>(
        &'a self,
        group_id: &'a String,
    ) -> impl Iterator<Item = (&'a String, &'a String, i32)> {
        self.offsets.iter().map(move |((topic, partition), _)| (group_id, topic, *partition))
    }

    /// The answer when the append ended with this code; offsets refused before keep theirs.
    pub(super) fn answer(self, code: ErrorCode) -> OffsetCommitResponse {
        let mut response = self.response;
        for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            if partition.error_code == 0 {
                partition.error_code = code.code();
            }
        }
        response
    }
}

impl GroupMachine {
    pub(super) fn on_commit(
        &mut self,
        now: TimestampMs,
        to: RequestId,
        request: OffsetCommitRequest,
    ) -> Effects<Self> {
        let (groups, mut cx) = self.split(now);
        let checked = match groups.get(&request.group_id) {
            _ if request.group_id.len() > KEY_STRING_BYTES_MAX => Err(ErrorCode::InvalidGroupId),
            Some(group) => group.check_commit(&request),
            // A consumer that assigns partitions to itself needs no group before its first
            // commit.
            None if request.generation_id_or_member_epoch < 0 => Ok(()),
            None => Err(ErrorCode::IllegalGeneration),
        };
        if let Err(code) = checked {
            let commit = Commit { response: accept_all(&request), offsets: Vec::new() };
            cx.reply(to, GroupResponse::CommitOffsets(commit.answer(code)));
            return cx.out;
        }
        let group_id = request.group_id.clone();
        let group = groups.entry(group_id.clone()).or_insert_with(|| Group::new(&group_id, now));
        if request.generation_id_or_member_epoch >= 0 {
            group.touch(&mut cx, &request.member_id);
        }
        let commit = take(&cx, request);
        if commit.offsets.is_empty() {
            cx.reply(to, GroupResponse::CommitOffsets(commit.response));
        } else {
            let records = commit
                .offsets
                .iter()
                .map(|((topic, partition), committed)| {
                    records::offset(&group_id, topic, *partition, committed)
                })
                .collect();
            let pending = Pending::Offsets { group_id: group_id.clone(), to, commit };
            cx.append(records, pending);
            return cx.out;
        }
        let effects = cx.out;
        self.drop_if_pristine(&group_id);
        effects
    }
}

fn accept_all(request: &OffsetCommitRequest) -> OffsetCommitResponse {
    let topics = request
        .topics
        .iter()
        .map(|topic| OffsetCommitResponseTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| OffsetCommitResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: 0,
                })
                .collect(),
        })
        .collect();
    OffsetCommitResponse { topics, ..OffsetCommitResponse::default() }
}

/// Sorts out the offsets to store; metadata that is too long is refused alone.
fn take(cx: &Context<'_>, request: OffsetCommitRequest) -> Commit {
    let mut response = accept_all(&request);
    let mut offsets = Vec::new();
    for (topic, answered) in request.topics.into_iter().zip(&mut response.topics) {
        for (partition, answered) in topic.partitions.into_iter().zip(&mut answered.partitions) {
            let metadata = partition.committed_metadata.unwrap_or_default();
            if metadata.len() > cx.config.offset_metadata_bytes_max {
                answered.error_code = ErrorCode::OffsetMetadataTooLarge.code();
            } else if topic.name.len() > KEY_STRING_BYTES_MAX {
                answered.error_code = ErrorCode::UnknownTopicOrPartition.code();
            } else {
                let committed = Committed {
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata,
                    commit_timestamp: cx.now.0,
                    topic_id: topic.topic_id,
                };
                offsets.push(((topic.name.clone(), partition.partition_index), committed));
            }
        }
    }
    Commit { response, offsets }
}

pub(super) fn on_appended(
    groups: &mut BTreeMap<String, Group>,
    cx: &mut Context<'_>,
    group_id: &str,
    to: RequestId,
    commit: Commit,
    result: Result<(), ErrorCode>,
) {
    let code = result.err().map_or(ErrorCode::None, commit_code);
    if code == ErrorCode::None {
        // What is in the log counts, even if the group was forgotten meanwhile.
        let group =
            groups.entry(group_id.to_owned()).or_insert_with(|| Group::new(group_id, cx.now));
        group.offsets.extend(commit.offsets.iter().cloned());
    }
    cx.reply(to, GroupResponse::CommitOffsets(commit.answer(code)));
}

/// As [`client_code`], but what is too large is the commit's own fault.
fn commit_code(code: ErrorCode) -> ErrorCode {
    if matches!(
        code,
        ErrorCode::RecordListTooLarge | ErrorCode::MessageTooLarge | ErrorCode::InvalidFetchSize
    ) {
        ErrorCode::InvalidCommitOffsetSize
    } else {
        client_code(code)
    }
}

impl Group {
    fn check_commit(&self, request: &OffsetCommitRequest) -> Result<(), ErrorCode> {
        let generation = request.generation_id_or_member_epoch;
        if generation < 0 && self.state == GroupState::Empty {
            return Ok(());
        }
        let instance_id = request.group_instance_id.as_deref();
        if generation < 0 && request.member_id.is_empty() && instance_id.is_none() {
            // Nobody may commit past the members of a group that has some.
            return Err(ErrorCode::UnknownMemberId);
        }
        self.check_generation(&request.member_id, instance_id, generation)?;
        match self.state {
            // The leader's assignment is not known, so what is committed may be another's.
            GroupState::CompletingRebalance { .. } => Err(ErrorCode::RebalanceInProgress),
            GroupState::Empty
            | GroupState::PreparingRebalance { .. }
            | GroupState::Stable { .. } => Ok(()),
        }
    }
}
