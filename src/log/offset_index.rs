//! The sparse offset index of one segment: last offset of a batch → the file position of that
//! batch. Owns the entries and their file form; never touches a file itself.
//!
//! File form (`<base>.index`, big endian, no header), one entry of 8 bytes:
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..4 | last offset of a batch, less the segment's base offset (i32, never negative) |
//! | 4..8 | position of that batch's first byte in `<base>.log` (i32) |
//!
//! Entries rise strictly in offset and in position. Nothing is assumed of fsync: an index that is
//! missing, torn or behind its segment is rebuilt from the batches.

use protocol::ids::Offset;

/// Bytes of one entry in the file.
pub const ENTRY_BYTES: usize = 8;

/// One entry: a batch whose last offset is `base + relative` starts at `position`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetEntry {
    /// Last offset of the batch, relative to the segment's base offset.
    pub relative: u32,
    /// Where the batch starts in the segment's file.
    pub position: u32,
}

/// The entries of one segment, in memory.
///
/// Invariants: entries rise strictly in `relative` and in `position`; `relative` fits an `i32`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetIndex {
    base: Offset,
    entries: Vec<OffsetEntry>,
}

impl OffsetIndex {
    /// An index without entries, for the segment that starts at `base`.
    #[must_use]
    pub fn new(base: Offset) -> Self {
        Self { base, entries: Vec::new() }
    }

    /// Reads the file form. `None` when it is torn or its entries do not rise: then it has to be
    /// rebuilt. `segment_bytes` bounds the positions.
    #[must_use]
    pub fn parse(base: Offset, file: &[u8], segment_bytes: u64) -> Option<Self> {
        if !file.len().is_multiple_of(ENTRY_BYTES) {
            return None;
        }
        let mut entries: Vec<OffsetEntry> = Vec::with_capacity(file.len() / ENTRY_BYTES);
        for chunk in file.chunks_exact(ENTRY_BYTES) {
            let entry = OffsetEntry {
                relative: u32::from_be_bytes(chunk[..4].try_into().ok()?),
                position: u32::from_be_bytes(chunk[4..].try_into().ok()?),
            };
            let rises = entries.last().is_none_or(|last| {
                entry.relative > last.relative && entry.position > last.position
            });
            if !rises
                || u64::from(entry.position) >= segment_bytes
                || entry.relative > MAX_RELATIVE
            {
                return None;
            }
            entries.push(entry);
        }
        Some(Self { base, entries })
    }

    /// The last entry whose offset is at most `offset`: where a scan for it begins. `None` means
    /// the start of the segment.
    #[must_use]
    pub fn lookup(&self, offset: Offset) -> Option<OffsetEntry> {
        let wanted = u64::try_from(offset.0 - self.base.0).ok()?;
        let after = self.entries.partition_point(|entry| u64::from(entry.relative) <= wanted);
        after.checked_sub(1).map(|at| self.entries[at])
    }

    /// Adds the batch that ends at `last_offset` and starts at `position`.
    ///
    /// The caller has checked with [`relative_offset`] that the offset can be kept.
    pub fn push(&mut self, last_offset: Offset, position: u32) {
        let relative = relative_offset(self.base, last_offset)
            .expect("the segment rolls before an offset no longer fits");
        debug_assert!(
            self.entries
                .last()
                .is_none_or(|last| relative > last.relative && position > last.position),
            "index entry {relative}@{position} does not rise"
        );
        self.entries.push(OffsetEntry { relative, position });
    }

    /// Forgets every entry of a batch at or behind `position`.
    pub fn truncate_to_position(&mut self, position: u64) {
        let keep = self.entries.partition_point(|entry| u64::from(entry.position) < position);
        self.entries.truncate(keep);
    }

    /// The newest entry.
    #[must_use]
    pub fn last(&self) -> Option<OffsetEntry> {
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
            out.extend_from_slice(&entry.relative.to_be_bytes());
            out.extend_from_slice(&entry.position.to_be_bytes());
        }
        out
    }
}

/// The largest relative offset Kafka's indexes can hold.
const MAX_RELATIVE: u32 = i32::MAX.unsigned_abs();

/// `offset` relative to `base`, if both indexes can hold it.
#[must_use]
pub fn relative_offset(base: Offset, offset: Offset) -> Option<u32> {
    offset
        .0
        .checked_sub(base.0)
        .and_then(|relative| u32::try_from(relative).ok())
        .filter(|relative| *relative <= MAX_RELATIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> OffsetIndex {
        let mut index = OffsetIndex::new(Offset(100));
        index.push(Offset(109), 4_200);
        index.push(Offset(119), 8_400);
        index
    }

    #[test]
    fn lookup_gives_the_last_entry_at_or_below() {
        let index = index();
        assert_eq!(index.lookup(Offset(90)), None);
        assert_eq!(index.lookup(Offset(108)), None);
        assert_eq!(index.lookup(Offset(109)).unwrap().position, 4_200);
        assert_eq!(index.lookup(Offset(118)).unwrap().position, 4_200);
        assert_eq!(index.lookup(Offset(5_000)).unwrap().position, 8_400);
    }

    #[test]
    fn file_form_is_kafkas() {
        let bytes = index().encode_from(0);
        assert_eq!(bytes, [0, 0, 0, 9, 0, 0, 0x10, 0x68, 0, 0, 0, 19, 0, 0, 0x20, 0xd0]);
        assert_eq!(OffsetIndex::parse(Offset(100), &bytes, 9_000), Some(index()));
    }

    #[test]
    fn torn_or_falling_file_is_refused() {
        let bytes = index().encode_from(0);
        assert_eq!(OffsetIndex::parse(Offset(100), &bytes[..15], 9_000), None);
        assert_eq!(OffsetIndex::parse(Offset(100), &bytes, 8_400), None);
        let mut swapped = bytes[8..].to_vec();
        swapped.extend_from_slice(&bytes[..8]);
        assert_eq!(OffsetIndex::parse(Offset(100), &swapped, 9_000), None);
    }

    #[test]
    fn truncation_drops_entries_behind_the_cut() {
        let mut index = index();
        index.truncate_to_position(8_400);
        assert_eq!(index.len(), 1);
        index.truncate_to_position(0);
        assert!(index.is_empty());
    }

    #[test]
    fn relative_offset_is_bounded() {
        assert_eq!(relative_offset(Offset(5), Offset(4)), None);
        assert_eq!(relative_offset(Offset(0), Offset(i64::from(i32::MAX))), Some(2_147_483_647));
        assert_eq!(relative_offset(Offset(0), Offset(i64::from(i32::MAX) + 1)), None);
    }
}
