//! What describe shows where controller, coordinator and leader know different things.

use mirror::describe::LagTracker;
use protocol::ids::{LeaderEpoch, Offset};
use raft::{MirrorName, MirrorStop};

use super::*;

fn stop() -> Arc<MirrorStop> {
    Arc::new(MirrorStop {
        mirror: MirrorName::from("dr"),
        leader_epoch: LeaderEpoch(9),
        last_mirror_epoch: LeaderEpoch(5),
        last_mirrored_offset: Offset(41),
    })
}

fn wanted(desired: MirrorDesired) -> MirrorRole {
    let mirror = MirrorName::from("dr");
    MirrorRole::Mirroring { mirror, desired, adopted: false, last_stop: None }
}

fn row(role: &MirrorRole, state: MirrorState) -> DescribedMirrorPartition {
    row_of(PartitionIndex(0), role, state, None, LagTracker::unknown())
}

#[test]
fn a_stop_the_controller_knows_needs_no_coordinator() {
    let role = MirrorRole::Stopped { mirror: MirrorName::from("dr"), stop: stop() };
    let shown = row(&role, MirrorState::Unknown);
    assert_eq!(shown.state, "STOPPED");
    assert_eq!((shown.last_mirror_epoch, shown.last_mirrored_offset), (5, 41));
    assert_eq!((shown.source_offset, shown.lag), (-1, -1));
}

#[test]
fn a_partition_is_stopped_only_once_it_takes_writes() {
    assert_eq!(row(&wanted(MirrorDesired::Stopped), MirrorState::Stopped).state, "STOPPING");
    assert_eq!(row(&wanted(MirrorDesired::Active), MirrorState::Stopped).state, "STOPPED");
    assert_eq!(row(&wanted(MirrorDesired::Active), MirrorState::Mirroring).state, "MIRRORING");
}

#[test]
fn a_state_that_cannot_be_read_says_so_beside_the_offsets() {
    let at =
        TopicIdPartition { topic_id: protocol::ids::TopicId::ZERO, partition: PartitionIndex(2) };
    let told = DescribedMirrorPartition { destination_offset: 7, ..Default::default() };
    let failed = Err(ErrorCode::CoordinatorNotAvailable);
    let shown = stored_row(at, &wanted(MirrorDesired::Active), Some(&failed), Some(&told));
    assert_eq!((shown.state.as_str(), shown.destination_offset), ("UNKNOWN", 7));
    assert!(shown.reason.unwrap().contains("cannot be read"));
}

#[test]
fn rows_come_sorted_and_mirrors_without_topics_too() {
    let key =
        |topic: &str, partition| ("a".to_owned(), topic.to_owned(), PartitionIndex(partition));
    let rows: Rows = [("t2", 0), ("t1", 10), ("t1", 2)]
        .into_iter()
        .map(|(topic, partition)| {
            let row =
                DescribedMirrorPartition { partition_index: partition, ..Default::default() };
            (key(topic, partition), row)
        })
        .collect();
    let nested = nested(&["a".to_owned(), "b".to_owned()], rows.clone());
    assert_eq!(nested.len(), 2);
    let topics: Vec<&str> = nested[0].topics.iter().map(|t| t.topic_name.as_str()).collect();
    assert_eq!(topics, ["t1", "t2"]);
    let order: Vec<i32> =
        nested[0].topics[0].partitions.iter().map(|p| p.partition_index).collect();
    assert_eq!(order, [2, 10]);
    let response = DescribeMirrorsResponse { mirrors: nested, ..Default::default() };
    assert_eq!(flat(response), rows);
}
