//! Everything that can go wrong with a log, and the one place that says which Kafka error code a
//! client gets for it. Never retries and never logs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::batch;
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, Offset, ProducerId, TopicId};

use crate::producers;

/// Why a command or a read failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The disk said no. A log that sees this while writing closes itself.
    #[error("{operation} of {path} failed: {reason}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The system's class of the failure.
        kind: io::ErrorKind,
        /// The system's words.
        reason: String,
    },
    /// An earlier write or sync failed: nothing is written until the log is opened again.
    #[error(
        "log {log} is closed until it is opened again, because {reason}: mend that (on a full \
         disk free space), then restart the node"
    )]
    Closed {
        /// The log.
        log: String,
        /// The first failure.
        reason: Arc<str>,
    },
    /// A later lease of this log was given out, or the log was deleted.
    #[error("lease {held} of log {log} is stale: the newest is {current}")]
    StaleLease {
        /// The log.
        log: String,
        /// The incarnation of the command.
        held: u64,
        /// The incarnation that counts now; 0 when the log is gone.
        current: u64,
    },
    /// The directory was closed or crashed.
    #[error("log directory {path} is closed")]
    DirectoryClosed {
        /// The directory.
        path: PathBuf,
    },
    /// Somebody else holds the directory's lock.
    #[error(
        "log directory {path} is locked by another process: stop that one or use another folder"
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The files belong to another topic of the same name.
    #[error("log {log} belongs to topic id {found}, not {asked}")]
    TopicIdMismatch {
        /// The log.
        log: String,
        /// The id in `partition.metadata`.
        found: TopicId,
        /// The id of the command.
        asked: TopicId,
    },
    /// A file of the directory cannot be understood.
    #[error("{path} is corrupt: {reason}")]
    CorruptFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An offset outside of the log.
    #[error("offset {offset} is outside of the log's {start} to {end}")]
    OffsetOutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// Where the log starts.
        start: Offset,
        /// Where the log ends, or its high watermark where that is the bound.
        end: Offset,
    },
    /// Bytes that are no record batches, or whose CRC differs.
    #[error("corrupt batch: {reason}")]
    CorruptBatch {
        /// What is wrong with them.
        reason: String,
    },
    /// A batch of the old formats, which has to be converted at its source.
    #[error("batch at offset {base_offset} has format v{magic}, not v2: convert it at the source")]
    UnsupportedMagic {
        /// The batch's format.
        magic: i8,
        /// Where it starts.
        base_offset: Offset,
    },
    /// A batch with kept offsets would begin below the log's end.
    #[error("batch begins at offset {base_offset}, below the log's end {log_end}")]
    NotContiguous {
        /// The batch's first offset.
        base_offset: Offset,
        /// The log's end.
        log_end: Offset,
    },
    /// A batch of an older leader epoch than the log already has.
    #[error("batch at offset {base_offset} has leader epoch {epoch}, behind the log's {latest}")]
    EpochDecreased {
        /// The batch's first offset.
        base_offset: Offset,
        /// The batch's epoch.
        epoch: LeaderEpoch,
        /// The log's newest epoch.
        latest: LeaderEpoch,
    },
    /// A batch of a newer leader epoch than this partition's leader has.
    #[error("batch at offset {base_offset} has epoch {epoch}, above this leader's {leader_epoch}")]
    EpochAboveLeader {
        /// The batch's first offset.
        base_offset: Offset,
        /// The batch's epoch.
        epoch: LeaderEpoch,
        /// The epoch of this partition's leader.
        leader_epoch: LeaderEpoch,
    },
    /// A batch above `max.message.bytes` or `segment.bytes`.
    #[error("batch of {bytes} bytes is larger than the {max} allowed")]
    BatchTooLarge {
        /// The batch's size.
        bytes: usize,
        /// The largest allowed.
        max: usize,
    },
    /// A client wrote a control batch, which only brokers may.
    #[error("batch of producer {producer_id} is a control batch, which clients may not write")]
    ControlFromClient {
        /// The batch's producer.
        producer_id: ProducerId,
    },
    /// The batch does not follow from what its producer sent before.
    #[error(transparent)]
    Producer(#[from] producers::Error),
    /// The bytes hold no whole batch.
    #[error("{bytes} bytes hold no whole batch")]
    NoWholeBatch {
        /// How many there were.
        bytes: usize,
    },
    /// The answer is not in the page cache, and the caller must not wait for the disk.
    #[error("the bytes are not in memory")]
    WouldBlock,
    /// The log was truncated again and again while it was read; ask again.
    #[error("the log was truncated {truncations} times while it was read")]
    Contended {
        /// The truncation counter at the last try.
        truncations: u64,
    },
}

impl Error {
    /// An [`Error::Io`] of one operation on one path.
    #[must_use]
    pub fn io(operation: &'static str, path: &Path, source: &io::Error) -> Self {
        Self::Io {
            operation,
            path: path.to_owned(),
            kind: source.kind(),
            reason: source.to_string(),
        }
    }

    /// What a batch's fault means to a log.
    pub(crate) fn corrupt(source: batch::Error) -> Self {
        match source {
            batch::Error::OldMagic { base_offset, magic } => {
                Self::UnsupportedMagic { magic, base_offset }
            }
            batch::Error::Torn { .. }
            | batch::Error::TooSmall { .. }
            | batch::Error::UnknownMagic { .. }
            | batch::Error::WrongChecksum { .. }
            | batch::Error::WrongOffsets { .. }
            | batch::Error::UnknownCompression { .. }
            | batch::Error::Compression { .. }
            | batch::Error::Record { .. } => Self::CorruptBatch { reason: source.to_string() },
        }
    }

    /// The code a client gets for it: the only place that decides.
    #[must_use]
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Self::Io { .. } | Self::Closed { .. } | Self::CorruptFile { .. } => {
                ErrorCode::KafkaStorageError
            }
            Self::StaleLease { .. }
            | Self::DirectoryClosed { .. }
            | Self::Locked { .. }
            | Self::WouldBlock
            | Self::Contended { .. } => ErrorCode::NotLeaderOrFollower,
            Self::TopicIdMismatch { .. } => ErrorCode::InconsistentTopicId,
            Self::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            Self::CorruptBatch { .. } | Self::NoWholeBatch { .. } => ErrorCode::CorruptMessage,
            Self::UnsupportedMagic { .. } => ErrorCode::UnsupportedForMessageFormat,
            Self::NotContiguous { .. } | Self::EpochDecreased { .. } => {
                ErrorCode::UnknownServerError
            }
            Self::EpochAboveLeader { .. } => ErrorCode::UnknownLeaderEpoch,
            Self::BatchTooLarge { .. } => ErrorCode::MessageTooLarge,
            Self::ControlFromClient { .. } => ErrorCode::InvalidRecord,
            Self::Producer(error) => error.code(),
        }
    }
}
