//! The committed vectors: bytes that Java agreed on (or, for messages that only we have, that
//! were read when they were written). A change of the codec that changes one is a break.
//!
//! `HELIOGRAPH_WRITE_VECTORS=1 cargo test -p heliograph-protocol java` writes them anew.

use crate::filling::{Fill, Visitor, filled, from_hex, names, to_hex, visit_all};
use bytes::Bytes;
use protocol::Message;
use protocol::messages::{MirrorPartitionStateKey, MirrorPartitionStateValue, MirrorPidReset};
use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::path::PathBuf;

const VECTORS_PER_VERSION: usize = 2;

/// The seeds looked at for vectors; short messages are chosen from them.
const SEEDS: u64 = 12;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors"))
}

/// `fetch_request.hex` from `FetchRequest`.
fn file_name(message: &str) -> String {
    let mut name = String::new();
    for letter in message.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name + ".hex"
}

struct Written;

impl Visitor for Written {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
        let mut text = String::new();
        for version in M::VERSIONS {
            let mut all: Vec<Bytes> = (0..SEEDS)
                .map(|seed| filled::<M>(seed, version).to_bytes(version).unwrap())
                .collect();
            all.sort_by_key(|bytes| (bytes.len(), bytes.clone()));
            all.dedup();
            let longest = all.len().saturating_sub(VECTORS_PER_VERSION);
            let middle = all.iter().skip(longest / 2).take(VECTORS_PER_VERSION);
            for (number, bytes) in middle.enumerate() {
                writeln!(text, "v{version}_{:03} {}", number + 1, to_hex(bytes)).unwrap();
            }
        }
        std::fs::write(folder().join(file_name(M::NAME)), text).unwrap();
    }
}

/// Writes all vectors anew.
pub fn write() {
    std::fs::create_dir_all(folder()).unwrap();
    visit_all(&mut Written);
}

struct Read;

impl Visitor for Read {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
        let file = file_name(M::NAME);
        let text = std::fs::read_to_string(folder().join(&file)).expect(&file);
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            let (label, digits) = line.split_once(' ').unwrap_or((line, ""));
            let version = label.strip_prefix('v').and_then(|label| label.split_once('_'));
            let version: i16 = version.expect(label).0.parse().unwrap();
            let bytes = from_hex(digits);
            let message = M::from_bytes(bytes.clone(), version);
            let message = message.unwrap_or_else(|error| panic!("{file} {label}: {error}"));
            assert_eq!(to_hex(&message.to_bytes(version).unwrap()), digits, "{file} {label}");
            seen.insert(version);
        }
        let expected: BTreeSet<i16> = M::VERSIONS.collect();
        assert_eq!(seen, expected, "{file}: a vector for every version");
    }
}

#[test]
fn every_vector_reads_and_writes_back() {
    visit_all(&mut Read);
}

#[test]
fn every_file_of_vectors_belongs_to_a_message() {
    let expected: BTreeSet<String> = names().into_iter().map(file_name).collect();
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, expected);
}

/// The example that revision 205 of KIP-1279 prints the sizes of: key 13, value 17 bytes, the
/// record type and the value's version counted.
#[test]
fn mirror_state_records_have_the_proposals_bytes() {
    let key = MirrorPartitionStateKey {
        mirror_name: "my-mirror".to_owned(),
        ..MirrorPartitionStateKey::default()
    };
    assert_eq!(key.to_bytes(0).unwrap(), b"\x00\x09my-mirror"[..]);
    assert_eq!(key.to_bytes(1).unwrap().len(), 11 + 20);
    let mut value = MirrorPartitionStateValue {
        topic_name: "my-topic".to_owned(),
        ..MirrorPartitionStateValue::default()
    };
    assert_eq!(value.to_bytes(0).unwrap(), b"\x09my-topic\x00\x00\x00\x00\x00\x00"[..]);
    value.transition = 3;
    let tail = b"\x01\x04\x08\x00\x00\x00\x00\x00\x00\x00\x03";
    assert!(value.to_bytes(0).unwrap().ends_with(tail));
}

#[test]
fn a_producer_reset_takes_26_bytes() {
    let reset = MirrorPidReset { version: 0, source_cluster_id: "A".repeat(22) };
    assert_eq!(reset.to_bytes(0).unwrap().len(), 26);
}
