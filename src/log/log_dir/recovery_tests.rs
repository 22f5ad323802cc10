//! One test per rule of recovery: each damages a file as a crash might, and opens the log again.

use std::path::{Path, PathBuf};

use protocol::ids::{LeaderEpoch, Offset};

use super::tests::{Bench, DIR, id, kept, open, produced, read, read_all, replica, try_open};
use super::*;
use crate::segment::SegmentFile;

fn log_path(name: &str) -> PathBuf {
    Path::new(DIR).join(id().directory_name()).join(name)
}

fn disk(bench: &Bench) -> Disk {
    Disk::Memory(bench.disk.clone())
}

/// A log with several segments, in epochs 0 to 3.
fn filled() -> (Bench, Vec<Bytes>) {
    let bench = Bench::new();
    let lease = bench.lease();
    for at in 0..20 {
        let epoch = i32::try_from(at / 5).unwrap();
        bench.append(&lease, replica(kept(at * 3, 3, epoch))).unwrap();
    }
    let batches = read_all(&lease).into_iter().map(|batch| batch.bytes).collect();
    (bench, batches)
}

use bytes::Bytes;

fn segment_bases(bench: &Bench) -> Vec<Offset> {
    let names = disk(bench).list(&log_path("")).unwrap();
    let parsed = names.iter().filter_map(|entry| SegmentFile::parse(&entry.name));
    parsed.filter(|(_, file)| *file == SegmentFile::Log).map(|(base, _)| base).collect()
}

fn file_of(base: Offset, file: SegmentFile) -> PathBuf {
    file.path(&log_path(""), base)
}

/// Kills, damages, opens again.
fn reopen(mut bench: Bench, damage: impl FnOnce(&Disk)) -> (Bench, Lease) {
    bench.dir.crash();
    damage(&disk(&bench));
    bench.dir = open(&bench.disk);
    let lease = bench.lease();
    (bench, lease)
}

fn stop(bench: &Bench) {
    super::tests::ask(&bench.dir, |reply| bench.dir.close(true, reply)).unwrap();
}

fn flip(disk: &Disk, path: &Path, at: u64) {
    let file = disk.open(path).unwrap();
    let mut byte = [0];
    file.read_at(at, &mut byte, crate::ReadMode::MayBlock).unwrap();
    file.write_at(at, &[byte[0] ^ 0xff]).unwrap();
}

#[test]
fn a_torn_tail_is_cut_off() {
    let (bench, batches) = filled();
    let last = *segment_bases(&bench).last().unwrap();
    let (bench, lease) = reopen(bench, |disk| {
        let file = disk.open(&file_of(last, SegmentFile::Log)).unwrap();
        file.set_len(file.size().unwrap() - 1).unwrap();
    });
    assert_eq!(lease.view.log_end(), Offset(57));
    assert_eq!(read_all(&lease).len(), batches.len() - 1);
    bench.append(&lease, replica(kept(57, 3, 3))).unwrap();
    assert_eq!(read_all(&lease).last().unwrap().bytes, batches[19]);
}

#[test]
fn garbage_behind_the_last_batch_is_cut_off() {
    let (bench, batches) = filled();
    let last = *segment_bases(&bench).last().unwrap();
    let (_bench, lease) = reopen(bench, |disk| {
        let file = disk.open(&file_of(last, SegmentFile::Log)).unwrap();
        file.set_len(file.size().unwrap() + 300).unwrap();
    });
    assert_eq!(lease.view.log_end(), Offset(60));
    assert_eq!(read_all(&lease).len(), batches.len());
}

#[test]
fn a_damaged_batch_ends_the_log_and_later_segments_go() {
    let (bench, _) = filled();
    let bases = segment_bases(&bench);
    let damaged = bases[bases.len() - 3];
    let (bench, lease) = reopen(bench, |disk| {
        // Nothing is known to be durable: every segment is checked.
        disk.remove(&Path::new(DIR).join("recovery-point-offset-checkpoint")).ok();
        flip(disk, &file_of(damaged, SegmentFile::Log), 70);
    });
    assert_eq!(lease.view.log_end(), damaged);
    assert_eq!(*segment_bases(&bench).last().unwrap(), damaged);
    let epochs_end = lease.view.end_offset_for_epoch(lease.view.last_epoch()).unwrap().1;
    assert_eq!(epochs_end, damaged);
}

