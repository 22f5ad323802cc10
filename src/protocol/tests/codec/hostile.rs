//! No bytes make the codec panic or take more memory than 8 times their length and 4 KiB,
//! measured at the allocator.

use crate::filling::{Fill, Random, Visitor, filled, visit_all};
use bytes::Bytes;
use protocol::api::{ApiKey, Request, RequestHeader, Response};
use protocol::messages::{MetadataRequest, ProduceRequest};
use protocol::{Error, Message, Reader};
use std::fmt::Debug;

fn memory_max(input: usize) -> u64 {
    u64::try_from(8 * input + 4096).unwrap()
}

/// Runs `read` and holds it to the memory its input allows.
fn measured<T>(what: &str, input: &Bytes, read: impl FnOnce(Bytes) -> Result<T, Error>) {
    let copy = input.clone();
    let taken = allocation_counter::measure(|| drop(read(copy)));
    let max = memory_max(input.len());
    assert!(
        taken.bytes_total <= max,
        "{what}: {} bytes taken for {} of input, {max} allowed: {input:?}",
        taken.bytes_total,
        input.len(),
    );
}

fn read<M: Message>(version: i16, input: &Bytes) {
    measured(M::NAME, input, |input| M::from_bytes(input, version));
}

struct RandomBytes;

impl Visitor for RandomBytes {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
        for version in M::VERSIONS {
            let mut random = Random::new(u64::try_from(version).unwrap() + 17);
            for round in 0..60 {
                let length = random.below(if round % 10 == 0 { 4000 } else { 60 });
                let mask = [0xff, 0x07, 0x01][random.below(3)];
                let bytes: Vec<u8> = (0..length).map(|_| random.byte() & mask).collect();
                read::<M>(version, &Bytes::from(bytes));
            }
            for byte in [0x00, 0x01, 0x02, 0x7f, 0x80, 0xff] {
                for length in [1, 7, 64, 3000] {
                    read::<M>(version, &Bytes::from(vec![byte; length]));
                }
            }
        }
    }
}

#[test]
fn random_bytes_neither_panic_nor_take_memory() {
    visit_all(&mut RandomBytes);
}

/// Lengths and counts that hostile clients like: huge, negative, null, in every form.
const LENGTHS: [&[u8]; 9] = [
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff],
    &[0x80, 0x00, 0x00, 0x00],
    &[0x00, 0x0f, 0xff, 0xff],
    &[0x7f, 0xff],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0xff, 0x7f],
    &[0x00],
];

struct Mutated;

impl Visitor for Mutated {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
        for version in M::VERSIONS {
            let mut random = Random::new(u64::try_from(version).unwrap() + 99);
            for seed in 0..3 {
                let message: M = filled(seed, version);
                let valid = message.to_bytes(version).unwrap().to_vec();
                for at in 0..valid.len() {
                    let length = LENGTHS[random.below(LENGTHS.len())];
                    let mut mutated = valid.clone();
                    let end = (at + length.len()).min(valid.len());
                    mutated.splice(at..end, length.iter().copied());
                    read::<M>(version, &mutated.into());
                    let mut flipped = valid.clone();
                    flipped[at] ^= 1 << random.below(8);
                    read::<M>(version, &flipped.into());
                }
                for _ in 0..20 {
                    let mut spliced = valid.clone();
                    let at = random.below(spliced.len() + 1);
                    let more = vec![random.byte(); random.below(40)];
                    spliced.splice(at..at, more);
                    read::<M>(version, &spliced.into());
                }
            }
        }
    }
}

#[test]
fn mutated_messages_neither_panic_nor_take_memory() {
    visit_all(&mut Mutated);
}

struct HugeLengths;

impl Visitor for HugeLengths {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
        for version in M::VERSIONS {
            for length in LENGTHS {
                for (padding, lead_max) in [(0, 20), (4, 20), (50_000, 5)] {
                    for lead in 0..lead_max {
                        let mut bytes = vec![0; lead];
                        bytes.extend_from_slice(length);
                        bytes.extend(std::iter::repeat_n(1, padding));
                        read::<M>(version, &bytes.into());
                    }
                }
            }
        }
    }
}

#[test]
fn huge_lengths_neither_panic_nor_take_memory() {
    visit_all(&mut HugeLengths);
}

#[test]
fn many_tiny_elements_are_refused_before_memory_is_taken() {
    let mut bytes = vec![0x00, 0x0f, 0x42, 0x40];
    bytes.extend(std::iter::repeat_n(0, 2_000_000));
    let bytes = Bytes::from(bytes);
    let refused = MetadataRequest::from_bytes(bytes.clone(), 1).unwrap_err();
    assert!(matches!(refused, Error::BudgetExceeded { .. }), "{refused}");
    read::<MetadataRequest>(1, &bytes);
}

#[test]
fn any_key_and_version_with_any_body_is_an_answer_or_an_error() {
    let mut random = Random::new(5);
    for _ in 0..50_000 {
        let length = random.below(80);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.byte()).collect();
        if bytes.len() > 4 && random.below(4) > 0 {
            let key = ApiKey::ALL[random.below(ApiKey::ALL.len())];
            bytes[..2].copy_from_slice(&key.as_i16().to_be_bytes());
            bytes[2] = 0;
            bytes[3] %= 20;
        }
        measured("request", &bytes.into(), |bytes| {
            let mut input = Reader::new(bytes);
            let header = RequestHeader::decode(&mut input)?;
            let key = ApiKey::from_i16(header.api_key).ok_or(Error::UnregisterController)?;
            let mut again = input.clone();
            drop(Response::decode(key, header.api_version, &mut again));
            Request::decode(key, header.api_version, &mut input)
        });
    }
}

#[test]
fn records_are_a_slice_of_the_frame() {
    let mut message = filled::<ProduceRequest>(3, 9);
    let records = Bytes::from(vec![5; 5000]);
    message.topic_data = vec![protocol::messages::produce_request::TopicProduceData {
        name: "orders".to_owned(),
        partition_data: vec![protocol::messages::produce_request::PartitionProduceData {
            index: 0,
            records: Some(records.clone()),
        }],
        ..Default::default()
    }];
    let frame = message.to_bytes(9).unwrap();
    let read = ProduceRequest::from_bytes(frame.clone(), 9).unwrap();
    let found = read.topic_data[0].partition_data[0].records.clone().unwrap();
    assert_eq!(found, records);
    assert!(frame.as_ptr_range().contains(&found.as_ptr()));
}
