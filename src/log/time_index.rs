//! The sparse time index of one segment: a timestamp → the last offset of the batch in which the
//! segment's largest timestamp so far was met. Owns the entries and their file form; never touches
//! a file itself.
//!
//! File form (`<base>.timeindex`, big endian, no header), one entry of 12 bytes:
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..8 | largest timestamp of the segment so far, milliseconds (i64) |
//! | 8..12 | last offset of the batch that holds it, less the segment's base offset (i32) |
//!
//! Timestamps rise strictly, offsets too. The last entry of a closed segment is its largest
//! timestamp. Nothing is assumed of fsync: a missing or torn index is rebuilt.

use protocol::ids::{Offset, TimestampMs};

use crate::offset_index::relative_offset;

/// Bytes of one entry in the file.
pub const ENTRY_BYTES: usize = 12;

/// A timestamp and the last offset of the batch that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeEntry {
    /// Milliseconds since the epoch; -1 stands for no timestamp.
    pub timestamp: TimestampMs,
    /// Last offset of the batch.
    pub offset: Offset,
}

impl TimeEntry {
    /// What a segment without a timestamp has seen.
    pub const NONE: Self = Self { timestamp: TimestampMs(-1), offset: Offset(-1) };
}

/// The entries of one segment, in memory.
///
/// Invariants: entries rise strictly in timestamp and never fall in offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeIndex {
    base: Offset,
    entries: Vec<TimeEntry>,
}

impl TimeIndex {
    /// An index without entries, for the segment that starts at `base`.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new() }
    }

    /// Reads the file form. `None` when it is torn or its entries do not rise.
    #[must_use]
    pub fn parse(base: Offset, file: &[u8]) -> Option<Self> {
        if !file.len().is_multiple_of(ENTRY_BYTES) {
            return None;
        }
        let mut index = Self::new(base);
        for chunk in file.chunks_exact(ENTRY_BYTES) {
            let timestamp = TimestampMs(i64::from_be_bytes(chunk[..8].try_into().ok()?));
            let relative = i32::from_be_bytes(chunk[8..].try_into().ok()?);
            let entry = TimeEntry { timestamp, offset: Offset(base.0 + i64::from(relative)) };
            let rises = index
                .entries
                .last()
                .is_none_or(|last| timestamp > last.timestamp && entry.offset >= last.offset);
            if !rises || relative < 0 {
                return None;
            }
            index.entries.push(entry);
        }
        Some(index)
    }

    /// Adds an entry if its timestamp is above the newest one's (Kafka's rule).
    pub fn maybe_push(&mut self, entry: TimeEntry) {
        let rises = entry.timestamp.0 >= 0
            && self.entries.last().is_none_or(|last| {
                entry.timestamp > last.timestamp && entry.offset >= last.offset
            });
        if rises {
            self.entries.push(entry);
        }
    }

    /// The last entry whose timestamp is at most `timestamp`: no record before its offset is
    /// younger. `None` means the start of the segment.
    #[must_use]
    pub fn lookup(&self, timestamp: TimestampMs) -> Option<TimeEntry> {
        let after = self.entries.partition_point(|entry| entry.timestamp <= timestamp);
        after.checked_sub(1).map(|at| self.entries[at])
    }

    /// Forgets every entry of a batch that ends at or above `offset`.
    pub fn truncate_to_offset(&mut self, offset: Offset) {
        let keep = self.entries.partition_point(|entry| entry.offset < offset);
        self.entries.truncate(keep);
    }

    /// The newest entry: the largest timestamp indexed.
    #[must_use]
    pub fn last(&self) -> Option<TimeEntry> {
        self.entries.last().copied()
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The file form of the entries from the `from`-th on.
    #[must_use]
    pub fn encode_from(&self, from: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity((self.entries.len() - from) * ENTRY_BYTES);
        for entry in &self.entries[from..] {
            let relative = relative_offset(self.base, entry.offset)
                .expect("the segment rolls before an offset no longer fits");
            out.extend_from_slice(&entry.timestamp.0.to_be_bytes());
            out.extend_from_slice(&relative.to_be_bytes());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(timestamp: i64, offset: i64) -> TimeEntry {
        TimeEntry { timestamp: TimestampMs(timestamp), offset: Offset(offset) }
    }

    fn index() -> TimeIndex {
        let mut index = TimeIndex::new(Offset(100));
        index.maybe_push(entry(1_000, 109));
        index.maybe_push(entry(1_000, 119));
        index.maybe_push(entry(2_000, 129));
        index
    }

    #[test]
    fn equal_timestamp_adds_nothing() {
        assert_eq!(index().len(), 2);
    }

    #[test]
    fn lookup_gives_the_last_entry_not_younger() {
        assert_eq!(index().lookup(TimestampMs(999)), None);
        assert_eq!(index().lookup(TimestampMs(1_500)), Some(entry(1_000, 109)));
        assert_eq!(index().lookup(TimestampMs(9_000)), Some(entry(2_000, 129)));
    }

    #[test]
    fn file_form_is_kafkas() {
        let bytes = index().encode_from(1);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 7, 0xd0, 0, 0, 0, 29]);
        let whole = index().encode_from(0);
        assert_eq!(TimeIndex::parse(Offset(100), &whole), Some(index()));
        assert_eq!(TimeIndex::parse(Offset(100), &whole[..13]), None);
    }

    #[test]
    fn truncation_drops_entries_at_or_above() {
        let mut index = index();
        index.truncate_to_offset(Offset(129));
        assert_eq!(index.last(), Some(entry(1_000, 109)));
    }
}
