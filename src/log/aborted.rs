//! The aborted transactions of one segment: what a consumer of committed records has to skip.
//! Owns the entries and the bytes of `.txnindex`; never reads or writes the file.
//!
//! An entry is added when an ABORT marker is appended, in the segment of the marker. 34 bytes,
//! big-endian:
//!
//! | at | width | field |
//! |---|---|---|
//! | 0 | 2 | version 0 |
//! | 2 | 8 | producer id |
//! | 10 | 8 | first offset of the transaction |
//! | 18 | 8 | last offset: the marker's |
//! | 26 | 8 | last stable offset when the marker was appended |

use protocol::ids::{Offset, ProducerId};

const VERSION: i16 = 0;
const VERSION_AT: usize = 0;
const PRODUCER_ID_AT: usize = VERSION_AT + size_of::<i16>();
const FIRST_OFFSET_AT: usize = PRODUCER_ID_AT + size_of::<i64>();
const LAST_OFFSET_AT: usize = FIRST_OFFSET_AT + size_of::<i64>();
const LAST_STABLE_OFFSET_AT: usize = LAST_OFFSET_AT + size_of::<i64>();

/// Bytes of one entry.
pub const ENTRY_BYTES: usize = LAST_STABLE_OFFSET_AT + size_of::<i64>();

/// One aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose transaction.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// Its marker.
    pub last_offset: Offset,
    /// The last stable offset once the marker was appended.
    pub last_stable_offset: Offset,
}

impl AbortedTransaction {
    /// The entry's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[VERSION_AT..PRODUCER_ID_AT].copy_from_slice(&VERSION.to_be_bytes());
        bytes[PRODUCER_ID_AT..FIRST_OFFSET_AT].copy_from_slice(&self.producer_id.0.to_be_bytes());
        bytes[FIRST_OFFSET_AT..LAST_OFFSET_AT].copy_from_slice(&self.first_offset.0.to_be_bytes());
        bytes[LAST_OFFSET_AT..LAST_STABLE_OFFSET_AT]
            .copy_from_slice(&self.last_offset.0.to_be_bytes());
        bytes[LAST_STABLE_OFFSET_AT..].copy_from_slice(&self.last_stable_offset.0.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8; ENTRY_BYTES]) -> Option<AbortedTransaction> {
        let version =
            i16::from_be_bytes(*bytes.first_chunk().expect("an entry begins with a version"));
        let number = |at: usize| {
            i64::from_be_bytes(*bytes[at..].first_chunk().expect("an entry holds its fields"))
        };
        (version == VERSION).then(|| AbortedTransaction {
            producer_id: ProducerId(number(PRODUCER_ID_AT)),
            first_offset: Offset(number(FIRST_OFFSET_AT)),
            last_offset: Offset(number(LAST_OFFSET_AT)),
            last_stable_offset: Offset(number(LAST_STABLE_OFFSET_AT)),
        })
    }
}

/// The aborted transactions of one segment, by their markers.
///
/// Invariant: last offsets rise from entry to entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbortedTransactions {
    entries: Vec<AbortedTransaction>,
}

impl AbortedTransactions {
    /// A segment without any.
    #[must_use]
    pub fn new() -> AbortedTransactions {
        AbortedTransactions::default()
    }

    /// Reads the bytes of a file, or tells what is wrong with it. Entries at or after
    /// `segment_end` cannot be.
    pub fn parse(bytes: &[u8], segment_end: Offset) -> Result<AbortedTransactions, String> {
        let (whole, torn) = bytes.as_chunks::<ENTRY_BYTES>();
        if !torn.is_empty() {
            return Err(format!("{} bytes are not entries of {ENTRY_BYTES}", bytes.len()));
        }
        let mut entries: Vec<AbortedTransaction> = Vec::with_capacity(whole.len());
        for chunk in whole {
            let entry = AbortedTransaction::parse(chunk).ok_or("an entry's version is not 0")?;
            let after = entries.last().is_none_or(|last| last.last_offset < entry.last_offset);
            if !after || entry.last_offset >= segment_end {
                return Err(format!("the marker at {} is out of place", entry.last_offset));
            }
            entries.push(entry);
        }
        Ok(AbortedTransactions { entries })
    }

