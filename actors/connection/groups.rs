//! JoinGroup (versions 0 to 9), SyncGroup (0 to 5), Heartbeat (0 to 4), LeaveGroup (0 to 5),
//! ListGroups (0 to 5) and DescribeGroups (0 to 6). Owns the way to the group's coordinator and
//! the answers when there is none here; what a group does is the coordinator's machine.
//!
//! The answers of joins and syncs wait for other members: such a request ends with its connection,
//! or long after the rebalance should have.

pub mod offsets;

use std::time::Duration;

use coordinator::groups::Client;
use coordinator::{GroupCommand, GroupResponse};
use protocol::error_code::ErrorCode;
use protocol::messages::describe_groups_response::DescribedGroup;
use protocol::messages::{
    DescribeGroupsRequest, DescribeGroupsResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest,
    ListGroupsResponse, SyncGroupRequest, SyncGroupResponse,
};

use super::context::RequestContext;
use crate::coordinators::{ShardKind, locate};

/// How long a coordinator may take for what waits for nobody else.
const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// How long past the rebalance timeout a join waits at most, and a sync in all: the machine
/// answers at its own timers, so this only bounds what a fault would leave behind.
const REBALANCE_SLACK: Duration = Duration::from_secs(60);

/// The longest rebalance of which a sync knows nothing (`max.poll.interval.ms` may be any).
const SYNC_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// The first JoinGroup version in which the protocol's name may be null.
const NULL_PROTOCOL_VERSION: i16 = 7;

/// Asks the coordinator of a group, if it is here.
async fn ask(
    context: &RequestContext,
    group_id: &str,
    command: GroupCommand,
    deadline: Duration,
) -> Result<GroupResponse, ErrorCode> {
    let shard = locate::group_shard(&context.directory, group_id)?;
    shard.call(command, deadline).await.map_err(|error| error.code())
}

/// Members belong to groups that have a name.
fn check_group_id(group_id: &str) -> Result<(), ErrorCode> {
    if group_id.is_empty() { Err(ErrorCode::InvalidGroupId) } else { Ok(()) }
}

/// Serves JoinGroup.
pub async fn join(context: &RequestContext, request: JoinGroupRequest) -> JoinGroupResponse {
    let (group_id, member_id) = (request.group_id.clone(), request.member_id.clone());
    let timeout_ms = request.rebalance_timeout_ms.max(request.session_timeout_ms).max(0);
    let timeout = Duration::from_millis(u64::from(timeout_ms.unsigned_abs()));
    let delay = context.directory.config.groups.initial_rebalance_delay;
    let client = Client {
        id: context.client_id.clone().unwrap_or_default(),
        host: context.client_host.to_string(),
    };
    let fresh_id = context.directory.entropy.next_uuid();
    let api_version = context.version;
    let command = GroupCommand::JoinGroup { request, api_version, client, fresh_id };
    let answer = match check_group_id(&group_id) {
        Ok(()) => ask(context, &group_id, command, timeout + delay + REBALANCE_SLACK).await,
        Err(code) => Err(code),
    };
    let code = match answer {
        Ok(GroupResponse::JoinGroup(response)) => return response,
        Ok(_) => ErrorCode::UnknownServerError,
        Err(code) => code,
    };
    JoinGroupResponse {
        error_code: code.code(),
        generation_id: -1,
        protocol_name: (api_version < NULL_PROTOCOL_VERSION).then(String::new),
        member_id,
        ..JoinGroupResponse::default()
    }
}

/// Serves SyncGroup.
pub async fn sync(context: &RequestContext, request: SyncGroupRequest) -> SyncGroupResponse {
    let group_id = request.group_id.clone();
    let answer = match check_group_id(&group_id) {
        Ok(()) => ask(context, &group_id, GroupCommand::SyncGroup(request), SYNC_DEADLINE).await,
        Err(code) => Err(code),
    };
    let code = match answer {
        Ok(GroupResponse::SyncGroup(response)) => return response,
        Ok(_) => ErrorCode::UnknownServerError,
        Err(code) => code,
    };
    SyncGroupResponse { error_code: code.code(), ..SyncGroupResponse::default() }
}

/// Serves Heartbeat.
pub async fn heartbeat(context: &RequestContext, request: HeartbeatRequest) -> HeartbeatResponse {
    let group_id = request.group_id.clone();
    let answer = match check_group_id(&group_id) {
        Ok(()) => ask(context, &group_id, GroupCommand::Heartbeat(request), CALL_DEADLINE).await,
        Err(code) => Err(code),
    };
    let code = match answer {
        Ok(GroupResponse::Heartbeat(response)) => return response,
        // As Kafka: a member of a group that is being loaded is told that all is well.
        Err(ErrorCode::CoordinatorLoadInProgress) => ErrorCode::None,
        Ok(_) => ErrorCode::UnknownServerError,
        Err(code) => code,
    };
    HeartbeatResponse { error_code: code.code(), ..HeartbeatResponse::default() }
}

/// Serves LeaveGroup.
pub async fn leave(context: &RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse {
    let group_id = request.group_id.clone();
    let command = GroupCommand::LeaveGroup { request, api_version: context.version };
    let answer = match check_group_id(&group_id) {
        Ok(()) => ask(context, &group_id, command, CALL_DEADLINE).await,
        Err(code) => Err(code),
    };
    let code = match answer {
        Ok(GroupResponse::LeaveGroup(response)) => return response,
        Ok(_) => ErrorCode::UnknownServerError,
        Err(code) => code,
    };
    LeaveGroupResponse { error_code: code.code(), ..LeaveGroupResponse::default() }
}

/// Serves ListGroups: the groups of every shard of this node. While one is being loaded the list
/// would be short, so the answer is its error.
pub async fn list(context: &RequestContext, request: ListGroupsRequest) -> ListGroupsResponse {
    let mut groups = Vec::new();
    let mut code = ErrorCode::None;
    for shard in shards(context) {
        let command = GroupCommand::ListGroups(request.clone());
        match shard.call(command, CALL_DEADLINE).await {
            Ok(GroupResponse::ListGroups(response)) => groups.extend(response.groups),
            Ok(_) => code = ErrorCode::UnknownServerError,
            // Its groups are another node's now.
            Err(error) if error.code() == ErrorCode::NotCoordinator => {}
            Err(error) => code = error.code(),
        }
    }
    if code != ErrorCode::None {
        groups.clear();
    }
    groups.sort_by(|left, right| left.group_id.cmp(&right.group_id));
    ListGroupsResponse { error_code: code.code(), groups, ..ListGroupsResponse::default() }
}

fn shards(
    context: &RequestContext,
) -> impl Iterator<Item = crate::coordinators::handle::GroupShardHandle> {
    context
        .directory
        .shards()
        .into_iter()
        .filter(|(id, _)| id.kind == ShardKind::Group)
        .filter_map(|(_, shard)| shard.group())
}

/// Serves DescribeGroups.
pub async fn describe(
    context: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let mut groups = Vec::with_capacity(request.groups.len());
    for group_id in request.groups {
        let command = GroupCommand::DescribeGroup {
            group_id: group_id.clone(),
            api_version: context.version,
        };
        let code = match ask(context, &group_id, command, CALL_DEADLINE).await {
            Ok(GroupResponse::DescribeGroup(group)) => {
                groups.push(group);
                continue;
            }
            Ok(_) => ErrorCode::UnknownServerError,
            Err(code) => code,
        };
        groups.push(DescribedGroup {
            error_code: code.code(),
            group_id,
            ..DescribedGroup::default()
        });
    }
    DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() }
}
