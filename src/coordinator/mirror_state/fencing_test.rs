//! What a mirror coordinator accepts, refuses and reads back. Owns the stories of D3: a deposed
//! leader, a resend, a failed append, both key layouts.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use protocol::messages::read_mirror_states_request::{
    ReadMirrorStatePartition, ReadMirrorStateTopic,
};
use protocol::messages::read_mirror_states_response::ReadMirrorStatePartitionResult;
use protocol::messages::write_mirror_states_request::{
    WriteMirrorStatePartition, WriteMirrorStateTopic,
};
use protocol::messages::{ReadMirrorStatesRequest, WriteMirrorStatesRequest};
use uuid::Uuid;

use super::*;
use crate::machine::Record;

const NOW: TimestampMs = TimestampMs(0);
const MIRRORING: i8 = 2;
const STOPPING: i8 = 5;

fn id() -> Uuid {
    Uuid::from_u128(7)
}

/// A machine with the log it would have.
#[derive(Default)]
struct World {
    machine: MirrorStateMachine,
    requests: u64,
    appends: Vec<(Token, Vec<Record>)>,
    log: Vec<Record>,
    replies: Vec<(RequestId, MirrorStateResponse)>,
}

impl World {
    fn take(&mut self, effects: Effects<MirrorStateMachine>) {
        for effect in effects {
            match effect {
                Effect::Append { records, token } => self.appends.push((token, records)),
                Effect::Reply { to, response } => self.replies.push((to, response)),
                Effect::SetTimer { timer, .. } | Effect::CancelTimer { timer } => match timer {},
            }
        }
    }

    fn ask(&mut self, command: MirrorStateCommand) -> RequestId {
        self.requests += 1;
        let to = RequestId(self.requests);
        let effects = self.machine.handle(NOW, to, command);
        self.take(effects);
        to
    }

    fn write(&mut self, partitions: Vec<WriteMirrorStatePartition>) -> RequestId {
        self.ask(MirrorStateCommand::Write(WriteMirrorStatesRequest {
            mirror_name: "m".into(),
            topics: vec![WriteMirrorStateTopic { name: "t".into(), partitions, topic_id: id() }],
            stopped_topics: Vec::new(),
        }))
    }

    fn append(&mut self, result: Result<(), ErrorCode>) {
        let (token, records) = self.appends.remove(0);
        if result.is_ok() {
            self.log.extend(records);
        }
        let effects = self.machine.on_appended(NOW, token, result);
        self.take(effects);
    }

    /// The codes of the write's partitions; empty while it is not answered.
    fn codes(&self, to: RequestId) -> Vec<ErrorCode> {
        self.replies
            .iter()
            .filter(|(answered, _)| *answered == to)
            .flat_map(|(_, response)| match response {
                MirrorStateResponse::Write(write) => write.topics.clone(),
                MirrorStateResponse::Read(_)
                | MirrorStateResponse::Describe(_)
                | MirrorStateResponse::Deleted(_) => Vec::new(),
            })
            .flat_map(|topic| topic.partitions)
            .map(|partition| ErrorCode::from_code(partition.error_code))
            .collect()
    }

    fn read(&mut self, partition: i32) -> ReadMirrorStatePartitionResult {
        let request = ReadMirrorStatesRequest {
            mirror_name: "m".into(),
            topics: vec![ReadMirrorStateTopic {
                name: "t".into(),
                partitions: vec![ReadMirrorStatePartition { partition_index: partition }],
            }],
        };
        let topic_ids = BTreeMap::from([("t".to_owned(), id())]);
        self.ask(MirrorStateCommand::Read { request, topic_ids });
        match self.replies.pop() {
            Some((_, MirrorStateResponse::Read(mut read))) => {
                read.topics.remove(0).partitions.remove(0)
            }
            other => panic!("not a read: {other:?}"),
        }
    }

    fn reload(&mut self) {
        self.machine = MirrorStateMachine::new();
        for record in &self.log {
            self.machine.replay(&record.key, record.value.as_ref()).unwrap();
        }
    }
}

