//! The id of a member of the Raft group. Owns how it follows from a metadata directory; never
//! `node.id`, which may come back with an empty directory where a Raft id may not.

use std::fmt;

use protocol::ids::DirectoryId;
use serde::{Deserialize, Serialize};

/// A member of the Raft group: one metadata directory for all its life. 0 is never made from a
/// directory; openraft's own tests use it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
#[repr(transparent)]
pub struct RaftId(pub u64);

impl RaftId {
    /// The id that belongs to a metadata directory: the first 64 bits of its random UUID. 58 of
    /// them are random, so that two directories of one cluster never share an id.
    #[must_use]
    pub fn of_directory(directory: DirectoryId) -> RaftId {
        let (high, _) = directory.0.as_u64_pair();
        RaftId(high.max(1))
    }
}

impl fmt::Display for RaftId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl From<u64> for RaftId {
    fn from(value: u64) -> RaftId {
        RaftId(value)
    }
}

impl From<RaftId> for u64 {
    fn from(value: RaftId) -> u64 {
        value.0
    }
}
