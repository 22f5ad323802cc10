//! Runs the group coordinator's golden scripts. Owns the little language they are written in; the
//! scripts and what they print are in `testscripts/`.
//!
//! A member's random id `00000000-…-0000000n` is written `#n`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use bytes::Bytes;
use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch_request::OffsetFetchRequestTopics;
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use uuid::Uuid;

use super::*;
use crate::GOLDEN;

const ZEROS: &str = "00000000-0000-0000-0000-00000000000";

struct Words<'a> {
    name: &'a str,
    plain: Vec<&'a str>,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Words<'a> {
        let mut parts = text.split(' ');
        let name = parts.next().expect("a command has a name");
        let mut words = Words { name, plain: Vec::new(), values: BTreeMap::new() };
        for part in parts {
            match part.split_once('=') {
                Some((key, value)) => {
                    words.values.insert(key, value);
                }
                None => words.plain.push(part),
            }
        }
        words
    }

    fn at(&self, index: usize) -> String {
        self.plain.get(index).copied().unwrap_or_default().to_owned()
    }

    fn id(&self, index: usize) -> String {
        self.at(index).replace('#', ZEROS)
    }

    fn number(&self, key: &str, default: i32) -> i32 {
        self.values.get(key).map_or(default, |value| value.parse().expect("a number"))
    }

    fn version(&self, default: i16) -> i16 {
        i16::try_from(self.number("version", i32::from(default))).expect("a version")
    }

    fn text(&self, key: &str) -> Option<String> {
        self.values.get(key).map(|value| (*value).replace('#', ZEROS))
    }

    fn list(&self, key: &str) -> Vec<String> {
        self.text(key).map_or_else(Vec::new, |text| text.split(',').map(str::to_owned).collect())
    }
}

/// The machine, its log and its clock.
struct Script {
    machine: GroupMachine,
    now: TimestampMs,
    request: u64,
    fresh: u128,
    appends: VecDeque<(Token, Vec<Record>)>,
    committed: Vec<Record>,
}

impl Script {
    fn new(delay: i32) -> Script {
        let config = GroupConfig { initial_rebalance_delay_ms: delay, ..GroupConfig::default() };
        Script {
            machine: GroupMachine::new(config),
            now: TimestampMs(0),
            request: 0,
            fresh: 0,
            appends: VecDeque::new(),
            committed: Vec::new(),
        }
    }

    fn command(&mut self, text: &str) -> String {
        let words = Words::new(text);
        match words.name {
            "at" => {
                self.now = TimestampMs(words.plain[0].parse().expect("a time"));
                String::new()
            }
            "delay" => {
                *self = Script::new(words.plain[0].parse().expect("a delay"));
                String::new()
            }
            "appended" => self.appended(&words.at(0)),
            "reload" => self.reload(),
            "timer" => {
                let timer = timer(&words);
                let effects = self.machine.on_timer(self.now, timer);
                self.print(effects)
            }
            "resign" => {
                let effects = self.machine.on_resigned();
                self.print(effects)
            }
            _ => {
                self.request += 1;
                let command = self.group_command(&words);
                let effects = self.machine.handle(self.now, RequestId(self.request), command);
                self.print(effects)
            }
        }
    }

    fn appended(&mut self, code: &str) -> String {
        let (token, records) = self.appends.pop_front().expect("an append is under way");
        let result = match code {
            "" => {
                self.committed.extend(records);
                Ok(())
            }
            "not-leader" => Err(ErrorCode::NotLeaderOrFollower),
            _ => Err(ErrorCode::NotEnoughReplicas),
        };
        let effects = self.machine.on_appended(self.now, token, result);
        self.print(effects)
    }

    fn reload(&mut self) -> String {
        self.machine = GroupMachine::new(self.machine.config.clone());
        self.appends.clear();
        for record in &self.committed {
            self.machine.replay(&record.key, record.value.as_ref()).expect("own records");
        }
        let effects = self.machine.on_loaded(self.now);
        self.print(effects)
    }

