//! Seeded randomness for backoff and faults: one seed gives one sequence.
//!
//! Owns a small generator (SplitMix64). It is of no use for secrets.

use std::time::Duration;

/// A sequence of numbers from a seed.
#[derive(Debug, Clone)]
pub struct Jitter {
    state: u64,
}

impl Jitter {
    /// Starts the sequence.
    pub fn new(seed: u64) -> Jitter {
        Jitter { state: seed }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A fraction from 0 up to but without 1.
    pub fn fraction(&mut self) -> f64 {
        let bits = u32::try_from(self.next_u64() >> 32).expect("32 bits are left");
        f64::from(bits) / (f64::from(u32::MAX) + 1.0)
    }

    /// A duration between `low` and `high`.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        low + high.saturating_sub(low).mul_f64(self.fraction())
    }

    /// `duration`, longer or shorter by up to a fifth.
    pub fn spread(&mut self, duration: Duration) -> Duration {
        duration.mul_f64(0.8 + 0.4 * self.fraction())
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }
}
