//! Tests of the envelope: its bytes are frozen, and no damaged one is accepted.

use super::*;

const LIMIT: usize = 1 << 20;

fn sample() -> Vec<u8> {
    encode(Kind::Vote, 1, &(7_u64, String::from("seven"), vec![1_u16, 300]), LIMIT).unwrap()
}

#[test]
fn bytes_are_frozen() {
    let golden = [
        0x48, 0x00, 0x02, 0x00, 0x01, 0x00, 0x00, 0x00, 0x0c, 0xe6, 0x8c, 0xe0, 0x39, 0x07, 0x05,
        b's', b'e', b'v', b'e', b'n', 0x02, 0x01, 0xfb, 0x2c, 0x01,
    ];
    assert_eq!(sample(), golden);
}

#[test]
fn what_was_written_is_read() {
    let read: (u64, String, Vec<u16>) = decode(Kind::Vote, 1, &sample(), LIMIT).unwrap();
    assert_eq!(read, (7, String::from("seven"), vec![1, 300]));
}

#[test]
fn every_flipped_bit_and_every_cut_is_an_error() {
    let bytes = sample();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let read = decode::<(u64, String, Vec<u16>)>(Kind::Vote, 1, &damaged, LIMIT);
            assert!(read.is_err(), "bit {bit} of byte {at}");
        }
        let read = decode::<(u64, String, Vec<u16>)>(Kind::Vote, 1, &bytes[..at], LIMIT);
        assert!(read.is_err(), "cut at {at}");
    }
}

#[test]
fn trailing_bytes_outside_and_inside_are_errors() {
    let mut longer = sample();
    longer.push(0);
    assert_eq!(
        decode::<(u64, String, Vec<u16>)>(Kind::Vote, 1, &longer, LIMIT),
        Err(Error::Length { actual: 26, expected: 25 })
    );
    let inside = decode::<(u64, String)>(Kind::Vote, 1, &sample(), LIMIT);
    assert!(matches!(inside, Err(Error::Payload { kind: Kind::Vote, .. })), "{inside:?}");
}

#[test]
fn kind_version_and_limit_are_checked() {
    let bytes = sample();
    assert_eq!(
        decode::<u64>(Kind::Entry, 1, &bytes, LIMIT),
        Err(Error::WrongKind { actual: 2, expected: Kind::Entry })
    );
    let newer = encode(Kind::Vote, 2, &1_u8, LIMIT).unwrap();
    assert_eq!(
        decode::<u8>(Kind::Vote, 1, &newer, LIMIT),
        Err(Error::Version { kind: Kind::Vote, actual: 2, known: 1 })
    );
    assert_eq!(
        decode::<u64>(Kind::Vote, 1, &bytes, 3),
        Err(Error::TooLong { kind: Kind::Vote, actual: 12, limit: 3 })
    );
    assert!(matches!(encode(Kind::Vote, 1, &[0_u8; 9], 8), Err(Error::TooLong { .. })));
}

#[test]
fn hostile_length_inside_allocates_nothing() {
    // A vector that claims 2^60 elements in a payload of nine bytes.
    let payload = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0x10];
    let mut bytes = vec![MAGIC, 0, 2, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0];
    bytes.extend_from_slice(&payload);
    let crc = checksum(&bytes);
    bytes[CRC..HEADER_BYTES].copy_from_slice(&crc.to_be_bytes());
    assert!(matches!(
        decode::<Vec<u64>>(Kind::Vote, 1, &bytes, LIMIT),
        Err(Error::Payload { .. })
    ));
}
