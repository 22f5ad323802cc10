//! Sessions as the fetching side keeps them: full, incremental, forgotten, held.

use protocol::ids::{PartitionIndex, TopicId};
use uuid::Uuid;

use super::*;

const LIMITS: FetchLimits = FetchLimits {
    wait_max_ms: 500,
    min_bytes: 1,
    response_max_bytes: 100,
    partition_max_bytes: 10,
};

fn id(topic: u128, partition: i32) -> TopicIdPartition {
    TopicIdPartition {
        topic_id: TopicId(Uuid::from_u128(topic)),
        partition: PartitionIndex(partition),
    }
}

fn at(offset: i64) -> FetchPosition {
    FetchPosition {
        topic: TopicName::from("t"),
        leader_epoch: LeaderEpoch(1),
        offset: Offset(offset),
        last_fetched_epoch: LeaderEpoch(0),
        log_start: Offset(0),
    }
}

fn asked(request: &FetchRequest) -> Vec<(i32, i64)> {
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| (partition.partition, partition.fetch_offset)).collect()
}

#[test]
fn an_incremental_request_names_only_what_moved() {
    let mut session = FetchSession::default();
    session.set(id(1, 0), at(0));
    session.set(id(1, 1), at(0));
    let full = session.next_request(LIMITS);
    assert_eq!((full.session_id, full.session_epoch), (0, 0));
    assert_eq!(asked(&full), [(0, 0), (1, 0)]);
    session.on_response(7);
    session.set(id(1, 1), at(5));
    let next = session.next_request(LIMITS);
    assert_eq!((next.session_id, next.session_epoch), (7, 1));
    assert_eq!(asked(&next), [(1, 5)]);
    session.on_response(7);
    assert_eq!(asked(&session.next_request(LIMITS)), []);
}

#[test]
fn what_is_removed_or_held_is_forgotten() {
    let mut session = FetchSession::default();
    session.set(id(1, 0), at(0));
    session.set(id(2, 1), at(0));
    session.next_request(LIMITS);
    session.on_response(7);
    session.remove(id(1, 0));
    session.hold(id(2, 1), true);
    assert!(session.is_idle() && !session.is_empty());
    let next = session.next_request(LIMITS);
    let forgotten: Vec<&[i32]> =
        next.forgotten_topics_data.iter().map(|topic| &topic.partitions[..]).collect();
    assert_eq!(forgotten, [&[0][..], &[1][..]]);
    session.on_response(7);
    session.hold(id(2, 1), false);
    assert_eq!(asked(&session.next_request(LIMITS)), [(1, 0)]);
}

#[test]
fn without_a_place_in_the_cache_every_request_is_full() {
    let mut session = FetchSession::default();
    session.set(id(1, 0), at(0));
    session.next_request(LIMITS);
    session.on_response(0);
    let again = session.next_request(LIMITS);
    assert_eq!((again.session_id, again.session_epoch), (0, 0));
    assert_eq!(asked(&again), [(0, 0)]);
}
