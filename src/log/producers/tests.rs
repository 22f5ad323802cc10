//! Tests of producer states: each rule, snapshots, and that no gap and no resend is ever
//! appended.

use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use protocol::batch::BatchBuilder;

use super::*;
use crate::disk::Disk;

const DAY_MS: i64 = 86_400_000;

/// A log of one partition: states and the batches they come from.
struct Log {
    states: ProducerStates,
    batches: Vec<RecordBatch>,
    aborted: Vec<AbortedTransaction>,
}

impl Log {
    fn new() -> Log {
        let states = ProducerStates::new(Offset::ZERO);
        Log { states, batches: Vec::new(), aborted: Vec::new() }
    }

    fn append(&mut self, origin: Origin, batch: &RecordBatch) -> Result<Offset, Error> {
        let base_offset = self.states.end();
        let mut update = self.states.begin(origin);
        update.add(batch, base_offset)?;
        let changes = update.finish();
        let batch = batch.at(base_offset, protocol::ids::LeaderEpoch(0));
        self.aborted.extend(self.states.commit(changes, batch.header.next_offset()));
        self.batches.push(batch);
        Ok(base_offset)
    }

    fn client(&mut self, id: i64, epoch: i16, sequence: i32, count: i32) -> Result<Offset, Error> {
        self.append(Origin::Client, &data(id, epoch, sequence, count, false))
    }

    fn transactional(&mut self, id: i64, epoch: i16, sequence: i32) -> Result<Offset, Error> {
        self.append(Origin::Client, &data(id, epoch, sequence, 1, true))
    }

    fn end(&mut self, id: i64, epoch: i16, end: TransactionEnd) -> Result<Offset, Error> {
        self.append(Origin::Coordinator, &marker(id, epoch, end, 0))
    }

    fn stable(&self, high_watermark: i64) -> i64 {
        self.states.last_stable_offset(Offset::ZERO, Offset(high_watermark)).0
    }
}

fn data(id: i64, epoch: i16, sequence: i32, count: i32, transactional: bool) -> RecordBatch {
    let mut builder =
        BatchBuilder::new().producer(ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
    if transactional {
        builder = builder.transactional();
    }
    for _ in 0..count {
        builder.append(TimestampMs(1_000), None, Some(b"v"), &[]);
    }
    builder.build_batch()
}

fn marker(id: i64, epoch: i16, end: TransactionEnd, coordinator_epoch: i32) -> RecordBatch {
    let marker = EndTransactionMarker {
        end,
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        coordinator_epoch,
        timestamp: TimestampMs(2_000),
    };
    parse(control::end_transaction_marker(&marker))
}

fn reset() -> RecordBatch {
    parse(control::mirror_pid_reset("MkU3OEVBNTcwNTJENDM2Qk", TimestampMs(3_000)))
}

fn parse(bytes: Bytes) -> RecordBatch {
    RecordBatch::parse(bytes).unwrap()
}

#[test]
fn sequences_must_follow() {
    let mut log = Log::new();
    assert_eq!(log.client(1, 0, 5, 3), Ok(Offset(0)), "a new producer may begin anywhere");
    assert_eq!(log.client(1, 0, 8, 1), Ok(Offset(3)));
    let error = log.client(1, 0, 10, 1).unwrap_err();
    assert_eq!(error.to_string(), "producer 1 sent sequence 10 after 8 in epoch 0");
    assert_eq!(error.code(), ErrorCode::OutOfOrderSequenceNumber);
    assert!(log.client(1, 0, 8, 1).is_err());
    assert_eq!(log.client(1, 0, 9, 1), Ok(Offset(4)));
}

#[test]
fn sequences_wrap() {
    let mut log = Log::new();
    log.client(1, 0, i32::MAX - 1, 2).unwrap();
    assert!(log.client(1, 0, 1, 1).is_err());
    log.client(1, 0, 0, 1).unwrap();
    let mut log = Log::new();
    log.client(1, 0, i32::MAX, 3).unwrap();
    assert_eq!(log.states.get(ProducerId(1)).unwrap().last_sequence(), Sequence(1));
    let resent = log.states.duplicate(&data(1, 0, i32::MAX, 3, false).header);
    assert_eq!(resent.map(|batch| batch.first_offset()), Some(Offset(0)));
}

#[test]
fn epochs_only_rise_and_begin_at_zero() {
    let mut log = Log::new();
    log.client(1, 3, 0, 1).unwrap();
    let error = log.client(1, 2, 1, 1).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidProducerEpoch);
    assert_eq!(error.to_string(), "producer 1 has epoch 2, behind 3");
    assert_eq!(log.client(1, 4, 1, 1).unwrap_err().code(), ErrorCode::OutOfOrderSequenceNumber);
    log.client(1, 4, 0, 1).unwrap();
    assert!(log.states.duplicate(&data(1, 3, 0, 1, false).header).is_none());
}

