//! JoinGroup, versions 0 to 9. Owns who becomes a member; when the others hear of it is
//! `rebalance`'s.
//!
//! From version 4 a member without an id first gets one (KIP-394), from 5 a member may be static
//! (KIP-345), from 7 the protocol's type is answered (KIP-559), from 9 a static leader that comes
//! back may be told to skip the assignment (KIP-814).

use bytes::Bytes;
use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use uuid::Uuid;

use super::group::{Group, GroupState, Member, Waiting};
use super::{Client, Context, GroupMachine, GroupResponse, JoinAnswer, Pending, records};
use crate::machine::{Effects, RequestId, client_code};
use crate::record_form::KEY_STRING_BYTES_MAX;

/// The generation in an answer that has none.
const NO_GENERATION: i32 = -1;

/// The first version whose clients can be told their member id before they join.
const KNOWN_MEMBER_VERSION: i16 = 4;

/// The first version in which the protocol's name may be null.
const NULL_PROTOCOL_VERSION: i16 = 7;

/// The first version with SkipAssignment.
const SKIP_ASSIGNMENT_VERSION: i16 = 9;

/// A JoinGroup with what the caller knows of it.
pub(super) struct Join {
    pub to: RequestId,
    pub request: JoinGroupRequest,
    pub api_version: i16,
    pub client: Client,
    pub fresh_id: Uuid,
}

/// A JoinGroup answer with an error.
pub(super) fn refusal(api_version: i16, member_id: &str, code: ErrorCode) -> GroupResponse {
    let protocol_name = (api_version < NULL_PROTOCOL_VERSION).then(String::new);
    GroupResponse::JoinGroup(JoinGroupResponse {
        error_code: code.code(),
        generation_id: NO_GENERATION,
        protocol_type: None,
        protocol_name,
        member_id: member_id.to_owned(),
        ..JoinGroupResponse::default()
    })
}

impl Join {
    fn refuse(&self, cx: &mut Context<'_>, code: ErrorCode) {
        cx.reply(self.to, refusal(self.api_version, &self.request.member_id, code));
    }

    fn protocols(&self) -> Vec<(String, Bytes)> {
        self.request.protocols.iter().map(|p| (p.name.clone(), p.metadata.clone())).collect()
    }

    fn rebalance_timeout_ms(&self) -> i32 {
        // Version 0 has no rebalance timeout of its own.
        if self.request.rebalance_timeout_ms < 0 {
            self.request.session_timeout_ms
        } else {
            self.request.rebalance_timeout_ms
        }
    }

    fn member(&self, id: String) -> Member {
        Member {
            id,
            instance_id: self.request.group_instance_id.clone(),
            client_id: self.client.id.clone(),
            client_host: self.client.host.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms(),
            session_timeout_ms: self.request.session_timeout_ms,
            protocols: self.protocols(),
            assignment: Bytes::new(),
            is_new: true,
            waiting: Waiting::Join { to: self.to, api_version: self.api_version },
        }
    }

    fn new_id(&self) -> String {
        let front = self.request.group_instance_id.as_ref().unwrap_or(&self.client.id);
        format!("{front}-{}", self.fresh_id)
    }
}

impl GroupMachine {
    pub(super) fn on_join(&mut self, now: TimestampMs, join: Join) -> Effects<Self> {
        let group_id = join.request.group_id.clone();
        let (groups, mut cx) = self.split(now);
        if let Err(code) = check_bounds(&cx, &join.request) {
            join.refuse(&mut cx, code);
            return cx.out;
        }
        let is_new = join.request.member_id.is_empty();
        if is_new {
            groups.entry(group_id.clone()).or_insert_with(|| Group::new(&group_id, now));
        }
        match groups.get_mut(&group_id) {
            None => join.refuse(&mut cx, ErrorCode::UnknownMemberId),
            Some(group) => group.on_join(&mut cx, join),
        }
        let effects = cx.out;
        self.drop_if_pristine(&group_id);
        effects
    }
}

fn check_bounds(cx: &Context<'_>, request: &JoinGroupRequest) -> Result<(), ErrorCode> {
    if request.group_id.is_empty() || request.group_id.len() > KEY_STRING_BYTES_MAX {
        return Err(ErrorCode::InvalidGroupId);
    }
    let bounds = cx.config.session_timeout_min_ms..=cx.config.session_timeout_max_ms;
    if !bounds.contains(&request.session_timeout_ms) {
        return Err(ErrorCode::InvalidSessionTimeout);
    }
    Ok(())
}

