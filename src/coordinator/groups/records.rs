//! Groups and offsets as records of `__consumer_offsets` and back, in Kafka's own forms. Owns the
//! record types; never decides what is written.
//!
//! Types 0 and 1 are an offset (0 an older form), type 2 a group. Others belong to protocols that
//! are not served here.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::ids::TimestampMs;
use protocol::messages::group_metadata_value::MemberMetadata;
use protocol::messages::{
    GroupMetadataKey, GroupMetadataValue, Message, OffsetCommitKey, OffsetCommitValue,
};

use super::group::{Committed, Group, GroupState, Member, Waiting};
use crate::machine::{Record, ReplayError};
use crate::record_form;

/// An offset in the form of Kafka before 0.9; the key's layout is the same.
const OLD_OFFSET: i16 = 0;
const OFFSET: i16 = 1;
const GROUP: i16 = 2;

const KEY_VERSION: i16 = 0;

/// The record of one committed offset.
pub(super) fn offset(group: &str, topic: &str, partition: i32, committed: &Committed) -> Record {
    let value = OffsetCommitValue {
        offset: committed.offset,
        leader_epoch: committed.leader_epoch,
        metadata: committed.metadata.clone(),
        commit_timestamp: committed.commit_timestamp,
        topic_id: committed.topic_id,
        ..OffsetCommitValue::default()
    };
    let version = *OffsetCommitValue::VERSIONS.end();
    Record {
        key: offset_key(group, topic, partition),
        value: Some(record_form::value(version, &value)),
    }
}

/// What deletes a committed offset.
pub(super) fn offset_tombstone(group: &str, topic: &str, partition: i32) -> Record {
    Record { key: offset_key(group, topic, partition), value: None }
}

fn offset_key(group: &str, topic: &str, partition: i32) -> Bytes {
    let key = OffsetCommitKey { group: group.to_owned(), topic: topic.to_owned(), partition };
    record_form::key(OFFSET, KEY_VERSION, &key)
}

/// The record of a group's generation with these assignments.
pub(super) fn group(group: &Group, assignments: &BTreeMap<String, Bytes>) -> Record {
    let protocol = group.protocol.as_deref().unwrap_or_default();
    let members = group
        .members
        .values()
        .map(|member| MemberMetadata {
            member_id: member.id.clone(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout: member.rebalance_timeout_ms,
            session_timeout: member.session_timeout_ms,
            subscription: member.metadata(protocol),
            assignment: assignments.get(&member.id).cloned().unwrap_or_default(),
        })
        .collect();
    let value = GroupMetadataValue {
        protocol_type: group.protocol_type.clone().unwrap_or_default(),
        generation: group.generation,
        protocol: group.protocol.clone(),
        leader: group.leader.clone(),
        current_state_timestamp: group.state_since.0,
        members,
    };
    let key = GroupMetadataKey { group: group.id.clone() };
    let version = *GroupMetadataValue::VERSIONS.end();
    Record {
        key: record_form::key(GROUP, KEY_VERSION, &key),
        value: Some(record_form::value(version, &value)),
    }
}

/// Takes one record into the groups.
pub(super) fn replay(
    groups: &mut BTreeMap<String, Group>,
    key: &Bytes,
    value: Option<&Bytes>,
) -> Result<(), ReplayError> {
    let (record_type, fields) = record_form::split(key);
    match record_type {
        OLD_OFFSET | OFFSET => {
            let key: OffsetCommitKey = record_form::read(record_type, KEY_VERSION, fields)?;
            let value =
                value.map(|value| record_form::read_value(record_type, value)).transpose()?;
            replay_offset(groups, key, value);
            Ok(())
        }
        GROUP => {
            let key: GroupMetadataKey = record_form::read(record_type, KEY_VERSION, fields)?;
            let value =
                value.map(|value| record_form::read_value(record_type, value)).transpose()?;
            replay_group(groups, &key.group, value);
            Ok(())
        }
        _ => Err(ReplayError::UnknownType { record_type }),
    }
}

fn replay_offset(
    groups: &mut BTreeMap<String, Group>,
    key: OffsetCommitKey,
    value: Option<OffsetCommitValue>,
) {
    let place = (key.topic, key.partition);
    match value {
        Some(value) => {
            let group = groups
                .entry(key.group.clone())
                .or_insert_with(|| Group::new(&key.group, TimestampMs(value.commit_timestamp)));
            let committed = Committed {
                offset: value.offset,
                leader_epoch: value.leader_epoch,
                metadata: value.metadata,
                commit_timestamp: value.commit_timestamp,
                topic_id: value.topic_id,
            };
            group.offsets.insert(place, committed);
        }
        None => {
            if let Some(group) = groups.get_mut(&key.group) {
                group.offsets.remove(&place);
                if group.is_pristine() {
                    groups.remove(&key.group);
                }
            }
        }
    }
}

fn replay_group(
    groups: &mut BTreeMap<String, Group>,
    group_id: &str,
    value: Option<GroupMetadataValue>,
) {
    let Some(value) = value else {
        // The group is gone; offsets that follow it have tombstones of their own.
        if let Some(group) = groups.remove(group_id)
            && !group.offsets.is_empty()
        {
            let offsets = group.offsets;
            let group = Group { offsets, ..Group::new(group_id, group.state_since) };
            groups.insert(group_id.to_owned(), group);
        }
        return;
    };
    let since = TimestampMs(value.current_state_timestamp);
    let offsets = groups.remove(group_id).map(|group| group.offsets).unwrap_or_default();
    let mut group = Group { offsets, ..Group::new(group_id, since) };
    for member in value.members {
        group.members.insert(member.member_id.clone(), loaded(member, value.protocol.as_ref()));
    }
    group.static_members = group
        .members
        .values()
        .filter_map(|member| Some((member.instance_id.clone()?, member.id.clone())))
        .collect();
    if !group.members.is_empty() {
        group.state = GroupState::Stable { unsynced: std::collections::BTreeSet::new() };
    }
    group.generation = value.generation;
    group.protocol_type = Some(value.protocol_type).filter(|kind| !kind.is_empty());
    group.protocol = value.protocol;
    group.leader = value.leader;
    groups.insert(group_id.to_owned(), group);
}

fn loaded(member: MemberMetadata, protocol: Option<&String>) -> Member {
    let rebalance_timeout_ms = if member.rebalance_timeout < 0 {
        member.session_timeout
    } else {
        member.rebalance_timeout
    };
    Member {
        id: member.member_id,
        instance_id: member.group_instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
        rebalance_timeout_ms,
        session_timeout_ms: member.session_timeout,
        protocols: vec![(protocol.cloned().unwrap_or_default(), member.subscription)],
        assignment: member.assignment,
        is_new: false,
        waiting: Waiting::Nothing,
    }
}
