//! One record of a batch of magic 2, and the walk over a batch's records. Owns the bytes after
//! the batch header once they are decompressed; never allocates by a length that the bytes
//! cannot hold.
//!
//! ```text
//! varint   length of what follows
//! int8     attributes, unused
//! varlong  timestamp − the batch's base timestamp
//! varint   offset − the batch's base offset
//! varint   key length, −1 for null; key
//! varint   value length, −1 for null; value
//! varint   number of headers; each: varint key length, key, varint value length (−1 null), value
//! ```
//!
//! All varints are zigzag, as in protocol buffers.

use std::io::{self, BufRead};

use bytes::Bytes;

use crate::ids::{Offset, TimestampMs};

/// A key of a header and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The key: UTF-8 by Kafka's rule, not checked here.
    pub key: Bytes,
    /// The value, or null.
    pub value: Option<Bytes>,
}

/// One record as a consumer sees it. Bytes are shared with the batch where it is not compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where the record lies in its partition.
    pub offset: Offset,
    /// When it was created, or appended if the batch says so.
    pub timestamp: TimestampMs,
    /// The key, or null.
    pub key: Option<Bytes>,
    /// The value, or null: a tombstone on a compacted topic.
    pub value: Option<Bytes>,
    /// The headers in their order.
    pub headers: Vec<RecordHeader>,
}

/// Why records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The records end before the last one announced.
    #[error("record {index} of {count} ends before its last byte")]
    CutOff {
        /// The record's number in the batch, from 0.
        index: i32,
        /// How many records the batch announces.
        count: i32,
    },
    /// A record's own length does not match its fields.
    #[error("record {index} says it has {announced} bytes and has {actual}")]
    WrongLength {
        /// The record's number in the batch, from 0.
        index: i32,
        /// The length in front of it.
        announced: i64,
        /// What its fields come to.
        actual: i64,
    },
    /// A record of a compressed batch is longer than the topic allows.
    #[error(
        "record {index} has {announced} bytes, the topic's max.decompressed.message.bytes is {max}"
    )]
    TooLong {
        /// The record's number in the batch, from 0.
        index: i32,
        /// The length in front of it.
        announced: i64,
        /// The topic's limit.
        max: i64,
    },
    /// A length or count that is negative, or a varint that is too long.
    #[error("record {index} has an impossible {what}")]
    Impossible {
        /// The record's number in the batch, from 0.
        index: i32,
        /// The field.
        what: &'static str,
    },
    /// Bytes follow the last announced record.
    #[error("bytes follow the last of {count} records")]
    Trailing {
        /// How many records the batch announces.
        count: i32,
    },
    /// The compressed data is damaged.
    #[error("the records cannot be read: {0}")]
    Read(#[from] io::Error),
}

/// What a walk learns of a record without reading its key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordShape {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) has_key: bool,
}

/// The records of one batch in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records {
    rest: Bytes,
    index: i32,
    count: i32,
    base_offset: Offset,
    base_timestamp: TimestampMs,
    append_time: Option<TimestampMs>,
}

impl Records {
    /// The `count` records in `plain`, which is decompressed. With `append_time` every record
    /// has that timestamp.
    pub(crate) fn new(
        plain: Bytes,
        count: i32,
        base_offset: Offset,
        base_timestamp: TimestampMs,
        append_time: Option<TimestampMs>,
    ) -> Records {
        Records { rest: plain, index: 0, count, base_offset, base_timestamp, append_time }
    }