#[test]
fn the_last_five_batches_are_told_as_duplicates() {
    let mut log = Log::new();
    for sequence in 0..6 {
        log.client(1, 0, sequence * 2, 2).unwrap();
    }
    let duplicate = |sequence, count| {
        let header = data(1, 0, sequence, count, false).header;
        log.states.duplicate(&header).map(|batch| batch.first_offset().0)
    };
    assert_eq!(duplicate(0, 2), None, "forgotten");
    assert_eq!(duplicate(2, 2), Some(2));
    assert_eq!(duplicate(10, 2), Some(10));
    assert_eq!(duplicate(10, 1), None, "another batch that begins the same");
    assert_eq!(duplicate(12, 2), None);
    assert!(log.client(1, 0, 0, 2).is_err());
}

#[test]
fn the_stable_offset_stops_at_the_first_open_transaction() {
    let mut log = Log::new();
    log.client(9, 0, 0, 1).unwrap();
    log.transactional(1, 0, 0).unwrap();
    log.transactional(2, 0, 0).unwrap();
    log.transactional(1, 0, 1).unwrap();
    assert_eq!(log.stable(4), 1);
    assert!(log.states.has_open_transaction(ProducerId(1), ProducerEpoch(0)));
    log.end(1, 0, TransactionEnd::Abort).unwrap();
    assert_eq!(log.stable(5), 1, "the marker is not on every replica");
    log.states.advance_high_watermark(Offset(5));
    assert_eq!(log.stable(5), 2);
    log.end(2, 0, TransactionEnd::Commit).unwrap();
    log.states.advance_high_watermark(Offset(6));
    assert_eq!(log.stable(6), 6);
    let aborted = AbortedTransaction {
        producer_id: ProducerId(1),
        first_offset: Offset(1),
        last_offset: Offset(4),
        last_stable_offset: Offset(2),
    };
    assert_eq!(log.aborted, [aborted]);
}

#[test]
fn the_stable_offset_is_within_the_log() {
    let mut log = Log::new();
    log.transactional(1, 0, 0).unwrap();
    assert_eq!(log.states.last_stable_offset(Offset(3), Offset(9)), Offset(3));
    assert_eq!(log.states.last_stable_offset(Offset(0), Offset(0)), Offset(0));
}

#[test]
fn a_transaction_allows_no_other_writes_of_its_producer() {
    let mut log = Log::new();
    log.transactional(1, 0, 0).unwrap();
    assert_eq!(log.client(1, 0, 1, 1).unwrap_err().code(), ErrorCode::InvalidTxnState);
    log.end(1, 0, TransactionEnd::Commit).unwrap();
    log.client(1, 0, 1, 1).unwrap();
}

#[test]
fn markers_fence_epochs_and_coordinators() {
    let mut log = Log::new();
    log.transactional(1, 5, 0).unwrap();
    let old = marker(1, 4, TransactionEnd::Commit, 3);
    let refused = log.append(Origin::Coordinator, &old).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidProducerEpoch);
    log.append(Origin::Coordinator, &marker(1, 6, TransactionEnd::Abort, 3)).unwrap();
    let old = marker(1, 6, TransactionEnd::Commit, 2);
    let refused = log.append(Origin::Coordinator, &old).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::TransactionCoordinatorFenced);
    log.transactional(1, 6, 0).unwrap();
    assert_eq!(log.aborted.len(), 1);
}

#[test]
fn a_marker_without_a_transaction_is_no_transaction() {
    let mut log = Log::new();
    log.end(1, 0, TransactionEnd::Abort).unwrap();
    assert!(log.aborted.is_empty());
    assert_eq!(log.stable(1), 1);
    assert_eq!(log.states.get(ProducerId(1)).unwrap().epoch, ProducerEpoch(0));
}

#[test]
fn copies_of_a_log_refuse_nothing() {
    let mut log = Log::new();
    for origin in [Origin::Replica, Origin::Mirror] {
        log.append(origin, &data(1, 5, 10, 1, true)).unwrap();
        log.append(origin, &data(1, 4, 3, 1, false)).unwrap();
        log.append(origin, &marker(1, 3, TransactionEnd::Commit, -1)).unwrap();
    }
    assert_eq!(log.states.open_transactions().len(), 0);
}

#[test]
fn a_reset_removes_every_producer() {
    let mut log = Log::new();
    log.client(1, 7, 4, 2).unwrap();
    log.transactional(2, 0, 0).unwrap();
    for abort in log.states.abort_markers(TimestampMs(9)) {
        log.append(Origin::Coordinator, &parse(control::end_transaction_marker(&abort))).unwrap();
    }
    log.append(Origin::Coordinator, &reset()).unwrap();
    assert_eq!(log.states.iter().len(), 0);
    assert_eq!(log.client(1, 0, 0, 1), Ok(Offset(5)), "the id belongs to another cluster now");
}

