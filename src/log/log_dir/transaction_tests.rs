//! Transactions in a log: the last stable offset, aborted transactions, markers of coordinators,
//! the reset of producers after mirroring; and all of it after reopening and truncation.

use bytes::Bytes;
use protocol::control::{
    EndTransactionMarker, TransactionEnd, end_transaction_marker, mirror_pid_reset,
};
use protocol::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

use super::tests::{Bench, client, produced, records};
use super::*;
use crate::lease::Origin;

fn transactional(producer: i64, sequence: i32, count: u8) -> Bytes {
    records(count, 500)
        .producer(ProducerId(producer), ProducerEpoch(0), Sequence(sequence))
        .transactional()
        .build()
}

fn coordinator(batches: Bytes) -> Append {
    Append { origin: Origin::Coordinator, ..client(batches) }
}

fn marker(producer: i64, end: TransactionEnd) -> Append {
    coordinator(end_transaction_marker(&EndTransactionMarker {
        end,
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(0),
        coordinator_epoch: 1,
        timestamp: TimestampMs(600),
    }))
}

fn advance(lease: &Lease, to: i64) {
    lease.view.advance_high_watermark(lease.incarnation, Offset(to));
}

fn aborted(lease: &Lease) -> Vec<(i64, i64, i64)> {
    lease
        .view
        .aborted_transactions(Offset(0), Offset(1_000))
        .into_iter()
        .map(|one| (one.producer_id.0, one.first_offset.0, one.last_offset.0))
        .collect()
}

/// `0..2` by 1, `2..4` by 2, `4` plain, `5` abort of 1, `6` commit of 2.
fn two_transactions(bench: &Bench) -> Lease {
    let lease = bench.lease();
    bench.produce(&lease, transactional(1, 0, 2)).unwrap();
    bench.produce(&lease, transactional(2, 0, 2)).unwrap();
    bench.produce(&lease, produced(1)).unwrap();
    advance(&lease, 5);
    assert_eq!(lease.view.last_stable_offset(), Offset(0));
    bench.append(&lease, marker(1, TransactionEnd::Abort)).unwrap();
    advance(&lease, 6);
    assert_eq!(lease.view.last_stable_offset(), Offset(2));
    bench.append(&lease, marker(2, TransactionEnd::Commit)).unwrap();
    lease
}

#[test]
fn the_last_stable_offset_follows_markers_below_the_high_watermark() {
    let bench = Bench::new();
    let lease = two_transactions(&bench);
    assert_eq!(lease.view.last_stable_offset(), Offset(2));
    assert!(lease.view.open_transactions().is_empty());
    advance(&lease, 7);
    assert_eq!(lease.view.last_stable_offset(), Offset(7));
    assert_eq!(aborted(&lease), [(1, 0, 5)]);
}

#[test]
fn transactions_survive_kills_and_stops() {
    let mut bench = Bench::new();
    let lease = two_transactions(&bench);
    bench.produce(&lease, transactional(3, 0, 2)).unwrap();
    advance(&lease, 9);
    bench.tick(0);
    for _ in 0..2 {
        bench.kill();
        let lease = bench.lease();
        assert_eq!(aborted(&lease), [(1, 0, 5)]);
        assert_eq!(lease.view.last_stable_offset(), Offset(7));
        let open = lease.view.open_transactions();
        assert_eq!((open[0].producer_id, open[0].first_offset), (ProducerId(3), Offset(7)));
        bench.stop_and_start();
        assert_eq!(aborted(&bench.lease()), [(1, 0, 5)]);
        assert_eq!(bench.lease().view.last_stable_offset(), Offset(7));
    }
}

#[test]
fn a_truncated_marker_opens_its_transaction_again() {
    let bench = Bench::new();
    let lease = two_transactions(&bench);
    advance(&lease, 7);
    bench.truncate(&lease, 5).unwrap();
    assert_eq!(lease.view.last_stable_offset(), Offset(0));
    assert!(aborted(&lease).is_empty());
    assert_eq!(lease.view.open_transactions().len(), 2);
    bench.append(&lease, marker(1, TransactionEnd::Abort)).unwrap();
    assert_eq!(aborted(&lease), [(1, 0, 5)]);
}

#[test]
fn a_transaction_over_several_segments_is_found_in_the_markers() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    for sequence in 0..10 {
        bench.produce(&lease, transactional(1, sequence * 4, 4)).unwrap();
    }
    bench.append(&lease, marker(1, TransactionEnd::Abort)).unwrap();
    advance(&lease, 41);
    let view = &lease.view;
    assert_eq!(view.aborted_transactions(Offset(8), Offset(12)).len(), 1);
    assert_eq!(aborted(&lease), [(1, 0, 40)]);
    bench.kill();
    assert_eq!(aborted(&bench.lease()), [(1, 0, 40)]);
}

#[test]
fn a_mirror_reset_forgets_producers() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    let send = |bench: &Bench, lease: &Lease, sequence: i32| {
        let producer = (ProducerId(9), ProducerEpoch(0), Sequence(sequence));
        bench.produce(lease, records(1, 500).producer(producer.0, producer.1, producer.2).build())
    };
    send(&bench, &lease, 0).unwrap();
    assert!(send(&bench, &lease, 5).is_err());
    bench.append(&lease, coordinator(mirror_pid_reset("source", TimestampMs(1)))).unwrap();
    assert!(lease.view.producers().is_empty());
    bench.kill();
    let lease = bench.lease();
    assert!(lease.view.producers().is_empty());
    send(&bench, &lease, 5).unwrap();
}

#[test]
fn a_coordinator_behind_the_newest_is_refused() {
    let bench = Bench::new();
    let lease = two_transactions(&bench);
    let old = coordinator(end_transaction_marker(&EndTransactionMarker {
        end: TransactionEnd::Abort,
        producer_id: ProducerId(1),
        producer_epoch: ProducerEpoch(0),
        coordinator_epoch: 0,
        timestamp: TimestampMs(700),
    }));
    let refused = bench.append(&lease, old).unwrap_err();
    assert!(matches!(refused, Error::Producer(_)), "{refused}");
    let behind = Append { leader_epoch: LeaderEpoch(-1), ..client(produced(1)) };
    assert!(matches!(bench.append(&lease, behind), Err(Error::EpochDecreased { .. })));
}
