//! The group coordinator of one partition of `__consumer_offsets`: the classic group protocol and
//! committed offsets. Owns the commands and the shard's books; each request has its own file.

use protocol::messages::describe_groups_response::DescribedGroup;
use protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse, OffsetCommitRequest,
    OffsetCommitResponse, SyncGroupRequest, SyncGroupResponse,
};
use uuid::Uuid;

/// The bounds a group coordinator works in; Kafka's setting names in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// [`group.min.session.timeout.ms`]
    pub session_timeout_min_ms: i32,
    /// [`group.max.session.timeout.ms`]
    pub session_timeout_max_ms: i32,
    /// [`group.initial.rebalance.delay.ms`]
    pub initial_rebalance_delay_ms: i32,
    /// [`group.max.size`]
    pub group_size_max: usize,
    /// [`offset.metadata.max.bytes`]
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
        /// Its version: from 4 on a new member first gets its id, from 9 on a leader may be told to
        /// skip the assignment.
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
    /// OffsetFetch of one group.
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
