//! Sessions: epochs, eviction, turns.

use protocol::ids::{PartitionIndex, TopicId};

use super::*;

fn id(partition: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: TopicId::ZERO, partition: PartitionIndex(partition) }
}

fn partition(index: i32, offset: i64) -> SessionPartition {
    SessionPartition {
        id: id(index),
        topic: "t".into(),
        wanted: Wanted {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch::NONE,
            last_fetched_epoch: LeaderEpoch::NONE,
            bytes_max: 1,
        },
        told: None,
    }
}

fn open(sessions: &FetchSessions, now: i64, replica: bool) -> Option<SessionRef> {
    let mut next = u64::try_from(sessions.len()).unwrap() + u64::try_from(now).unwrap() * 100;
    let replica = replica.then_some(NodeId(1));
    sessions.open(
        || {
            next += 1;
            next
        },
        replica,
        TimestampMs(now),
    )
}

#[test]
fn epochs_count_up_and_nothing_else_is_taken() {
    let sessions = FetchSessions::new(2);
    let opened = open(&sessions, 0, false).unwrap();
    let now = TimestampMs(1);
    assert!(sessions.resume(opened.id, 1, now).is_ok());
    assert!(sessions.resume(opened.id, 2, now).is_ok());
    let again = sessions.resume(opened.id, 2, now).unwrap_err();
    assert_eq!(again, ErrorCode::InvalidFetchSessionEpoch);
    let unknown = sessions.resume(opened.id + 1, 1, now).unwrap_err();
    assert_eq!(unknown, ErrorCode::FetchSessionIdNotFound);
}

#[test]
fn a_full_cache_evicts_only_the_long_idle() {
    let sessions = FetchSessions::new(1);
    let first = open(&sessions, 0, false).unwrap();
    assert!(open(&sessions, 1_000, false).is_none(), "the first is in use");
    let second = open(&sessions, EVICT_AFTER_MS + 1, false).unwrap();
    assert!(sessions.resume(first.id, 1, TimestampMs(0)).is_err());
    assert!(sessions.resume(second.id, 1, TimestampMs(0)).is_ok());
}

#[test]
fn a_follower_takes_a_clients_place_and_keeps_it() {
    let sessions = FetchSessions::new(1);
    open(&sessions, 0, false).unwrap();
    open(&sessions, 1, true).unwrap();
    assert!(open(&sessions, EVICT_AFTER_MS * 2, false).is_none());
}

#[test]
fn what_was_answered_goes_to_the_end_and_a_change_keeps_its_turn() {
    let mut session = Session::default();
    for index in 0..3 {
        session.set(partition(index, 0));
    }
    let told = Told { high_watermark: Offset(5), log_start: Offset(0) };
    session.on_answered(id(0), told, true);
    session.set(partition(1, 7));
    let order: Vec<i32> = session.partitions().iter().map(|p| p.id.partition.0).collect();
    assert_eq!(order, [1, 2, 0]);
    assert_eq!(session.partitions()[0].wanted.offset, Offset(7));
    session.remove(id(2));
    assert_eq!(session.partitions().len(), 2);
}