    fn read_next(&mut self) -> Result<Record, Error> {
        let mut cursor = Cursor { bytes: &self.rest, position: 0 };
        let fault = |fault: Fault| fault.at(self.index, self.count);
        let announced = i64::from(cursor.varint("length").map_err(fault)?);
        let start = cursor.position;
        cursor.take(1).map_err(fault)?;
        let timestamp_delta = cursor.varlong("timestamp").map_err(fault)?;
        let offset_delta = cursor.varint("offset").map_err(fault)?;
        let slice = |range| self.rest.slice(range);
        let key = cursor.nullable("key length").map_err(fault)?.map(slice);
        let value = cursor.nullable("value length").map_err(fault)?.map(slice);
        let headers = read_headers(&mut cursor, &self.rest).map_err(fault)?;
        let actual = i64::try_from(cursor.position - start).unwrap_or(i64::MAX);
        if actual != announced {
            return Err(Error::WrongLength { index: self.index, announced, actual });
        }
        let timestamp = self
            .append_time
            .unwrap_or(TimestampMs(self.base_timestamp.0.wrapping_add(timestamp_delta)));
        let offset = Offset(self.base_offset.0.wrapping_add(i64::from(offset_delta)));
        self.rest = self.rest.slice(cursor.position..);
        self.index += 1;
        Ok(Record { offset, timestamp, key, value, headers })
    }
}

impl Iterator for Records {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Result<Record, Error>> {
        if self.index >= self.count {
            if self.rest.is_empty() {
                return None;
            }
            self.rest = Bytes::new();
            return Some(Err(Error::Trailing { count: self.count }));
        }
        let record = self.read_next();
        if record.is_err() {
            self.index = self.count;
            self.rest = Bytes::new();
        }
        Some(record)
    }
}

fn read_headers(cursor: &mut Cursor<'_>, bytes: &Bytes) -> Result<Vec<RecordHeader>, Fault> {
    let count = cursor.varint("header count")?;
    let count = usize::try_from(count).map_err(|_| Fault::Impossible("header count"))?;
    // A header has two lengths at least, so that the count cannot ask for more than the bytes
    // hold.
    if count > cursor.remaining() / 2 {
        return Err(Fault::Impossible("header count"));
    }
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        let key = cursor.nullable("header key length")?;
        let key = key.ok_or(Fault::Impossible("header key length"))?;
        let value = cursor.nullable("header value length")?;
        headers.push(RecordHeader {
            key: bytes.slice(key),
            value: value.map(|range| bytes.slice(range)),
        });
    }
    Ok(headers)
}

/// A fault whose place in the batch the caller adds.
enum Fault {
    CutOff,
    Impossible(&'static str),
    Read(io::Error),
}

impl Fault {
    fn at(self, index: i32, count: i32) -> Error {
        match self {
            Fault::CutOff => Error::CutOff { index, count },
            Fault::Impossible(what) => Error::Impossible { index, what },
            Fault::Read(error) => Error::Read(error),
        }
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Cursor<'_> {
    fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    fn take(&mut self, count: usize) -> Result<std::ops::Range<usize>, Fault> {
        if count > self.remaining() {
            return Err(Fault::CutOff);
        }
        let start = self.position;
        self.position += count;
        Ok(start..self.position)
    }

    fn nullable(&mut self, what: &'static str) -> Result<Option<std::ops::Range<usize>>, Fault> {
        match self.varint(what)? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| Fault::Impossible(what))?;
                self.take(length).map(Some)
            }
        }
    }
}

/// What a walk over records needs of its bytes, in memory or out of a decoder.
trait Source {
    fn byte(&mut self) -> Result<u8, Fault>;

    fn varlong(&mut self, what: &'static str) -> Result<i64, Fault> {
        let mut bits = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            bits |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(unzigzag(bits));
            }
        }
        Err(Fault::Impossible(what))
    }

    fn varint(&mut self, what: &'static str) -> Result<i32, Fault> {
        i32::try_from(self.varlong(what)?).map_err(|_| Fault::Impossible(what))
    }
}

impl Source for Cursor<'_> {
    fn byte(&mut self) -> Result<u8, Fault> {
        let byte = *self.bytes.get(self.position).ok_or(Fault::CutOff)?;
        self.position += 1;
        Ok(byte)
    }
}

/// Walks over records without keeping them: what validation needs, in constant memory.
pub(crate) struct RecordScan<R> {
    input: R,
    consumed: i64,
    index: i32,
    count: i32,
    record_bytes_max: i64,
}

impl<R: BufRead> RecordScan<R> {
    /// A walk over the `count` records that `input` yields.
    pub(crate) fn new(input: R, count: i32) -> RecordScan<R> {
        RecordScan { input, consumed: 0, index: 0, count, record_bytes_max: i64::MAX }
    }

