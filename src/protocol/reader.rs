//! Primitives out of bytes. Owns the bounds: every length is checked against what remains, and
//! all memory a message takes is charged to a budget before it is reserved. Never panics, never
//! copies record bytes or `bytes` fields: those are slices of the input.

use crate::error::Error;
use bytes::Bytes;
use uuid::Uuid;

/// How many bytes of memory a message may take per byte of input.
pub const BUDGET_PER_BYTE: usize = 8;

/// How many bytes of memory any message may take, however short.
pub const BUDGET_BASE: usize = 4096;

/// The longest string, in bytes, that the wire allows.
pub const STRING_BYTES_MAX: usize = 0x7fff;

/// A cursor over one frame.
#[derive(Debug, Clone)]
pub struct Reader {
    input: Bytes,
    at: usize,
    budget: usize,
}

impl Reader {
    /// Reads from the start of `input`, with a memory budget by its length.
    pub fn new(input: impl Into<Bytes>) -> Reader {
        let input = input.into();
        let budget = input.len().saturating_mul(BUDGET_PER_BYTE).saturating_add(BUDGET_BASE);
        Reader { input, at: 0, budget }
    }

    /// Bytes not yet read.
    pub fn remaining(&self) -> usize {
        self.input.len() - self.at
    }

    /// The next byte, left where it is.
    pub fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    /// The end of a message: nothing may follow.
    ///
    /// # Errors
    ///
    /// [`Error::TrailingBytes`].
    pub fn finish(&self) -> Result<(), Error> {
        match self.remaining() {
            0 => Ok(()),
            remaining => Err(Error::TrailingBytes { remaining }),
        }
    }

    fn require(&self, needed: usize) -> Result<(), Error> {
        let remaining = self.remaining();
        if needed > remaining {
            return Err(Error::Truncated { needed, remaining });
        }
        Ok(())
    }