fn row(leader_epoch: i32, transition: i64, state: i8) -> WriteMirrorStatePartition {
    WriteMirrorStatePartition {
        partition_index: 0,
        state,
        last_mirror_epoch: -1,
        leader_epoch,
        transition,
        ..WriteMirrorStatePartition::default()
    }
}

#[test]
fn a_row_counts_when_it_is_committed() {
    let mut world = World::default();
    let write = world.write(vec![row(4, 1, MIRRORING)]);
    assert_eq!(world.codes(write), []);
    assert_eq!(world.read(0).state, 16);
    world.append(Ok(()));
    assert_eq!(world.codes(write), [ErrorCode::None]);
    assert_eq!((world.read(0).state, world.read(0).transition), (MIRRORING, 1));
}

#[test]
fn a_deposed_leader_is_fenced() {
    let mut world = World::default();
    world.write(vec![row(4, 3, MIRRORING)]);
    world.append(Ok(()));
    let lower_epoch = world.write(vec![row(3, 9, STOPPING)]);
    assert_eq!(world.codes(lower_epoch), [ErrorCode::FencedLeaderEpoch]);
    let same_number = world.write(vec![row(5, 3, STOPPING)]);
    assert_eq!(world.codes(same_number), [ErrorCode::FencedLeaderEpoch]);
    let lower_number = world.write(vec![row(4, 2, STOPPING)]);
    assert_eq!(world.codes(lower_number), [ErrorCode::FencedLeaderEpoch]);
    assert!(world.appends.is_empty());
}

#[test]
fn fencing_looks_at_rows_that_are_under_way() {
    let mut world = World::default();
    world.write(vec![row(4, 1, MIRRORING)]);
    let fenced = world.write(vec![row(3, 2, STOPPING)]);
    assert_eq!(world.codes(fenced), [ErrorCode::FencedLeaderEpoch]);
}

#[test]
fn the_same_row_again_succeeds_with_the_first() {
    let mut world = World::default();
    let first = world.write(vec![row(4, 1, MIRRORING)]);
    let again = world.write(vec![row(4, 1, MIRRORING)]);
    assert_eq!(world.appends.len(), 1, "nothing is appended twice");
    assert_eq!(world.codes(again), []);
    world.append(Ok(()));
    assert_eq!(world.codes(first), [ErrorCode::None]);
    assert_eq!(world.codes(again), [ErrorCode::None]);
    let late = world.write(vec![row(4, 1, MIRRORING)]);
    assert_eq!(world.codes(late), [ErrorCode::None]);
    let other_content = world.write(vec![row(4, 1, STOPPING)]);
    assert_eq!(world.codes(other_content), [ErrorCode::FencedLeaderEpoch]);
}

#[test]
fn a_failed_append_leaves_the_row_as_it_was() {
    let mut world = World::default();
    world.write(vec![row(4, 1, MIRRORING)]);
    world.append(Ok(()));
    let lost = world.write(vec![row(4, 2, STOPPING)]);
    world.append(Err(ErrorCode::NotEnoughReplicas));
    assert_eq!(world.codes(lost), [ErrorCode::CoordinatorNotAvailable]);
    assert_eq!(world.read(0).state, MIRRORING);
    let again = world.write(vec![row(4, 2, STOPPING)]);
    world.append(Ok(()));
    assert_eq!(world.codes(again), [ErrorCode::None]);
}

#[test]
fn state_16_and_epoch_minus_1_leave_what_is_there() {
    let mut world = World::default();
    let full = WriteMirrorStatePartition {
        last_mirror_epoch: 5,
        last_mirrored_offset: 19,
        reason: Some("why".into()),
        ..row(4, 1, STOPPING)
    };
    world.write(vec![full]);
    world.append(Ok(()));
    world.write(vec![row(4, 2, MIRRORING)]);
    world.append(Ok(()));
    let read = world.read(0);
    assert_eq!((read.state, read.last_mirror_epoch, read.last_mirrored_offset), (2, 5, 19));
    let epoch_only = WriteMirrorStatePartition { last_mirror_epoch: 6, ..row(4, 3, LEAVE_STATE) };
    world.write(vec![epoch_only]);
    world.append(Ok(()));
    assert_eq!((world.read(0).state, world.read(0).last_mirror_epoch), (MIRRORING, 6));
}