#[test]
fn segments_below_the_recovery_point_are_not_checked() {
    let (bench, _) = filled();
    bench.tick(0);
    let first = segment_bases(&bench)[0];
    let (_bench, lease) = reopen(bench, |disk| {
        flip(disk, &file_of(first, SegmentFile::Log), 70);
    });
    assert_eq!(lease.view.log_end(), Offset(60));
    assert!(read_all(&lease)[0].verify_crc().is_err());
}

#[test]
fn missing_and_torn_indexes_are_made_anew() {
    for clean in [true, false] {
        let (bench, batches) = filled();
        bench.tick(0);
        let bases = segment_bases(&bench);
        let before: Vec<Vec<u8>> = bases[..bases.len() - 1]
            .iter()
            .map(|base| disk(&bench).read(&file_of(*base, SegmentFile::OffsetIndex)).unwrap())
            .collect();
        if clean {
            stop(&bench);
        }
        let (bench, lease) = reopen(bench, |disk| {
            disk.remove(&file_of(bases[0], SegmentFile::OffsetIndex)).unwrap();
            disk.remove(&file_of(bases[1], SegmentFile::TimeIndex)).unwrap();
            let torn = disk.open(&file_of(bases[2], SegmentFile::OffsetIndex)).unwrap();
            torn.set_len(3).unwrap();
            disk.remove(&file_of(*bases.last().unwrap(), SegmentFile::OffsetIndex)).ok();
        });
        for (base, before) in bases.iter().zip(before) {
            let after = disk(&bench).read(&file_of(*base, SegmentFile::OffsetIndex)).unwrap();
            assert_eq!(after, before, "index of {base}");
        }
        for (offset, bytes) in (0..).step_by(3).zip(batches) {
            assert!(read(&lease, offset + 1).unwrap().bytes.starts_with(&bytes));
        }
    }
}

#[test]
fn epochs_are_made_anew_from_the_batches() {
    for text in [None, Some("nonsense")] {
        let (bench, _) = filled();
        let (bench, lease) = reopen(bench, |disk| match text {
            None => disk.remove(&log_path("leader-epoch-checkpoint")).unwrap(),
            Some(text) => {
                disk.write_atomically(&log_path("leader-epoch-checkpoint"), text.as_bytes())
                    .unwrap();
                // Even where nothing needs to be checked for the batches' sake.
                disk.remove(&Path::new(DIR).join("recovery-point-offset-checkpoint")).ok();
            }
        });
        assert_eq!(lease.view.last_epoch(), LeaderEpoch(3));
        let end = lease.view.end_offset_for_epoch(LeaderEpoch(1)).unwrap();
        assert_eq!(end, (LeaderEpoch(1), Offset(30)));
        let text = disk(&bench).read(&log_path("leader-epoch-checkpoint")).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "0\n4\n0 0\n1 15\n2 30\n3 45\n");
    }
}

#[test]
fn epochs_above_the_log_end_go() {
    let (bench, _) = filled();
    let lease = bench.lease();
    super::tests::ask(&bench.dir, |reply| {
        bench.dir.start_leader_epoch(&lease, LeaderEpoch(9), reply);
    })
    .unwrap();
    assert_eq!(lease.view.last_epoch(), LeaderEpoch(9));
    let (_bench, lease) = reopen(bench, |_| {});
    assert_eq!(lease.view.last_epoch(), LeaderEpoch(3));
}

#[test]
fn half_done_deletions_are_finished() {
    let (bench, batches) = filled();
    let first = segment_bases(&bench)[0];
    let (bench, lease) = reopen(bench, |disk| {
        let log = file_of(first, SegmentFile::Log);
        disk.rename(&log, &log.with_extension("log.deleted")).unwrap();
        disk.create(&log_path("00000000000000000500.index")).unwrap();
        disk.create(&log_path("x.swap")).unwrap();
    });
    let names = disk(&bench).list(&log_path("")).unwrap();
    let names: Vec<_> = names.into_iter().map(|entry| entry.name).collect();
    assert!(!names.iter().any(|name| name.ends_with("deleted") || name.ends_with("swap")));
    assert!(!names.contains(&"00000000000000000500.index".to_owned()));
    assert!(lease.view.log_start() > Offset(0));
    assert_eq!(read_all(&lease).last().unwrap().bytes, *batches.last().unwrap());
}

