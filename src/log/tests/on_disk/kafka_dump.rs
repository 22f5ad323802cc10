//! Kafka's own DumpLogSegments reads what a log directory leaves behind: batches, indexes,
//! transaction index, producer snapshots, after rolls, truncation, transactions, a kill and a
//! clean stop.

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use log::{Lease, LogDir, Origin};
use protocol::control::{
    EndTransactionMarker, TransactionEnd, end_transaction_marker, mirror_pid_reset,
};
use protocol::ids::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use crate::setup::{append, ask, batch, lease, open};

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
