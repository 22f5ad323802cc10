//! Finalized features and the first records of a cluster. Never upgrades a level by itself.

use crate::error::Error;
use crate::image::MetadataImage;
use crate::records::{ClusterCreated, FeatureLevel, MetadataRecord};

/// The feature that gates cluster mirroring.
pub const MIRROR_VERSION: &str = "mirror.version";

/// The levels a new cluster starts at: Kafka 4.4's metadata level and quorum form, and mirroring.
const FIRST_LEVELS: [(&str, i16); 3] =
    [("kraft.version", 1), ("metadata.version", 33), (MIRROR_VERSION, 1)];

/// The records a new cluster begins with.
pub fn bootstrap_records(cluster_id: &str) -> Vec<MetadataRecord> {
    let created = ClusterCreated { cluster_id: cluster_id.to_owned() };
    let levels = FIRST_LEVELS.iter().map(|(name, level)| {
        MetadataRecord::FeatureLevel(FeatureLevel { name: (*name).to_owned(), level: *level })
    });
    std::iter::once(MetadataRecord::ClusterCreated(created)).chain(levels).collect()
}

impl MetadataImage {
    /// A feature's finalized level; 0 for one that is not finalized.
    pub fn feature_level(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn check_mirroring_enabled(&self) -> Result<(), Error> {
        let level = self.feature_level(MIRROR_VERSION);
        if level < 1 {
            return Err(Error::FeatureLevel { feature: MIRROR_VERSION, needed: 1, level });
        }
        Ok(())
    }
}
