//! Random requests against the group coordinator. Owns the promises that hold whatever comes:
//! every request is answered exactly once, and what a new coordinator reads is what the old one
//! held.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use proptest::prelude::*;
use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use uuid::Uuid;

use super::*;

const GROUPS: [&str; 2] = ["g", "h"];

#[derive(Clone, Debug)]
enum Step {
    Join { group: usize, member: usize, instance: Option<u8>, version: i16, other: bool },
    Sync { group: usize, member: usize, generation: i32 },
    Heartbeat { group: usize, member: usize, generation: i32 },
    Leave { group: usize, member: usize },
    Commit { group: usize, member: Option<usize>, generation: i32, partition: i32, offset: i64 },
    TopicDeleted,
    Append { succeeds: bool },
    Timer(usize),
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let group = 0..GROUPS.len();
    let member = 0..6_usize;
    prop_oneof![
        6 => (group.clone(), member.clone(), proptest::option::weighted(0.3, 0..2_u8), 0..10_i16,
              any::<bool>())
            .prop_map(|(group, member, instance, version, other)| Step::Join {
                group, member, instance, version, other
            }),
        4 => (group.clone(), member.clone(), 0..4_i32)
            .prop_map(|(group, member, generation)| Step::Sync { group, member, generation }),
        2 => (group.clone(), member.clone(), 0..4_i32)
            .prop_map(|(group, member, generation)| Step::Heartbeat { group, member, generation }),
        1 => (group.clone(), member.clone())
            .prop_map(|(group, member)| Step::Leave { group, member }),
        4 => (group, proptest::option::of(member), -1..4_i32, 0..3_i32, 0..99_i64).prop_map(
            |(group, member, generation, partition, offset)| Step::Commit {
                group, member, generation, partition, offset
            }
        ),
        1 => Just(Step::TopicDeleted),
        6 => proptest::bool::weighted(0.8).prop_map(|succeeds| Step::Append { succeeds }),
        3 => (0..8_usize).prop_map(Step::Timer),
        1 => (0..20_000_i64).prop_map(Step::Wait),
    ]
}

/// The machine with the log it would have, and the requests it owes an answer.
struct World {
    machine: GroupMachine,
    now: TimestampMs,
    next_request: u64,
    owed: BTreeSet<RequestId>,
    members: Vec<String>,
    timers: Vec<GroupTimer>,
    appends: VecDeque<(Token, Vec<Record>)>,
    committed: Vec<Record>,
}

impl World {
    fn new() -> World {
        World {
            machine: GroupMachine::new(GroupConfig::default()),
            now: TimestampMs(1),
            next_request: 0,
            owed: BTreeSet::new(),
            members: Vec::new(),
            timers: Vec::new(),
            appends: VecDeque::new(),
            committed: Vec::new(),
        }
    }

    fn member(&self, index: usize) -> String {
        self.members.get(index).cloned().unwrap_or_default()
    }

    fn ask(&mut self, command: GroupCommand) {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        self.owed.insert(id);
        let effects = self.machine.handle(self.now, id, command);
        self.take(effects);
    }

