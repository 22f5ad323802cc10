//! Which leaders and replicas a client is told of.

use protocol::ids::{BrokerEpoch, DirectoryId, LeaderEpoch, PartitionEpoch};
use raft::{MetadataRecord, StopState};
use uuid::Uuid;

use super::*;

fn broker(id: i32, fenced: bool, listeners: &[&str]) -> MetadataRecord {
    MetadataRecord::RegisterBroker(BrokerRegistration {
        id: NodeId(id),
        directory_id: DirectoryId(Uuid::from_u128(u128::from(id.unsigned_abs()))),
        incarnation_id: Uuid::nil(),
        epoch: BrokerEpoch(i64::from(id)),
        listeners: listeners
            .iter()
            .map(|name| Listener {
                name: (*name).to_owned(),
                host: "localhost".to_owned(),
                port: 9092,
                security_protocol: 0,
            })
            .collect(),
        rack: None,
        log_dirs: Vec::new(),
        features: Vec::new(),
        fenced,
        in_controlled_shutdown: false,
    })
}

fn image() -> MetadataImage {
    let mut image = MetadataImage::default();
    let brokers = [
        broker(1, false, &["PLAINTEXT"]),
        broker(2, true, &["PLAINTEXT"]),
        broker(3, false, &["OTHER"]),
    ];
    brokers.iter().for_each(|record| image.replay(record).unwrap());
    image
}

fn partition(leader: Option<i32>) -> PartitionImage {
    let all = vec![NodeId(1), NodeId(2), NodeId(3), NodeId(4)];
    PartitionImage {
        replicas: all.clone(),
        isr: all,
        leader: leader.map(NodeId),
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(6),
        stop: StopState::Never,
    }
}

#[test]
fn a_leader_is_told_only_where_it_is_reached() {
    let image = image();
    let view = ListenerView::new(&image, "PLAINTEXT");
    let seen = |leader| {
        let seen = view.partition(PartitionIndex(0), &partition(leader));
        (seen.error, seen.leader_id)
    };
    assert_eq!(seen(Some(1)), (ErrorCode::None, 1));
    assert_eq!(seen(Some(2)), (ErrorCode::LeaderNotAvailable, -1));
    assert_eq!(seen(Some(3)), (ErrorCode::ListenerNotFound, -1));
    assert_eq!(seen(Some(4)), (ErrorCode::LeaderNotAvailable, -1));
    assert_eq!(seen(None), (ErrorCode::LeaderNotAvailable, -1));
}

#[test]
fn replicas_that_are_not_reached_are_offline() {
    let image = image();
    let view = ListenerView::new(&image, "PLAINTEXT");
    let seen = view.partition(PartitionIndex(0), &partition(Some(1)));
    assert_eq!(seen.offline, [2, 3, 4]);
    assert_eq!(seen.replicas, [1, 2, 3, 4]);
}

#[test]
fn the_controller_is_a_broker_the_client_reaches() {
    let image = image();
    let view = ListenerView::new(&image, "PLAINTEXT");
    assert_eq!(view.controller_id(Some(NodeId(1))), 1);
    assert_eq!(view.controller_id(Some(NodeId(3))), 1);
    assert_eq!(view.controller_id(None), 1);
    let empty = MetadataImage::default();
    assert_eq!(ListenerView::new(&empty, "PLAINTEXT").controller_id(Some(NodeId(1))), -1);
}

#[test]
fn operations_are_kafkas_bits() {
    assert_eq!(TOPIC_OPERATIONS, 3576);
    assert_eq!(CLUSTER_OPERATIONS, 8096);
}