impl Group {
    fn on_join(&mut self, cx: &mut Context<'_>, join: Join) {
        if !self.has_room(cx, &join.request.member_id) {
            let member_id = join.request.member_id.clone();
            if self.members.contains_key(&member_id) {
                self.remove_member(cx, &member_id, ErrorCode::UnknownMemberId);
            }
            return join.refuse(cx, ErrorCode::GroupMaxSizeReached);
        }
        if !self.supports(&join.request.protocol_type, &join.protocols()) {
            return join.refuse(cx, ErrorCode::InconsistentGroupProtocol);
        }
        if join.request.member_id.is_empty() {
            self.join_new(cx, join);
        } else {
            self.join_known(cx, join);
        }
    }

    fn has_room(&self, cx: &Context<'_>, member_id: &str) -> bool {
        let max = cx.config.group_size_max;
        match self.state {
            GroupState::Empty => true,
            GroupState::PreparingRebalance { .. } => {
                self.members.get(member_id).is_some_and(Member::is_joining)
                    || self.members.values().filter(|member| member.is_joining()).count() < max
            }
            GroupState::CompletingRebalance { .. } | GroupState::Stable { .. } => {
                self.members.contains_key(member_id) || self.members.len() < max
            }
        }
    }

    fn join_new(&mut self, cx: &mut Context<'_>, join: Join) {
        let new_id = join.new_id();
        let instance_id = join.request.group_instance_id.as_ref();
        if let Some(old_id) = instance_id.and_then(|id| self.static_members.get(id)).cloned() {
            return self.rejoin_static(cx, &join, &old_id, new_id);
        }
        if instance_id.is_none() && join.api_version >= KNOWN_MEMBER_VERSION {
            self.promised.insert(new_id.clone());
            cx.set_timer(self.member_timer(&new_id), join.request.session_timeout_ms);
            let response = refusal(join.api_version, &new_id, ErrorCode::MemberIdRequired);
            return cx.reply(join.to, response);
        }
        self.add_and_rebalance(cx, &join, new_id);
    }

    fn join_known(&mut self, cx: &mut Context<'_>, join: Join) {
        let member_id = join.request.member_id.clone();
        if self.promised.contains(&member_id) {
            if join.request.group_instance_id.is_some() {
                // An id is promised to dynamic members only.
                return join.refuse(cx, ErrorCode::UnknownMemberId);
            }
            return self.add_and_rebalance(cx, &join, member_id);
        }
        let instance_id = join.request.group_instance_id.as_deref();
        if let Err(code) = self.check_member(&member_id, instance_id) {
            return join.refuse(cx, code);
        }
        let unchanged =
            self.members.get(&member_id).is_some_and(|m| m.protocols == join.protocols());
        match self.state {
            GroupState::PreparingRebalance { .. } => {
                self.update_member(cx, &join, &member_id);
                self.rebalance(cx);
            }
            GroupState::CompletingRebalance { .. } if unchanged => {
                // The answer was lost on its way: the same again.
                let response = self.join_response(&member_id);
                cx.reply(join.to, GroupResponse::JoinGroup(response));
            }
            GroupState::Stable { .. } if unchanged && !self.is_leader(&member_id) => {
                let response = self.join_response(&member_id);
                cx.reply(join.to, GroupResponse::JoinGroup(response));
            }
            GroupState::CompletingRebalance { .. } | GroupState::Stable { .. } => {
                self.update_member(cx, &join, &member_id);
                self.rebalance(cx);
            }
            GroupState::Empty => join.refuse(cx, ErrorCode::UnknownMemberId),
        }
    }

    fn add_and_rebalance(&mut self, cx: &mut Context<'_>, join: &Join, member_id: String) {
        if let GroupState::PreparingRebalance { first: Some(first) } = &mut self.state {
            first.member_added = true;
        }
        // It cannot heartbeat before it knows its id; a client that is gone must still go.
        cx.set_timer(self.member_timer(&member_id), cx.config.new_member_timeout_ms);
        self.add_member(join.member(member_id), &join.request.protocol_type);
        self.rebalance(cx);
    }