    fn take(&mut self, effects: Effects<GroupMachine>) {
        for effect in effects {
            match effect {
                Effect::Append { records, token } => {
                    assert!(!records.is_empty(), "an append has records");
                    self.appends.push_back((token, records));
                }
                Effect::Reply { to, response } => {
                    assert!(self.owed.remove(&to), "{to:?} was answered twice");
                    if let GroupResponse::JoinGroup(join) = response
                        && !join.member_id.is_empty()
                        && !self.members.contains(&join.member_id)
                    {
                        self.members.insert(0, join.member_id);
                        self.members.truncate(5);
                    }
                }
                Effect::SetTimer { timer, .. } => {
                    self.timers.retain(|set| *set != timer);
                    self.timers.push(timer);
                }
                Effect::CancelTimer { timer } => self.timers.retain(|set| *set != timer),
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Join { group, member, instance, version, other } => {
                let member_id = self.member(member);
                self.ask(join(
                    GROUPS[group],
                    member_id,
                    instance,
                    version,
                    other,
                    u128::from(self.next_request),
                ));
            }
            Step::Sync { group, member, generation } => {
                let member_id = self.member(member);
                self.ask(GroupCommand::SyncGroup(SyncGroupRequest {
                    group_id: GROUPS[group].into(),
                    generation_id: generation,
                    member_id,
                    ..SyncGroupRequest::default()
                }));
            }
            Step::Heartbeat { group, member, generation } => {
                let member_id = self.member(member);
                self.ask(GroupCommand::Heartbeat(HeartbeatRequest {
                    group_id: GROUPS[group].into(),
                    generation_id: generation,
                    member_id,
                    group_instance_id: None,
                }));
            }
            Step::Leave { group, member } => {
                let request = LeaveGroupRequest {
                    group_id: GROUPS[group].into(),
                    member_id: self.member(member),
                    ..LeaveGroupRequest::default()
                };
                self.ask(GroupCommand::LeaveGroup { request, api_version: 2 });
            }
            Step::Commit { group, member, generation, partition, offset } => {
                let member_id = member.map_or_else(String::new, |member| self.member(member));
                self.ask(commit(GROUPS[group], member_id, generation, partition, offset));
            }
            Step::TopicDeleted => self.ask(GroupCommand::TopicsDeleted(vec!["t".into()])),
            Step::Append { succeeds } => self.append(succeeds),
            Step::Timer(index) => {
                if index < self.timers.len() {
                    let timer = self.timers.remove(index);
                    let effects = self.machine.on_timer(self.now, timer);
                    self.take(effects);
                }
            }
            Step::Wait(ms) => self.now = TimestampMs(self.now.0 + ms),
        }
    }

    fn append(&mut self, succeeds: bool) {
        let Some((token, records)) = self.appends.pop_front() else { return };
        let result = if succeeds {
            self.committed.extend(records);
            Ok(())
        } else {
            Err(ErrorCode::NotEnoughReplicasAfterAppend)
        };
        let effects = self.machine.on_appended(self.now, token, result);
        self.take(effects);
    }

    fn reloaded(&self) -> GroupMachine {
        let mut machine = GroupMachine::new(GroupConfig::default());
        for record in &self.committed {
            machine.replay(&record.key, record.value.as_ref()).expect("own records are readable");
        }
        machine
    }
}

fn join(
    group: &str,
    member_id: String,
    instance: Option<u8>,
    version: i16,
    other: bool,
    fresh: u128,
) -> GroupCommand {
    let names: &[&str] = if other { &["range", "sticky"] } else { &["range"] };
    GroupCommand::JoinGroup {
        request: JoinGroupRequest {
            group_id: group.into(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 20_000,
            member_id,
            group_instance_id: instance.map(|instance| format!("i{instance}")),
            protocol_type: "consumer".into(),
            protocols: names
                .iter()
                .map(|name| JoinGroupRequestProtocol {
                    name: (*name).into(),
                    metadata: Bytes::new(),
                })
                .collect(),
            reason: None,
        },
        api_version: version,
        client: Client { id: "c".into(), host: "/h".into() },
        fresh_id: Uuid::from_u128(fresh),
    }
}

fn commit(
    group: &str,
    member_id: String,
    generation: i32,
    partition: i32,
    offset: i64,
) -> GroupCommand {
    GroupCommand::CommitOffsets(OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: generation,
        member_id,
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            topic_id: Uuid::nil(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: offset,
                committed_leader_epoch: -1,
                committed_metadata: None,
            }],
        }],
        ..OffsetCommitRequest::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn requests_are_answered_once_and_offsets_survive_a_move(
        steps in proptest::collection::vec(step(), 1..150)
    ) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        while !world.appends.is_empty() {
            world.append(true);
        }
        let reloaded = world.reloaded();
        for group in GROUPS {
            prop_assert_eq!(world.machine.committed(group), reloaded.committed(group));
        }
        let effects = world.machine.on_resigned();
        world.take(effects);
        prop_assert!(world.owed.is_empty(), "not answered: {:?}", world.owed);
    }
}
