//! The failover: the order to stop, and a client on every partition that tries to write from that
//! moment on. Owns the times that a user would have waited.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use protocol::batch::BatchBuilder;
use protocol::error_code::ErrorCode;

use super::load::{hash, now};
use super::topic::{Refusal, Topic};
use super::watch::Watch;
use crate::cli::mirrors::admin::{MirrorAdmin, TopicRequest};
use crate::cli::mirrors::plan::TopicArguments;
use crate::cli::mirrors::render::PartitionRow;

/// How long a write may be refused after the order to stop.
const WRITE_DEADLINE: Duration = Duration::from_secs(30);
/// How long the states may take to be STOPPED.
const STOPPED_DEADLINE: Duration = Duration::from_secs(30);
/// Between two tries to write.
const PAUSE: Duration = Duration::from_millis(2);

/// What the failover came to.
#[derive(Debug)]
pub struct Failover {
    /// From the order to the first write that was accepted on any partition.
    pub first_write: Duration,
    /// From the order to the moment when every partition had accepted one.
    pub all_writable: Duration,
    /// The accepted writes: offset and hash by partition.
    pub written: BTreeMap<i32, (i64, u64)>,
    /// The mirror's rows once every partition was STOPPED.
    pub rows: Vec<PartitionRow>,
}

impl Failover {
    /// The last mirrored offset of each partition, as the standby reports it.
    pub fn last_mirrored(&self) -> BTreeMap<i32, i64> {
        self.rows.iter().map(|row| (row.partition, row.last_mirrored_offset)).collect()
    }
}

/// Orders the mirror to stop, and writes to the topic as soon as it is allowed.
///
/// # Errors
/// The order is refused, or a partition is not writable in time.
pub async fn fail_over(
    admin: &MirrorAdmin,
    mirror: &str,
    standby: &Topic,
    watch: &Watch<'_>,
) -> Result<Failover> {
    let ordered = Instant::now();
    let writers: Vec<_> = standby
        .partitions()
        .into_iter()
        .map(|partition| tokio::spawn(first_write(standby.clone(), partition, ordered)))
        .collect();
    stop(admin, mirror, standby.name()).await?;
    let mut first_write = Duration::MAX;
    let mut all_writable = Duration::ZERO;
    let mut written = BTreeMap::new();
    for writer in writers {
        let write = writer.await.context("a writer ended")??;
        first_write = first_write.min(write.after);
        all_writable = all_writable.max(write.after);
        written.insert(write.partition, (write.offset, write.hash));
    }
    let rows = watch.until_stopped(STOPPED_DEADLINE).await?;
    Ok(Failover { first_write, all_writable, written, rows })
}

/// Whether a write is refused as a mirrored topic's is.
///
/// # Errors
/// It is accepted, or refused for another reason.
pub async fn read_only(standby: &Topic) -> Result<()> {
    for partition in standby.partitions() {
        let batch = BatchBuilder::new().record(now(), None, Some(b"not allowed")).build();
        match standby.write(partition, batch).await {
            Err(Refusal::Code { code: ErrorCode::PolicyViolation, .. }) => {}
            Err(refusal) => bail!("partition {partition} refuses with {refusal}"),
            Ok(offset) => bail!("partition {partition} took a write at offset {offset}"),
        }
    }
    Ok(())
}

async fn stop(admin: &MirrorAdmin, mirror: &str, topic: &str) -> Result<()> {
    let topics = TopicArguments { literals: vec![topic.to_owned()], patterns: Vec::new() };
    let asked = TopicRequest { mirror, topics: &topics, exclude: &[] };
    let outcomes = admin.stop(&asked).await.context("the order to stop")?;
    match outcomes.iter().find_map(|outcome| outcome.failure.as_deref()) {
        Some(failure) => bail!("the order to stop was refused: {failure}"),
        None if outcomes.is_empty() => bail!("the order to stop found no topic"),
        None => Ok(()),
    }
}

struct Write {
    partition: i32,
    offset: i64,
    hash: u64,
    after: Duration,
}

async fn first_write(standby: Topic, partition: i32, ordered: Instant) -> Result<Write> {
    let value = format!("first write to partition {partition} after the failover");
    let batch = BatchBuilder::new().record(now(), None, Some(value.as_bytes())).build();
    loop {
        match standby.write(partition, batch.clone()).await {
            Ok(offset) => {
                let hash = hash(value.as_bytes());
                return Ok(Write { partition, offset, hash, after: ordered.elapsed() });
            }
            Err(refusal) if ordered.elapsed() > WRITE_DEADLINE => {
                bail!("partition {partition} still refuses writes: {refusal}")
            }
            Err(Refusal::Code { code, .. }) if code.is_retriable() => standby.refresh().await,
            Err(Refusal::Code { .. } | Refusal::NoAnswer(_)) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}
