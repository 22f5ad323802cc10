//! Kafka's own DumpLogSegments reads what a log directory on the real disk leaves behind: batches,
//! indexes, transaction index, producer snapshots, after rolls, truncation, transactions, a kill
//! and a clean stop. Needs Kafka's jars (`scripts/kafka.sh fetch`, or HELIOGRAPH_KAFKA_LIBS).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

use bytes::Bytes;
use log::{
    Append, Disk, Error, Lease, LogConfig, LogDir, LogDirOptions, LogId, Origin, ReadMode,
    ReadUpTo, Reply,
};
use protocol::batch::{self, BatchBuilder};
use protocol::compression::Compression;
use protocol::control::{
    EndTransactionMarker, TransactionEnd, end_transaction_marker, mirror_pid_reset,
};
use protocol::ids::{
    LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TimestampMs,
    TopicName,
};

const WAIT: std::time::Duration = std::time::Duration::from_secs(60);

fn libs() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let folder = match std::env::var_os("HELIOGRAPH_KAFKA_LIBS") {
        Some(folder) => PathBuf::from(folder),
        None => repository.join(".kafka/libs/4.4.0"),
    };
    assert!(
        folder.join("kafka-tools-4.4.0.jar").exists(),
        "no Kafka jars in {}: run `scripts/kafka.sh fetch`, or name their folder in \
         HELIOGRAPH_KAFKA_LIBS",
        folder.display()
    );
    folder
}

/// Runs DumpLogSegments on files and returns what it printed. Any complaint is a failure.
fn dump(options: &[&str], files: &[PathBuf]) -> String {
    let names: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let output = Command::new("java")
        .args(["-Xmx256m", "-cp", &format!("{}/*", libs().display())])
        .arg("org.apache.kafka.tools.DumpLogSegments")
        .args(options)
        .args(["--files", &names.join(",")])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = format!("{printed}\n{complaints}");
    assert!(output.status.success(), "{options:?} failed:\n{text}");
    for complaint in [
        "Mismatches in",
        "Found timestamp mismatch",
        "Found out of order timestamp",
        "offset not found",
        "Exception",
        "corrupt",
        "invalid bytes",
        "isvalid: false",
    ] {
        assert!(!text.contains(complaint), "{options:?} says {complaint:?}:\n{text}");
    }
    // The tool of 4.4 takes -1 for the offset before every file, and says so of any file that
    // does not start at 0.
    for line in text.lines().filter(|line| line.contains(" is followed by ")) {
        assert!(line.trim().starts_with("-1 is followed by "), "{options:?} says {line:?}");
    }
    printed
}

fn ask<T: Send + 'static>(command: impl FnOnce(Reply<T>)) -> Result<T, Error> {
    let (sender, receiver) = mpsc::channel();
    command(Box::new(move |answer| {
        sender.send(answer).ok();
    }));
    receiver.recv_timeout(WAIT).expect("the writer answers")
}

fn open(path: &Path) -> LogDir {
    LogDir::open(Disk::os(), path, LogDirOptions::default()).unwrap()
}

fn lease(dir: &LogDir) -> Lease {
    let config =
        LogConfig { segment_bytes: 6_000, index_interval_bytes: 500, ..LogConfig::default() };
    let id = LogId {
        topic: TopicName::from("dumped"),
        topic_id: "AAAAAAAAAAAAAAAAAAAABw".parse().unwrap(),
        partition: PartitionIndex(0),
    };
    ask(|reply| dir.lease(id, config, reply)).unwrap()
}

fn append(dir: &LogDir, lease: &Lease, epoch: i32, origin: Origin, batches: Bytes) {
    let append = Append {
        batches,
        leader_epoch: LeaderEpoch(epoch),
        origin,
        now: TimestampMs(1_700_000_000_000),
        crc_verified: false,
    };
    ask(|reply| dir.append(lease, append, reply)).unwrap();
}

fn batch(at: i32, producer: i64, sequence: i32) -> BatchBuilder {
    let codecs = Compression::ALL;
    let compression = codecs[usize::try_from(at).unwrap() % codecs.len()];
    (0..7).fold(
        BatchBuilder::new().compression(compression).producer(
            ProducerId(producer),
            ProducerEpoch(0),
            Sequence(sequence),
        ),
        |builder, record| {
            let timestamp = TimestampMs(1_700_000_000_000 + i64::from(at * 10 + record));
            builder.record(timestamp, Some(format!("key {record}").as_bytes()), Some(&[b'v'; 60]))
        },
    )
}

fn marker(producer: i64, end: TransactionEnd) -> Bytes {
    end_transaction_marker(&EndTransactionMarker {
        end,
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(0),
        coordinator_epoch: 0,
        timestamp: TimestampMs(1_700_000_009_000),
    })
}

/// Fills a log with everything a log can hold.
fn fill(dir: &LogDir, lease: &Lease) {
    for at in 0..120 {
        append(dir, lease, at / 40, Origin::Client, batch(at, 7, at * 7).build());
        if at % 30 == 29 {
            let open = batch(at, 8, at / 30 * 7).transactional().build();
            append(dir, lease, at / 40, Origin::Client, open);
            let end = if at == 59 { TransactionEnd::Commit } else { TransactionEnd::Abort };
            append(dir, lease, at / 40, Origin::Coordinator, marker(8, end));
        }
    }
    ask(|reply| dir.truncate(lease, Offset(800), reply)).unwrap();
    let reset = mirror_pid_reset("AAAAAAAAAAAAAAAAAAAABQ", TimestampMs(1_700_000_009_500));
    append(dir, lease, 9, Origin::Coordinator, reset);
    for at in 200..300 {
        append(dir, lease, 9, Origin::Client, batch(at, 9, (at - 200) * 7).build());
    }
}

fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("dumped-0")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.to_str().unwrap().ends_with(suffix));
    files.sort();
    files
}

/// The log's offsets as Kafka's tool prints them.
fn check(dir: &Path, log_end: Offset) {
    let logs = files(dir, ".log");
    assert!(logs.len() > 5, "{logs:?}");
    let printed = dump(&["--deep-iteration", "--print-data-log"], &logs);
    let last = printed.lines().rev().find(|line| line.contains("lastOffset: ")).unwrap();
    let last: i64 = word_after(last, "lastOffset: ").parse().unwrap();
    assert_eq!(last + 1, log_end.0);
    let records = printed.lines().filter(|line| line.starts_with("| offset:")).count();
    assert_eq!(i64::try_from(records).unwrap(), log_end.0);
    dump(&[], &files(dir, ".index"));
    dump(&["--index-sanity-check"], &files(dir, ".index"));
    dump(&["--verify-index-only"], &files(dir, ".index"));
    dump(&[], &files(dir, ".timeindex"));
    let aborted = dump(&[], &files(dir, ".txnindex"));
    // The third one was cut off by the truncation.
    assert_eq!(aborted.matches("producerId: 8").count(), 2, "{aborted}");
    let snapshots = dump(&[], &files(dir, ".snapshot"));
    assert!(snapshots.contains("producerId: 9"), "{snapshots}");
}

fn word_after<'a>(line: &'a str, label: &str) -> &'a str {
    line.split_once(label).unwrap().1.split_whitespace().next().unwrap()
}

#[test]
fn kafkas_dump_tool_reads_every_file_after_a_kill_and_after_a_clean_stop() {
    let folder = tempfile::tempdir().unwrap();
    let dir = open(folder.path());
    let log = lease(&dir);
    fill(&dir, &log);
    let log_end = log.view.log_end();
    dir.crash();
    let logs = files(folder.path(), ".log");
    dump(&["--deep-iteration"], &logs);
    let dir = open(folder.path());
    let log = lease(&dir);
    assert_eq!(log.view.log_end(), log_end);
    ask(|reply| dir.close(true, reply)).unwrap();
    check(folder.path(), log_end);
    let again = open(folder.path());
    assert_eq!(lease(&again).view.log_end(), log_end);
}

#[test]
fn readers_beside_truncations_never_see_replaced_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = open(folder.path());
    let log = lease(&dir);
    let view = log.view.clone();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (view, stop) = (view.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut reads = 0u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let mut offset = view.log_start();
                    loop {
                        let truncations = view.truncations();
                        let read =
                            view.read(offset, 4_000, ReadUpTo::LogEnd, true, ReadMode::MayBlock);
                        match read {
                            Ok(read) if read.bytes.is_empty() => break,
                            Ok(read) => {
                                reads += 1;
                                for one in batch::split(read.bytes.clone()) {
                                    let one = one.expect("whole batches only");
                                    one.verify_crc().expect("bytes of one writing only");
                                    assert!(one.header.last_offset() >= offset);
                                    offset = one.header.next_offset();
                                }
                            }
                            Err(Error::OffsetOutOfRange { .. } | Error::Contended { .. }) => break,
                            Err(error) => {
                                panic!("{error} after {truncations} truncations");
                            }
                        }
                    }
                }
                reads
            })
        })
        .collect();
    for round in 0..300 {
        for at in 0..20 {
            append(&dir, &log, round, Origin::Client, batch(round * 20 + at, -1, -1).build());
        }
        let end = view.log_end().0;
        if round % 50 == 49 {
            ask(|reply| dir.reset(&log, Offset(end), reply)).unwrap();
        } else {
            let start = view.log_start().0;
            let to = start + (end - start) * i64::from(round % 7) / 7;
            ask(|reply| dir.truncate(&log, Offset(to), reply)).unwrap();
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().expect("no reader saw replaced bytes") > 0);
    }
}

#[test]
fn a_folder_in_use_is_refused_and_free_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let dir = open(folder.path());
    let refused = LogDir::open(Disk::os(), folder.path(), LogDirOptions::default()).err().unwrap();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    dir.crash();
    open(folder.path());
}

#[test]
fn few_files_stay_open_for_many_logs() {
    let folder = tempfile::tempdir().unwrap();
    let open_files = log::OpenFiles::new(10);
    let options = LogDirOptions { open_files: open_files.clone(), ..LogDirOptions::default() };
    let dir = LogDir::open(Disk::os(), folder.path(), options).unwrap();
    let leases: Vec<Lease> = (0..50)
        .map(|partition| {
            let id = LogId {
                topic: TopicName::from("many"),
                topic_id: "AAAAAAAAAAAAAAAAAAAABw".parse().unwrap(),
                partition: PartitionIndex(partition),
            };
            ask(|reply| dir.lease(id, LogConfig::default(), reply)).unwrap()
        })
        .collect();
    for round in 0..3 {
        for log in &leases {
            append(&dir, log, 0, Origin::Client, batch(round, -1, -1).build());
        }
    }
    assert!(open_files.count() <= 11, "{} files are open", open_files.count());
    for log in &leases {
        let read =
            log.view.read(Offset(0), 1 << 20, ReadUpTo::LogEnd, true, ReadMode::MayBlock).unwrap();
        assert_eq!(read.next_offset, Offset(21));
    }
    // Two looks without a use between them close what is idle.
    for now in [0, 60_000, 120_000] {
        ask(|reply| dir.tick(TimestampMs(now), reply)).unwrap();
    }
    assert_eq!(open_files.count(), 0);
}
