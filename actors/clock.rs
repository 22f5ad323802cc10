//! The clock of a node: wall time in milliseconds and monotonic time. It never sleeps.
//!
//! Everything that runs asks this clock and no other, so that a simulation can hold time still.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::ids::TimestampMs;
use tokio::time::Instant;

/// Where a node's time comes from. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A wall clock that starts at a chosen moment and follows tokio's (pausable) time.
    Simulated {
        /// Wall time at `started`, in milliseconds since the Unix epoch.
        wall_start: TimestampMs,
        /// The moment of tokio's clock that `wall_start` belongs to.
        started: Instant,
    },
}

impl Clock {
    /// A simulated clock that shows `wall_start` now. Call it inside the simulation's runtime.
    pub fn simulated(wall_start: TimestampMs) -> Clock {
        Clock::Simulated { wall_start, started: Instant::now() }
    }

    /// Wall time, in milliseconds since the Unix epoch.
    pub fn now(&self) -> TimestampMs {
        match self {
            Clock::System => TimestampMs(millis(
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO),
            )),
            Clock::Simulated { wall_start, started } => {
                TimestampMs(wall_start.0.saturating_add(millis(started.elapsed())))
            }
        }
    }
}

/// Whole milliseconds of a duration, capped at what an `i64` holds.
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn simulated_time_moves_only_with_tokios_clock() {
        let clock = Clock::simulated(TimestampMs(1_000));
        assert_eq!(clock.now(), TimestampMs(1_000));
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert_eq!(clock.now(), TimestampMs(1_250));
    }
}