    /// Adds a transaction whose marker was appended after all others'. Returns the bytes to add
    /// to the file.
    pub fn append(&mut self, entry: AbortedTransaction) -> [u8; ENTRY_BYTES] {
        debug_assert!(self.entries.last().is_none_or(|last| last.last_offset < entry.last_offset));
        self.entries.push(entry);
        entry.to_bytes()
    }

    /// Forgets transactions whose marker lies at or after `end`. Returns how many bytes of the
    /// file stay.
    pub fn truncate(&mut self, end: Offset) -> usize {
        let kept = self.entries.partition_point(|entry| entry.last_offset < end);
        self.entries.truncate(kept);
        kept * ENTRY_BYTES
    }

    /// Adds to `found` the transactions with records in `from..to`. Returns whether that were
    /// all: if not, later segments may know more.
    pub fn collect(&self, from: Offset, to: Offset, found: &mut Vec<AbortedTransaction>) -> bool {
        for entry in &self.entries {
            if entry.last_offset >= from && entry.first_offset < to {
                found.push(*entry);
            }
            if entry.last_stable_offset >= to {
                return true;
            }
        }
        false
    }

    /// The entries by their markers.
    #[must_use]
    pub fn entries(&self) -> &[AbortedTransaction] {
        &self.entries
    }

    /// The bytes of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.entries.iter().flat_map(AbortedTransaction::to_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId(producer),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(stable),
        }
    }

    fn sample() -> AbortedTransactions {
        let mut index = AbortedTransactions::new();
        index.append(entry(1, 0, 10, 5));
        index.append(entry(2, 5, 20, 21));
        index.append(entry(1, 30, 40, 41));
        index
    }

    #[test]
    fn an_entry_has_kafkas_bytes() {
        let mut expected = vec![0, 0];
        for number in [7i64, 1, 2, 3] {
            expected.extend_from_slice(&number.to_be_bytes());
        }
        assert_eq!(entry(7, 1, 2, 3).to_bytes().to_vec(), expected);
        assert_eq!(ENTRY_BYTES, 34);
    }

    #[test]
    fn files_read_back_and_damage_is_told() {
        let index = sample();
        assert_eq!(AbortedTransactions::parse(&index.to_bytes(), Offset(41)), Ok(index.clone()));
        assert!(AbortedTransactions::parse(&index.to_bytes(), Offset(40)).is_err());
        assert!(AbortedTransactions::parse(&index.to_bytes()[1..], Offset(41)).is_err());
        let mut wrong = index.to_bytes();
        wrong[1] = 1;
        assert!(AbortedTransactions::parse(&wrong, Offset(41)).is_err());
        let twice = [index.to_bytes(), index.to_bytes()].concat();
        assert!(AbortedTransactions::parse(&twice, Offset(41)).is_err());
    }

    #[test]
    fn a_read_gets_the_transactions_that_touch_it() {
        let index = sample();
        let collect = |from, to| {
            let mut found = Vec::new();
            let all = index.collect(Offset(from), Offset(to), &mut found);
            (found.iter().map(|entry| entry.last_offset.0).collect::<Vec<_>>(), all)
        };
        assert_eq!(collect(0, 5), (vec![10], true));
        assert_eq!(collect(0, 21), (vec![10, 20], true));
        assert_eq!(collect(11, 30), (vec![20], true));
        assert_eq!(collect(21, 100), (vec![40], false));
    }

    #[test]
    fn truncation_forgets_later_markers() {
        let mut index = sample();
        assert_eq!(index.truncate(Offset(40)), 2 * ENTRY_BYTES);
        assert_eq!(index.truncate(Offset(21)), 2 * ENTRY_BYTES);
        assert_eq!(index.truncate(Offset(20)), ENTRY_BYTES);
    }
}
