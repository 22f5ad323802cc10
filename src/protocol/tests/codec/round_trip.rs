//! Every message comes back equal in every version, and only whole.

use crate::filling::{Fill, Visitor, filled, visit_all};
use protocol::{Error, Message};
use std::fmt::Debug;

const SEEDS: u64 = 100;

struct RoundTrip;

impl Visitor for RoundTrip {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
        for version in M::VERSIONS {
            for seed in 0..SEEDS {
                let message: M = filled(seed, version);
                let bytes = message.to_bytes(version).unwrap();
                let name = M::NAME;
                let read = M::from_bytes(bytes.clone(), version);
                let read = read.unwrap_or_else(|error| panic!("{name} v{version}: {error}"));
                assert_eq!(read, message, "{name} v{version} seed {seed}");
                assert_eq!(read.to_bytes(version).unwrap(), bytes);
            }
        }
    }
}

#[test]
fn every_message_reads_back_equal_in_every_version() {
    visit_all(&mut RoundTrip);
}

struct CutAndExtended;

impl Visitor for CutAndExtended {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
        for version in M::VERSIONS {
            for seed in 0..4 {
                let message: M = filled(seed, version);
                let bytes = message.to_bytes(version).unwrap();
                for length in 0..bytes.len() {
                    let cut = M::from_bytes(bytes.slice(..length), version);
                    assert!(cut.is_err(), "{} v{version} cut to {length}", M::NAME);
                }
                let longer = [&bytes[..], &[0]].concat();
                let read = M::from_bytes(longer, version);
                assert_eq!(read, Err(Error::TrailingBytes { remaining: 1 }));
            }
        }
    }
}

#[test]
fn no_message_reads_from_part_of_its_bytes_or_from_more() {
    visit_all(&mut CutAndExtended);
}

struct OtherVersions;

impl Visitor for OtherVersions {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
        for said in M::VERSIONS {
            let message: M = filled(1, said);
            for version in M::VERSIONS {
                match message.to_bytes(version) {
                    Ok(bytes) => drop(M::from_bytes(bytes, version).unwrap()),
                    Err(Error::FieldNotInVersion { .. } | Error::NullNotAllowed { .. }) => {}
                    Err(other) => panic!("{} v{said} as v{version}: {other}", M::NAME),
                }
            }
        }
        let (first, last) = (*M::VERSIONS.start(), *M::VERSIONS.end());
        for version in [first - 1, last + 1] {
            let refused = M::default().to_bytes(version).unwrap_err();
            let expected = Error::UnsupportedVersion { message: M::NAME, version, first, last };
            assert_eq!(refused, expected);
            assert_eq!(M::from_bytes(vec![0; 64], version), Err(expected));
        }
    }
}

#[test]
fn what_a_version_cannot_say_is_dropped_or_refused_and_never_garbled() {
    visit_all(&mut OtherVersions);
}

struct Defaults;

impl Visitor for Defaults {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
        for version in M::VERSIONS {
            match M::default().to_bytes(version) {
                Ok(bytes) => assert_eq!(M::from_bytes(bytes, version), Ok(M::default())),
                Err(error) => panic!("{} v{version}: {error}", M::NAME),
            }
        }
    }
}

#[test]
fn defaults_are_defaults_in_every_version() {
    visit_all(&mut Defaults);
}
