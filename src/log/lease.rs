//! What an actor holds and sends to change a log: the log's name, the lease with its incarnation,
//! the commands' arguments and their answers. Owns plain data; never touches a file.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use protocol::ids::{
    LeaderEpoch, Offset, PartitionIndex, TimestampMs, TopicId, TopicName, TopicPartition,
};

use crate::error::Error;
use crate::read_view::ReadView;

/// Answers one command, on the writer's thread: it has to be quick and must not block.
pub type Reply<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// One partition's log on this node. Its directory is `<topic>-<partition>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    /// The topic's name.
    pub topic: TopicName,
    /// The topic's id: a log of the same name with another id is another log (KIP-516).
    pub topic_id: TopicId,
    /// The partition's number within the topic.
    pub partition: PartitionIndex,
}

impl LogId {
    /// The log's name alone: two logs of one name cannot be in a directory.
    pub(crate) fn key(&self) -> TopicPartition {
        TopicPartition { topic: self.topic.clone(), partition: self.partition }
    }

    /// The name of the log's directory.
    #[must_use]
    pub fn directory_name(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.topic, self.partition)
    }
}

/// The right to change one log, until the next lease of it is given out.
///
/// Commands of an older incarnation answer [`Error::StaleLease`].
#[derive(Debug, Clone)]
pub struct Lease {
    /// Which log.
    pub id: LogId,
    /// Rises with every lease of the directory; from 1.
    pub incarnation: u64,
    /// The log as readers see it. The same object for every lease of the log.
    pub view: Arc<ReadView>,
    /// Where the writer finds the log.
    pub(crate) slot: usize,
}

/// Where appended batches come from: decides who sets offsets and epochs and what is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A client's Produce: offsets and epoch are assigned, sequences are checked, control batches
    /// are refused.
    Client,
    /// The partition's leader, to a follower: bytes are kept.
    Replica,
    /// The source cluster's leader, to a mirror's leader: bytes are kept.
    Mirror,
    /// A coordinator of this cluster (markers, records of internal topics): offsets and epoch are
    /// assigned, control batches are welcome, sequences are not checked.
    Coordinator,
}

impl Origin {
    /// Whether this node gives the batches their offsets and leader epoch.
    #[must_use]
    pub fn assigns_offsets(self) -> bool {
        match self {
            Origin::Client | Origin::Coordinator => true,
            Origin::Replica | Origin::Mirror => false,
        }
    }
}

/// What to append.
#[derive(Debug, Clone)]
pub struct Append {
    /// One or more record batches. From a replica or a mirror a torn last batch is left out; from
    /// others it is an error.
    pub batches: Bytes,
    /// The epoch of this partition's leader: given to assigned batches, the upper bound of the
    /// epochs of kept ones.
    pub leader_epoch: LeaderEpoch,
    /// Where they come from.
    pub origin: Origin,
    /// The clock, for LogAppendTime, producer expiry and segments without timestamps.
    pub now: TimestampMs,
    /// Whether the caller has already compared every batch's CRC; if not, the writer does.
    pub crc_verified: bool,
}

/// What an append did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record appended; of the earlier append for a duplicate.
    pub first_offset: Offset,
    /// Offset of the last record appended.
    pub last_offset: Offset,
    /// The time given to the records, or -1 with CreateTime.
    pub log_append_time: TimestampMs,
    /// Where the log starts.
    pub log_start: Offset,
    /// Where the log ends, this append included.
    pub log_end: Offset,
    /// An idempotent producer sent this before: nothing was written.
    pub duplicate: bool,
}

/// What a truncation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated {
    /// Where the log ends now: at most the offset asked for, less if that lay inside a batch.
    pub log_end: Offset,
    /// How many records were cut off (offsets, where compaction left gaps).
    pub records_cut: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_has_kafkas_name() {
        let id = LogId {
            topic: TopicName::from("a.b-c"),
            topic_id: TopicId::ZERO,
            partition: PartitionIndex(3),
        };
        assert_eq!(id.directory_name(), "a.b-c-3");
    }
}
