//! Loading a shard: reads its partition's log from start to end and makes the machine. It runs
//! beside the actor and answers nobody.
//!
//! What is read was committed when the load began: the log end of a new leader may hold records
//! that its predecessor never acknowledged, so the load first waits until the high watermark has
//! passed it. The log cannot grow meanwhile, because only the shard writes to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use log::{ReadBatches, ReadMode, ReadUpTo, ReadView, Role, Serving};
use protocol::ids::{LeaderEpoch, Offset, TopicIdPartition};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::appends::InFlight;
use super::coordinator_shard::ShardMachine;
use crate::directory::Directory;
use crate::partition::PartitionShared;

/// Bytes of the log that are read and replayed at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// First and longest pause before the partition is looked at again. A partition that moves wakes
/// the load earlier; the pause is for what wakes nobody, such as its actor's first start.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// How long a load may be tried again before that is worth a warning, and how often from then on.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// What is loaded from where.
#[derive(Debug, Clone)]
pub struct Source {
    /// The node.
    pub directory: Arc<Directory>,
    /// The partition of the internal topic.
    pub partition: TopicIdPartition,
    /// The leader epoch in which this node leads it.
    pub leader_epoch: LeaderEpoch,
    /// Appends of the shard's earlier life.
    pub in_flight: InFlight,
}

/// Makes the machine from the log. Tries for as long as it is asked to: whoever started it ends
/// it when the leadership is over.
pub async fn load<M: ShardMachine>(source: &Source) -> Box<M> {
    let mut pause = PAUSE_MIN;
    let mut quiet_since = Instant::now();
    loop {
        let error = match try_load(source).await {
            Ok(machine) => return machine,
            Err(error) => error,
        };
        if quiet_since.elapsed() < WARN_EVERY {
            tracing::debug!(
                kind = ?M::KIND, partition = %source.partition, %error,
                "the coordinator was not loaded: trying again"
            );
        } else {
            quiet_since = Instant::now();
            tracing::warn!(
                kind = ?M::KIND, partition = %source.partition, %error,
                "the coordinator is still not loaded: trying again"
            );
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Why a load has to begin again.
#[derive(Debug, thiserror::Error)]
enum NotLoaded {
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The partition was given another role, epoch or life while its log was read.
    #[error("the partition changed while it was read")]
    Changed,
    /// There is no batch to read at an offset below the log's end.
    #[error(
        "offset {offset} cannot be read: the high watermark is {high_watermark}, the log ends at \
         {end}"
    )]
    NotReadable { offset: Offset, high_watermark: Offset, end: Offset },
}

async fn try_load<M: ShardMachine>(source: &Source) -> Result<Box<M>, NotLoaded> {
    source.in_flight.drained().await;
    let (shared, view) = leading(source).await;
    let (incarnation, serving) = (view.incarnation(), view.serving());
    let end = view.log_end();
    committed(&shared, &view, end, serving).await;
    let started = Instant::now();
    let mut machine = Box::new(M::start(&source.directory));
    let mut offset = view.log_start();
    let mut records = 0;
    while offset < end {
        let read = read_chunk(&view, offset).await?;
        records += replay(machine.as_mut(), read.bytes, source.partition);
        if read.next_offset <= offset {
            if view.incarnation() != incarnation || view.serving() != serving {
                return Err(NotLoaded::Changed);
            }
            let (high_watermark, end) = (view.high_watermark(), view.log_end());
            return Err(NotLoaded::NotReadable { offset, high_watermark, end });
        }
        offset = read.next_offset;
        tokio::task::yield_now().await;
    }
    if view.incarnation() != incarnation || view.serving() != serving {
        return Err(NotLoaded::Changed);
    }
    tracing::debug!(
        kind = ?M::KIND, partition = %source.partition, epoch = %source.leader_epoch, records,
        took = ?started.elapsed(), "the coordinator is loaded"
    );
    Ok(machine)
}

/// Waits until the partition's actor leads in the source's epoch.
async fn leading(source: &Source) -> (Arc<PartitionShared>, Arc<ReadView>) {
    let wanted = Serving { role: Role::Leader, leader_epoch: source.leader_epoch };
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(handle) = source.directory.partition(source.partition)
            && let Some(view) = handle.shared().view()
            && view.serving() == wanted
        {
            return (Arc::clone(handle.shared()), view);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Waits until the high watermark has reached `end`, or the partition serves something else.
async fn committed(shared: &Arc<PartitionShared>, view: &ReadView, end: Offset, serving: Serving) {
    let notify = Arc::new(Notify::new());
    let last = Offset(end.0 - 1);
    let _parked = shared.waiters.park(ReadUpTo::HighWatermark, last, Arc::clone(&notify));
    while view.high_watermark() < end && view.serving() == serving {
        // Woken or not, the bounds say whether the wait is over.
        drop(tokio::time::timeout(PAUSE_MAX, notify.notified()).await);
    }
}

/// Reads from the page cache, or on a blocking thread what is not in it.
async fn read_chunk(view: &Arc<ReadView>, from: Offset) -> Result<ReadBatches, log::Error> {
    let up_to = ReadUpTo::HighWatermark;
    match view.read(from, CHUNK_BYTES, up_to, true, ReadMode::CachedOnly) {
        Err(log::Error::WouldBlock) => {}
        read => return read,
    }
    let view = Arc::clone(view);
    let read = move || view.read(from, CHUNK_BYTES, up_to, true, ReadMode::MayBlock);
    tokio::task::spawn_blocking(read).await.unwrap_or(Err(log::Error::WouldBlock))
}

/// Hands the records of whole batches to the machine; returns how many it took. One unreadable
/// record costs nothing but itself.
fn replay<M: ShardMachine>(machine: &mut M, bytes: Bytes, partition: TopicIdPartition) -> u64 {
    let mut taken = 0;
    for batch in protocol::batch::split(bytes) {
        let batch = match batch {
            Ok(batch) if batch.header.is_control() => continue,
            Ok(batch) => batch,
            Err(error) => {
                tracing::error!(%partition, %error, "a batch of an internal topic is unreadable");
                break;
            }
        };
        let base_offset = batch.header.base_offset;
        let records = match batch.records() {
            Ok(records) => records,
            Err(error) => {
                tracing::error!(%partition, %base_offset, %error, "a batch is unreadable");
                continue;
            }
        };
        for record in records {
            let replayed = match record {
                Ok(record) => match &record.key {
                    Some(key) => machine
                        .replay(key, record.value.as_ref())
                        .map_err(|error| error.to_string()),
                    None => Err("a record without a key".to_owned()),
                },
                Err(error) => Err(error.to_string()),
            };
            match replayed {
                Ok(()) => taken += 1,
                Err(error) => {
                    tracing::warn!(%partition, %base_offset, error, "a record was left out");
                }
            }
        }
    }
    taken
}
