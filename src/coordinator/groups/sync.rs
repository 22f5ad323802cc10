//! SyncGroup, versions 0 to 5. Owns how the leader's assignment becomes durable and reaches the
//! members. From version 3 members may be static (KIP-345), from 5 type and name of the protocol
//! are checked (KIP-559).

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::group::{Group, GroupState, Waiting};
use super::{Context, GroupMachine, GroupResponse, Pending, records};
use crate::machine::{Effects, RequestId, client_code};

/// A SyncGroup answer with an error.
pub(super) fn refusal(code: ErrorCode) -> GroupResponse {
    GroupResponse::SyncGroup(SyncGroupResponse {
        error_code: code.code(),
        ..SyncGroupResponse::default()
    })
}

impl GroupMachine {
    pub(super) fn on_sync(
        &mut self,
        now: TimestampMs,
        to: RequestId,
        request: SyncGroupRequest,
    ) -> Effects<Self> {
        let (groups, mut cx) = self.split(now);
        if request.group_id.is_empty() {
            cx.reply(to, refusal(ErrorCode::InvalidGroupId));
            return cx.out;
        }
        match groups.get_mut(&request.group_id) {
            None => cx.reply(to, refusal(ErrorCode::UnknownMemberId)),
            Some(group) => match group.check_sync(&request) {
                Err(code) => cx.reply(to, refusal(code)),
                Ok(()) => group.on_sync(&mut cx, to, request),
            },
        }
        cx.out
    }
}

impl Group {
    fn check_sync(&self, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
        let instance_id = request.group_instance_id.as_deref();
        self.check_generation(&request.member_id, instance_id, request.generation_id)?;
        let differs = |sent: &Option<String>, known: &Option<String>| {
            sent.is_some() && known.is_some() && sent != known
        };
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol)
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        Ok(())
    }

    fn on_sync(&mut self, cx: &mut Context<'_>, to: RequestId, request: SyncGroupRequest) {
        match self.state {
            GroupState::Empty => cx.reply(to, refusal(ErrorCode::UnknownMemberId)),
            GroupState::PreparingRebalance { .. } => {
                cx.reply(to, refusal(ErrorCode::RebalanceInProgress));
            }
            GroupState::CompletingRebalance { assigning, .. } => {
                self.mark_synced(cx, &request.member_id);
                if let Some(member) = self.members.get_mut(&request.member_id) {
                    member.answer_waiting(cx, ErrorCode::RebalanceInProgress);
                    member.waiting = Waiting::Sync { to };
                }
                if self.is_leader(&request.member_id) && !assigning {
                    self.append_assignment(cx, request);
                }
            }
            GroupState::Stable { .. } => {
                self.mark_synced(cx, &request.member_id);
                let response = self.sync_response(&request.member_id);
                cx.reply(to, GroupResponse::SyncGroup(response));
                self.touch(cx, &request.member_id);
            }
        }
    }

    fn append_assignment(&mut self, cx: &mut Context<'_>, request: SyncGroupRequest) {
        let mut assignments: BTreeMap<String, Bytes> =
            self.members.keys().map(|id| (id.clone(), Bytes::new())).collect();
        for given in request.assignments {
            if let Some(assignment) = assignments.get_mut(&given.member_id) {
                *assignment = given.assignment;
            }
        }
        if let GroupState::CompletingRebalance { assigning, .. } = &mut self.state {
            *assigning = true;
        }
        let record = records::group(self, &assignments);
        let (group_id, generation) = (self.id.clone(), self.generation);
        cx.append(vec![record], Pending::Assignment { group_id, generation, assignments });
    }

    /// The assignment of a generation is durable, or is not; a later generation does not care.
    pub(super) fn on_assignment_appended(
        &mut self,
        cx: &mut Context<'_>,
        generation: i32,
        assignments: BTreeMap<String, Bytes>,
        result: Result<(), ErrorCode>,
    ) {
        let GroupState::CompletingRebalance { unsynced, .. } = &self.state else {
            return;
        };
        if generation != self.generation {
            return;
        }
        if let Err(code) = result {
            self.refuse_syncs(cx, client_code(code));
            return self.prepare_rebalance(cx);
        }
        let unsynced = unsynced.clone();
        self.go(GroupState::Stable { unsynced }, cx.now);
        for (member_id, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&member_id) {
                member.assignment = assignment;
            }
        }
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let response = self.sync_response(&id);
            let Some(member) = self.members.get_mut(&id) else { continue };
            if let Waiting::Sync { to } = member.waiting {
                member.waiting = Waiting::Nothing;
                cx.reply(to, GroupResponse::SyncGroup(response));
                self.touch(cx, &id);
            }
        }
    }

    fn sync_response(&self, member_id: &str) -> SyncGroupResponse {
        SyncGroupResponse {
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol.clone(),
            assignment: self
                .members
                .get(member_id)
                .map(|member| member.assignment.clone())
                .unwrap_or_default(),
            ..SyncGroupResponse::default()
        }
    }
}
