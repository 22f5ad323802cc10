//! The source's offsets of a mirror's partitions as fetches saw them: what describe shows (D17).
//! Owns the last values; never asks the source. The arithmetic is `mirror::describe`'s.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mirror::describe::{Lag, LagTracker};
use parking_lot::Mutex;
use protocol::ids::{Offset, TimestampMs, TopicIdPartition};

/// When a fetch session was last answered: an answer that leaves a partition out says that nothing
/// of it changed.
#[derive(Debug, Clone, Default)]
pub struct LastAnswer(Arc<AtomicI64>);

impl LastAnswer {
    /// Notes an answer.
    pub fn set(&self, now: TimestampMs) {
        self.0.store(now.0, Ordering::Relaxed);
    }

    fn get(&self) -> TimestampMs {
        TimestampMs(self.0.load(Ordering::Relaxed))
    }
}

/// The last values of every partition that was fetched here. Kept while the source is dead.
#[derive(Debug, Default)]
pub struct SourceOffsets {
    seen: Mutex<BTreeMap<TopicIdPartition, Seen>>,
}

#[derive(Debug)]
struct Seen {
    tracker: LagTracker,
    high_watermark: Offset,
    session: Option<LastAnswer>,
}

impl SourceOffsets {
    /// Notes what an answer said of a partition, and where the log ended after its append.
    pub fn observe(
        &self,
        partition: TopicIdPartition,
        high_watermark: Offset,
        log_end: Offset,
        now: TimestampMs,
        session: &LastAnswer,
    ) {
        let mut all = self.seen.lock();
        let seen = all.entry(partition).or_insert_with(|| Seen {
            tracker: LagTracker::default(),
            high_watermark,
            session: None,
        });
        seen.tracker.observe(high_watermark, log_end, now);
        seen.high_watermark = high_watermark;
        if seen.session.is_none() {
            seen.session = Some(session.clone());
        }
    }

    /// The partition left its session: answers of that say nothing of it any more.
    pub fn release(&self, partition: TopicIdPartition) {
        if let Some(seen) = self.seen.lock().get_mut(&partition) {
            seen.session = None;
        }
    }

    /// Keeps the partitions for which `wanted` is true.
    pub fn retain(&self, wanted: impl Fn(TopicIdPartition) -> bool) {
        self.seen.lock().retain(|partition, _| wanted(*partition));
    }

    /// What to show of a partition whose log here ends at `log_end`.
    pub fn lag(&self, partition: TopicIdPartition, log_end: Offset, now: TimestampMs) -> Lag {
        let mut all = self.seen.lock();
        let Some(seen) = all.get_mut(&partition) else {
            return LagTracker::default().lag(log_end, now);
        };
        if log_end >= seen.high_watermark
            && let Some(session) = &seen.session
        {
            // Caught up, and not mentioned since: as of the session's last answer nothing is new.
            let answered = session.get();
            let known = seen.tracker.lag(log_end, answered).source_offset_age_ms;
            if answered <= now && known > 0 {
                seen.tracker.observe(seen.high_watermark, log_end, answered);
            }
        }
        seen.tracker.lag(log_end, now)
    }
}

#[cfg(test)]
mod tests {
    use protocol::ids::{PartitionIndex, TopicId};

    use super::*;

    const AT: TopicIdPartition =
        TopicIdPartition { topic_id: TopicId::ZERO, partition: PartitionIndex(0) };

    #[test]
    fn an_idle_partition_is_as_fresh_as_its_session() {
        let (offsets, session) = (SourceOffsets::default(), LastAnswer::default());
        assert_eq!(offsets.lag(AT, Offset(5), TimestampMs(1)).source_offset, -1);
        offsets.observe(AT, Offset(10), Offset(10), TimestampMs(1_000), &session);
        session.set(TimestampMs(9_000));
        let lag = offsets.lag(AT, Offset(10), TimestampMs(9_500));
        assert_eq!((lag.source_offset, lag.lag, lag.source_offset_age_ms), (10, 0, 500));
        offsets.release(AT);
        session.set(TimestampMs(20_000));
        let lag = offsets.lag(AT, Offset(10), TimestampMs(20_000));
        assert_eq!(lag.source_offset_age_ms, 11_000);
    }

    #[test]
    fn a_partition_that_lags_ages_until_it_is_mentioned() {
        let (offsets, session) = (SourceOffsets::default(), LastAnswer::default());
        offsets.observe(AT, Offset(10), Offset(4), TimestampMs(1_000), &session);
        session.set(TimestampMs(5_000));
        let lag = offsets.lag(AT, Offset(4), TimestampMs(5_000));
        assert_eq!((lag.lag, lag.lag_ms, lag.source_offset_age_ms), (6, 4_000, 4_000));
    }
}
