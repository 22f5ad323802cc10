//! The offsets and lag that describe shows of one partition (D17). Owns the arithmetic; never
//! asks the source: what the fetcher saw is told to it.

use protocol::ids::{Offset, TimestampMs};

/// What the leader of a mirror partition has seen of the source since it became leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LagTracker {
    source: Option<Seen>,
    caught_up_at: Option<TimestampMs>,
}

/// The source's high watermark, and when it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    high_watermark: Offset,
    at: TimestampMs,
}

/// One partition's offsets as DescribeMirrors answers them; −1 is "not known".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The source's high watermark.
    pub source_offset: i64,
    /// The log end offset of the leader here.
    pub destination_offset: i64,
    /// How many offsets the source is ahead; never negative once known.
    pub lag: i64,
    /// Since how many milliseconds the partition has been behind; 0 when it is not.
    pub lag_ms: i64,
    /// How old `source_offset` is, in milliseconds.
    pub source_offset_age_ms: i64,
}

impl LagTracker {
    /// Notes an answer of the source: its high watermark, and our log end after the append.
    pub fn observe(&mut self, high_watermark: Offset, log_end: Offset, now: TimestampMs) {
        self.source = Some(Seen { high_watermark, at: now });
        if log_end >= high_watermark {
            self.caught_up_at = Some(now);
        } else if self.caught_up_at.is_none() {
            // The clock of being behind starts at the first look.
            self.caught_up_at = Some(now);
        }
    }

    /// What to show now, for a leader whose log ends at `log_end`.
    #[must_use]
    pub fn lag(&self, log_end: Offset, now: TimestampMs) -> Lag {
        let Some(seen) = self.source else {
            return Lag {
                source_offset: -1,
                destination_offset: log_end.0,
                lag: -1,
                lag_ms: -1,
                source_offset_age_ms: -1,
            };
        };
        let lag = (seen.high_watermark.0 - log_end.0).max(0);
        let behind_since = self.caught_up_at.unwrap_or(seen.at);
        Lag {
            source_offset: seen.high_watermark.0,
            destination_offset: log_end.0,
            lag,
            lag_ms: if lag == 0 { 0 } else { (now.0 - behind_since.0).max(0) },
            source_offset_age_ms: (now.0 - seen.at.0).max(0),
        }
    }

    /// The row of a partition nobody leads: no offset is known.
    #[must_use]
    pub const fn unknown() -> Lag {
        Lag {
            source_offset: -1,
            destination_offset: -1,
            lag: -1,
            lag_ms: -1,
            source_offset_age_ms: -1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_claimed_before_the_source_answered() {
        let lag = LagTracker::default().lag(Offset(7), TimestampMs(1_000));
        assert_eq!((lag.source_offset, lag.destination_offset, lag.lag), (-1, 7, -1));
        assert_eq!((lag.lag_ms, lag.source_offset_age_ms), (-1, -1));
    }

    #[test]
    fn lag_is_the_sources_lead_and_never_negative() {
        let mut tracker = LagTracker::default();
        tracker.observe(Offset(100), Offset(40), TimestampMs(1_000));
        let lag = tracker.lag(Offset(60), TimestampMs(1_500));
        assert_eq!((lag.lag, lag.lag_ms, lag.source_offset_age_ms), (40, 500, 500));
        // The log may pass the last watermark seen.
        assert_eq!(tracker.lag(Offset(120), TimestampMs(1_500)).lag, 0);
    }

    #[test]
    fn the_last_values_stay_while_the_source_is_dead() {
        let mut tracker = LagTracker::default();
        tracker.observe(Offset(100), Offset(100), TimestampMs(1_000));
        let lag = tracker.lag(Offset(100), TimestampMs(61_000));
        assert_eq!((lag.source_offset, lag.lag, lag.lag_ms), (100, 0, 0));
        assert_eq!(lag.source_offset_age_ms, 60_000);
    }
}
