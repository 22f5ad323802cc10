//! The load: one writer a partition, each with one batch on its way, acks=all. Owns the record of
//! what was acknowledged (partition, offset, hash of the value), which every check relies on.
//!
//! No value is ever written twice: a write without an answer is not sent again, its successor has
//! other values. So a value found anywhere says which write it came from.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use protocol::batch::BatchBuilder;
use protocol::ids::TimestampMs;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::topic::Topic;

/// Bytes of a value.
pub const VALUE_BYTES: usize = 1024;
/// Records of a batch while the load hurries, and while it is steady.
const BURST_RECORDS: u64 = 64;
const STEADY_RECORDS: u64 = 16;
/// Between two batches of one partition while the load is steady.
const STEADY_PERIOD: Duration = Duration::from_millis(20);
/// After a write that failed.
const PAUSE: Duration = Duration::from_millis(50);

/// How fast the load writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as it can.
    Burst,
    /// A batch a period.
    Steady,
    /// Not any more.
    Stopped,
}

/// What the load wrote and the cluster acknowledged: offset and hash of each value, by partition.
pub type Acknowledged = BTreeMap<i32, Vec<(i64, u64)>>;

/// A running load.
#[derive(Debug)]
pub struct Load {
    pace: watch::Sender<Pace>,
    counted: Arc<Counted>,
    writers: BTreeMap<i32, JoinHandle<Vec<(i64, u64)>>>,
}

#[derive(Debug, Default)]
struct Counted {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Load {
    /// Starts to write to every partition of the topic, in a hurry.
    pub fn start(topic: &Topic) -> Load {
        let pace = watch::Sender::new(Pace::Burst);
        let counted = Arc::<Counted>::default();
        let writers = topic.partitions().into_iter().map(|partition| {
            let writer = Writer {
                topic: topic.clone(),
                partition,
                pace: pace.subscribe(),
                counted: Arc::clone(&counted),
                acknowledged: Vec::new(),
                written: 0,
            };
            (partition, tokio::spawn(writer.run()))
        });
        Load { writers: writers.collect(), pace, counted }
    }

    /// Changes the pace.
    pub fn set_pace(&self, pace: Pace) {
        self.pace.send_replace(pace);
    }

    /// Records acknowledged so far.
    pub fn records(&self) -> u64 {
        self.counted.records.load(Ordering::Relaxed)
    }

    /// Bytes of batches acknowledged so far.
    pub fn bytes(&self) -> u64 {
        self.counted.bytes.load(Ordering::Relaxed)
    }

    /// Ends the load; what has no answer by now counts as not acknowledged.
    pub async fn stop(self) -> Acknowledged {
        self.set_pace(Pace::Stopped);
        let mut acknowledged = Acknowledged::new();
        for (partition, writer) in self.writers {
            acknowledged.insert(partition, writer.await.expect("a writer does not panic"));
        }
        acknowledged
    }
}

/// Writes one partition.
struct Writer {
    topic: Topic,
    partition: i32,
    pace: watch::Receiver<Pace>,
    counted: Arc<Counted>,
    acknowledged: Vec<(i64, u64)>,
    /// Values made so far, the ones that failed included.
    written: u64,
}

impl Writer {
    async fn run(mut self) -> Vec<(i64, u64)> {
        let mut stopped = self.pace.clone();
        tokio::select! {
            () = self.write_on() => {}
            _ = stopped.wait_for(|pace| *pace == Pace::Stopped) => {}
        }
        self.acknowledged
    }

    async fn write_on(&mut self) {
        let mut ticks = tokio::time::interval(STEADY_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let pace = *self.pace.borrow();
            let records = match pace {
                Pace::Burst => BURST_RECORDS,
                Pace::Steady => {
                    ticks.tick().await;
                    STEADY_RECORDS
                }
                Pace::Stopped => return,
            };
            self.write(records).await;
        }
    }

    async fn write(&mut self, records: u64) {
        let (batch, hashes) = self.next_batch(records);
        let bytes = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        match self.topic.write(self.partition, batch).await {
            Ok(base) => {
                self.acknowledged.extend((base..).zip(hashes));
                self.counted.records.fetch_add(records, Ordering::Relaxed);
                self.counted.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(refusal) => {
                tracing::debug!(partition = self.partition, %refusal, "the load was refused");
                tokio::time::sleep(PAUSE).await;
                self.topic.refresh().await;
            }
        }
    }

    fn next_batch(&mut self, records: u64) -> (Bytes, Vec<u64>) {
        let now = now();
        let mut builder = BatchBuilder::new();
        let mut hashes = Vec::new();
        for _ in 0..records {
            let value = value(self.partition, self.written);
            self.written += 1;
            hashes.push(hash(&value));
            builder.append(now, None, Some(&value), &[]);
        }
        (builder.build(), hashes)
    }
}

/// A value that no other write has: its partition and number in front, then bytes that follow from
/// them and do not compress.
fn value(partition: i32, number: u64) -> Vec<u8> {
    let mut value = format!("partition {partition} record {number} ").into_bytes();
    let partition = u64::from(partition.unsigned_abs());
    let mut state = (partition << 48) ^ number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while value.len() < VALUE_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value.extend_from_slice(&state.to_be_bytes());
    }
    value.truncate(VALUE_BYTES);
    value
}

/// The hash a value is remembered by; the same for all of one process.
pub fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The wall clock, as records carry it.
pub fn now() -> TimestampMs {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_values_are_equal() {
        let mut hashes = BTreeSet::new();
        for partition in 0..3 {
            for number in 0..1000 {
                let value = value(partition, number);
                assert_eq!(value.len(), VALUE_BYTES);
                assert!(hashes.insert(hash(&value)), "partition {partition} record {number}");
            }
        }
    }
}