#[test]
fn a_reset_leaves_open_transactions_to_their_markers() {
    let mut log = Log::new();
    log.transactional(1, 0, 0).unwrap();
    log.append(Origin::Replica, &reset()).unwrap();
    assert_eq!(log.stable(2), 0);
    log.append(Origin::Replica, &marker(1, 0, TransactionEnd::Abort, 0)).unwrap();
    log.states.advance_high_watermark(Offset(3));
    assert_eq!(log.stable(3), 3);
    assert_eq!(log.aborted.len(), 1);
}

#[test]
fn one_append_may_hold_a_whole_transaction_and_a_reset() {
    let mut states = ProducerStates::new(Offset::ZERO);
    let mut update = states.begin(Origin::Mirror);
    let batches = [
        data(1, 0, 0, 1, true),
        marker(1, 0, TransactionEnd::Abort, 0),
        data(1, 0, 1, 1, true),
        reset(),
        marker(1, 0, TransactionEnd::Commit, 0),
        data(2, 0, 8, 1, false),
    ];
    for (offset, batch) in (0..).zip(&batches) {
        update.add(batch, Offset(offset)).unwrap();
    }
    let changes = update.finish();
    let aborted = states.commit(changes, Offset(6));
    assert_eq!(aborted.len(), 1);
    assert_eq!((aborted[0].first_offset, aborted[0].last_offset), (Offset(0), Offset(1)));
    assert_eq!(states.open_transactions().len(), 0);
    assert_eq!(states.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 2]);
    states.advance_high_watermark(Offset(6));
    assert_eq!(states.first_unstable_offset(), None);
}

#[test]
fn idle_producers_expire_unless_a_transaction_is_open() {
    let mut log = Log::new();
    log.client(1, 0, 0, 1).unwrap();
    log.transactional(2, 0, 0).unwrap();
    assert_eq!(log.states.expire(TimestampMs(999 + DAY_MS), DAY_MS), 0);
    assert_eq!(log.states.expire(TimestampMs(1_000 + DAY_MS), DAY_MS), 1);
    assert!(log.states.get(ProducerId(2)).is_some());
    assert_eq!(log.client(1, 0, 40, 1), Ok(Offset(2)), "what expired may go on anywhere");
}

#[test]
fn a_snapshot_has_kafkas_bytes() {
    let mut log = Log::new();
    log.transactional(7, 2, 5).unwrap();
    let mut body = vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 2, 0, 0, 0, 5];
    body.extend_from_slice(&[0; 8]);
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&1_000i64.to_be_bytes());
    body.extend_from_slice(&[0xff; 4]);
    body.extend_from_slice(&[0; 8]);
    let mut expected = vec![0, 1];
    expected.extend_from_slice(&protocol::batch::crc32c(&body).to_be_bytes());
    expected.extend_from_slice(&body);
    assert_eq!(log.states.to_snapshot(), expected);
    assert_eq!(ProducerStates::from_snapshot(&expected, Offset(1)), Ok(log.states));
}

#[test]
fn damaged_snapshots_are_told() {
    let mut log = Log::new();
    log.client(7, 2, 5, 2).unwrap();
    let good = log.states.to_snapshot();
    for end in 0..good.len() {
        assert!(ProducerStates::from_snapshot(&good[..end], Offset(2)).is_err(), "{end}");
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(ProducerStates::from_snapshot(&bad, Offset(2)).is_err(), "{at}");
    }
}

#[test]
fn the_newest_good_snapshot_is_loaded() {
    let disk = Disk::memory();
    let dir = Path::new("/logs/t-0");
    disk.create_dir(dir).unwrap();
    let snapshots = ProducerSnapshots::new(disk.clone(), dir);
    let mut log = Log::new();
    for sequence in 0..4 {
        log.client(1, 0, sequence, 1).unwrap();
        snapshots.take(&log.states, true).unwrap();
    }
    let offsets = |snapshots: &ProducerSnapshots| -> Vec<i64> {
        snapshots.offsets().unwrap().into_iter().map(|offset| offset.0).collect()
    };
    assert_eq!(offsets(&snapshots), [1, 2, 3, 4]);
    disk.create(&snapshots.path(Offset(3))).unwrap().write_at(9, b"damage").unwrap();
    let now = TimestampMs(1_000);
    let states = snapshots.load(Offset(1), Offset(3), now, DAY_MS).unwrap();
    assert_eq!(states.end(), Offset(2));
    assert_eq!(states.get(ProducerId(1)).unwrap().last_sequence(), Sequence(1));
    assert_eq!(offsets(&snapshots), [2], "out of bounds and damaged ones go");
    let none = snapshots.load(Offset(2), Offset(9), now, DAY_MS).unwrap();
    assert_eq!(none, ProducerStates::new(Offset(2)));
    snapshots.take(&log.states, false).unwrap();
    snapshots.remove_above(Offset(4)).unwrap();
    snapshots.remove_below(Offset(9)).unwrap();
    assert_eq!(offsets(&snapshots), [4], "the newest stays");
}