#[test]
fn one_bad_partition_does_not_stop_the_others() {
    let mut world = World::default();
    let second = WriteMirrorStatePartition { partition_index: 1, ..row(4, 1, 9) };
    let write = world.write(vec![row(4, 1, MIRRORING), second]);
    world.append(Ok(()));
    assert_eq!(world.codes(write), [ErrorCode::None, ErrorCode::InvalidRequest]);
}

#[test]
fn a_new_coordinator_reads_what_the_old_one_held() {
    let mut world = World::default();
    let full = WriteMirrorStatePartition {
        last_mirror_epoch: 5,
        last_mirrored_offset: 19,
        reason: Some("why".into()),
        attempt: 3,
        previous_state: MIRRORING,
        records_cut: 8,
        aborted_producers: vec![4001, 4002],
        ..row(4, 1, STOPPING)
    };
    world.write(vec![full]);
    world.append(Ok(()));
    let before = world.read(0);
    world.reload();
    assert_eq!(world.read(0), before);
}

#[test]
fn deleted_topics_and_mirrors_leave_tombstones() {
    for command in [
        MirrorStateCommand::TopicDeleted { topic_id: id() },
        MirrorStateCommand::MirrorDeleted { mirror: "m".into() },
    ] {
        let mut world = World::default();
        let full = WriteMirrorStatePartition { last_mirror_epoch: 5, ..row(4, 1, STOPPING) };
        world.write(vec![full]);
        world.append(Ok(()));
        world.ask(command);
        assert_eq!(world.appends[0].1.len(), 2, "state and last mirror epoch");
        world.append(Ok(()));
        assert!(world.machine.is_empty());
        world.reload();
        assert!(world.machine.is_empty());
        let again = world.ask(MirrorStateCommand::MirrorDeleted { mirror: "m".into() });
        let nothing = MirrorStateResponse::Deleted(ErrorCode::None);
        assert!(world.replies.contains(&(again, nothing)), "nothing to do succeeds");
    }
}

#[test]
fn revision_205s_bytes_are_read() {
    // The worked example of revision 205, with partition 0 in state 2.
    let key = Bytes::from_static(b"\x00\x02\x00\x01m");
    let value = Bytes::from_static(b"\x00\x00\x02t\x00\x00\x00\x00\x02\x00");
    let mut world = World::default();
    world.machine.replay(&key, Some(&value)).unwrap();
    assert_eq!(world.read(0).state, MIRRORING);
    // The topic's first row under our key takes its place.
    let write = world.write(vec![row(4, 1, STOPPING)]);
    world.append(Ok(()));
    assert_eq!(world.codes(write), [ErrorCode::None]);
    assert_eq!(world.machine.len(), 1);
    // A tombstone under that key is no trouble either.
    world.machine.replay(&key, None).unwrap();
    assert_eq!(world.read(0).state, STOPPING);
}

#[test]
fn our_keys_hold_topic_and_partition() {
    let mut world = World::default();
    world.write(vec![row(4, 1, MIRRORING)]);
    let key = &world.appends[0].1[0].key;
    assert_eq!(key.len(), 2 + 2 + 1 + 16 + 4);
    assert_eq!(&key[..5], b"\x00\x02\x00\x01m");
}

#[test]
fn an_unreadable_record_is_named() {
    let mut machine = MirrorStateMachine::new();
    let error = machine.replay(&Bytes::from_static(b"\x00\x09x"), None).unwrap_err();
    assert_eq!(error, ReplayError::UnknownType { record_type: 9 });
    let short = machine.replay(&Bytes::from_static(b"\x00\x02\x00\x09m"), None).unwrap_err();
    assert!(matches!(short, ReplayError::Malformed { record_type: 2, .. }), "{short}");
}

#[test]
fn resigning_answers_everyone() {
    let mut world = World::default();
    let write = world.write(vec![row(4, 1, MIRRORING)]);
    let effects = world.machine.on_resigned();
    world.take(effects);
    assert_eq!(world.codes(write), [ErrorCode::NotCoordinator]);
}
