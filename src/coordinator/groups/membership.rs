//! Heartbeat (versions 0 to 4), LeaveGroup (0 to 5) and missed sessions. Owns how a member stays
//! and goes.

use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::leave_group_response::MemberResponse;
use protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, LeaveGroupRequest, LeaveGroupResponse,
};

use super::group::{Group, GroupState, Waiting};
use super::{Context, GroupMachine, GroupResponse, LeaveAnswer};
use crate::machine::{Effects, RequestId};

/// The first version that names several members (KIP-345).
const MEMBERS_VERSION: i16 = 3;

impl GroupMachine {
    pub(super) fn on_heartbeat(
        &mut self,
        now: TimestampMs,
        to: RequestId,
        request: &HeartbeatRequest,
    ) -> Effects<Self> {
        let (groups, mut cx) = self.split(now);
        let result = if request.group_id.is_empty() {
            Err(ErrorCode::InvalidGroupId)
        } else {
            match groups.get(&request.group_id) {
                None => Err(ErrorCode::UnknownMemberId),
                Some(group) => group.on_heartbeat(&mut cx, request),
            }
        };
        let code = result.err().unwrap_or(ErrorCode::None);
        let response =
            HeartbeatResponse { error_code: code.code(), ..HeartbeatResponse::default() };
        cx.reply(to, GroupResponse::Heartbeat(response));
        cx.out
    }

    pub(super) fn on_leave(
        &mut self,
        now: TimestampMs,
        to: RequestId,
        request: &LeaveGroupRequest,
        api_version: i16,
    ) -> Effects<Self> {
        let last_token = self.last_token;
        let (groups, mut cx) = self.split(now);
        let single =
            [MemberIdentity { member_id: request.member_id.clone(), ..MemberIdentity::default() }];
        let leaving: &[MemberIdentity] =
            if api_version < MEMBERS_VERSION { &single } else { &request.members };
        let members: Vec<MemberResponse> = match groups.get_mut(&request.group_id) {
            _ if request.group_id.is_empty() => all(leaving, ErrorCode::InvalidGroupId),
            None => all(leaving, ErrorCode::UnknownMemberId),
            Some(group) => group.on_leave(&mut cx, leaving),
        };
        let mut response = LeaveGroupResponse::default();
        if request.group_id.is_empty() {
            response.error_code = ErrorCode::InvalidGroupId.code();
        } else if api_version < MEMBERS_VERSION {
            response.error_code = members.first().map_or(0, |member| member.error_code);
        } else {
            response.members = members;
        }
        cx.answer_leave(LeaveAnswer { to, response }, last_token);
        let effects = cx.out;
        self.drop_if_pristine(&request.group_id);
        effects
    }
}

fn all(leaving: &[MemberIdentity], code: ErrorCode) -> Vec<MemberResponse> {
    leaving.iter().map(|identity| answer(identity, code)).collect()
}

fn answer(identity: &MemberIdentity, code: ErrorCode) -> MemberResponse {
    MemberResponse {
        member_id: identity.member_id.clone(),
        group_instance_id: identity.group_instance_id.clone(),
        error_code: code.code(),
    }
}

impl Group {
    fn on_heartbeat(
        &self,
        cx: &mut Context<'_>,
        request: &HeartbeatRequest,
    ) -> Result<(), ErrorCode> {
        let instance_id = request.group_instance_id.as_deref();
        self.check_generation(&request.member_id, instance_id, request.generation_id)?;
        match self.state {
            GroupState::Empty => Err(ErrorCode::UnknownMemberId),
            GroupState::PreparingRebalance { .. } => {
                self.touch(cx, &request.member_id);
                Err(ErrorCode::RebalanceInProgress)
            }
            // A member may heartbeat between its join's answer and its sync.
            GroupState::CompletingRebalance { .. } | GroupState::Stable { .. } => {
                self.touch(cx, &request.member_id);
                Ok(())
            }
        }
    }

    fn on_leave(
        &mut self,
        cx: &mut Context<'_>,
        leaving: &[MemberIdentity],
    ) -> Vec<MemberResponse> {
        let mut changed = false;
        let answers = leaving
            .iter()
            .map(|identity| {
                let code = match self.take_out(cx, identity) {
                    Ok(()) => {
                        changed = true;
                        ErrorCode::None
                    }
                    Err(code) => code,
                };
                answer(identity, code)
            })
            .collect();
        if changed {
            self.rebalance_after_loss(cx);
        }
        answers
    }

    fn take_out(
        &mut self,
        cx: &mut Context<'_>,
        identity: &MemberIdentity,
    ) -> Result<(), ErrorCode> {
        let instance_id = identity.group_instance_id.as_deref();
        // An administrator removes a static member by its instance id alone.
        let member_id = match instance_id {
            Some(instance_id) if identity.member_id.is_empty() => {
                self.static_members.get(instance_id).ok_or(ErrorCode::UnknownMemberId)?.clone()
            }
            Some(_) | None => identity.member_id.clone(),
        };
        if instance_id.is_none() && self.promised.remove(&member_id) {
            cx.cancel_timer(self.member_timer(&member_id));
            return Ok(());
        }
        self.check_member(&member_id, instance_id)?;
        self.remove_member(cx, &member_id, ErrorCode::UnknownMemberId);
        Ok(())
    }

    fn rebalance_after_loss(&mut self, cx: &mut Context<'_>) {
        match self.state {
            GroupState::Empty => {}
            GroupState::PreparingRebalance { .. } => self.complete_join_if_all(cx),
            GroupState::CompletingRebalance { .. } | GroupState::Stable { .. } => {
                self.prepare_rebalance(cx);
            }
        }
    }

    /// No heartbeat for a whole session. A member whose request is parked here is alive.
    pub(super) fn on_member_timeout(&mut self, cx: &mut Context<'_>, member_id: &str) {
        if self.promised.remove(member_id) {
            return self.rebalance_after_loss_of_promise(cx);
        }
        let Some(member) = self.members.get(member_id) else {
            return;
        };
        if !member.is_new && member.waiting != Waiting::Nothing {
            return;
        }
        self.remove_member(cx, member_id, ErrorCode::UnknownMemberId);
        self.rebalance_after_loss(cx);
    }

    fn rebalance_after_loss_of_promise(&mut self, cx: &mut Context<'_>) {
        self.complete_join_if_all(cx);
    }
}
