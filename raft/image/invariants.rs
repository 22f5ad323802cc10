//! What holds of every image that a log of decisions makes. Owns the checks; repairs nothing.

use super::{MetadataImage, TopicImage};

impl MetadataImage {
    /// Checks the whole image; for tests and simulations.
    ///
    /// - names and ids of topics agree, partitions have no gap;
    /// - an ISR is not empty and lies within the replicas, a leader lies within the ISR and is
    ///   neither fenced nor shutting down;
    /// - a mirror topic's mirror exists.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub fn check_invariants(&self) {
        for topic in self.topics.iter() {
            assert_eq!(self.topics.id_of(&topic.name), Some(topic.id), "names and ids agree");
            self.check_partitions(topic);
            if let Some(held) = &topic.mirror {
                assert!(
                    self.mirror_exists(&held.mirror),
                    "topic {} is in mirror {}, which does not exist",
                    topic.name,
                    held.mirror
                );
            }
        }
        assert_eq!(self.topics.names().count(), self.topics.len(), "each topic has one name");
    }

    fn check_partitions(&self, topic: &TopicImage) {
        for ((index, partition), expected) in topic.partitions.iter().zip(0..) {
            let at = format!("{}-{index}", topic.name);
            assert_eq!(index.0, expected, "{at} follows a gap");
            assert!(!partition.isr.is_empty(), "{at} has an empty ISR");
            for id in &partition.isr {
                assert!(partition.is_replica(*id), "{id} is in the ISR of {at} without a replica");
            }
            if let Some(leader) = partition.leader {
                assert!(partition.is_in_sync(leader), "{at} is led by {leader}, outside its ISR");
                assert!(self.cluster.is_active(leader), "{at} is led by {leader}, which is away");
            }
        }
    }
}
