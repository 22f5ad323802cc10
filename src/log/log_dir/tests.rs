//! The directory as its users see it: leases, appends, reads, truncations, stops and failures.

use std::path::Path;
use std::sync::mpsc;

use bytes::Bytes;
use protocol::batch::{self, BatchBuilder, RecordBatch};
use protocol::ids::{
    BrokerEpoch, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence,
    TimestampMs, TopicName,
};

use super::*;
use crate::config::TimestampKind;
use crate::disk::{MemoryDisk, ReadMode};
use crate::lease::Origin;
use crate::read_view::{ReadBatches, ReadUpTo, Role, Serving};

/// A directory on a disk in memory, run by the test itself.
pub(crate) struct Bench {
    pub(crate) disk: MemoryDisk,
    pub(crate) dir: LogDir,
}

pub(crate) const DIR: &str = "/logs";

impl Bench {
    pub(crate) fn new() -> Self {
        let disk = MemoryDisk::new();
        let dir = open(&disk);
        Self { disk, dir }
    }

    /// Kills the process: bytes written stay, memory goes.
    pub(crate) fn kill(&mut self) {
        self.dir.crash();
        self.dir = open(&self.disk);
    }

    /// Cuts the power: only what was synced stays.
    pub(crate) fn cut_power(&mut self) {
        self.dir.crash();
        self.disk.crash();
        self.dir = open(&self.disk);
    }

    pub(crate) fn stop_and_start(&mut self) {
        ask(&self.dir, |reply| self.dir.close(true, reply)).unwrap();
        self.dir = open(&self.disk);
    }

    pub(crate) fn lease_with(&self, config: LogConfig) -> Lease {
        ask(&self.dir, |reply| self.dir.lease(id(), config, reply)).unwrap()
    }

    pub(crate) fn lease(&self) -> Lease {
        self.lease_with(small())
    }

    pub(crate) fn append(&self, lease: &Lease, append: Append) -> Result<Appended, Error> {
        ask(&self.dir, |reply| self.dir.append(lease, append, reply))
    }

    pub(crate) fn produce(&self, lease: &Lease, batch: Bytes) -> Result<Appended, Error> {
        self.append(lease, client(batch))
    }

    pub(crate) fn truncate(&self, lease: &Lease, to: i64) -> Result<Truncated, Error> {
        ask(&self.dir, |reply| self.dir.truncate(lease, Offset(to), reply))
    }

    pub(crate) fn reset(&self, lease: &Lease, start: i64) -> Result<Truncated, Error> {
        ask(&self.dir, |reply| self.dir.reset(lease, Offset(start), reply))
    }

    pub(crate) fn set_log_start(&self, lease: &Lease, start: i64) -> Result<Offset, Error> {
        ask(&self.dir, |reply| self.dir.set_log_start(lease, Offset(start), reply))
    }

    pub(crate) fn tick(&self, now: i64) {
        ask(&self.dir, |reply| self.dir.tick(TimestampMs(now), reply)).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let disk = Disk::Memory(self.disk.clone());
        let entries = disk.list(&Path::new(DIR).join("t-0")).unwrap();
        entries.into_iter().map(|entry| entry.name).collect()
    }
}

pub(crate) fn open(disk: &MemoryDisk) -> LogDir {
    try_open(disk).unwrap()
}

pub(crate) fn try_open(disk: &MemoryDisk) -> Result<LogDir, Error> {
    let options =
        LogDirOptions { driver: Driver::Inline, config: small(), ..LogDirOptions::default() };
    LogDir::open(Disk::Memory(disk.clone()), Path::new(DIR), options)
}

/// Segments of a few batches, an index entry for nearly each.
pub(crate) fn small() -> LogConfig {
    LogConfig { segment_bytes: 600, index_interval_bytes: 100, ..LogConfig::default() }
}

pub(crate) fn id() -> LogId {
    LogId {
        topic: TopicName::from("t"),
        topic_id: "AAAAAAAAAAAAAAAAAAAABw".parse().unwrap(),
        partition: PartitionIndex(0),
    }
}

