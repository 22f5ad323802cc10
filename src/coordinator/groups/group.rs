//! A group and its members in memory. Owns the data and the simple questions about it; the
//! protocol is in the files of its requests.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use uuid::Uuid;

use super::{Context, GroupTimer, join, sync};
use crate::machine::RequestId;

/// What a group of the classic protocol is doing. A dead group is one that is not there.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GroupState {
    /// No members; perhaps offsets.
    Empty,
    /// Members are joining.
    PreparingRebalance {
        /// The wait for more members of a group that had none.
        first: Option<FirstRebalance>,
    },
    /// Members have joined and wait for the leader's assignment.
    CompletingRebalance {
        /// Members that have not asked for their assignment.
        unsynced: BTreeSet<String>,
        /// Whether the leader's assignment is being appended.
        assigning: bool,
    },
    /// Every member may have its assignment.
    Stable {
        /// Members that have not asked for their assignment.
        unsynced: BTreeSet<String>,
    },
}

/// The first rebalance waits a little for more members, and longer as they come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FirstRebalance {
    /// How long it may still be put off, in milliseconds.
    pub remaining_ms: i32,
    /// Whether a member came since the last look.
    pub member_added: bool,
}

/// What a member waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Waiting {
    Nothing,
    Join { to: RequestId, api_version: i16 },
    Sync { to: RequestId },
}

/// One member of a group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    pub id: String,
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// Protocols in the order the member likes them, with its metadata for each.
    pub protocols: Vec<(String, Bytes)>,
    pub assignment: Bytes,
    /// Has not had its first answer, so it cannot heartbeat yet.
    pub is_new: bool,
    pub waiting: Waiting,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Committed {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
    pub commit_timestamp: i64,
    pub topic_id: Uuid,
}

/// One group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub id: String,
    pub protocol_type: Option<String>,
    pub generation: i32,
    pub protocol: Option<String>,
    pub leader: Option<String>,
    pub members: BTreeMap<String, Member>,
    /// Member ids of static members, by instance id.
    pub static_members: BTreeMap<String, String>,
    /// Ids given to members that have not joined with them yet.
    pub promised: BTreeSet<String>,
    pub state: GroupState,
    pub state_since: TimestampMs,
    pub offsets: BTreeMap<(String, i32), Committed>,
}

impl Member {
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    pub(super) fn is_joining(&self) -> bool {
        matches!(self.waiting, Waiting::Join { .. })
    }

    /// Answers what the member waits for with an error.
    pub(super) fn answer_waiting(&mut self, cx: &mut Context<'_>, code: ErrorCode) {
        match std::mem::replace(&mut self.waiting, Waiting::Nothing) {
            Waiting::Nothing => {}
            Waiting::Join { to, api_version } => {
                cx.reply(to, join::refusal(api_version, &self.id, code));
            }
            Waiting::Sync { to } => cx.reply(to, sync::refusal(code)),
        }
    }
}

impl Group {
    pub(super) fn new(id: &str, now: TimestampMs) -> Group {
        Group {
            id: id.to_owned(),
            protocol_type: None,
            generation: 0,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            promised: BTreeSet::new(),
            state: GroupState::Empty,
            state_since: now,
            offsets: BTreeMap::new(),
        }
    }

    /// Whether the group could be forgotten: nothing of it is stored or waited for.
    pub(super) fn is_pristine(&self) -> bool {
        self.state == GroupState::Empty
            && self.generation == 0
            && self.members.is_empty()
            && self.promised.is_empty()
            && self.offsets.is_empty()
    }

    /// Kafka's name of the state.
    pub(super) fn state_name(&self) -> &'static str {
        match self.state {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance { .. } => "PreparingRebalance",
            GroupState::CompletingRebalance { .. } => "CompletingRebalance",
            GroupState::Stable { .. } => "Stable",
        }
    }

    pub(super) fn go(&mut self, state: GroupState, now: TimestampMs) {
        self.state = state;
        self.state_since = now;
    }

    pub(super) fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    pub(super) fn member_timer(&self, member_id: &str) -> GroupTimer {
        GroupTimer::Member { group_id: self.id.clone(), member_id: member_id.to_owned() }
    }

    pub(super) fn join_timer(&self) -> GroupTimer {
        GroupTimer::Join { group_id: self.id.clone() }
    }

    pub(super) fn sync_timer(&self) -> GroupTimer {
        GroupTimer::Sync { group_id: self.id.clone() }
    }

    /// Restarts a member's session.
    pub(super) fn touch(&self, cx: &mut Context<'_>, member_id: &str) {
        if let Some(member) = self.members.get(member_id) {
            cx.set_timer(self.member_timer(member_id), member.session_timeout_ms);
        }
    }

    /// The longest time any member asked for a rebalance.
    pub(super) fn rebalance_timeout_ms(&self) -> i32 {
        self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0)
    }

    /// Whether a member with these protocols can be in the group.
    pub(super) fn supports(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.members.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|(name, _)| {
                self.members.values().all(|member| member.protocols.iter().any(|p| &p.0 == name))
            })
    }

    /// The protocol that every member has and most like best; by name among equals.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let is_common = |name: &str| {
            self.members.values().all(|member| member.protocols.iter().any(|p| p.0 == name))
        };
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let choice = member.protocols.iter().find(|(name, _)| is_common(name));
            if let Some((name, _)) = choice {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.to_owned())
    }

    /// Whether the request comes from a member of the group.
    ///
    /// # Errors
    /// UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when a newer member has the instance id.
    pub(super) fn check_member(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.static_members.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(known) if known != member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    /// As [`Group::check_member`], and ILLEGAL_GENERATION for another generation.
    pub(super) fn check_generation(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        self.check_member(member_id, instance_id)?;
        if generation == self.generation { Ok(()) } else { Err(ErrorCode::IllegalGeneration) }
    }

    pub(super) fn add_member(&mut self, member: Member, protocol_type: &str) {
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.to_owned());
        }
        if self.leader.is_none() {
            self.leader = Some(member.id.clone());
        }
        if let Some(instance_id) = &member.instance_id {
            self.static_members.insert(instance_id.clone(), member.id.clone());
        }
        self.promised.remove(&member.id);
        self.members.insert(member.id.clone(), member);
    }

    /// Takes a member out and answers what it waits for; the caller rebalances.
    pub(super) fn remove_member(
        &mut self,
        cx: &mut Context<'_>,
        member_id: &str,
        code: ErrorCode,
    ) {
        let Some(mut member) = self.members.remove(member_id) else {
            return;
        };
        member.answer_waiting(cx, code);
        cx.cancel_timer(self.member_timer(member_id));
        if let Some(instance_id) = &member.instance_id
            && self.static_members.get(instance_id).is_some_and(|id| id == member_id)
        {
            self.static_members.remove(instance_id);
        }
        match &mut self.state {
            GroupState::CompletingRebalance { unsynced, .. } | GroupState::Stable { unsynced } => {
                unsynced.remove(member_id);
            }
            GroupState::Empty | GroupState::PreparingRebalance { .. } => {}
        }
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    /// A member asked for its assignment; the wait for the others ends with the last.
    pub(super) fn mark_synced(&mut self, cx: &mut Context<'_>, member_id: &str) {
        let all = match &mut self.state {
            GroupState::CompletingRebalance { unsynced, .. } | GroupState::Stable { unsynced } => {
                unsynced.remove(member_id) && unsynced.is_empty()
            }
            GroupState::Empty | GroupState::PreparingRebalance { .. } => false,
        };
        if all {
            cx.cancel_timer(self.sync_timer());
        }
    }
}