#[derive(Clone, Debug)]
struct Sent {
    id: i64,
    epoch: i16,
    /// From where the next sequence should be.
    slip: i32,
    count: i32,
}

fn sent() -> impl Strategy<Value = Sent> {
    let slip = prop_oneof![6 => Just(0), 4 => -6i32..0, 1 => 1i32..3];
    let epoch = prop_oneof![8 => Just(0i16), 1 => Just(1i16), 1 => Just(-1i16)];
    (0i64..3, epoch, slip, 1i32..3).prop_map(|(id, epoch, slip, count)| Sent {
        id,
        epoch,
        slip,
        count,
    })
}

proptest! {
    #[test]
    fn no_gap_and_no_resend_is_ever_appended(
        first in 0..i32::MAX,
        sends in proptest::collection::vec(sent(), 1..80),
    ) {
        let mut log = Log::new();
        // What each producer appended: epoch, first sequence, count, offset.
        let mut appended: BTreeMap<i64, Vec<(i16, Sequence, i32, Offset)>> = BTreeMap::new();
        for Sent { id, epoch, slip, count } in sends {
            let mine = appended.entry(id).or_default();
            let (known, expected) = mine.last().map_or((0, Sequence(first)), |last| {
                (last.0, last.1.plus(last.2))
            });
            let epoch = (known + epoch).max(0);
            let expected = if epoch == known { expected } else { Sequence(0) };
            let sequence =
                if slip < 0 { expected.minus(-slip) } else { expected.plus(slip) };
            let batch = data(id, epoch, sequence.0, count, false);
            if let Some(duplicate) = log.states.duplicate(&batch.header) {
                let offset = duplicate.first_offset();
                prop_assert!(mine.contains(&(epoch, sequence, count, offset)));
                continue;
            }
            let outcome = log.append(Origin::Client, &batch);
            let in_order = mine.is_empty() || (epoch >= known && sequence == expected);
            prop_assert_eq!(outcome.is_ok(), in_order, "{:?}", outcome);
            if let Ok(offset) = outcome {
                mine.push((epoch, sequence, count, offset));
            }
        }
    }

    #[test]
    fn recovery_from_any_snapshot_gives_the_same_producers(
        steps in proptest::collection::vec((0i64..3, 0u8..6), 0..40),
        at in any::<prop::sample::Index>(),
    ) {
        let mut log = Log::new();
        let mut sequences = [0i32; 3];
        for (id, step) in steps {
            let sequence = &mut sequences[usize::try_from(id).unwrap()];
            let batch = match step {
                0 => marker(id, 0, TransactionEnd::Abort, 0),
                1 => marker(id, 0, TransactionEnd::Commit, 0),
                2 => data(id, 0, *sequence, 2, false),
                _ => data(id, 0, *sequence, 2, true),
            };
            let origin = if step < 2 { Origin::Coordinator } else { Origin::Client };
            if log.append(origin, &batch).is_ok() && step >= 2 {
                *sequence += 2;
            }
        }
        let cut = at.index(log.batches.len() + 1);
        let mut recovered = ProducerStates::new(Offset::ZERO);
        let mut aborted = Vec::new();
        for (index, batch) in log.batches.iter().enumerate() {
            if index == cut {
                let bytes = recovered.to_snapshot();
                recovered = ProducerStates::from_snapshot(&bytes, recovered.end()).unwrap();
            }
            aborted.extend(recovered.replay(batch).unwrap());
        }
        prop_assert_eq!(aborted, log.aborted);
        prop_assert_eq!(recovered.end(), log.states.end());
        prop_assert_eq!(&recovered.open, &log.states.open);
        let end = log.states.end();
        log.states.advance_high_watermark(end);
        recovered.advance_high_watermark(end);
        prop_assert_eq!(recovered.first_unstable_offset(), log.states.first_unstable_offset());
        for (id, entry) in log.states.iter() {
            let same = recovered.get(id).expect("a producer survives recovery");
            prop_assert_eq!(same.last_sequence(), entry.last_sequence());
            prop_assert_eq!(same.transaction_start, entry.transaction_start);
        }
    }
}