/// Queues a command, runs it, and returns what it answered.
pub(crate) fn ask<T: Send + 'static>(
    dir: &LogDir,
    command: impl FnOnce(Reply<T>),
) -> Result<T, Error> {
    let (sender, receiver) = mpsc::channel();
    command(Box::new(move |answer| sender.send(answer).unwrap()));
    dir.run_pending();
    receiver.recv().expect("every command is answered")
}

pub(crate) fn client(batches: Bytes) -> Append {
    Append {
        batches,
        leader_epoch: LeaderEpoch(0),
        origin: Origin::Client,
        now: TimestampMs(1_000),
        crc_verified: false,
    }
}

pub(crate) fn records(count: u8, timestamp: i64) -> BatchBuilder {
    (0..count).fold(BatchBuilder::new(), |builder, at| {
        builder.record(TimestampMs(timestamp), Some(&[at]), Some(&[at; 40]))
    })
}

pub(crate) fn produced(count: u8) -> Bytes {
    records(count, 500).build()
}

/// A batch as another leader wrote it.
pub(crate) fn kept(base: i64, count: u8, epoch: i32) -> Bytes {
    records(count, 500).base_offset(Offset(base)).leader_epoch(LeaderEpoch(epoch)).build()
}

pub(crate) fn replica(batches: Bytes) -> Append {
    Append { leader_epoch: LeaderEpoch(100), origin: Origin::Replica, ..client(batches) }
}

pub(crate) fn read(lease: &Lease, offset: i64) -> Result<ReadBatches, Error> {
    lease.view.read(Offset(offset), 1 << 20, ReadUpTo::LogEnd, true, ReadMode::MayBlock)
}

/// Every batch from the log's start to its end.
pub(crate) fn read_all(lease: &Lease) -> Vec<RecordBatch> {
    let mut offset = lease.view.log_start();
    let mut batches = Vec::new();
    while offset < lease.view.log_end() {
        let answer = read(lease, offset.0).unwrap();
        if answer.bytes.is_empty() {
            // Cut inside a gap: nothing lies between the last batch and the end.
            break;
        }
        assert!(answer.next_offset > offset, "no progress at {offset}");
        offset = answer.next_offset;
        batches.extend(batch::split(answer.bytes).map(|batch| batch.unwrap()));
    }
    batches
}

fn advance(lease: &Lease, offset: i64) {
    lease.view.advance_high_watermark(lease.incarnation, Offset(offset));
}

#[test]
fn appended_batches_get_offsets_and_epoch_and_are_read_back() {
    let bench = Bench::new();
    let lease = bench.lease();
    let first = bench.produce(&lease, produced(3)).unwrap();
    assert_eq!((first.first_offset, first.last_offset), (Offset(0), Offset(2)));
    let append = Append { leader_epoch: LeaderEpoch(4), ..client(produced(2)) };
    let second = bench.append(&lease, append).unwrap();
    assert_eq!((second.first_offset, second.log_end), (Offset(3), Offset(5)));
    let batches = read_all(&lease);
    assert_eq!(batches.len(), 2);
    assert_eq!(batches[1].header.base_offset, Offset(3));
    assert_eq!(batches[1].header.leader_epoch, LeaderEpoch(4));
    batches.iter().for_each(|batch| batch.verify_crc().unwrap());
    assert_eq!(batches[0].bytes[16..], produced(3)[16..]);
}

#[test]
fn appends_queued_together_are_one_write() {
    let bench = Bench::new();
    let lease = bench.lease_with(LogConfig::default());
    bench.produce(&lease, produced(1)).unwrap();
    let before = bench.disk.writes();
    let (sender, receiver) = mpsc::channel();
    for _ in 0..5 {
        let sender = sender.clone();
        let reply = Box::new(move |answer| sender.send(answer).unwrap());
        bench.dir.append(&lease, client(produced(1)), reply);
    }
    bench.dir.run_pending();
    let offsets: Vec<_> =
        receiver.try_iter().map(|answer| answer.unwrap().first_offset.0).collect();
    assert_eq!(offsets, [1, 2, 3, 4, 5]);
    assert_eq!(bench.disk.writes() - before, 1);
}

