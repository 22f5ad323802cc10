//! Primitives into bytes: strings, bytes and lists in both forms, variable-length integers,
//! tagged fields. Owns the limits on what may be written; integers are written by `BufMut`.

use crate::error::Error;
use crate::reader::STRING_BYTES_MAX;
use bytes::{BufMut, BytesMut};

/// The longest value, in bytes or elements, that a length can say.
const LENGTH_MAX: usize = 0x7fff_fffe;

/// Appends an unsigned variable-length integer.
pub fn put_unsigned_varint(out: &mut BytesMut, value: u32) {
    put_unsigned(out, u64::from(value));
}

/// Appends a zigzag variable-length 32-bit integer.
pub fn put_varint(out: &mut BytesMut, value: i32) {
    put_unsigned(out, u64::from(((value << 1) ^ (value >> 31)).cast_unsigned()));
}

/// Appends a zigzag variable-length 64-bit integer.
pub fn put_varlong(out: &mut BytesMut, value: i64) {
    put_unsigned(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

fn put_unsigned(out: &mut BytesMut, mut value: u64) {
    loop {
        let [.., low] = value.to_be_bytes();
        if value < 0x80 {
            return out.put_u8(low);
        }
        out.put_u8(low | 0x80);
        value >>= 7;
    }
}

fn check_length(length: usize, length_max: usize) -> Result<u32, Error> {
    match u32::try_from(length) {
        Ok(short) if length <= length_max => Ok(short),
        _ => Err(Error::TooLong { length, length_max }),
    }
}

/// Appends a string.
///
/// # Errors
///
/// A string above 32,767 bytes.
pub fn put_string(out: &mut BytesMut, flexible: bool, text: &str) -> Result<(), Error> {
    let length = check_length(text.len(), STRING_BYTES_MAX)?;
    if flexible {
        put_unsigned_varint(out, length + 1);
    } else {
        out.put_u16(u16::try_from(length).expect("a string's length fits 15 bits"));
    }
    out.put_slice(text.as_bytes());
    Ok(())
}

/// Appends a null string.
pub fn put_null_string(out: &mut BytesMut, flexible: bool) {
    if flexible { out.put_u8(0) } else { out.put_i16(-1) }
}

/// Appends the length of `bytes` or records, or the count of a list.
///
/// # Errors
///
/// A length beyond 31 bits.
pub fn put_array_len(out: &mut BytesMut, flexible: bool, length: usize) -> Result<(), Error> {
    let length = check_length(length, LENGTH_MAX)?;
    if flexible {
        put_unsigned_varint(out, length + 1);
    } else {
        out.put_u32(length);
    }
    Ok(())
}

/// Appends a null list.
pub fn put_null_array(out: &mut BytesMut, flexible: bool) {
    if flexible { out.put_u8(0) } else { out.put_i32(-1) }
}

/// Appends bytes or records.
///
/// # Errors
///
/// A length beyond 31 bits.
pub fn put_bytes(out: &mut BytesMut, flexible: bool, bytes: &[u8]) -> Result<(), Error> {
    put_array_len(out, flexible, bytes.len())?;
    out.put_slice(bytes);
    Ok(())
}

/// Appends null bytes or records.
pub fn put_null_bytes(out: &mut BytesMut, flexible: bool) {
    put_null_array(out, flexible);
}

/// The tagged fields of one struct, gathered before their count is known.
#[derive(Debug, Default)]
pub struct TaggedFields {
    count: u32,
    body: BytesMut,
}

impl TaggedFields {
    /// None yet. Takes no memory until the first field.
    pub fn new() -> TaggedFields {
        TaggedFields::default()
    }

    /// Adds a field; tags must come in ascending order.
    ///
    /// # Errors
    ///
    /// What writing the field gives.
    pub fn put(
        &mut self,
        tag: u32,
        write: impl FnOnce(&mut BytesMut) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut field = BytesMut::new();
        write(&mut field)?;
        put_unsigned_varint(&mut self.body, tag);
        put_unsigned_varint(&mut self.body, check_length(field.len(), LENGTH_MAX)?);
        self.body.extend_from_slice(&field);
        self.count += 1;
        Ok(())
    }

    /// Appends them all.
    pub fn finish(self, out: &mut BytesMut) {
        put_unsigned_varint(out, self.count);
        out.extend_from_slice(&self.body);
    }
}
