//! Every message, generated from the tables in `schemas/`: one module a message, one struct for
//! all its versions. Versions branch only in `encode` and `decode`.

use crate::error::Error;
use crate::reader::Reader;
use bytes::{Bytes, BytesMut};
use std::ops::RangeInclusive;

/// A message of the wire or of an internal topic.
pub trait Message: Sized {
    /// Kafka's name.
    const NAME: &'static str;
    /// The versions the codec speaks.
    const VERSIONS: RangeInclusive<i16>;
    /// The first version with compact lengths and tagged fields; `i16::MAX` = none.
    const FLEXIBLE_FROM: i16;

    /// Appends the message in this version.
    ///
    /// # Errors
    ///
    /// A version out of range; a field that is set, must not be dropped and does not exist in
    /// this version; a null or a length that the version cannot say. `out` is then left with
    /// part of the message.
    fn encode(&self, out: &mut BytesMut, version: i16) -> Result<(), Error>;

    /// Reads the message in this version and leaves what follows it.
    ///
    /// # Errors
    ///
    /// A version out of range, or bytes that are not this message.
    fn decode(input: &mut Reader, version: i16) -> Result<Self, Error>;

    /// The message in this version, alone.
    ///
    /// # Errors
    ///
    /// As [`Message::encode`].
    fn to_bytes(&self, version: i16) -> Result<Bytes, Error> {
        let mut out = BytesMut::new();
        self.encode(&mut out, version)?;
        Ok(out.freeze())
    }

    /// Reads a message that is all of `input`.
    ///
    /// # Errors
    ///
    /// As [`Message::decode`], and bytes after the message.
    fn from_bytes(input: impl Into<Bytes>, version: i16) -> Result<Self, Error> {
        let mut input = Reader::new(input);
        let message = Self::decode(&mut input, version)?;
        input.finish()?;
        Ok(message)
    }
}

pub use generated::*;

#[allow(
    unused_variables,
    unused_mut,
    clippy::all,
    reason = "generated: one shape for all messages"
)]
mod generated {
    use super::Message;
    use crate::error::Error;
    use crate::reader::Reader;
    use crate::writer::{
        TaggedFields, put_array_len, put_bytes, put_null_array, put_null_bytes, put_null_string,
        put_string,
    };
    use bytes::{BufMut, Bytes, BytesMut};
    use std::ops::RangeInclusive;
    use uuid::Uuid;

    /// A struct inside a message: read and written by its message's version.
    trait Struct: Sized {
        fn write(&self, out: &mut BytesMut, version: i16) -> Result<(), Error>;
        fn read(input: &mut Reader, version: i16) -> Result<Self, Error>;
    }

    fn check_version<M: Message>(version: i16) -> Result<(), Error> {
        if M::VERSIONS.contains(&version) {
            return Ok(());
        }
        let (first, last) = (*M::VERSIONS.start(), *M::VERSIONS.end());
        Err(Error::UnsupportedVersion { message: M::NAME, version, first, last })
    }

    fn not_in_version(message: &'static str, field: &'static str, version: i16) -> Error {
        Error::FieldNotInVersion { message, field, version }
    }

    fn null_not_allowed(field: &'static str, version: i16) -> Error {
        Error::NullNotAllowed { field, version }
    }

    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}