#[test]
fn segments_roll_by_size_and_every_offset_is_found() {
    let bench = Bench::new();
    let lease = bench.lease();
    for _ in 0..20 {
        bench.produce(&lease, produced(3)).unwrap();
    }
    assert!(bench.names().iter().filter(|name| name.ends_with(".log")).count() > 3);
    for offset in 0..60 {
        let answer = read(&lease, offset).unwrap();
        let first = batch::split(answer.bytes).next().unwrap().unwrap();
        assert_eq!(first.header.base_offset, Offset(offset / 3 * 3));
    }
    assert!(read(&lease, 60).unwrap().bytes.is_empty());
    assert!(matches!(read(&lease, 61), Err(Error::OffsetOutOfRange { .. })));
}

#[test]
fn segments_roll_by_batch_time() {
    let bench = Bench::new();
    let lease = bench.lease_with(LogConfig { segment_ms: 100, ..LogConfig::default() });
    for timestamp in [1_000, 1_100, 1_101] {
        bench.produce(&lease, records(1, timestamp).build()).unwrap();
    }
    let logs: Vec<_> = bench.names().into_iter().filter(|name| name.ends_with(".log")).collect();
    assert_eq!(logs, ["00000000000000000000.log", "00000000000000000002.log"]);
}

#[test]
fn reads_stop_at_their_bound() {
    let bench = Bench::new();
    let lease = bench.lease_with(LogConfig::default());
    for _ in 0..3 {
        bench.produce(&lease, produced(2)).unwrap();
    }
    let read_to = |up_to| {
        lease.view.read(Offset(0), 1 << 20, up_to, true, ReadMode::MayBlock).unwrap().next_offset
    };
    assert_eq!(read_to(ReadUpTo::HighWatermark), Offset(0));
    advance(&lease, 4);
    assert_eq!(read_to(ReadUpTo::HighWatermark), Offset(4));
    assert_eq!(read_to(ReadUpTo::LogEnd), Offset(6));
}

#[test]
fn reads_keep_to_their_size_and_take_one_batch_if_asked() {
    let bench = Bench::new();
    let lease = bench.lease_with(LogConfig::default());
    let size = produced(2).len();
    for _ in 0..3 {
        bench.produce(&lease, produced(2)).unwrap();
    }
    let read = |bytes: usize, at_least_one| {
        let up_to = ReadUpTo::LogEnd;
        lease.view.read(Offset(0), bytes, up_to, at_least_one, ReadMode::MayBlock).unwrap()
    };
    assert_eq!(read(size * 2 + 1, false).bytes.len(), size * 2);
    assert_eq!(read(size - 1, false).bytes.len(), 0);
    assert_eq!(read(size - 1, true).bytes.len(), size);
    assert_eq!(read(0, false).next_offset, Offset(0));
}

#[test]
fn a_newer_lease_makes_the_older_stale() {
    let bench = Bench::new();
    let old = bench.lease();
    old.view.set_serving(
        old.incarnation,
        Serving { leader_epoch: LeaderEpoch(3), role: Role::Leader },
    );
    let new = bench.lease();
    assert_eq!(new.view.serving(), Serving::OFFLINE);
    let refused = bench.produce(&old, produced(1)).unwrap_err();
    assert!(matches!(refused, Error::StaleLease { held: 1, current: 2, .. }), "{refused}");
    assert!(!old.view.advance_high_watermark(old.incarnation, Offset(0)));
    assert!(!old.view.set_serving(old.incarnation, Serving::OFFLINE));
    bench.produce(&new, produced(1)).unwrap();
}

#[test]
fn a_fenced_incarnation_moves_nothing() {
    let bench = Bench::new();
    let lease = bench.lease();
    bench.produce(&lease, produced(2)).unwrap();
    let leader = Serving { leader_epoch: LeaderEpoch(1), role: Role::Leader };
    assert!(lease.view.set_serving(lease.incarnation, leader));
    lease.view.fence(lease.incarnation);
    assert_eq!(lease.view.serving(), Serving::OFFLINE);
    assert!(!lease.view.advance_high_watermark(lease.incarnation, Offset(2)));
    assert!(!lease.view.set_serving(lease.incarnation, leader));
    let next = bench.lease();
    assert!(next.view.set_serving(next.incarnation, leader));
    assert!(next.view.advance_high_watermark(next.incarnation, Offset(2)));
}

