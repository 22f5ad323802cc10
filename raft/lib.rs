//! What the cluster agrees on: metadata records, decide, replay, image, delta.

pub mod consensus;
pub mod envelope;

mod decision;
mod delta;
mod error;
mod image;
mod mirror_name;
mod records;
mod working_image;

pub use decision::Decision;
pub use delta::MetadataDelta;
pub use error::ReplayError;
pub use image::{
    ClusterImage, ConfigResource, ConfigsImage, MetadataImage, MirrorImage, MirrorRole,
    MirrorTopic, MirrorsImage, PartitionImage, ProducerIdCursor, StopState, TopicImage,
    TopicsImage,
};
pub use mirror_name::{MirrorName, NAME_LENGTH_MAX};
pub use records::*;
pub use working_image::WorkingImage;

#[cfg(test)]
mod golden;
