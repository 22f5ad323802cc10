//! The image the leader decides on: what is applied, plus its own records in flight.
//!
//! Owns the bookkeeping of proposals. Never proposes: it is told what was, and how it ended.

use crate::delta::MetadataDelta;
use crate::error::ReplayError;
use crate::image::MetadataImage;
use crate::records::MetadataRecord;

/// The applied image with the leader's undecided proposals on top.
///
/// A failed proposal takes every later one with it, because they were decided on it: the leader
/// drops the whole working image and answers `NOT_CONTROLLER`.
#[derive(Clone, Debug)]
pub struct WorkingImage {
    image: MetadataImage,
    in_flight: usize,
}

impl WorkingImage {
    /// Starts from an applied image, when the first entry of the leader's own term is applied.
    pub fn new(applied: MetadataImage) -> Self {
        Self { image: applied, in_flight: 0 }
    }

    /// The image to decide on.
    pub fn image(&self) -> &MetadataImage {
        &self.image
    }

    /// Puts the records of a proposal on top.
    ///
    /// # Errors
    /// A decided record did not replay, which is a bug; the node stops.
    pub fn propose(&mut self, records: &[MetadataRecord]) -> Result<MetadataDelta, ReplayError> {
        let delta = self.image.replay_batch(records)?;
        self.in_flight += 1;
        Ok(delta)
    }

    /// The oldest proposal in flight was committed and applied.
    ///
    /// # Panics
    /// If nothing is in flight: the caller lost count of its proposals.
    pub fn committed(&mut self) {
        assert!(self.in_flight > 0, "a commit without a proposal in flight");
        self.in_flight -= 1;
    }

    /// How many proposals are not committed yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::bootstrap_records;

    #[test]
    fn proposals_show_before_they_are_committed_and_go_with_the_working_image() {
        let applied = MetadataImage::default();
        let mut working = WorkingImage::new(applied.clone());
        working.propose(&bootstrap_records("c")).unwrap();
        assert_eq!(working.image().cluster.id(), Some("c"));
        assert_eq!(working.in_flight(), 1);
        assert_eq!(applied.cluster.id(), None, "what is applied stays as it was");
        working.committed();
        assert_eq!(working.in_flight(), 0);
    }

    #[test]
    #[should_panic(expected = "without a proposal in flight")]
    fn a_commit_too_many_is_a_bug() {
        WorkingImage::new(MetadataImage::default()).committed();
    }
}
