//! The seam to the disk: what a member keeps, as keys, entries and snapshot files, in two forms.
//! Holds bytes only; what they mean is `log_storage`'s and `snapshot`'s business.

use bytes::Bytes;

use super::error::Error;

pub mod memory;

pub(crate) mod handle;
pub(crate) mod sled;

/// The small values of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The Raft id the store belongs to.
    Identity,
    /// The last vote.
    Vote,
    /// The log id of the last entry known to be committed.
    Committed,
    /// The log id of the last entry purged: the log starts behind it.
    Purged,
    /// Which snapshot file is the current one.
    Snapshot,
}

impl Key {
    /// The name on disk.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Key::Identity => "identity",
            Key::Vote => "vote",
            Key::Committed => "committed",
            Key::Purged => "purged",
            Key::Snapshot => "snapshot",
        }
    }
}

/// One change of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Sets a small value.
    Put(Key, Vec<u8>),
    /// Adds the entry at an index, or replaces it.
    Entry(u64, Vec<u8>),
    /// Removes the entries from the first index on, up to but without the second.
    RemoveEntries(u64, u64),
}

/// What a member keeps. One owner; every call may block.
///
/// The changes of one `write` are visible when it returns and durable after the next `flush`.
/// Unflushed changes are lost from the end: a later one never survives an earlier one.
pub(crate) trait MetadataStore: Send {
    /// A small value.
    fn get(&self, key: Key) -> Result<Option<Vec<u8>>, Error>;

    /// The entries in `from..to` by index, as many as are there and fit `bytes_max`, but the first
    /// one always.
    fn entries(&self, from: u64, to: u64, bytes_max: usize) -> Result<Vec<(u64, Vec<u8>)>, Error>;

    /// Applies the changes in order.
    fn write(&mut self, writes: Vec<Write>) -> Result<(), Error>;

    /// Makes every change so far durable.
    fn flush(&mut self) -> Result<(), Error>;

    /// Creates or replaces a snapshot file; durable on return.
    fn write_snapshot(&mut self, name: &str, bytes: &Bytes) -> Result<(), Error>;

    /// The whole of a snapshot file.
    fn read_snapshot(&self, name: &str) -> Result<Bytes, Error>;

    /// Removes every snapshot file but `name`.
    fn keep_only_snapshot(&mut self, name: &str) -> Result<(), Error>;
}
