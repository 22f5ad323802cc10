//! ListGroups (versions 0 to 5) and DescribeGroups (0 to 6). Owns what a group shows of itself.

use bytes::Bytes;
use protocol::error_code::ErrorCode;
use protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use protocol::messages::list_groups_response::ListedGroup;
use protocol::messages::{ListGroupsRequest, ListGroupsResponse};

use super::GroupMachine;
use super::group::{Group, GroupState};

/// The type of every group here, as the types filter names it.
const CLASSIC: &str = "classic";

/// The first version in which a missing group is an error (KIP-1043).
const NOT_FOUND_VERSION: i16 = 6;

impl GroupMachine {
    pub(super) fn list(&self, request: &ListGroupsRequest) -> ListGroupsResponse {
        let wants = |filter: &[String], value: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
        };
        let groups = self
            .groups
            .values()
            .filter(|group| wants(&request.states_filter, group.state_name()))
            .filter(|_| wants(&request.types_filter, CLASSIC))
            .map(|group| ListedGroup {
                group_id: group.id.clone(),
                protocol_type: group.protocol_type.clone().unwrap_or_default(),
                group_state: group.state_name().to_owned(),
                group_type: CLASSIC.to_owned(),
            })
            .collect();
        ListGroupsResponse { groups, ..ListGroupsResponse::default() }
    }

    pub(super) fn describe(&self, group_id: &str, api_version: i16) -> DescribedGroup {
        match self.groups.get(group_id) {
            Some(group) => group.describe(),
            None if api_version >= NOT_FOUND_VERSION => DescribedGroup {
                error_code: ErrorCode::GroupIdNotFound.code(),
                error_message: Some(format!("Group {group_id} not found.")),
                group_id: group_id.to_owned(),
                group_state: "Dead".to_owned(),
                ..DescribedGroup::default()
            },
            None => DescribedGroup {
                group_id: group_id.to_owned(),
                group_state: "Dead".to_owned(),
                ..DescribedGroup::default()
            },
        }
    }
}

impl Group {
    fn describe(&self) -> DescribedGroup {
        let is_stable = matches!(self.state, GroupState::Stable { .. });
        let protocol = if is_stable { self.protocol.clone() } else { None };
        let members = self
            .members
            .values()
            .map(|member| DescribedGroupMember {
                member_id: member.id.clone(),
                group_instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                member_metadata: protocol
                    .as_deref()
                    .map_or_else(Bytes::new, |protocol| member.metadata(protocol)),
                member_assignment: if is_stable {
                    member.assignment.clone()
                } else {
                    Bytes::new()
                },
            })
            .collect();
        DescribedGroup {
            group_id: self.id.clone(),
            group_state: self.state_name().to_owned(),
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol_data: protocol.unwrap_or_default(),
            members,
            ..DescribedGroup::default()
        }
    }
}