#[test]
fn the_high_watermark_outlives_leases_kills_and_stops() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    bench.produce(&lease, produced(5)).unwrap();
    advance(&lease, 5);
    assert_eq!(bench.lease().view.high_watermark(), Offset(5));
    bench.tick(0);
    bench.kill();
    assert_eq!(bench.lease().view.high_watermark(), Offset(5));
    bench.stop_and_start();
    assert_eq!(bench.lease().view.high_watermark(), Offset(5));
}

#[test]
fn the_high_watermark_never_goes_back_or_above_the_end() {
    let bench = Bench::new();
    let lease = bench.lease();
    bench.produce(&lease, produced(5)).unwrap();
    advance(&lease, 90);
    assert_eq!(lease.view.high_watermark(), Offset(5));
    advance(&lease, 2);
    assert_eq!(lease.view.high_watermark(), Offset(5));
    bench.truncate(&lease, 3).unwrap();
    assert_eq!(lease.view.high_watermark(), Offset(0));
}

#[test]
fn a_truncation_takes_whole_batches_and_counts_what_it_cut() {
    let bench = Bench::new();
    let lease = bench.lease();
    for _ in 0..20 {
        bench.produce(&lease, produced(3)).unwrap();
    }
    let cut = bench.truncate(&lease, 31).unwrap();
    assert_eq!(cut, Truncated { log_end: Offset(30), records_cut: 30 });
    assert_eq!(lease.view.log_end(), Offset(30));
    assert_eq!(read_all(&lease).len(), 10);
    assert_eq!(bench.truncate(&lease, 30).unwrap().records_cut, 0);
    let again = bench.produce(&lease, produced(1)).unwrap();
    assert_eq!(again.first_offset, Offset(30));
    assert_eq!(bench.truncate(&lease, 0).unwrap().log_end, Offset(0));
    assert!(read_all(&lease).is_empty());
}

#[test]
fn a_truncation_rolls_epochs_back() {
    let bench = Bench::new();
    let lease = bench.lease();
    for (base, epoch) in [(0, 1), (5, 2), (10, 5)] {
        bench.append(&lease, replica(kept(base, 5, epoch))).unwrap();
    }
    let view = &lease.view;
    assert_eq!(view.last_epoch(), LeaderEpoch(5));
    let end_of = |epoch| view.end_offset_for_epoch(LeaderEpoch(epoch));
    assert_eq!(end_of(1), Some((LeaderEpoch(1), Offset(5))));
    assert_eq!(end_of(4), Some((LeaderEpoch(2), Offset(10))));
    assert_eq!(end_of(5), Some((LeaderEpoch(5), Offset(15))));
    bench.truncate(&lease, 10).unwrap();
    assert_eq!(view.last_epoch(), LeaderEpoch(2));
    assert_eq!(end_of(2), Some((LeaderEpoch(2), Offset(10))));
}

#[test]
fn a_truncation_that_cuts_no_batch_drops_the_epoch_without_one() {
    let bench = Bench::new();
    let lease = bench.lease();
    bench.append(&lease, replica(kept(0, 5, 1))).unwrap();
    let view = &lease.view;
    ask(&bench.dir, |reply| bench.dir.start_leader_epoch(&lease, LeaderEpoch(2), reply)).unwrap();
    assert_eq!(view.last_epoch(), LeaderEpoch(2));
    assert_eq!(bench.truncate(&lease, 5).unwrap().records_cut, 0);
    assert_eq!(view.last_epoch(), LeaderEpoch(1));
    bench.append(&lease, replica(kept(5, 5, 3))).unwrap();
    assert_eq!(view.end_offset_for_epoch(LeaderEpoch(2)), Some((LeaderEpoch(1), Offset(5))));
}

