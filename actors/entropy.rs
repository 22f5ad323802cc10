//! Where a node's random numbers come from: the machine, or one seed. It knows no other state.

use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

/// A source of random numbers and ids. Clones share their state.
#[derive(Debug, Clone)]
pub enum Entropy {
    /// The operating system's random source.
    System,
    /// A reproducible sequence (splitmix64), for simulations.
    Seeded(Arc<Mutex<u64>>),
}

impl Entropy {
    /// A reproducible source: the same seed gives the same sequence.
    pub fn seeded(seed: u64) -> Entropy {
        Entropy::Seeded(Arc::new(Mutex::new(seed)))
    }

    /// A random number, any of the 2^64.
    pub fn next_u64(&self) -> u64 {
        match self {
            Entropy::System => Uuid::new_v4().as_u64_pair().1,
            Entropy::Seeded(state) => splitmix64(&mut state.lock()),
        }
    }

    /// A random (version 4) id that is neither zero nor one of Kafka's reserved ids, and does not
    /// begin with a dash when shown (command lines would read that as an option).
    pub fn next_uuid(&self) -> Uuid {
        loop {
            let id = match self {
                Entropy::System => Uuid::new_v4(),
                Entropy::Seeded(_) => {
                    let mut bytes = [0u8; 16];
                    bytes[..8].copy_from_slice(&self.next_u64().to_be_bytes());
                    bytes[8..].copy_from_slice(&self.next_u64().to_be_bytes());
                    uuid::Builder::from_random_bytes(bytes).into_uuid()
                }
            };
            // 0xf8..=0xfb is what the first base64 digit `-` stands for.
            if id.as_bytes()[0] >> 2 != 62 {
                return id;
            }
        }
    }

    /// A duration in milliseconds spread by up to `percent` to both sides.
    pub fn jitter_ms(&self, millis: u64, percent: u64) -> u64 {
        let spread = millis * percent / 100;
        if spread == 0 {
            return millis;
        }
        millis - spread + self.next_u64() % (2 * spread + 1)
    }
}

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let (left, right) = (Entropy::seeded(7), Entropy::seeded(7));
        for _ in 0..10 {
            assert_eq!(left.next_uuid(), right.next_uuid());
        }
    }

    #[test]
    fn jitter_stays_within_its_spread() {
        let entropy = Entropy::seeded(1);
        for _ in 0..100 {
            assert!((80..=120).contains(&entropy.jitter_ms(100, 20)));
        }
    }
}
