//! Messages filled with seeded values. Owns the seeds' meaning: one seed, message and version
//! always give the same message, which is what the vectors were made from.

use protocol::Message;
use protocol::messages;
use std::fmt::Debug;
use uuid::Uuid;

/// A small reproducible source of values (splitmix64).
pub struct Random {
    state: u64,
    depth: u32,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed, depth: 0 }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap();
        usize::try_from(self.next() % bound).unwrap()
    }

    fn bytes_of<const N: usize>(&mut self) -> [u8; N] {
        // Small numbers and extremes find more than evenly spread ones.
        let mut bytes = [0; N];
        match self.below(4) {
            0 => bytes = [0xff; N],
            1 => bytes[N - 1] = self.byte(),
            2 => {
                bytes = [0xff; N];
                bytes[0] = 0x7f;
            }
            _ => bytes.iter_mut().for_each(|byte| *byte = self.byte()),
        }
        bytes
    }

    pub fn byte(&mut self) -> u8 {
        let [byte, ..] = self.next().to_be_bytes();
        byte
    }

    pub fn i8(&mut self) -> i8 {
        i8::from_be_bytes(self.bytes_of())
    }

    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.bytes_of())
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes_of())
    }

    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.bytes_of())
    }

    pub fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.bytes_of())
    }

    pub fn uuid(&mut self) -> Uuid {
        Uuid::from_bytes(self.bytes_of())
    }

    pub fn string(&mut self) -> String {
        const LETTERS: [char; 8] = ['a', 'Z', '0', '.', '-', 'é', '✓', '🦀'];
        let length = if self.below(40) == 0 { 130 } else { self.below(12) };
        (0..length).map(|_| LETTERS[self.below(LETTERS.len())]).collect()
    }

    pub fn bytes(&mut self) -> bytes::Bytes {
        let length = if self.below(40) == 0 { 300 } else { self.below(20) };
        (0..length).map(|_| self.byte()).collect::<Vec<u8>>().into()
    }

    pub fn list<T>(&mut self, mut element: impl FnMut(&mut Random) -> T) -> Vec<T> {
        let length = if self.depth < 2 { self.below(4) } else { self.below(3) };
        self.depth += 1;
        let list = (0..length).map(|_| element(self)).collect();
        self.depth -= 1;
        list
    }
}

/// What can be filled with everything a version can say.
pub trait Fill: Default {
    fn fill(random: &mut Random, version: i16) -> Self;
}

/// Sees every message once.
pub trait Visitor {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self);
}

/// The message that belongs to a seed.
pub fn filled<M: Message + Fill>(seed: u64, version: i16) -> M {
    let name = M::NAME.bytes().fold(0_u64, |sum, byte| sum * 31 % 1_000_003 + u64::from(byte));
    let version_seed = u64::try_from(version).unwrap();
    M::fill(&mut Random::new((name << 32) ^ (version_seed << 16) ^ seed), version)
}

#[allow(unused_variables, unused_mut, clippy::all, clippy::pedantic, reason = "generated")]
mod generated {
    use super::{Fill, Random, Visitor};
    include!(concat!(env!("OUT_DIR"), "/fill.rs"));
}

pub use generated::visit_all;

/// All messages' names, in the tables' order.
pub fn names() -> Vec<&'static str> {
    struct Names(Vec<&'static str>);
    impl Visitor for Names {
        fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
            self.0.push(M::NAME);
        }
    }
    let mut names = Names(Vec::new());
    visit_all(&mut names);
    names.0
}

/// A message's bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes out of hexadecimal digits.
pub fn from_hex(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 2, 0, "odd number of digits: {text}");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn one_seed_gives_one_message() {
    let first: messages::FetchRequest = filled(7, 19);
    assert_eq!(first, filled(7, 19));
    assert_ne!(first, filled(8, 19));
}
