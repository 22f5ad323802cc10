//! The envelope of internal topics' records: an `int16` before the key's fields names the
//! record's type, one before the value's fields its version. Owns that form; never knows a
//! type's meaning.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use protocol::messages::Message;

use crate::machine::ReplayError;

/// The longest string that a key may hold: keys are not flexible, and count with an `int16`.
pub(crate) const KEY_STRING_BYTES_MAX: usize = 32_767;

/// A key of this type; `version` is that of the key's table, which is not written.
///
/// Panics when a string is longer than [`KEY_STRING_BYTES_MAX`]: commands check that on their
/// way in.
pub(crate) fn key<M: Message>(record_type: i16, version: i16, fields: &M) -> Bytes {
    prefixed(record_type, version, fields)
}

/// A value in this version.
///
/// Panics as [`key`].
pub(crate) fn value<M: Message>(version: i16, fields: &M) -> Bytes {
    prefixed(version, version, fields)
}

fn prefixed<M: Message>(prefix: i16, version: i16, fields: &M) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(prefix);
    fields.encode(&mut out, version).expect("strings of a record were bounded by the command");
    out.freeze()
}

/// Splits the leading number off a key or value; −1 and nothing when it is too short.
pub(crate) fn split(bytes: &Bytes) -> (i16, Bytes) {
    let mut rest = bytes.clone();
    if rest.len() < 2 {
        return (-1, Bytes::new());
    }
    let prefix = rest.get_i16();
    (prefix, rest)
}

/// Reads the fields after the leading number.
pub(crate) fn read<M: Message>(
    record_type: i16,
    version: i16,
    fields: Bytes,
) -> Result<M, ReplayError> {
    M::from_bytes(fields, version)
        .map_err(|error| ReplayError::Malformed { record_type, reason: error.to_string() })
}

/// Reads a value: its version, then its fields.
pub(crate) fn read_value<M: Message>(record_type: i16, bytes: &Bytes) -> Result<M, ReplayError> {
    let (version, fields) = split(bytes);
    read(record_type, version, fields)
}
