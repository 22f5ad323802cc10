//! What the cluster agrees on: metadata records, decide, replay, image, delta.

pub mod consensus;
pub mod envelope;

mod cluster;
mod configs;
mod decision;
mod delta;
mod error;
mod features;
mod image;
mod mirror_name;
mod mirrors;
mod partitions;
mod placement;
mod producer_ids;
mod records;
mod topics;
mod working_image;

pub use cluster::{Registered, RegistrationArgs};
pub use decision::Decision;
pub use delta::MetadataDelta;
pub use error::{Error, ReplayError};
pub use features::{MIRROR_VERSION, bootstrap_records};
pub use image::{
    ClusterImage, ConfigResource, ConfigsImage, MetadataImage, MirrorImage, MirrorRole,
    MirrorTopic, MirrorsImage, PartitionImage, ProducerIdCursor, Settings, StopState, TopicImage,
    TopicsImage,
};
pub use mirror_name::{MirrorName, NAME_LENGTH_MAX, name_fault};
pub use mirrors::{StartArgs, StateTopicArgs};
pub use partitions::LEADER_EPOCH_JUMP_MAX;
pub use producer_ids::PRODUCER_IDS_BLOCK;
pub use records::*;
pub use topics::{
    Authority, CONSUMER_OFFSETS, CreationArgs, InternalTopic, MIRROR_STATE, TopicDefaults,
    is_internal,
};
pub use working_image::WorkingImage;

#[cfg(test)]
const GOLDEN: golden::Golden = golden::Golden::of(env!("CARGO_MANIFEST_DIR"));
#[cfg(test)]
mod testscript;