    fn update_member(&mut self, cx: &mut Context<'_>, join: &Join, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            // A client asks again only after it has given up on its older request.
            member.answer_waiting(cx, ErrorCode::RebalanceInProgress);
            let assignment = member.assignment.clone();
            let is_new = member.is_new;
            let instance_id = member.instance_id.clone();
            *member = Member { assignment, is_new, instance_id, ..join.member(member.id.clone()) };
        }
    }

    /// A static member is back under a new id; the old id is fenced.
    fn rejoin_static(&mut self, cx: &mut Context<'_>, join: &Join, old_id: &str, new_id: String) {
        let old_leader = self.leader.clone();
        let Some(old) = self.replace_static(cx, join, old_id, &new_id) else {
            return join.refuse(cx, ErrorCode::UnknownMemberId);
        };
        match self.state {
            GroupState::Stable { .. } if self.select_protocol() == self.protocol => {
                self.answer_static(cx, join, old, new_id, old_leader);
            }
            GroupState::Stable { .. } | GroupState::CompletingRebalance { .. } => {
                self.prepare_rebalance(cx);
            }
            GroupState::PreparingRebalance { .. } | GroupState::Empty => self.rebalance(cx),
        }
    }

    fn replace_static(
        &mut self,
        cx: &mut Context<'_>,
        join: &Join,
        old_id: &str,
        new_id: &str,
    ) -> Option<Member> {
        let mut old = self.members.remove(old_id)?;
        old.answer_waiting(cx, ErrorCode::FencedInstanceId);
        cx.cancel_timer(self.member_timer(old_id));
        let new = Member {
            assignment: old.assignment.clone(),
            is_new: false,
            ..join.member(new_id.to_owned())
        };
        self.rename_member(&old.id, new);
        self.touch(cx, new_id);
        Some(old)
    }

    /// Puts a static member in the place of the one with another id.
    fn rename_member(&mut self, old_id: &str, member: Member) {
        let new_id = member.id.clone();
        if self.is_leader(old_id) {
            self.leader = Some(new_id.clone());
        }
        match &mut self.state {
            GroupState::CompletingRebalance { unsynced, .. } | GroupState::Stable { unsynced } => {
                if unsynced.remove(old_id) {
                    unsynced.insert(new_id.clone());
                }
            }
            GroupState::Empty | GroupState::PreparingRebalance { .. } => {}
        }
        if let Some(instance_id) = &member.instance_id {
            self.static_members.insert(instance_id.clone(), new_id.clone());
        }
        self.members.remove(old_id);
        self.members.insert(new_id, member);
    }

    /// Nothing changed but the id: no rebalance, once the new id is durable.
    fn answer_static(
        &mut self,
        cx: &mut Context<'_>,
        join: &Join,
        old: Member,
        new_id: String,
        old_leader: Option<String>,
    ) {
        let mut response = self.join_response(&new_id);
        if join.api_version >= SKIP_ASSIGNMENT_VERSION {
            response.skip_assignment = self.is_leader(&new_id);
        } else {
            // An older client must not believe that it is to assign: it is told its old id leads.
            response.members = Vec::new();
            response.leader = old_leader.unwrap_or_default();
        }
        if let Some(member) = self.members.get_mut(&new_id) {
            member.waiting = Waiting::Nothing;
        }
        let assignments =
            self.members.values().map(|m| (m.id.clone(), m.assignment.clone())).collect();
        let record = records::group(self, &assignments);
        let answer = JoinAnswer { to: join.to, api_version: join.api_version, response };
        let group_id = self.id.clone();
        let old = Box::new(old);
        cx.append(vec![record], Pending::StaticMember { group_id, old, new_id, answer });
    }
}

/// The new id of a static member is durable, or the old one is put back.
pub(super) fn on_static_member_appended(
    group: Option<&mut Group>,
    cx: &mut Context<'_>,
    old: Member,
    new_id: &str,
    answer: JoinAnswer,
    result: Result<(), ErrorCode>,
) {
    let code = match result {
        Ok(()) => return cx.reply(answer.to, GroupResponse::JoinGroup(answer.response)),
        Err(code) => client_code(code),
    };
    if let Some(group) = group
        && group.members.contains_key(new_id)
    {
        cx.cancel_timer(group.member_timer(new_id));
        let old_id = old.id.clone();
        group.rename_member(new_id, old);
        group.touch(cx, &old_id);
    }
    cx.reply(answer.to, refusal(answer.api_version, "", code));
}
