//! Histograms with one bucket for each power of two: 64 counters, no tables. Owns what openraft
//! asks of the crate whose place this takes; never used by our own code.

use std::fmt;
use std::marker::PhantomData;

/// Counts values by their number of bits. `T` is there for the original's sake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    /// Bucket n holds values of n bits; bucket 0 holds zero.
    buckets: Vec<u64>,
    unused: PhantomData<T>,
}

impl<T> Histogram<T> {
    /// Without values.
    pub fn new() -> Histogram<T> {
        Histogram { buckets: Vec::new(), unused: PhantomData }
    }

    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts a value `count` times.
    pub fn record_n(&mut self, value: u64, count: u64) {
        let bucket = usize::try_from(u64::BITS - value.leading_zeros()).unwrap_or(0);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += count;
    }

    /// Values counted.
    pub fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The smallest value of the bucket that holds the value at `permille` of all.
    fn at_permille(&self, permille: u64) -> u64 {
        let rank = (self.total().saturating_mul(permille)).div_ceil(1_000).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        match bucket {
            None | Some(0) => 0,
            Some(bits) => 1 << (bits - 1),
        }
    }

    /// The usual percentiles, rounded down to powers of two.
    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats {
            samples: self.total(),
            p0_1: self.at_permille(1),
            p1: self.at_permille(10),
            p5: self.at_permille(50),
            p10: self.at_permille(100),
            p50: self.at_permille(500),
            p90: self.at_permille(900),
            p99: self.at_permille(990),
            p99_9: self.at_permille(999),
        }
    }
}

impl<T> Default for Histogram<T> {
    fn default() -> Histogram<T> {
        Histogram::new()
    }
}

/// Percentiles of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the percentile of its name")]
pub struct PercentileStats {
    pub samples: u64,
    pub p0_1: u64,
    pub p1: u64,
    pub p5: u64,
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PercentileStats { samples, p50, p99, .. } = self;
        write!(formatter, "[samples: {samples}, P50: {p50}, P99: {p99}]")
    }
}

/// Histograms to print, one a line.
#[derive(Clone, Debug, Default)]
pub struct AsciiChart {
    lines: Vec<(String, PercentileStats)>,
}

impl AsciiChart {
    /// Without lines.
    pub fn new() -> AsciiChart {
        AsciiChart::default()
    }

    /// Adds a line.
    #[must_use]
    pub fn add(mut self, name: impl Into<String>, histogram: Histogram) -> AsciiChart {
        self.lines.push((name.into(), histogram.percentile_stats()));
        self
    }

    /// What can be printed.
    pub fn detailed(&self) -> &AsciiChart {
        self
    }
}

impl fmt::Display for AsciiChart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, stats) in &self.lines {
            writeln!(formatter, "{name}: {stats}")?;
        }
        Ok(())
    }
}
