//! Where the replicas of new partitions go: striped over the brokers as Kafka does it.
//!
//! Owns the order of replicas, and so the preferred leaders. Knows no racks yet. Every choice
//! follows from the brokers and the seed.

use protocol::ids::NodeId;

use crate::error::Error;
use crate::image::ClusterImage;

/// Places partitions one after another. Unfenced brokers come first; a fenced one gets a replica
/// only where the unfenced ones are too few, and never the first.
#[derive(Debug)]
pub(crate) struct Placement {
    unfenced: Stripe,
    fenced: Stripe,
    random: Random,
}

impl Placement {
    /// # Errors
    /// No broker is registered, or all are fenced.
    pub(crate) fn new(cluster: &ClusterImage, seed: u64) -> Result<Self, Error> {
        let brokers = |fenced: bool| {
            let ids = cluster.brokers.values().filter(move |broker| broker.fenced == fenced);
            ids.map(|broker| broker.id).collect::<Vec<_>>()
        };
        let mut random = Random(seed);
        let unfenced = Stripe::new(brokers(false), &mut random);
        let fenced = Stripe::new(brokers(true), &mut random);
        if unfenced.brokers.is_empty() {
            let reason = "All brokers are currently fenced.".to_owned();
            return Err(Error::InvalidReplicationFactor { reason });
        }
        Ok(Self { unfenced, fenced, random })
    }

    /// The replicas of the next partition, the preferred leader first.
    ///
    /// # Errors
    /// Fewer brokers are registered than replicas asked for.
    pub(crate) fn place(&mut self, replication_factor: i16) -> Result<Vec<NodeId>, Error> {
        let wanted = usize::try_from(replication_factor).unwrap_or(0);
        let registered = self.unfenced.brokers.len() + self.fenced.brokers.len();
        if wanted == 0 || wanted > registered {
            return Err(Error::InvalidReplicationFactor {
                reason: format!(
                    "Unable to replicate the partition {replication_factor} time(s): The target \
                     replication factor of {replication_factor} cannot be reached because only \
                     {registered} broker(s) are registered."
                ),
            });
        }
        let mut replicas = self.unfenced.next(wanted, &mut self.random);
        if replicas.len() < wanted {
            replicas.extend(self.fenced.next(wanted - replicas.len(), &mut self.random));
        }
        assert_eq!(replicas.len(), wanted, "there are as many brokers as replicas");
        Ok(replicas)
    }
}

/// Brokers in a shuffled order; each partition starts one broker further.
#[derive(Debug)]
struct Stripe {
    brokers: Vec<NodeId>,
    start: usize,
    placed: usize,
}

impl Stripe {
    fn new(mut brokers: Vec<NodeId>, random: &mut Random) -> Self {
        random.shuffle(&mut brokers);
        Self { brokers, start: 0, placed: 0 }
    }

    fn next(&mut self, count: usize, random: &mut Random) -> Vec<NodeId> {
        let len = self.brokers.len();
        if len == 0 {
            return Vec::new();
        }
        if self.placed == len {
            // Each broker led one partition: a new order mixes who follows whom.
            random.shuffle(&mut self.brokers);
            self.placed = 0;
        }
        let chosen = (0..count.min(len)).map(|i| self.brokers[(self.start + i) % len]).collect();
        self.start = (self.start + 1) % len;
        self.placed += 1;
        chosen
    }
}

/// A small generator (splitmix64): good enough to spread replicas, the same everywhere.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let bound = u64::try_from(last + 1).expect("a length fits 64 bits");
            let other = usize::try_from(self.next() % bound).expect("it is below a length");
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::records::tests::registration;

    fn cluster(unfenced: i32, fenced: i32) -> ClusterImage {
        let mut cluster = ClusterImage::default();
        for id in 0..unfenced + fenced {
            let (id, fenced) = (NodeId(id), id >= unfenced);
            let broker = crate::records::BrokerRegistration { id, fenced, ..registration() };
            cluster.brokers.insert(id, Arc::new(broker));
        }
        cluster
    }

    proptest! {
        /// Replicas are distinct, fenced brokers come last and only where they must, and
        /// leaderships differ by one at most.
        #[test]
        fn replicas_are_spread_evenly(
            unfenced in 1i32..6, fenced in 0i32..3, rf in 1i16..9, seed: u64
        ) {
            let cluster = cluster(unfenced, fenced);
            let mut placement = Placement::new(&cluster, seed).unwrap();
            if i32::from(rf) > unfenced + fenced {
                prop_assert!(placement.place(rf).is_err());
                return Ok(());
            }
            let mut led: BTreeMap<NodeId, i32> = BTreeMap::new();
            for _ in 0..unfenced * 3 + 1 {
                let replicas = placement.place(rf).unwrap();
                let distinct: BTreeSet<&NodeId> = replicas.iter().collect();
                prop_assert_eq!(distinct.len(), replicas.len());
                let first_fenced = replicas.iter().position(|id| id.0 >= unfenced);
                let expected = usize::try_from(unfenced).unwrap();
                prop_assert!(first_fenced.is_none_or(|at| at == expected));
                *led.entry(replicas[0]).or_default() += 1;
            }
            let (least, most) = (led.values().min().unwrap(), led.values().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", led);
        }
    }
}
