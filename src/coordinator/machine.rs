//! The shape of a machine kept in an internal topic's partition. Owns the trait and its effects;
//! the contract with the actor is in the crate's documentation.

use std::fmt;

use bytes::Bytes;
use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;

/// Names a request that waits for its reply; the actor chooses it, unique while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names an append; the machine chooses it, rising from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// One record of the internal topic: `int16` type or version, then the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key; compaction keeps the newest record of each.
    pub key: Bytes,
    /// The value; `None` is a tombstone.
    pub value: Option<Bytes>,
}

/// One thing for the actor to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<Response, Timer> {
    /// Append these records as one batch, and report it under this token when it is committed.
    Append {
        /// Never empty.
        records: Vec<Record>,
        /// What to report it under.
        token: Token,
    },
    /// Answer a request.
    Reply {
        /// The request.
        to: RequestId,
        /// The answer.
        response: Response,
    },
    /// Set a timer, in place of one of the same name.
    SetTimer {
        /// Its name.
        timer: Timer,
        /// When it goes off.
        at: TimestampMs,
    },
    /// Forget a timer.
    CancelTimer {
        /// Its name.
        timer: Timer,
    },
}

/// The effects of a machine.
pub type Effects<M> = Vec<Effect<<M as Machine>::Response, <M as Machine>::Timer>>;

/// A record of the internal topic that this machine cannot read. The actor logs it and goes on
/// with the next: one unreadable record must not cost a partition's other keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The key is too short or of a type this machine does not know.
    #[error("unknown record type {record_type}")]
    UnknownType {
        /// The leading number of the key; −1 when there is none.
        record_type: i16,
    },
    /// Key or value are not what their type says.
    #[error("record of type {record_type} is not readable: {reason}")]
    Malformed {
        /// The leading number of the key.
        record_type: i16,
        /// The codec's words.
        reason: String,
    },
}

/// A machine kept in one partition of an internal topic.
pub trait Machine {
    /// What it is asked.
    type Command;
    /// What it answers.
    type Response;
    /// The names of its timers.
    type Timer: Clone + Ord + fmt::Debug;

    /// Takes one committed record while loading, in the order of the log.
    ///
    /// # Errors
    /// When the record is not readable; the state is as before.
    fn replay(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), ReplayError>;

    /// The partition is loaded: sets the timers that its state needs.
    fn on_loaded(&mut self, now: TimestampMs) -> Effects<Self>
    where
        Self: Sized;

    /// Takes one request.
    fn handle(
        &mut self,
        now: TimestampMs,
        request: RequestId,
        command: Self::Command,
    ) -> Effects<Self>
    where
        Self: Sized;

    /// An append is committed, or failed with the log's error code.
    fn on_appended(
        &mut self,
        now: TimestampMs,
        token: Token,
        result: Result<(), ErrorCode>,
    ) -> Effects<Self>
    where
        Self: Sized;

    /// A timer went off.
    fn on_timer(&mut self, now: TimestampMs, timer: Self::Timer) -> Effects<Self>
    where
        Self: Sized;

    /// The broker leads the partition no more: answers every request that waits.
    fn on_resigned(&mut self) -> Effects<Self>
    where
        Self: Sized;
}

/// The code a client gets when a coordinator's append failed with the log's code.
///
/// Retriable troubles become COORDINATOR_NOT_AVAILABLE, a lost leadership NOT_COORDINATOR, so
/// that clients look for the coordinator again.
#[must_use]
pub fn client_code(append: ErrorCode) -> ErrorCode {
    use ErrorCode as Code;
    if matches!(
        append,
        Code::UnknownTopicOrPartition
            | Code::NotEnoughReplicas
            | Code::NotEnoughReplicasAfterAppend
            | Code::RequestTimedOut
    ) {
        Code::CoordinatorNotAvailable
    } else if matches!(append, Code::NotLeaderOrFollower | Code::KafkaStorageError) {
        Code::NotCoordinator
    } else if matches!(
        append,
        Code::RecordListTooLarge | Code::MessageTooLarge | Code::InvalidFetchSize
    ) {
        Code::UnknownServerError
    } else {
        append
    }
}
