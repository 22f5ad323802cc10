//! What the controller log knows of mirrors beyond their configuration.
//!
//! Owns the source's cluster id and the names discovery treats by name. A mirror exists as long
//! as its configuration has a key (spec 1.2), so this map alone says nothing of existence.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use protocol::ids::TopicName;

use super::{MetadataImage, TopicImage, edit};
use crate::mirror_name::MirrorName;
use crate::records::{
    Listing, MirrorDesired, MirrorSourceClusterId, MirrorTopicListing, ResourceKind,
};

/// The mirrors that have more than configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorsImage {
    mirrors: OrdMap<MirrorName, Arc<MirrorImage>>,
}

/// What one mirror has beyond its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorImage {
    /// The source's cluster id, once it is known.
    pub source_cluster_id: Option<Arc<str>>,
    /// Topic names that are treated by name and not by pattern (D6, D22).
    pub listings: BTreeMap<TopicName, Listing>,
}

impl MirrorsImage {
    /// What a mirror has beyond its configuration.
    pub fn get(&self, mirror: &str) -> Option<&Arc<MirrorImage>> {
        self.mirrors.get(mirror)
    }

    /// The source's cluster id, once it is known.
    pub fn source_cluster_id(&self, mirror: &str) -> Option<&str> {
        self.get(mirror).and_then(|image| image.source_cluster_id.as_deref())
    }

    /// Every mirror with an entry, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&MirrorName, &Arc<MirrorImage>)> {
        self.mirrors.iter()
    }

    /// The map, for a comparison of two images.
    pub(crate) fn map(&self) -> &OrdMap<MirrorName, Arc<MirrorImage>> {
        &self.mirrors
    }

    pub(super) fn forget(&mut self, mirror: &str) {
        self.mirrors.remove(mirror);
    }
}

impl MetadataImage {
    /// Whether a mirror exists.
    pub fn mirror_exists(&self, mirror: &str) -> bool {
        self.configs.mirror(mirror).is_some()
    }

    /// Every mirror's name, in order.
    pub fn mirror_names(&self) -> impl Iterator<Item = MirrorName> + '_ {
        self.configs
            .iter()
            .filter(|(resource, _)| resource.kind == ResourceKind::Mirror)
            .map(|(resource, _)| MirrorName::from(&*resource.name))
    }

    /// The topics of a mirror in any desired state, by name.
    pub fn mirror_topics<'a>(
        &'a self,
        mirror: &'a str,
    ) -> impl Iterator<Item = &'a Arc<TopicImage>> + 'a {
        self.topics
            .iter_by_name()
            .filter(move |topic| topic.mirror.as_ref().is_some_and(|m| *m.mirror == *mirror))
    }

    /// How many topics a mirror is wanted to copy: neither paused nor stopped (spec 2.7).
    pub fn active_topic_count(&self, mirror: &str) -> i32 {
        let count = self
            .mirror_topics(mirror)
            .filter(|t| t.mirror.as_ref().is_some_and(|m| m.desired == MirrorDesired::Active))
            .count();
        i32::try_from(count).expect("a cluster has fewer than 2^31 topics")
    }

    pub(super) fn replay_source_cluster_id(&mut self, record: &MirrorSourceClusterId) {
        let mirror = self.mirrors.mirrors.entry(record.mirror.clone()).or_default();
        edit(mirror, |mirror| {
            mirror.source_cluster_id = Some(Arc::from(record.cluster_id.as_str()));
        });
    }

    pub(super) fn replay_topic_listing(&mut self, record: &MirrorTopicListing) {
        let mirror = self.mirrors.mirrors.entry(record.mirror.clone()).or_default();
        edit(mirror, |mirror| match record.listing {
            Some(listing) => {
                mirror.listings.insert(record.topic.clone(), listing);
            }
            None => {
                mirror.listings.remove(&record.topic);
            }
        });
    }
}
