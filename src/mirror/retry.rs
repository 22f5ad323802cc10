//! How long to wait before trying again (D12). Owns the delays; never counts attempts itself.

/// How long a source may be unreachable before its partitions are FAILED, in milliseconds.
pub const UNREACHABLE_LIMIT_MS: i64 = 30_000;

/// How often a missing right is tried again, in milliseconds.
pub const AUTHORIZATION_RETRY_MS: i64 = 60_000;

/// A doubling delay with a ceiling and jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay, in milliseconds.
    pub initial_ms: i64,
    /// The ceiling before jitter, in milliseconds.
    pub max_ms: i64,
    /// How far jitter moves a delay up or down, in percent.
    pub jitter_percent: i64,
}

/// How ordinary failures are tried again: the settings `mirror.failed.retry.*` of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureRetries {
    /// The delays.
    pub backoff: Backoff,
    /// Attempts after which a failure is for good; 0 never tries again.
    pub attempts_max: i16,
}

impl Default for FailureRetries {
    /// The settings' defaults: 1 s doubling to 300 s, 100 attempts.
    fn default() -> FailureRetries {
        FailureRetries {
            backoff: Backoff { initial_ms: 1_000, max_ms: 300_000, jitter_percent: 20 },
            attempts_max: 100,
        }
    }
}

impl Backoff {
    /// Probes of an unreachable source: 1 s doubling to 60 s.
    pub const PROBE: Backoff = Backoff { initial_ms: 1_000, max_ms: 60_000, jitter_percent: 20 };
    /// Calls inside the cluster (coordinator, controller, own log): 50 ms doubling to 5 s.
    pub const LOCAL: Backoff = Backoff { initial_ms: 50, max_ms: 5_000, jitter_percent: 20 };

    /// The delay before attempt `attempt` (from 1), in milliseconds; equal arguments, equal
    /// delay.
    #[must_use]
    pub fn delay_ms(self, attempt: u32, seed: u64) -> i64 {
        let doublings = attempt.saturating_sub(1).min(32);
        let base = self.initial_ms.saturating_mul(1_i64 << doublings).min(self.max_ms);
        let spread = base * self.jitter_percent / 100;
        if spread == 0 {
            return base;
        }
        let range = u64::try_from(2 * spread + 1).expect("a spread is positive here");
        let offset = mix(seed ^ u64::from(attempt)) % range;
        base - spread + i64::try_from(offset).expect("an offset is below a range made of an i64")
    }
}

/// Spreads a seed over all bits (the finaliser of splitmix64).
fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_ceiling_within_the_jitter() {
        for seed in 0..50 {
            for (attempt, base) in
                [(1, 1_000), (2, 2_000), (3, 4_000), (9, 256_000), (40, 300_000)]
            {
                let delay = FailureRetries::default().backoff.delay_ms(attempt, seed);
                assert!((base * 8 / 10..=base * 12 / 10).contains(&delay), "{attempt}: {delay}");
            }
        }
    }

    #[test]
    fn seeds_spread_and_repeat() {
        let delays: std::collections::BTreeSet<i64> =
            (0..100).map(|seed| Backoff::PROBE.delay_ms(7, seed)).collect();
        assert!(delays.len() > 90, "{}", delays.len());
        assert_eq!(Backoff::PROBE.delay_ms(7, 1), Backoff::PROBE.delay_ms(7, 1));
    }
}
