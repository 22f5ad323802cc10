//! The group coordinator of one partition of `__consumer_offsets`: the classic group protocol and
//! committed offsets. Owns the commands and the shard's books; each request has its own file.

mod group;
mod join;
mod listing;
mod membership;
pub mod offset_fetch;
mod offsets;
#[cfg(test)]
mod properties;
mod rebalance;
mod records;
#[cfg(test)]
mod scripted;
mod sync;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use protocol::messages::describe_groups_response::DescribedGroup;
use protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse, OffsetCommitRequest,
    OffsetCommitResponse, SyncGroupRequest, SyncGroupResponse,
};
use uuid::Uuid;

use crate::machine::{Effect, Effects, Machine, Record, ReplayError, RequestId, Token};
use group::{Group, Member};
use join::Join;
use offsets::Commit;

/// The bounds a group coordinator works in; Kafka's settings are named beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`
    pub session_timeout_min_ms: i32,
    /// `group.max.session.timeout.ms`
    pub session_timeout_max_ms: i32,
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`
    pub group_size_max: usize,
    /// `offset.metadata.max.bytes`
    pub offset_metadata_bytes_max: usize,
    /// How long a member of an old protocol version may take to rejoin before it can heartbeat.
    pub new_member_timeout_ms: i32,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            session_timeout_min_ms: 6_000,
            session_timeout_max_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            group_size_max: usize::MAX,
            offset_metadata_bytes_max: 4_096,
            new_member_timeout_ms: 300_000,
        }
    }
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The client id of the request's header; empty when it has none.
    pub id: String,
    /// The peer's address as Kafka shows it, with a leading `/`.
    pub host: String,
}

/// What a group coordinator is asked. Authorization and topic ids are the caller's business.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupCommand {
    /// JoinGroup.
    JoinGroup {
        /// The request.
        request: JoinGroupRequest,
        /// Its version: from 4 on a new member first gets its id, from 9 on a leader may be told
        /// to skip the assignment.
        api_version: i16,
        /// Who asks.
        client: Client,
        /// A fresh random id, used if a member id must be made.
        fresh_id: Uuid,
    },
    /// SyncGroup.
    SyncGroup(SyncGroupRequest),
    /// Heartbeat.
    Heartbeat(HeartbeatRequest),
    /// LeaveGroup.
    LeaveGroup {
        /// The request.
        request: LeaveGroupRequest,
        /// Its version: below 3 it names one member at the top level.
        api_version: i16,
    },
    /// OffsetCommit, of topics that exist, each with its name (and its id where known).
    CommitOffsets(OffsetCommitRequest),
    /// OffsetFetch of one group; [`offset_fetch`] makes it of the versions that hold one or many.
    FetchOffsets(OffsetFetchRequestGroup),
    /// ListGroups: this shard's part of the answer.
    ListGroups(ListGroupsRequest),
    /// DescribeGroups: one group.
    DescribeGroup {
        /// The group.
        group_id: String,
        /// The request's version: from 6 on a missing group is an error.
        api_version: i16,
    },
    /// Topics were deleted: their offsets go.
    TopicsDeleted(Vec<String>),
}

/// What a group coordinator answers; one variant a command.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupResponse {
    /// To JoinGroup.
    JoinGroup(JoinGroupResponse),
    /// To SyncGroup.
    SyncGroup(SyncGroupResponse),
    /// To Heartbeat.
    Heartbeat(HeartbeatResponse),
    /// To LeaveGroup.
    LeaveGroup(LeaveGroupResponse),
    /// To CommitOffsets.
    CommitOffsets(OffsetCommitResponse),
    /// To FetchOffsets.
    FetchOffsets(OffsetFetchResponseGroup),
    /// To ListGroups.
    ListGroups(ListGroupsResponse),
    /// To DescribeGroup.
    DescribeGroup(DescribedGroup),
    /// To TopicsDeleted: the tombstones are committed, or there were none.
    TopicsDeleted,
}

/// The timers of a group coordinator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupTimer {
    /// A member did not heartbeat.
    Member {
        /// The group.
        group_id: String,
        /// The member.
        member_id: String,
    },
    /// Members did not rejoin in time, or the first rebalance has waited long enough.
    Join {
        /// The group.
        group_id: String,
    },
    /// Members did not sync in time.
    Sync {
        /// The group.
        group_id: String,
    },
}

/// Names one committed offset: group, topic, partition.
type OffsetName = (String, String, i32);

/// An append that is under way, and what follows from it.
#[derive(Debug)]
enum Pending {
    /// The assignments of a generation.
    Assignment { group_id: String, generation: i32, assignments: BTreeMap<String, Bytes> },
    /// A generation without members. The last member's leave waits for it: its group must not
    /// come back with that member.
    EmptyGeneration { leave: Option<LeaveAnswer> },
    /// A static member came back under a new id and nothing else changed.
    StaticMember { group_id: String, old: Box<Member>, new_id: String, answer: JoinAnswer },
    /// Committed offsets.
    Offsets { group_id: String, to: RequestId, commit: Commit },
    /// Tombstones of deleted topics' offsets.
    TopicsDeleted { offsets: BTreeSet<OffsetName>, to: RequestId },
}

/// A JoinGroup reply that waits for an append.
#[derive(Debug)]
struct JoinAnswer {
    to: RequestId,
    api_version: i16,
    response: JoinGroupResponse,
}

/// A LeaveGroup reply that waits for an append.
#[derive(Debug)]
struct LeaveAnswer {
    to: RequestId,
    response: LeaveGroupResponse,
}

impl LeaveAnswer {
    fn after(self, result: Result<(), ErrorCode>, cx: &mut Context<'_>) {
        let mut response = self.response;
        if let Err(code) = result {
            response.error_code = code.code();
        }
        cx.reply(self.to, GroupResponse::LeaveGroup(response));
    }
}

/// The machine behind one partition of `__consumer_offsets`.
#[derive(Debug)]
pub struct GroupMachine {
    config: GroupConfig,
    groups: BTreeMap<String, Group>,
    pending: BTreeMap<Token, Pending>,
    last_token: u64,
}

/// What a group needs of its shard while it handles one event.
struct Context<'a> {
    now: TimestampMs,
    config: &'a GroupConfig,
    pending: &'a mut BTreeMap<Token, Pending>,
    last_token: &'a mut u64,
    out: Vec<Effect<GroupResponse, GroupTimer>>,
}

impl Context<'_> {
    fn append(&mut self, records: Vec<Record>, pending: Pending) -> Token {
        *self.last_token += 1;
        let token = Token(*self.last_token);
        self.pending.insert(token, pending);
        self.out.push(Effect::Append { records, token });
        token
    }

    /// Answers a leave, after the empty generation that it made is appended, if it made one.
    fn answer_leave(&mut self, answer: LeaveAnswer, last_token_before: u64) {
        let newest = Token(*self.last_token);
        match self.pending.get_mut(&newest) {
            Some(Pending::EmptyGeneration { leave }) if newest.0 > last_token_before => {
                *leave = Some(answer);
            }
            Some(_) | None => answer.after(Ok(()), self),
        }
    }

    fn reply(&mut self, to: RequestId, response: GroupResponse) {
        self.out.push(Effect::Reply { to, response });
    }

    fn set_timer(&mut self, timer: GroupTimer, after_ms: i32) {
        let at = TimestampMs(self.now.0 + i64::from(after_ms.max(0)));
        self.out.push(Effect::SetTimer { timer, at });
    }

    fn cancel_timer(&mut self, timer: GroupTimer) {
        self.out.push(Effect::CancelTimer { timer });
    }
}

impl GroupMachine {
    /// An empty machine.
    #[must_use]
    pub fn new(config: GroupConfig) -> GroupMachine {
        GroupMachine { config, groups: BTreeMap::new(), pending: BTreeMap::new(), last_token: 0 }
    }

    /// The shard's books, split so that a group and the rest can change together.
    fn split(&mut self, now: TimestampMs) -> (&mut BTreeMap<String, Group>, Context<'_>) {
        let GroupMachine { config, groups, pending, last_token } = self;
        (groups, Context { now, config, pending, last_token, out: Vec::new() })
    }

    /// Forgets a group in which nothing ever happened.
    fn drop_if_pristine(&mut self, group_id: &str) {
        if self.groups.get(group_id).is_some_and(Group::is_pristine) {
            self.groups.remove(group_id);
        }
    }

    /// The committed offsets of a group: topic, partition, offset; for tests and diagnosis.
    #[must_use]
    pub fn committed(&self, group_id: &str) -> Vec<(String, i32, i64)> {
        self.groups.get(group_id).map_or_else(Vec::new, |group| {
            group
                .offsets
                .iter()
                .map(|((topic, partition), offset)| (topic.clone(), *partition, offset.offset))
                .collect()
        })
    }

    fn on_group_appended(
        &mut self,
        now: TimestampMs,
        pending: Pending,
        result: Result<(), ErrorCode>,
    ) -> Effects<Self> {
        let (groups, mut cx) = self.split(now);
        match pending {
            Pending::Assignment { group_id, generation, assignments } => {
                if let Some(group) = groups.get_mut(&group_id) {
                    group.on_assignment_appended(&mut cx, generation, assignments, result);
                }
            }
            Pending::EmptyGeneration { leave } => {
                if let Some(answer) = leave {
                    answer.after(result, &mut cx);
                }
            }
            Pending::StaticMember { group_id, old, new_id, answer } => {
                let group = groups.get_mut(&group_id);
                join::on_static_member_appended(group, &mut cx, *old, &new_id, answer, result);
            }
            Pending::Offsets { group_id, to, commit } => {
                offsets::on_appended(groups, &mut cx, &group_id, to, commit, result);
            }
            Pending::TopicsDeleted { offsets, to } => {
                if result.is_ok() {
                    for (group_id, topic, partition) in offsets {
                        if let Some(group) = groups.get_mut(&group_id) {
                            group.offsets.remove(&(topic, partition));
                        }
                    }
                }
                cx.reply(to, GroupResponse::TopicsDeleted);
            }
        }
        cx.out
    }

    fn on_topics_deleted(
        &mut self,
        now: TimestampMs,
        to: RequestId,
        topics: &[String],
    ) -> Effects<Self> {
        let (groups, mut cx) = self.split(now);
        // Offsets whose append is under way come before the tombstones, so they go too.
        let committed = groups.values().flat_map(|group| {
            group.offsets.keys().map(|(topic, partition)| (&group.id, topic, *partition))
        });
        let under_way = cx.pending.values().flat_map(|pending| match pending {
            Pending::Offsets { group_id, commit, .. } => commit.names(group_id).collect(),
            Pending::Assignment { .. }
            | Pending::EmptyGeneration { .. }
            | Pending::StaticMember { .. }
            | Pending::TopicsDeleted { .. } => Vec::new(),
        });
        let offsets: BTreeSet<OffsetName> = committed
            .chain(under_way)
            .filter(|(_, topic, _)| topics.contains(topic))
            .map(|(group_id, topic, partition)| (group_id.clone(), topic.clone(), partition))
            .collect();
        let records: Vec<Record> = offsets
            .iter()
            .map(|(group_id, topic, partition)| {
                records::offset_tombstone(group_id, topic, *partition)
            })
            .collect();
        if records.is_empty() {
            cx.reply(to, GroupResponse::TopicsDeleted);
        } else {
            cx.append(records, Pending::TopicsDeleted { offsets, to });
        }
        cx.out
    }
}

impl Machine for GroupMachine {
    type Command = GroupCommand;
    type Response = GroupResponse;
    type Timer = GroupTimer;

    fn replay(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), ReplayError> {
        records::replay(&mut self.groups, key, value)
    }

    fn on_loaded(&mut self, now: TimestampMs) -> Effects<Self> {
        let (groups, mut cx) = self.split(now);
        for group in groups.values() {
            for member in group.members.values() {
                cx.set_timer(group.member_timer(&member.id), member.session_timeout_ms);
            }
        }
        cx.out
    }

    fn handle(
        &mut self,
        now: TimestampMs,
        request: RequestId,
        command: GroupCommand,
    ) -> Effects<Self> {
        match command {
            GroupCommand::JoinGroup { request: body, api_version, client, fresh_id } => {
                let join = Join { to: request, request: body, api_version, client, fresh_id };
                self.on_join(now, join)
            }
            GroupCommand::SyncGroup(body) => self.on_sync(now, request, body),
            GroupCommand::Heartbeat(body) => self.on_heartbeat(now, request, &body),
            GroupCommand::LeaveGroup { request: body, api_version } => {
                self.on_leave(now, request, &body, api_version)
            }
            GroupCommand::CommitOffsets(body) => self.on_commit(now, request, body),
            GroupCommand::FetchOffsets(body) => {
                let response = GroupResponse::FetchOffsets(self.fetch_offsets(&body));
                vec![Effect::Reply { to: request, response }]
            }
            GroupCommand::ListGroups(body) => {
                let response = GroupResponse::ListGroups(self.list(&body));
                vec![Effect::Reply { to: request, response }]
            }
            GroupCommand::DescribeGroup { group_id, api_version } => {
                let response = GroupResponse::DescribeGroup(self.describe(&group_id, api_version));
                vec![Effect::Reply { to: request, response }]
            }
            GroupCommand::TopicsDeleted(topics) => self.on_topics_deleted(now, request, &topics),
        }
    }

    fn on_appended(
        &mut self,
        now: TimestampMs,
        token: Token,
        result: Result<(), ErrorCode>,
    ) -> Effects<Self> {
        match self.pending.remove(&token) {
            Some(pending) => self.on_group_appended(now, pending, result),
            None => Vec::new(),
        }
    }

    fn on_timer(&mut self, now: TimestampMs, timer: GroupTimer) -> Effects<Self> {
        let (groups, mut cx) = self.split(now);
        let group_id = match timer {
            GroupTimer::Member { group_id, member_id } => {
                if let Some(group) = groups.get_mut(&group_id) {
                    group.on_member_timeout(&mut cx, &member_id);
                }
                group_id
            }
            GroupTimer::Join { group_id } => {
                if let Some(group) = groups.get_mut(&group_id) {
                    group.on_join_timeout(&mut cx);
                }
                group_id
            }
            GroupTimer::Sync { group_id } => {
                if let Some(group) = groups.get_mut(&group_id) {
                    group.on_sync_timeout(&mut cx);
                }
                group_id
            }
        };
        let effects = cx.out;
        self.drop_if_pristine(&group_id);
        effects
    }

    fn on_resigned(&mut self) -> Effects<Self> {
        let pending = std::mem::take(&mut self.pending);
        let (groups, mut cx) = self.split(TimestampMs(0));
        let code = ErrorCode::NotCoordinator;
        for group in groups.values_mut() {
            for member in group.members.values_mut() {
                member.answer_waiting(&mut cx, code);
            }
        }
        for pending in pending.into_values() {
            match pending {
                Pending::Assignment { .. } | Pending::EmptyGeneration { leave: None } => {}
                Pending::EmptyGeneration { leave: Some(answer) } => {
                    answer.after(Err(code), &mut cx);
                }
                Pending::StaticMember { answer, .. } => {
                    let response = join::refusal(answer.api_version, "", code);
                    cx.reply(answer.to, response);
                }
                Pending::Offsets { to, commit, .. } => {
                    let response = GroupResponse::CommitOffsets(commit.answer(code));
                    cx.reply(to, response);
                }
                Pending::TopicsDeleted { to, .. } => cx.reply(to, GroupResponse::TopicsDeleted),
            }
        }
        cx.out
    }
}
