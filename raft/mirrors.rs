//! Mirrors: creation, and what their source turned out to be. Start and stop have files of their
//! own.
//!
//! Owns the controller's half of the rules of section 0: desired states, never actual ones. Dials
//! no source.

mod patterns;
mod start;
mod stop;
mod stopped;

use protocol::ids::{TopicId, TopicName};
use protocol::messages::{
    CreateMirrorRequest, CreateMirrorResponse, RecordSourceClusterIdRequest,
    RecordSourceClusterIdResponse,
};

pub use start::StartArgs;

use crate::configs::config_changes;
use crate::decision::Decision;
use crate::error::Error;
use crate::image::{MetadataImage, Settings};
use crate::mirror_name::MirrorName;
use crate::records::{MetadataRecord, MirrorSourceClusterId, ResourceKind};
use crate::topics::{InternalTopic, MIRROR_STATE};

/// What the creation of a mirror needs for the state topic, should it not exist yet (D2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTopicArgs {
    /// `mirror.topic.num.partitions`.
    pub partitions: i32,
    /// `mirror.topic.replication.factor`; capped to the registered brokers.
    pub replication_factor: i16,
    /// A fresh id.
    pub topic_id: TopicId,
    /// Where the placement starts.
    pub seed: u64,
}

impl MetadataImage {
    /// Creates a mirror, and the state topic if this is the first (D2, D5).
    ///
    /// # Errors
    /// The name breaks a rule (135) or is taken (136); a key is unknown, mistyped, not built or
    /// missing (40); the source is this cluster (40); the state topic cannot be made (38).
    pub fn decide_create_mirror(
        &self,
        request: &CreateMirrorRequest,
        args: StateTopicArgs,
    ) -> Result<Decision<CreateMirrorResponse>, Error> {
        self.check_mirroring_enabled()?;
        let mirror = MirrorName::validate(&request.mirror_name)
            .map_err(|reason| Error::InvalidMirrorName { reason })?;
        if self.mirror_exists(&mirror) {
            return Err(Error::MirrorExists { mirror: request.mirror_name.clone() });
        }
        let settings = mirror_settings(request)?;
        let mut records =
            config_changes(ResourceKind::Mirror, &mirror, &Settings::new(), &settings);
        if let Some(cluster_id) = request.source_cluster_id.as_deref().filter(|id| !id.is_empty())
        {
            self.check_other_cluster(cluster_id)?;
            records.push(source_record(&mirror, cluster_id));
        }
        let state_topic = InternalTopic {
            name: MIRROR_STATE,
            partitions: args.partitions,
            replication_factor: args.replication_factor,
            segment_bytes: None,
        };
        let created = self.decide_create_internal_topic(state_topic, args.topic_id, args.seed)?;
        records.extend(created.records);
        let response = CreateMirrorResponse { error_message: None, ..Default::default() };
        Ok(Decision::new(records, response))
    }

    /// Keeps the cluster id a mirror's source answered with (D5). The same id again succeeds.
    ///
    /// # Errors
    /// No such mirror (137); another id than the one known (104); this cluster's own (40).
    pub fn decide_record_source_cluster_id(
        &self,
        request: &RecordSourceClusterIdRequest,
    ) -> Result<Decision<RecordSourceClusterIdResponse>, Error> {
        let mirror = self.existing_mirror(&request.mirror)?;
        self.check_other_cluster(&request.cluster_id)?;
        let response = RecordSourceClusterIdResponse::default();
        match self.mirrors.source_cluster_id(&mirror) {
            Some(known) if known == request.cluster_id => Ok(Decision::unchanged(response)),
            Some(known) => {
                let (expected, actual) = (known.to_owned(), request.cluster_id.clone());
                Err(Error::InconsistentClusterId { expected, actual })
            }
            None => {
                let record = source_record(&mirror, &request.cluster_id);
                Ok(Decision::new(vec![record], response))
            }
        }
    }

    /// The settings of a mirror as plain data.
    ///
    /// # Errors
    /// It does not exist (137), or what is stored is no longer valid (40).
    pub fn mirror_config(&self, mirror: &str) -> Result<config::MirrorConfig, Error> {
        let settings = self
            .configs
            .mirror(mirror)
            .ok_or_else(|| Error::UnknownMirror { mirror: mirror.to_owned() })?;
        config::MirrorConfig::from_settings(settings)
            .map_err(|error| Error::InvalidConfig { reason: error.to_string() })
    }

    fn existing_mirror(&self, mirror: &str) -> Result<MirrorName, Error> {
        if self.mirror_exists(mirror) {
            Ok(MirrorName::from(mirror))
        } else {
            Err(Error::UnknownMirror { mirror: mirror.to_owned() })
        }
    }

    fn check_other_cluster(&self, cluster_id: &str) -> Result<(), Error> {
        if self.cluster.id() != Some(cluster_id) {
            return Ok(());
        }
        let reason = format!(
            "The source is this cluster itself ({cluster_id}): 'bootstrap.servers' must name \
             another one."
        );
        Err(Error::InvalidConfig { reason })
    }
}

fn mirror_settings(request: &CreateMirrorRequest) -> Result<Settings, Error> {
    let invalid = |reason: String| Error::InvalidConfig { reason };
    let mut settings = Settings::new();
    for entry in &request.config {
        let name = &entry.name;
        let Some(value) = &entry.value else {
            return Err(invalid(format!("'{name}' has no value: leave the key out instead.")));
        };
        if settings.insert(name.clone(), value.clone()).is_some() {
            return Err(invalid(format!("'{name}' is given twice.")));
        }
    }
    config::MirrorConfig::from_settings(&settings).map_err(|error| invalid(error.to_string()))?;
    for (name, value) in &settings {
        config::check_mirror_change(name, value).map_err(|fault| invalid(fault.to_string()))?;
    }
    Ok(settings)
}

fn source_record(mirror: &MirrorName, cluster_id: &str) -> MetadataRecord {
    MetadataRecord::MirrorSourceClusterId(MirrorSourceClusterId {
        mirror: mirror.clone(),
        cluster_id: cluster_id.to_owned(),
    })
}

/// A name out of a request, checked before anything is made of it.
fn topic_name(name: &str) -> Result<TopicName, Error> {
    match crate::mirror_name::name_fault(name) {
        None => Ok(TopicName::from(name)),
        Some(fault) => Err(Error::InvalidTopic { reason: format!("Topic name {fault}") }),
    }
}