#[test]
fn a_log_that_lost_everything_begins_at_its_start() {
    let (bench, _) = filled();
    let lease = bench.lease();
    lease.view.advance_high_watermark(lease.incarnation, Offset(60));
    bench.set_log_start(&lease, 59).unwrap();
    bench.tick(0);
    let (bench, lease) = reopen(bench, |disk| {
        for entry in disk.list(&log_path("")).unwrap() {
            if entry.name.ends_with(".log") {
                disk.open(&log_path(&entry.name)).unwrap().set_len(0).unwrap();
            }
        }
    });
    assert_eq!((lease.view.log_start(), lease.view.log_end()), (Offset(59), Offset(59)));
    assert_eq!(lease.view.last_epoch(), LeaderEpoch::NONE);
    bench.append(&lease, replica(kept(59, 1, 7))).unwrap();
}

#[test]
fn a_damaged_producer_snapshot_is_passed_over() {
    let bench = Bench::new();
    let lease = bench.lease();
    for sequence in 0..20 {
        let producer =
            (protocol::ids::ProducerId(4), protocol::ids::ProducerEpoch(0), sequence * 2);
        let sequence = protocol::ids::Sequence(producer.2);
        let batch = super::tests::records(2, 1).producer(producer.0, producer.1, sequence);
        bench.produce(&lease, batch.build()).unwrap();
    }
    let expected = lease.view.producers();
    let (_bench, lease) = reopen(bench, |disk| {
        for entry in disk.list(&log_path("")).unwrap() {
            if entry.name.ends_with(".snapshot") {
                flip(disk, &log_path(&entry.name), 12);
            }
        }
    });
    let found = lease.view.producers();
    assert_eq!(found[0].1.last_sequence(), expected[0].1.last_sequence());
}

#[test]
fn a_deleted_log_that_was_not_removed_goes_with_the_next_start() {
    let bench = Bench::new();
    bench.produce(&bench.lease(), produced(1)).unwrap();
    let gone = Path::new(DIR).join("t-0.7-delete");
    let (bench, lease) = reopen(bench, |disk| {
        disk.rename(&log_path(""), &gone).unwrap();
    });
    assert!(!disk(&bench).exists(&gone).unwrap());
    assert_eq!(lease.view.log_end(), Offset(0));
}

#[test]
fn a_log_without_metadata_takes_the_id_of_its_lease() {
    let (bench, _) = filled();
    let (bench, lease) = reopen(bench, |disk| {
        disk.remove(&log_path("partition.metadata")).unwrap();
    });
    assert_eq!(lease.view.log_end(), Offset(60));
    let (bench, _) = reopen(bench, |_| {});
    assert_eq!(bench.dir.found(), [id()]);
}

/// Writes over one of the directory's checkpoints.
fn spoil(disk: &Disk, file: &str) {
    disk.write_atomically(&Path::new(DIR).join(file), b"xx\n").unwrap();
}

#[test]
fn a_corrupt_recovery_point_means_that_every_log_is_checked() {
    let (mut bench, batches) = filled();
    let last = *segment_bases(&bench).last().unwrap();
    stop(&bench);
    let disk = disk(&bench);
    spoil(&disk, crate::checkpoint::RECOVERY_POINT_FILE);
    // A clean stop's logs are not looked at, so the damage shows that this one was.
    let file = disk.open(&file_of(last, SegmentFile::Log)).unwrap();
    flip(&disk, &file_of(last, SegmentFile::Log), file.size().unwrap() - 1);
    bench.dir = open(&bench.disk);
    let lease = bench.lease();
    assert_eq!(read_all(&lease).len(), batches.len() - 1);
    stop(&bench);
    let path = Path::new(DIR).join(crate::checkpoint::RECOVERY_POINT_FILE);
    assert_eq!(crate::checkpoint::read_offsets(&disk, &path).unwrap().len(), 1);
}

#[test]
fn a_corrupt_high_watermark_rises_again_from_the_start() {
    let (mut bench, batches) = filled();
    stop(&bench);
    spoil(&disk(&bench), crate::checkpoint::HIGH_WATERMARK_FILE);
    bench.dir = open(&bench.disk);
    let lease = bench.lease();
    assert_eq!(lease.view.high_watermark(), lease.view.log_start());
    assert_eq!(read_all(&lease).len(), batches.len());
}

#[test]
fn a_corrupt_log_start_is_refused_with_what_to_do() {
    let (bench, _) = filled();
    stop(&bench);
    spoil(&disk(&bench), crate::checkpoint::LOG_START_FILE);
    let refused = try_open(&bench.disk).map(drop).unwrap_err().to_string();
    assert!(refused.contains("bring the file back"), "{refused}");
}
