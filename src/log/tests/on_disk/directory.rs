//! The directory itself: its lock and its open files.

use log::{
    Disk, Error, Lease, LogConfig, LogDir, LogDirOptions, LogId, OpenFiles, Origin, ReadMode,
    ReadUpTo,
};
use protocol::ids::{Offset, PartitionIndex, TimestampMs, TopicName};

use crate::setup::{append, ask, batch, open};

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
    let open_files = OpenFiles::new(10);
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