    /// Takes memory off the budget, before it is reserved.
    fn charge(&mut self, needed: usize) -> Result<(), Error> {
        match self.budget.checked_sub(needed) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => Err(Error::BudgetExceeded { needed, left: self.budget }),
        }
    }

    fn array_of<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let slice = &self.input[self.at..];
        match slice.first_chunk::<N>() {
            Some(chunk) => {
                self.at += N;
                Ok(*chunk)
            }
            None => Err(Error::Truncated { needed: N, remaining: slice.len() }),
        }
    }

    /// One byte; anything but 0 is true, as in Kafka.
    pub fn bool(&mut self) -> Result<bool, Error> {
        Ok(self.i8()? != 0)
    }

    /// A signed byte.
    pub fn i8(&mut self) -> Result<i8, Error> {
        Ok(i8::from_be_bytes(self.array_of()?))
    }

    /// A big-endian 16-bit integer.
    pub fn i16(&mut self) -> Result<i16, Error> {
        Ok(i16::from_be_bytes(self.array_of()?))
    }

    /// A big-endian unsigned 16-bit integer.
    pub fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_be_bytes(self.array_of()?))
    }

    /// A big-endian 32-bit integer.
    pub fn i32(&mut self) -> Result<i32, Error> {
        Ok(i32::from_be_bytes(self.array_of()?))
    }

    /// A big-endian unsigned 32-bit integer.
    pub fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.array_of()?))
    }

    /// A big-endian 64-bit integer.
    pub fn i64(&mut self) -> Result<i64, Error> {
        Ok(i64::from_be_bytes(self.array_of()?))
    }

    /// A big-endian double.
    pub fn f64(&mut self) -> Result<f64, Error> {
        Ok(f64::from_be_bytes(self.array_of()?))
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self) -> Result<Uuid, Error> {
        Ok(Uuid::from_bytes(self.array_of()?))
    }

    /// An unsigned variable-length integer of at most 5 bytes.
    pub fn unsigned_varint(&mut self) -> Result<u32, Error> {
        let value = self.unsigned(5)?;
        u32::try_from(value).map_err(|_| Error::VarintTooLong { bytes_max: 5 })
    }

    /// A zigzag variable-length 32-bit integer.
    pub fn varint(&mut self) -> Result<i32, Error> {
        let value = self.unsigned_varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A zigzag variable-length 64-bit integer.
    pub fn varlong(&mut self) -> Result<i64, Error> {
        let value = self.unsigned(10)?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn unsigned(&mut self, bytes_max: usize) -> Result<u64, Error> {
        let mut value = 0_u64;
        for index in 0..bytes_max {
            let [byte] = self.array_of::<1>()?;
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * index;
            if shift > 57 && bits >> (64 - shift) != 0 {
                return Err(Error::VarintTooLong { bytes_max });
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::VarintTooLong { bytes_max })
    }

    /// A length or count as its message's form says; `None` = null.
    fn length(&mut self, flexible: bool) -> Result<Option<usize>, Error> {
        let length =
            if flexible { i64::from(self.unsigned_varint()?) - 1 } else { i64::from(self.i32()?) };
        Self::present(length)
    }

    fn string_length(&mut self, flexible: bool) -> Result<Option<usize>, Error> {
        let length =
            if flexible { i64::from(self.unsigned_varint()?) - 1 } else { i64::from(self.i16()?) };
        Self::present(length)
    }

    fn present(length: i64) -> Result<Option<usize>, Error> {
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if length == -1 => Ok(None),
            Err(_) => Err(Error::Null { length }),
        }
    }

    /// The next `length` bytes, shared with the input.
    pub fn slice(&mut self, length: usize) -> Result<Bytes, Error> {
        self.require(length)?;
        let slice = self.input.slice(self.at..self.at + length);
        self.at += length;
        Ok(slice)
    }

    /// All that remains, shared with the input.
    pub fn rest(&mut self) -> Bytes {
        let rest = self.input.slice(self.at..);
        self.at = self.input.len();
        rest
    }

    /// A string.
    pub fn string(&mut self, flexible: bool) -> Result<String, Error> {
        self.nullable_string(flexible)?.ok_or(Error::Null { length: -1 })
    }

    /// A string or null.
    pub fn nullable_string(&mut self, flexible: bool) -> Result<Option<String>, Error> {
        let Some(length) = self.string_length(flexible)? else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(Error::TooLong { length, length_max: STRING_BYTES_MAX });
        }
        self.require(length)?;
        self.charge(length)?;
        let text = std::str::from_utf8(&self.input[self.at..self.at + length])
            .map_err(|error| Error::InvalidUtf8 { valid_up_to: error.valid_up_to() })?
            .to_owned();
        self.at += length;
        Ok(Some(text))
    }

    /// Bytes, shared with the input.
    pub fn bytes(&mut self, flexible: bool) -> Result<Bytes, Error> {
        self.nullable_bytes(flexible)?.ok_or(Error::Null { length: -1 })
    }

    /// Bytes or null, shared with the input.
    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<Bytes>, Error> {
        match self.length(flexible)? {
            Some(length) => self.slice(length).map(Some),
            None => Ok(None),
        }
    }

    /// A list.
    pub fn array<T>(
        &mut self,
        flexible: bool,
        element: impl FnMut(&mut Reader) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.nullable_array(flexible, element)?.ok_or(Error::Null { length: -1 })
    }

    /// A list or null. Its memory is charged and reserved once, for the claimed count.
    pub fn nullable_array<T>(
        &mut self,
        flexible: bool,
        mut element: impl FnMut(&mut Reader) -> Result<T, Error>,
    ) -> Result<Option<Vec<T>>, Error> {
        let Some(count) = self.length(flexible)? else { return Ok(None) };
        let remaining = self.remaining();
        if count > remaining {
            return Err(Error::CountTooLarge { count, remaining });
        }
        self.charge(count.saturating_mul(size_of::<T>()))?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(Some(list))
    }

    /// The tagged fields that end a struct.
    pub fn tagged_fields(&mut self) -> Result<TaggedFields, Error> {
        let left = self.unsigned_varint()?;
        Ok(TaggedFields { left, current: None })
    }

    /// The tagged fields of a struct that knows none.
    pub fn skip_tagged_fields(&mut self) -> Result<(), Error> {
        let mut tags = self.tagged_fields()?;
        while tags.next(self)?.is_some() {
            tags.skip(self);
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
struct Tag {
    tag: u32,
    start: usize,
    size: usize,
}

/// The tagged fields of one struct, walked in their order.
#[derive(Debug)]
pub struct TaggedFields {
    left: u32,
    current: Option<Tag>,
}

impl TaggedFields {
    /// The next field's tag; `None` after the last. The field before it must have been read to
    /// its end.
    ///
    /// # Errors
    ///
    /// A tag that is not above the one before it, a size beyond the input, a field that took
    /// more or fewer bytes than it said.
    pub fn next(&mut self, input: &mut Reader) -> Result<Option<u32>, Error> {
        if let Some(Tag { tag, start, size }) = self.current
            && input.at - start != size
        {
            return Err(Error::TagSize { tag, size, taken: input.at - start });
        }
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let tag = input.unsigned_varint()?;
        if let Some(previous) = self.current
            && tag <= previous.tag
        {
            return Err(Error::TagOrder { tag, previous: previous.tag });
        }
        let size = input.unsigned_varint()?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        input.require(size)?;
        self.current = Some(Tag { tag, start: input.at, size });
        Ok(Some(tag))
    }

    /// Steps over the current field.
    pub fn skip(&mut self, input: &mut Reader) {
        if let Some(Tag { start, size, .. }) = self.current {
            input.at = start + size;
        }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
