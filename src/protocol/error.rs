//! What can be wrong with bytes, or with a message that is to become bytes. Owns the crate's
//! error; maps to no Kafka code (the server that answers does that).

use crate::api::ApiKey;

/// Why a message could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The input ends inside a value.
    #[error("{needed} bytes needed where {remaining} remain")]
    Truncated { needed: usize, remaining: usize },
    /// A length that says "null", or less, where a value must be.
    #[error("length {length} where a value is required")]
    Null { length: i64 },
    /// More bytes after the message.
    #[error("{remaining} bytes remain after the message")]
    TrailingBytes { remaining: usize },
    /// A list claims more elements than bytes remain.
    #[error("{count} elements claimed where {remaining} bytes remain")]
    CountTooLarge { count: usize, remaining: usize },
    /// The message would take more memory than its size allows (8 times the input + 4 KiB).
    #[error("{needed} bytes of memory needed where {left} are left to this message")]
    BudgetExceeded { needed: usize, left: usize },
    /// A string that is not UTF-8.
    #[error("invalid UTF-8 after {valid_up_to} bytes of a string")]
    InvalidUtf8 { valid_up_to: usize },
    /// A variable-length integer that does not fit its type.
    #[error("a variable-length integer is longer than {bytes_max} bytes")]
    VarintTooLong { bytes_max: usize },
    /// A tag that is not above the one before it.
    #[error("tag {tag} follows tag {previous}")]
    TagOrder { tag: u32, previous: u32 },
    /// A tagged field that is longer or shorter than it says.
    #[error("tag {tag} says {size} bytes and takes {taken}")]
    TagSize { tag: u32, size: usize, taken: usize },
    /// A string longer than 32,767 bytes, or a length beyond 31 bits.
    #[error("length {length} is above {length_max}")]
    TooLong { length: usize, length_max: usize },
    /// A version outside the codec's range.
    #[error("{message} version {version} is not in {first}..={last}")]
    UnsupportedVersion { message: &'static str, version: i16, first: i16, last: i16 },
    /// A value that this version has no field for and that must not be dropped.
    #[error("{message} version {version} has no field {field}, which is set")]
    FieldNotInVersion { message: &'static str, field: &'static str, version: i16 },
    /// A null that this version cannot say.
    #[error("field {field} must not be null in version {version}")]
    NullNotAllowed { field: &'static str, version: i16 },
    /// A request or response of another API than the one asked for.
    #[error("expected {expected:?}, found {found:?}")]
    OtherApi { expected: ApiKey, found: ApiKey },
    /// A frame with a negative length.
    #[error("frame length {length} is negative")]
    NegativeFrameLength { length: i32 },
    /// A frame above the limit.
    #[error("frame length {length} is above the limit of {length_max}")]
    FrameTooLong { length: usize, length_max: usize },
    /// Kafka's UnregisterController, which shares key 94 with CreateMirror; not served.
    #[error("key 94 carries UnregisterController, which is not served")]
    UnregisterController,
}