    fn print(&mut self, effects: Effects<GroupMachine>) -> String {
        let mut out = String::new();
        for effect in effects {
            match effect {
                Effect::Append { records, token } => {
                    writeln!(out, "append {} records as {}", records.len(), token.0)
                        .expect("a string takes all");
                    self.appends.push_back((token, records));
                }
                Effect::Reply { to, response } => {
                    writeln!(out, "reply to {}: {}", to.0, show(response))
                        .expect("a string takes all");
                }
                Effect::SetTimer { timer, at } => {
                    writeln!(out, "set {timer:?} at {at}").expect("a string takes all");
                }
                Effect::CancelTimer { timer } => {
                    writeln!(out, "cancel {timer:?}").expect("a string takes all");
                }
            }
        }
        out.replace(ZEROS, "#")
    }

    fn group_command(&mut self, words: &Words<'_>) -> GroupCommand {
        match words.name {
            "join" => self.join(words),
            "sync" => GroupCommand::SyncGroup(SyncGroupRequest {
                group_id: words.at(0),
                member_id: words.id(1),
                generation_id: words.at(2).parse().expect("a generation"),
                group_instance_id: words.text("instance"),
                assignments: words
                    .list("assign")
                    .iter()
                    .filter_map(|pair| pair.split_once(':'))
                    .map(|(member, bytes)| SyncGroupRequestAssignment {
                        member_id: member.to_owned(),
                        assignment: Bytes::copy_from_slice(bytes.as_bytes()),
                    })
                    .collect(),
                ..SyncGroupRequest::default()
            }),
            "heartbeat" => GroupCommand::Heartbeat(HeartbeatRequest {
                group_id: words.at(0),
                member_id: words.id(1),
                generation_id: words.at(2).parse().expect("a generation"),
                group_instance_id: words.text("instance"),
            }),
            "leave" => GroupCommand::LeaveGroup {
                request: LeaveGroupRequest {
                    group_id: words.at(0),
                    member_id: words.id(1),
                    members: vec![MemberIdentity {
                        member_id: words.id(1),
                        group_instance_id: words.text("instance"),
                        reason: None,
                    }],
                },
                api_version: words.version(5),
            },
            "commit" => commit(words),
            "fetch" => GroupCommand::FetchOffsets(OffsetFetchRequestGroup {
                group_id: words.at(0),
                topics: words.text("topic").map(|name| {
                    vec![OffsetFetchRequestTopics {
                        name,
                        partition_indexes: vec![0, 1],
                        ..OffsetFetchRequestTopics::default()
                    }]
                }),
                ..OffsetFetchRequestGroup::default()
            }),
            "list" => GroupCommand::ListGroups(ListGroupsRequest {
                states_filter: words.list("states"),
                types_filter: words.list("types"),
            }),
            "describe" => GroupCommand::DescribeGroup {
                group_id: words.at(0),
                api_version: words.version(6),
            },
            "topic-deleted" => GroupCommand::TopicsDeleted(vec![words.at(0)]),
            name => panic!("unknown command {name}"),
        }
    }

    fn join(&mut self, words: &Words<'_>) -> GroupCommand {
        self.fresh += 1;
        let protocols = words.text("protocols").unwrap_or_else(|| "range".into());
        GroupCommand::JoinGroup {
            request: JoinGroupRequest {
                group_id: words.at(0),
                session_timeout_ms: words.number("session", 10_000),
                rebalance_timeout_ms: words.number("rebalance", 60_000),
                member_id: words.text("id").unwrap_or_default(),
                group_instance_id: words.text("instance"),
                protocol_type: words.text("type").unwrap_or_else(|| "consumer".into()),
                protocols: protocols
                    .split(',')
                    .filter(|name| !name.is_empty())
                    .map(|name| JoinGroupRequestProtocol {
                        name: name.to_owned(),
                        metadata: Bytes::copy_from_slice(format!("{}!", words.at(1)).as_bytes()),
                    })
                    .collect(),
                reason: None,
            },
            api_version: words.version(9),
            client: Client { id: words.at(1), host: "/127.0.0.1".into() },
            fresh_id: Uuid::from_u128(self.fresh),
        }
    }
}