#[test]
fn a_truncation_below_the_start_is_refused() {
    let bench = Bench::new();
    let lease = bench.lease();
    for _ in 0..4 {
        bench.produce(&lease, produced(3)).unwrap();
    }
    advance(&lease, 12);
    bench.set_log_start(&lease, 6).unwrap();
    assert!(matches!(bench.truncate(&lease, 5), Err(Error::OffsetOutOfRange { .. })));
}

#[test]
fn a_reset_empties_the_log_at_its_new_start() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    for _ in 0..10 {
        bench.append(&lease, client(produced(3))).unwrap();
    }
    let cut = bench.reset(&lease, 1_000).unwrap();
    assert_eq!(cut, Truncated { log_end: Offset(1_000), records_cut: 30 });
    let view = &lease.view;
    assert_eq!((view.log_start(), view.high_watermark()), (Offset(1_000), Offset(1_000)));
    assert_eq!(view.last_epoch(), LeaderEpoch::NONE);
    bench.append(&lease, replica(kept(1_000, 2, 3))).unwrap();
    bench.kill();
    let lease = bench.lease();
    assert_eq!(lease.view.log_start(), Offset(1_000));
    assert_eq!(lease.view.log_end(), Offset(1_002));
}

#[test]
fn a_raised_start_removes_whole_segments_only() {
    let bench = Bench::new();
    let lease = bench.lease();
    for _ in 0..20 {
        bench.produce(&lease, produced(3)).unwrap();
    }
    assert!(matches!(bench.set_log_start(&lease, 7), Err(Error::OffsetOutOfRange { .. })));
    advance(&lease, 60);
    assert_eq!(bench.set_log_start(&lease, 20).unwrap(), Offset(20));
    assert!(matches!(read(&lease, 19), Err(Error::OffsetOutOfRange { .. })));
    assert_eq!(read_all(&lease)[0].header.base_offset, Offset(18));
    assert!(bench.names().iter().any(|name| name.ends_with(".deleted")));
    bench.tick(0);
    assert!(!bench.names().iter().any(|name| name.ends_with(".deleted")));
    assert_eq!(bench.set_log_start(&lease, 5).unwrap(), Offset(20));
    bench.set_log_start(&lease, 60).unwrap();
    assert!(read_all(&lease).is_empty());
    assert_eq!(bench.produce(&lease, produced(1)).unwrap().first_offset, Offset(60));
}

#[test]
fn kept_batches_stay_as_they_are() {
    let bench = Bench::new();
    let lease = bench.lease();
    let mut bytes = kept(0, 4, 1).to_vec();
    bytes.extend_from_slice(&kept(10, 2, 1));
    let whole = bytes.len();
    bytes.extend_from_slice(&kept(12, 2, 1)[..70]);
    let appended = bench.append(&lease, replica(Bytes::from(bytes.clone()))).unwrap();
    assert_eq!((appended.first_offset, appended.last_offset), (Offset(0), Offset(11)));
    let read: Vec<u8> = read_all(&lease).iter().flat_map(|batch| batch.bytes.to_vec()).collect();
    assert_eq!(read, bytes[..whole]);
    // An offset in a gap is answered with the batch behind it.
    let behind_gap = read_all_from(&lease, 6);
    assert_eq!(behind_gap[0].header.base_offset, Offset(10));
}

fn read_all_from(lease: &Lease, offset: i64) -> Vec<RecordBatch> {
    batch::split(read(lease, offset).unwrap().bytes).map(|batch| batch.unwrap()).collect()
}

#[test]
fn kept_batches_out_of_place_are_refused() {
    let bench = Bench::new();
    let lease = bench.lease();
    bench.append(&lease, replica(kept(0, 4, 3))).unwrap();
    let refused = |append: Append| bench.append(&lease, append).unwrap_err();
    assert!(matches!(refused(replica(kept(3, 2, 3))), Error::NotContiguous { .. }));
    assert!(matches!(refused(replica(kept(4, 2, 2))), Error::EpochDecreased { .. }));
    let above = Append { leader_epoch: LeaderEpoch(5), ..replica(kept(4, 2, 6)) };
    assert!(matches!(refused(above), Error::EpochAboveLeader { .. }));
    let mut damaged = kept(4, 2, 3).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(matches!(refused(replica(damaged.into())), Error::CorruptBatch { .. }));
    let mut old = kept(4, 2, 3).to_vec();
    old[16] = 1;
    assert!(matches!(refused(replica(old.into())), Error::UnsupportedMagic { magic: 1, .. }));
    let torn = kept(4, 2, 3).slice(..30);
    assert!(matches!(refused(replica(torn)), Error::NoWholeBatch { .. }));
    assert_eq!(lease.view.log_end(), Offset(4));
}

