//! The one place where bytes are made of, and read into, the values of the metadata store and of
//! the Raft calls: bincode inside a checked envelope. Works on slices only, allocates no more than
//! the input justifies, and never accepts a byte too many.
//!
//! ```text
//! offset  width  field
//!      0      1  magic    0x48
//!      1      2  kind     what the payload is, see [`Kind`]; big endian like all that follow
//!      3      2  version  of the payload's layout, from 1
//!      5      4  length   of the payload in bytes
//!      9      4  crc32c   over bytes 0..9 and the payload
//!     13      n  payload  bincode 1.3.3: variable-length integers, little endian
//! ```

use bincode::Options;
use crc_fast::{CrcAlgorithm, Digest};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first byte of every envelope.
pub const MAGIC: u8 = 0x48;

const KIND: usize = 1;
const VERSION: usize = KIND + 2;
const LENGTH: usize = VERSION + 2;
const CRC: usize = LENGTH + 4;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = CRC + 4;

/// What an envelope holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One entry of the Raft log.
    Entry,
    /// The last vote.
    Vote,
    /// A log id: the last committed or the last purged entry.
    LogId,
    /// The Raft id the store belongs to.
    Identity,
    /// Which snapshot file is the current one.
    SnapshotIndex,
    /// A snapshot file.
    Snapshot,
    /// A Raft call from another node.
    Request,
    /// The answer to a Raft call.
    Response,
}

impl Kind {
    /// The number on disk and on the wire: never reuse one.
    fn code(self) -> u16 {
        match self {
            Kind::Entry => 1,
            Kind::Vote => 2,
            Kind::LogId => 3,
            Kind::Identity => 4,
            Kind::SnapshotIndex => 5,
            Kind::Snapshot => 6,
            Kind::Request => 7,
            Kind::Response => 8,
        }
    }
}

/// Why bytes are no valid envelope. All are deterministic: reading again gives the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Fewer bytes than the header, or than the header announces.
    #[error("the envelope has {actual} bytes, expected {expected}")]
    Length {
        /// Bytes present.
        actual: usize,
        /// Bytes the header asks for.
        expected: usize,
    },
    /// The first byte is another.
    #[error("the envelope starts with {actual:#04x}, expected {MAGIC:#04x}")]
    Magic {
        /// The byte found.
        actual: u8,
    },
    /// The envelope holds something else.
    #[error("the envelope is of kind {actual}, expected {expected:?}")]
    WrongKind {
        /// The kind found.
        actual: u16,
        /// The kind asked for.
        expected: Kind,
    },
    /// The payload was written by a newer release, or by none.
    #[error("{kind:?} has version {actual}, this release reads up to {known}")]
    Version {
        /// What the payload is.
        kind: Kind,
        /// The version found.
        actual: u16,
        /// The newest version known here.
        known: u16,
    },
    /// The bytes changed since they were written.
    #[error("the checksum of {kind:?} is {actual:#010x}, its header says {stored:#010x}")]
    Checksum {
        /// What the payload is.
        kind: Kind,
        /// Computed from the bytes.
        actual: u32,
        /// Found in the header.
        stored: u32,
    },
    /// The payload is longer than the caller allows.
    #[error("{kind:?} has {actual} bytes, the limit is {limit}")]
    TooLong {
        /// What the payload is.
        kind: Kind,
        /// Its length.
        actual: usize,
        /// The longest allowed.
        limit: usize,
    },
    /// The payload is not what its kind says.
    #[error("{kind:?} cannot be read: {reason}")]
    Payload {
        /// What the payload is.
        kind: Kind,
        /// bincode's words.
        reason: String,
    },
}

/// Envelopes `value`. `limit` bounds the payload.
///
/// # Errors
/// [`Error::TooLong`] past `limit` or 2³² − 1 bytes, [`Error::Payload`] if serde refuses the
/// value.
pub fn encode<T: Serialize>(
    kind: Kind,
    version: u16,
    value: &T,
    limit: usize,
) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; HEADER_BYTES];
    codec()
        .serialize_into(&mut bytes, value)
        .map_err(|error| Error::Payload { kind, reason: error.to_string() })?;
    let length = bytes.len() - HEADER_BYTES;
    let too_long = Error::TooLong { kind, actual: length, limit };
    let (true, Ok(length_field)) = (length <= limit, u32::try_from(length)) else {
        return Err(too_long);
    };
    bytes[0] = MAGIC;
    bytes[KIND..VERSION].copy_from_slice(&kind.code().to_be_bytes());
    bytes[VERSION..LENGTH].copy_from_slice(&version.to_be_bytes());
    bytes[LENGTH..CRC].copy_from_slice(&length_field.to_be_bytes());
    let crc = checksum(&bytes);
    bytes[CRC..HEADER_BYTES].copy_from_slice(&crc.to_be_bytes());
    Ok(bytes)
}

/// Reads a value of `kind` whose payload has version `version`.
///
/// # Errors
/// Every variant of [`Error`].
pub fn decode<T: DeserializeOwned>(
    kind: Kind,
    version: u16,
    bytes: &[u8],
    limit: usize,
) -> Result<T, Error> {
    let payload = open(kind, version, bytes, limit)?;
    let codec = codec().with_limit(u64::try_from(limit).unwrap_or(u64::MAX));
    codec.deserialize(payload).map_err(|error| Error::Payload { kind, reason: error.to_string() })
}

/// Checks the header and returns the payload.
fn open(kind: Kind, version: u16, bytes: &[u8], limit: usize) -> Result<&[u8], Error> {
    if bytes.len() < HEADER_BYTES {
        return Err(Error::Length { actual: bytes.len(), expected: HEADER_BYTES });
    }
    if bytes[0] != MAGIC {
        return Err(Error::Magic { actual: bytes[0] });
    }
    let actual = u16::from_be_bytes([bytes[KIND], bytes[KIND + 1]]);
    if actual != kind.code() {
        return Err(Error::WrongKind { actual, expected: kind });
    }
    let found = u16::from_be_bytes([bytes[VERSION], bytes[VERSION + 1]]);
    if found == 0 || found > version {
        return Err(Error::Version { kind, actual: found, known: version });
    }
    let length = usize::try_from(be_u32(bytes, LENGTH)).unwrap_or(usize::MAX);
    if length > limit {
        return Err(Error::TooLong { kind, actual: length, limit });
    }
    let expected = HEADER_BYTES.saturating_add(length);
    if bytes.len() != expected {
        return Err(Error::Length { actual: bytes.len(), expected });
    }
    let (stored, actual) = (be_u32(bytes, CRC), checksum(bytes));
    if stored != actual {
        return Err(Error::Checksum { kind, actual, stored });
    }
    Ok(&bytes[HEADER_BYTES..])
}

fn be_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Over everything but the checksum's own four bytes. `bytes` holds at least a header.
fn checksum(bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..CRC]);
    digest.update(&bytes[HEADER_BYTES..]);
    u32::try_from(digest.finalize()).expect("a CRC-32 has 32 bits")
}

fn codec() -> impl Options {
    bincode::DefaultOptions::new().reject_trailing_bytes()
}

#[cfg(test)]
#[path = "envelope_test.rs"]
mod tests;