fn commit(words: &Words<'_>) -> GroupCommand {
    GroupCommand::CommitOffsets(OffsetCommitRequest {
        group_id: words.at(0),
        generation_id_or_member_epoch: words.number("generation", -1),
        member_id: words.text("id").unwrap_or_default(),
        group_instance_id: words.text("instance"),
        topics: vec![OffsetCommitRequestTopic {
            name: words.at(1),
            topic_id: Uuid::nil(),
            partitions: words
                .list("offsets")
                .iter()
                .enumerate()
                .map(|(index, offset)| OffsetCommitRequestPartition {
                    partition_index: i32::try_from(index).expect("few partitions"),
                    committed_offset: offset.parse().expect("an offset"),
                    committed_leader_epoch: words.number("epoch", -1),
                    committed_metadata: words.text("metadata"),
                })
                .collect(),
        }],
        ..OffsetCommitRequest::default()
    })
}

fn timer(words: &Words<'_>) -> GroupTimer {
    let group_id = words.at(1);
    match words.plain[0] {
        "member" => GroupTimer::Member { group_id, member_id: words.id(2) },
        "join" => GroupTimer::Join { group_id },
        _ => GroupTimer::Sync { group_id },
    }
}

fn code(code: i16) -> String {
    format!("{:?}", ErrorCode::from_code(code))
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn show(response: GroupResponse) -> String {
    match response {
        GroupResponse::JoinGroup(join) => {
            let members: Vec<String> = join
                .members
                .iter()
                .map(|m| format!("{}={}", m.member_id, text(&m.metadata)))
                .collect();
            format!(
                "join {} generation={} protocol={:?}/{:?} leader={} member={} members=[{}]{}",
                code(join.error_code),
                join.generation_id,
                join.protocol_type,
                join.protocol_name,
                join.leader,
                join.member_id,
                members.join(", "),
                if join.skip_assignment { " skip" } else { "" }
            )
        }
        GroupResponse::SyncGroup(sync) => {
            format!("sync {} assignment={}", code(sync.error_code), text(&sync.assignment))
        }
        GroupResponse::Heartbeat(heartbeat) => {
            format!("heartbeat {}", code(heartbeat.error_code))
        }
        GroupResponse::LeaveGroup(leave) => {
            let members: Vec<String> = leave.members.iter().map(|m| code(m.error_code)).collect();
            format!("leave {} [{}]", code(leave.error_code), members.join(", "))
        }
        GroupResponse::CommitOffsets(commit) => {
            let codes: Vec<String> = commit
                .topics
                .iter()
                .flat_map(|topic| &topic.partitions)
                .map(|partition| code(partition.error_code))
                .collect();
            format!("commit [{}]", codes.join(", "))
        }
        GroupResponse::FetchOffsets(fetch) => show_offsets(&fetch),
        GroupResponse::ListGroups(list) => {
            let groups: Vec<String> = list
                .groups
                .iter()
                .map(|g| {
                    format!(
                        "{} {} {} {}",
                        g.group_id, g.protocol_type, g.group_state, g.group_type
                    )
                })
                .collect();
            format!("list [{}]", groups.join(", "))
        }
        GroupResponse::DescribeGroup(group) => show_description(&group),
        GroupResponse::TopicsDeleted => "topics deleted".into(),
    }
}

fn show_offsets(fetch: &OffsetFetchResponseGroup) -> String {
    let offsets: Vec<String> = fetch
        .topics
        .iter()
        .flat_map(|topic| {
            topic.partitions.iter().map(move |p| {
                format!(
                    "{}-{}={} epoch {} {:?}",
                    topic.name,
                    p.partition_index,
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.metadata.clone().unwrap_or_default()
                )
            })
        })
        .collect();
    format!("offsets {} [{}]", code(fetch.error_code), offsets.join(", "))
}

fn show_description(group: &DescribedGroup) -> String {
    let members: Vec<String> = group
        .members
        .iter()
        .map(|m| {
            format!(
                "{} {:?} {} {} {} {}",
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.client_host,
                text(&m.member_metadata),
                text(&m.member_assignment)
            )
        })
        .collect();
    format!(
        "describe {} {:?} {} {} type={} protocol={} [{}]",
        code(group.error_code),
        group.error_message,
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        members.join(", ")
    )
}

#[test]
fn scripts_print_what_they_printed() {
    for name in GOLDEN.scripts() {
        let mut script = Script::new(0);
        GOLDEN.run(&name, |command| script.command(command));
    }
}
