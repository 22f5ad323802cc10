//! How a group gets from one generation to the next. Owns the two phases' beginnings and ends;
//! who joins and what is assigned is in the files of those requests.

use std::collections::BTreeSet;

use bytes::Bytes;
use protocol::error_code::ErrorCode;
use protocol::messages::JoinGroupResponse;
use protocol::messages::join_group_response::JoinGroupResponseMember;

use super::group::{FirstRebalance, Group, GroupState, Waiting};
use super::{Context, GroupResponse, Pending, records};

impl Group {
    /// Begins a rebalance, or ends one that only waited for this.
    pub(super) fn rebalance(&mut self, cx: &mut Context<'_>) {
        match self.state {
            GroupState::PreparingRebalance { .. } => self.complete_join_if_all(cx),
            GroupState::Empty
            | GroupState::CompletingRebalance { .. }
            | GroupState::Stable { .. } => self.prepare_rebalance(cx),
        }
    }

    pub(super) fn prepare_rebalance(&mut self, cx: &mut Context<'_>) {
        if let GroupState::CompletingRebalance { .. } = self.state {
            self.refuse_syncs(cx, ErrorCode::RebalanceInProgress);
        }
        let was_empty = match self.state {
            GroupState::Empty => true,
            GroupState::CompletingRebalance { .. } | GroupState::Stable { .. } => {
                cx.cancel_timer(self.sync_timer());
                false
            }
            GroupState::PreparingRebalance { .. } => return,
        };
        let delay = cx.config.initial_rebalance_delay_ms;
        if was_empty && delay > 0 {
            let remaining_ms = (self.rebalance_timeout_ms() - delay).max(0);
            let first = Some(FirstRebalance { remaining_ms, member_added: false });
            self.go(GroupState::PreparingRebalance { first }, cx.now);
            cx.set_timer(self.join_timer(), delay);
            return;
        }
        self.go(GroupState::PreparingRebalance { first: None }, cx.now);
        if self.all_joined() {
            self.complete_join(cx);
        } else {
            cx.set_timer(self.join_timer(), self.rebalance_timeout_ms());
        }
    }

    fn all_joined(&self) -> bool {
        self.promised.is_empty() && self.members.values().all(super::group::Member::is_joining)
    }

    pub(super) fn complete_join_if_all(&mut self, cx: &mut Context<'_>) {
        if self.state == (GroupState::PreparingRebalance { first: None }) && self.all_joined() {
            self.complete_join(cx);
        }
    }

    pub(super) fn on_join_timeout(&mut self, cx: &mut Context<'_>) {
        match self.state {
            GroupState::PreparingRebalance {
                first: Some(FirstRebalance { remaining_ms, member_added: true }),
            } if remaining_ms > 0 => {
                let delay = cx.config.initial_rebalance_delay_ms.min(remaining_ms);
                let first =
                    FirstRebalance { remaining_ms: remaining_ms - delay, member_added: false };
                self.state = GroupState::PreparingRebalance { first: Some(first) };
                cx.set_timer(self.join_timer(), delay);
            }
            GroupState::PreparingRebalance { .. } => self.complete_join(cx),
            GroupState::Empty
            | GroupState::CompletingRebalance { .. }
            | GroupState::Stable { .. } => {}
        }
    }

    /// Ends the joining: members that did not come back are out, unless they are static.
    fn complete_join(&mut self, cx: &mut Context<'_>) {
        let missing: Vec<String> = self
            .members
            .values()
            .filter(|member| !member.is_joining() && member.instance_id.is_none())
            .map(|member| member.id.clone())
            .collect();
        for member_id in missing {
            self.remove_member(cx, &member_id, ErrorCode::UnknownMemberId);
        }
        if !self.members.is_empty() && !self.elect_joined_leader() {
            // Only static members, none of which is back: wait on.
            self.state = GroupState::PreparingRebalance { first: None };
            cx.set_timer(self.join_timer(), self.rebalance_timeout_ms());
            return;
        }
        cx.cancel_timer(self.join_timer());
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        if self.members.is_empty() {
            self.leader = None;
            self.protocol = None;
            self.go(GroupState::Empty, cx.now);
            let record = records::group(self, &std::collections::BTreeMap::new());
            cx.append(vec![record], Pending::EmptyGeneration { leave: None });
            return;
        }
        self.protocol = self.select_protocol();
        let unsynced: BTreeSet<String> = self.members.keys().cloned().collect();
        self.go(GroupState::CompletingRebalance { unsynced, assigning: false }, cx.now);
        self.answer_joins(cx);
        cx.set_timer(self.sync_timer(), self.rebalance_timeout_ms());
    }

    /// Keeps a leader that joined, or takes the first member that did; false when none did.
    fn elect_joined_leader(&mut self) -> bool {
        let joined = self.leader.as_ref().and_then(|id| self.members.get(id));
        if joined.is_some_and(super::group::Member::is_joining) {
            return true;
        }
        let first = self.members.values().find(|member| member.is_joining());
        match first.map(|member| member.id.clone()) {
            Some(id) => {
                self.leader = Some(id);
                true
            }
            None => false,
        }
    }

    fn answer_joins(&mut self, cx: &mut Context<'_>) {
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let response = self.join_response(&id);
            if let Some(member) = self.members.get_mut(&id) {
                member.is_new = false;
                if let Waiting::Join { to, .. } =
                    std::mem::replace(&mut member.waiting, Waiting::Nothing)
                {
                    cx.reply(to, GroupResponse::JoinGroup(response));
                }
            }
            self.touch(cx, &id);
        }
    }

    /// The answer of the current generation to one member; the leader gets them all.
    pub(super) fn join_response(&self, member_id: &str) -> JoinGroupResponse {
        let members =
            if self.is_leader(member_id) { self.members_for_leader() } else { Vec::new() };
        JoinGroupResponse {
            error_code: ErrorCode::None.code(),
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: Some(self.protocol.clone().unwrap_or_default()),
            leader: self.leader.clone().unwrap_or_default(),
            member_id: member_id.to_owned(),
            members,
            ..JoinGroupResponse::default()
        }
    }

    pub(super) fn members_for_leader(&self) -> Vec<JoinGroupResponseMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        self.members
            .values()
            .map(|member| JoinGroupResponseMember {
                member_id: member.id.clone(),
                group_instance_id: member.instance_id.clone(),
                metadata: member.metadata(protocol),
            })
            .collect()
    }

    /// Answers every waiting sync with an error and forgets the assignments.
    pub(super) fn refuse_syncs(&mut self, cx: &mut Context<'_>, code: ErrorCode) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
            if let Waiting::Sync { .. } = member.waiting {
                member.answer_waiting(cx, code);
            }
        }
    }

    /// Members that did not ask for their assignment in time are out.
    pub(super) fn on_sync_timeout(&mut self, cx: &mut Context<'_>) {
        let late = match &self.state {
            GroupState::CompletingRebalance { unsynced, .. } | GroupState::Stable { unsynced } => {
                unsynced.clone()
            }
            GroupState::Empty | GroupState::PreparingRebalance { .. } => BTreeSet::new(),
        };
        if late.is_empty() {
            return;
        }
        for member_id in late {
            self.remove_member(cx, &member_id, ErrorCode::UnknownMemberId);
        }
        self.prepare_rebalance(cx);
    }
}