#[test]
fn an_empty_log_keeps_a_first_batch_that_begins_below_it() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    bench.reset(&lease, 17).unwrap();
    bench.append(&lease, replica(kept(15, 5, 0))).unwrap();
    assert_eq!((lease.view.log_start(), lease.view.log_end()), (Offset(17), Offset(20)));
    assert_eq!(read_all(&lease)[0].header.base_offset, Offset(15));
    assert!(matches!(read(&lease, 16), Err(Error::OffsetOutOfRange { .. })));
    bench.kill();
    let lease = bench.lease();
    assert_eq!((lease.view.log_start(), lease.view.log_end()), (Offset(17), Offset(20)));
    let refused = bench.append(&lease, replica(kept(19, 5, 0))).unwrap_err();
    assert!(matches!(refused, Error::NotContiguous { .. }));
}

#[test]
fn log_append_time_rebuilds_the_batch() {
    let bench = Bench::new();
    let config = LogConfig { timestamp_type: TimestampKind::LogAppendTime, ..small() };
    let lease = bench.lease_with(config);
    let appended = bench.produce(&lease, produced(2)).unwrap();
    assert_eq!(appended.log_append_time, TimestampMs(1_000));
    let batch = read_all(&lease).remove(0);
    batch.verify_crc().unwrap();
    assert_eq!(batch.header.max_timestamp, TimestampMs(1_000));
    assert_eq!(batch.header.timestamp_type(), batch::TimestampType::LogAppendTime);
}

#[test]
fn batches_too_large_or_damaged_are_refused() {
    let bench = Bench::new();
    let lease = bench.lease_with(LogConfig { max_message_bytes: 200, ..LogConfig::default() });
    assert!(matches!(bench.produce(&lease, produced(9)), Err(Error::BatchTooLarge { .. })));
    let mut damaged = produced(1).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let refused = bench.produce(&lease, damaged.into()).unwrap_err();
    assert!(matches!(refused, Error::CorruptBatch { .. }));
    let control = records(1, 0).control().build();
    assert!(matches!(bench.produce(&lease, control), Err(Error::ControlFromClient { .. })));
    assert_eq!(lease.view.log_end(), Offset(0));
}

#[test]
fn duplicates_are_answered_as_the_first_time_even_after_reopening() {
    let mut bench = Bench::new();
    let lease = bench.lease();
    let send = |bench: &Bench, lease: &Lease, sequence: i32| {
        let producer = (ProducerId(9), ProducerEpoch(0), Sequence(sequence));
        let batch = records(3, 500).producer(producer.0, producer.1, producer.2).build();
        bench.produce(lease, batch)
    };
    for sequence in [0, 3, 6] {
        assert!(!send(&bench, &lease, sequence).unwrap().duplicate);
    }
    let check = |bench: &Bench, lease: &Lease, sequence: i32| {
        let again = send(bench, lease, sequence).unwrap();
        assert!(again.duplicate);
        assert_eq!(again.first_offset, Offset(i64::from(sequence)));
        assert_eq!(lease.view.log_end(), Offset(9));
        assert!(matches!(send(bench, lease, 12), Err(Error::Producer(_))));
    };
    check(&bench, &lease, 3);
    bench.kill();
    check(&bench, &bench.lease(), 6);
    bench.stop_and_start();
    check(&bench, &bench.lease(), 6);
    let lease = bench.lease();
    bench.truncate(&lease, 6).unwrap();
    assert!(!send(&bench, &lease, 6).unwrap().duplicate);
    assert_eq!(lease.view.log_end(), Offset(9));
}

