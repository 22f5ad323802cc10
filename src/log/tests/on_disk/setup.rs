//! What every test of this ring needs: a directory, a lease, batches. Checks nothing.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use log::{Append, Disk, Error, Lease, LogConfig, LogDir, LogDirOptions, LogId, Origin, Reply};
use protocol::batch::BatchBuilder;
use protocol::compression::Compression;
use protocol::ids::{
    LeaderEpoch, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TimestampMs, TopicName,
};

const WAIT: Duration = Duration::from_secs(60);

pub fn ask<T: Send + 'static>(command: impl FnOnce(Reply<T>)) -> Result<T, Error> {
    let (sender, receiver) = mpsc::channel();
    command(Box::new(move |answer| {
        sender.send(answer).ok();
    }));
    receiver.recv_timeout(WAIT).expect("the writer answers")
}

pub fn open(path: &Path) -> LogDir {
    LogDir::open(Disk::os(), path, LogDirOptions::default()).unwrap()
}

pub fn lease(dir: &LogDir) -> Lease {
    let config =
        LogConfig { segment_bytes: 6_000, index_interval_bytes: 500, ..LogConfig::default() };
    let id = LogId {
        topic: TopicName::from("dumped"),
        topic_id: "AAAAAAAAAAAAAAAAAAAABw".parse().unwrap(),
        partition: PartitionIndex(0),
    };
    ask(|reply| dir.lease(id, config, reply)).unwrap()
}

pub fn append(dir: &LogDir, lease: &Lease, epoch: i32, origin: Origin, batches: Bytes) {
    let append = Append {
        batches,
        leader_epoch: LeaderEpoch(epoch),
        origin,
        now: TimestampMs(1_700_000_000_000),
        crc_verified: false,
    };
    ask(|reply| dir.append(lease, append, reply)).unwrap();
}

pub fn batch(at: i32, producer: i64, sequence: i32) -> BatchBuilder {
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