    /// Ends with an error at a record that announces more bytes, before it is decompressed.
    pub(crate) fn with_record_bytes_max(self, record_bytes_max: i64) -> RecordScan<R> {
        RecordScan { record_bytes_max, ..self }
    }

    /// How many plain bytes were read so far.
    pub(crate) fn consumed(&self) -> i64 {
        self.consumed
    }

    /// The next record, or `None` after the last one and nothing behind it.
    pub(crate) fn next_shape(&mut self) -> Result<Option<RecordShape>, Error> {
        if self.index >= self.count {
            return match self.input.fill_buf()?.is_empty() {
                true => Ok(None),
                false => Err(Error::Trailing { count: self.count }),
            };
        }
        let (index, count) = (self.index, self.count);
        let announced = i64::from(self.varint("length").map_err(|fault| fault.at(index, count))?);
        if announced > self.record_bytes_max {
            return Err(Error::TooLong { index, announced, max: self.record_bytes_max });
        }
        let start = self.consumed;
        let shape = self.read_shape(announced).map_err(|fault| fault.at(index, count))?;
        let actual = self.consumed - start;
        if actual != announced {
            return Err(Error::WrongLength { index, announced, actual });
        }
        self.index += 1;
        Ok(Some(shape))
    }

    fn read_shape(&mut self, announced: i64) -> Result<RecordShape, Fault> {
        if announced < 0 {
            return Err(Fault::Impossible("length"));
        }
        let end = self.consumed + announced;
        self.byte()?;
        let timestamp_delta = self.varlong("timestamp")?;
        let offset_delta = self.varint("offset")?;
        let has_key = self.skip_nullable("key length", end)?;
        self.skip_nullable("value length", end)?;
        let headers = self.varint("header count")?;
        if headers < 0 || i64::from(headers) > (end - self.consumed) / 2 {
            return Err(Fault::Impossible("header count"));
        }
        for _ in 0..headers {
            if !self.skip_nullable("header key length", end)? {
                return Err(Fault::Impossible("header key length"));
            }
            self.skip_nullable("header value length", end)?;
        }
        Ok(RecordShape { timestamp_delta, offset_delta, has_key })
    }

    /// Skips bytes with a length in front, or tells that they are null. Never beyond the
    /// record's `end`.
    fn skip_nullable(&mut self, what: &'static str, end: i64) -> Result<bool, Fault> {
        let length = self.varint(what)?;
        if length == -1 {
            return Ok(false);
        }
        if length < 0 || i64::from(length) > end - self.consumed {
            return Err(Fault::Impossible(what));
        }
        let mut left = usize::try_from(length).map_err(|_| Fault::Impossible(what))?;
        while left > 0 {
            let available = self.input.fill_buf().map_err(Fault::Read)?.len();
            if available == 0 {
                return Err(Fault::CutOff);
            }
            let step = available.min(left);
            self.input.consume(step);
            left -= step;
        }
        self.consumed += i64::from(length);
        Ok(true)
    }
}

impl<R: BufRead> Source for RecordScan<R> {
    fn byte(&mut self) -> Result<u8, Fault> {
        let byte = *self.input.fill_buf().map_err(Fault::Read)?.first().ok_or(Fault::CutOff)?;
        self.input.consume(1);
        self.consumed += 1;
        Ok(byte)
    }
}

/// Appends one record in its wire form.
pub(crate) fn write_record(
    out: &mut Vec<u8>,
    offset_delta: i32,
    timestamp_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[RecordHeader],
) {
    let mut body =
        Vec::with_capacity(32 + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len));
    body.push(0);
    write_varlong(&mut body, timestamp_delta);
    write_varlong(&mut body, i64::from(offset_delta));
    write_nullable(&mut body, key);
    write_nullable(&mut body, value);
    write_varlong(&mut body, length(headers.len()));
    for header in headers {
        write_nullable(&mut body, Some(&header.key));
        write_nullable(&mut body, header.value.as_deref());
    }
    write_varlong(out, length(body.len()));
    out.extend_from_slice(&body);
}