#[test]
fn offsets_are_found_by_time() {
    let bench = Bench::new();
    let lease = bench.lease();
    for at in 0..30 {
        bench.produce(&lease, records(2, 1_000 + at * 10).build()).unwrap();
    }
    let find = |timestamp| {
        lease
            .view
            .offset_for_timestamp(TimestampMs(timestamp), ReadUpTo::LogEnd, ReadMode::MayBlock)
            .unwrap()
            .map(|found| (found.timestamp.0, found.offset.0))
    };
    assert_eq!(find(0), Some((1_000, 0)));
    for at in 0..30 {
        assert_eq!(find(1_000 + at * 10), Some((1_000 + at * 10, at * 2)));
        assert_eq!(find(995 + at * 10), Some((1_000 + at * 10, at * 2)));
    }
    assert_eq!(find(1_291), None);
    let largest = lease.view.max_timestamp(ReadMode::MayBlock).unwrap().unwrap();
    assert_eq!((largest.timestamp, largest.offset), (TimestampMs(1_290), Offset(58)));
}

#[test]
fn a_failed_write_closes_the_log_until_it_is_leased_again() {
    let bench = Bench::new();
    let lease = bench.lease();
    bench.produce(&lease, produced(2)).unwrap();
    bench.disk.fail_write(1);
    let first = bench.produce(&lease, produced(2)).unwrap_err();
    assert!(matches!(first, Error::Closed { .. }), "{first}");
    let later = bench.truncate(&lease, 0).unwrap_err();
    assert_eq!(first, later);
    assert_eq!(read_all(&lease).len(), 1);
    let lease = bench.lease();
    assert_eq!(lease.view.log_end(), Offset(2));
    assert_eq!(bench.produce(&lease, produced(2)).unwrap().first_offset, Offset(2));
    assert_eq!(read_all(&lease).len(), 2);
}

#[test]
fn another_topic_of_the_same_name_is_refused() {
    let bench = Bench::new();
    let lease = bench.lease();
    let other = LogId { topic_id: "AAAAAAAAAAAAAAAAAAAACA".parse().unwrap(), ..id() };
    let lease_other = || ask(&bench.dir, |reply| bench.dir.lease(other.clone(), small(), reply));
    assert!(matches!(lease_other(), Err(Error::TopicIdMismatch { .. })));
    ask(&bench.dir, |reply| bench.dir.delete(id(), reply)).unwrap();
    assert!(matches!(read(&lease, 0), Err(Error::StaleLease { current: 0, .. })));
    assert!(matches!(bench.produce(&lease, produced(1)), Err(Error::StaleLease { .. })));
    assert_eq!(lease_other().unwrap().view.log_end(), Offset(0));
}

#[test]
fn a_directory_in_use_is_refused() {
    let bench = Bench::new();
    let refused = try_open(&bench.disk).err().unwrap();
    assert_eq!(refused, Error::Locked { path: DIR.into() });
}

#[test]
fn a_clean_stop_is_remembered_with_its_broker_epoch_and_a_kill_is_not() {
    let mut bench = Bench::new();
    assert_eq!(bench.dir.previous_broker_epoch(), None);
    bench.dir.set_broker_epoch(BrokerEpoch(12));
    bench.lease();
    bench.stop_and_start();
    assert_eq!(bench.dir.previous_broker_epoch(), Some(BrokerEpoch(12)));
    assert_eq!(bench.dir.found(), [id()]);
    bench.kill();
    assert_eq!(bench.dir.previous_broker_epoch(), None);
}

#[test]
fn a_closed_directory_answers_so() {
    let bench = Bench::new();
    let lease = bench.lease();
    ask(&bench.dir, |reply| bench.dir.close(true, reply)).unwrap();
    let refused = bench.produce(&lease, produced(1)).unwrap_err();
    assert_eq!(refused, Error::DirectoryClosed { path: DIR.into() });
}

#[test]
fn the_listener_hears_of_appends_and_of_the_high_watermark() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let bench = Bench::new();
    let lease = bench.lease();
    let calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&calls);
    lease.view.set_listener(Arc::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    bench.produce(&lease, produced(1)).unwrap();
    advance(&lease, 1);
    advance(&lease, 1);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
