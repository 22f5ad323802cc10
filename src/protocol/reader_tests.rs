//! The primitives against the writer's and against bytes written by hand.

use super::*;
use crate::writer::{
    TaggedFields as Written, put_bytes, put_string, put_unsigned_varint, put_varint, put_varlong,
};
use bytes::{BufMut, BytesMut};
use proptest::prelude::*;

fn reader(bytes: &[u8]) -> Reader {
    Reader::new(Bytes::copy_from_slice(bytes))
}

proptest! {
    #[test]
    fn variable_length_integers_read_back(a: u32, b: i32, c: i64) {
        let mut out = BytesMut::new();
        put_unsigned_varint(&mut out, a);
        put_varint(&mut out, b);
        put_varlong(&mut out, c);
        let mut input = Reader::new(out.freeze());
        prop_assert_eq!(input.unsigned_varint(), Ok(a));
        prop_assert_eq!(input.varint(), Ok(b));
        prop_assert_eq!(input.varlong(), Ok(c));
        prop_assert_eq!(input.finish(), Ok(()));
    }

    #[test]
    fn strings_and_bytes_read_back(text: String, bytes: Vec<u8>, flexible: bool) {
        let mut out = BytesMut::new();
        put_string(&mut out, flexible, &text).unwrap();
        put_bytes(&mut out, flexible, &bytes).unwrap();
        let mut input = Reader::new(out.freeze());
        prop_assert_eq!(input.string(flexible), Ok(text));
        prop_assert_eq!(input.bytes(flexible).unwrap(), bytes);
    }
}

#[test]
fn integers_at_their_ends_read_back() {
    for value in [i64::MIN, i64::MAX, -1, 0, 1] {
        let mut out = BytesMut::new();
        put_varlong(&mut out, value);
        assert_eq!(reader(&out).varlong(), Ok(value));
    }
    assert_eq!(reader(&[0xff, 0xff, 0xff, 0xff, 0x0f]).unsigned_varint(), Ok(u32::MAX));
    assert_eq!(reader(&[0xac, 0x02]).unsigned_varint(), Ok(300));
    assert_eq!(reader(&[0x03]).varint(), Ok(-2));
}

#[test]
fn integers_beyond_their_type_are_refused() {
    let too_long = Err(Error::VarintTooLong { bytes_max: 5 });
    assert_eq!(reader(&[0xff, 0xff, 0xff, 0xff, 0x1f]).unsigned_varint(), too_long);
    assert_eq!(reader(&[0x80; 6]).unsigned_varint(), too_long);
    let too_long = Err(Error::VarintTooLong { bytes_max: 10 });
    let mut longest = [0xff; 10];
    longest[9] = 0x02;
    assert_eq!(reader(&longest).varlong(), too_long);
    assert_eq!(reader(&[0x80; 11]).varlong(), too_long);
    let cut = Err(Error::Truncated { needed: 1, remaining: 0 });
    assert_eq!(reader(&[0x80]).unsigned_varint(), cut);
}

#[test]
fn strings_are_utf8_not_null_and_not_too_long() {
    assert_eq!(
        reader(&[0x00, 0x01, 0xff]).string(false),
        Err(Error::InvalidUtf8 { valid_up_to: 0 })
    );
    assert_eq!(reader(&[0xff, 0xff]).string(false), Err(Error::Null { length: -1 }));
    assert_eq!(reader(&[0xff, 0xff]).nullable_string(false), Ok(None));
    assert_eq!(reader(&[0xff, 0xfe]).nullable_string(false), Err(Error::Null { length: -2 }));
    assert_eq!(reader(&[0x00]).nullable_string(true), Ok(None));
    let mut out = BytesMut::new();
    put_unsigned_varint(&mut out, 0x8001);
    out.put_bytes(b'a', 0x8000);
    let refused = Err(Error::TooLong { length: 0x8000, length_max: STRING_BYTES_MAX });
    assert_eq!(reader(&out).string(true), refused);
    let text = "a".repeat(STRING_BYTES_MAX + 1);
    let refused = put_string(&mut BytesMut::new(), true, &text).unwrap_err();
    assert_eq!(refused, Error::TooLong { length: 0x8000, length_max: STRING_BYTES_MAX });
}

#[test]
fn lists_are_bounded_by_the_bytes_that_remain_and_by_the_budget() {
    let mut input = reader(&[0x7f, 0xff, 0xff, 0xff, 0, 0]);
    let refused = input.array(false, Reader::i8);
    assert_eq!(refused, Err(Error::CountTooLarge { count: 0x7fff_ffff, remaining: 2 }));
    let mut bytes = vec![0x00, 0x00, 0x03, 0xe8];
    bytes.extend([0; 1000]);
    let refused = reader(&bytes).array(false, |input| input.i8().map(|_| [0_u64; 4]));
    assert_eq!(refused, Err(Error::BudgetExceeded { needed: 32_000, left: 8 * 1004 + 4096 }));
    assert_eq!(reader(&bytes).array(false, Reader::i8).unwrap().len(), 1000);
}

fn tags(bytes: &[u8]) -> Result<(), Error> {
    let mut input = reader(bytes);
    input.skip_tagged_fields()?;
    input.finish()
}

#[test]
fn unknown_tags_are_skipped() {
    let mut written = Written::new();
    written
        .put(3, |out| {
            out.put_i32(7);
            Ok(())
        })
        .unwrap();
    written
        .put(200, |out| {
            out.put_i8(7);
            Ok(())
        })
        .unwrap();
    let mut out = BytesMut::new();
    written.finish(&mut out);
    assert_eq!(tags(&out), Ok(()));
    assert_eq!(tags(&[0]), Ok(()));
}

#[test]
fn tags_come_once_and_in_order() {
    assert_eq!(tags(&[2, 1, 0, 1, 0]), Err(Error::TagOrder { tag: 1, previous: 1 }));
    assert_eq!(tags(&[2, 4, 0, 1, 0]), Err(Error::TagOrder { tag: 1, previous: 4 }));
    assert_eq!(tags(&[1, 0, 9, 0]), Err(Error::Truncated { needed: 9, remaining: 1 }));
    assert_eq!(tags(&[2, 0, 0]), Err(Error::Truncated { needed: 1, remaining: 0 }));
}

#[test]
fn a_tagged_field_takes_what_it_says() {
    let mut input = reader(&[1, 0, 3, 9, 9, 9]);
    let mut fields = input.tagged_fields().unwrap();
    assert_eq!(fields.next(&mut input), Ok(Some(0)));
    assert_eq!(input.i16(), Ok(0x0909));
    let refused = Err(Error::TagSize { tag: 0, size: 3, taken: 2 });
    assert_eq!(fields.next(&mut input), refused);
}

#[test]
fn what_follows_the_message_is_an_error() {
    let mut input = reader(&[1, 2, 3]);
    assert_eq!(input.peek(), Some(1));
    input.i8().unwrap();
    assert_eq!(input.finish(), Err(Error::TrailingBytes { remaining: 2 }));
    assert_eq!(input.rest().len(), 2);
    assert_eq!(input.finish(), Ok(()));
    assert_eq!(input.peek(), None);
}