fn write_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            write_varlong(out, length(bytes.len()));
            out.extend_from_slice(bytes);
        }
        None => write_varlong(out, -1),
    }
}

fn write_varlong(out: &mut Vec<u8>, value: i64) {
    let mut bits = zigzag(value);
    while bits >= 0x80 {
        let [low, ..] = bits.to_le_bytes();
        out.push(low | 0x80);
        bits >>= 7;
    }
    let [low, ..] = bits.to_le_bytes();
    out.push(low);
}

fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("bytes in memory are fewer than 2^63")
}

fn zigzag(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

fn unzigzag(bits: u64) -> i64 {
    (bits >> 1).cast_signed() ^ -(bits & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> impl Strategy<Value = RecordHeader> {
        (any::<Vec<u8>>(), any::<Option<Vec<u8>>>()).prop_map(|(key, value)| RecordHeader {
            key: key.into(),
            value: value.map(Bytes::from),
        })
    }

    #[test]
    fn varlongs_have_known_bytes() {
        let written = |value| {
            let mut out = Vec::new();
            write_varlong(&mut out, value);
            out
        };
        assert_eq!(written(0), [0]);
        assert_eq!(written(-1), [1]);
        assert_eq!(written(63), [0x7e]);
        assert_eq!(written(-65), [0x81, 0x01]);
        assert_eq!(written(i64::MAX), [0xfe, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
    }

    #[test]
    fn a_header_count_beyond_the_bytes_is_refused_before_allocation() {
        // length 10, attributes, deltas 0, null key and value, then 2^30 headers.
        let bytes = [20, 0, 0, 0, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x08];
        let mut records =
            Records::new(Bytes::copy_from_slice(&bytes), 1, Offset(0), TimestampMs(0), None);
        let error = records.next().unwrap().unwrap_err();
        assert!(matches!(error, Error::Impossible { what: "header count", .. }), "{error}");
        assert!(records.next().is_none());
        assert!(RecordScan::new(&bytes[..], 1).next_shape().is_err());
    }

    proptest! {
        #[test]
        fn a_record_reads_back(
            offset_delta in 0..i32::MAX,
            timestamp_delta: i64,
            key: Option<Vec<u8>>,
            value: Option<Vec<u8>>,
            headers in proptest::collection::vec(header(), 0..4),
        ) {
            let mut out = Vec::new();
            write_record(
                &mut out, offset_delta, timestamp_delta, key.as_deref(), value.as_deref(),
                &headers,
            );
            let mut scan = RecordScan::new(&out[..], 1);
            let shape = scan.next_shape().unwrap().unwrap();
            prop_assert_eq!(
                shape, RecordShape { timestamp_delta, offset_delta, has_key: key.is_some() }
            );
            prop_assert!(scan.next_shape().unwrap().is_none());
            let mut records = Records::new(out.into(), 1, Offset(7), TimestampMs(9), None);
            let record = records.next().unwrap().unwrap();
            prop_assert_eq!(record.offset, Offset(7 + i64::from(offset_delta)));
            prop_assert_eq!(record.timestamp.0, 9i64.wrapping_add(timestamp_delta));
            prop_assert_eq!(record.key.map(Vec::from), key);
            prop_assert_eq!(record.value.map(Vec::from), value);
            prop_assert_eq!(record.headers, headers);
            prop_assert!(records.next().is_none());
        }

        #[test]
        fn the_scan_and_the_reader_agree_on_hostile_bytes(
            bytes in proptest::collection::vec(prop_oneof![0u8..24, any::<u8>()], 0..60),
            count in 0..4,
        ) {
            let all: Result<Vec<_>, _> =
                Records::new(bytes.clone().into(), count, Offset(0), TimestampMs(0), None)
                    .collect();
            let mut scan = RecordScan::new(&bytes[..], count);
            let scanned = loop {
                match scan.next_shape() {
                    Ok(Some(_)) => {}
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            prop_assert_eq!(all.is_ok(), scanned);
        }
    }
}
