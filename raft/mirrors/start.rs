//! Start: topics of the source come into a mirror, or back into one (D4, D6).
//!
//! Owns which topic may start and what is made for it. The receiving broker has asked the source
//! and has read the actual states; what a race let through, the partition's machine refuses.

use std::collections::BTreeMap;

use protocol::ids::{TopicId, TopicName};
use protocol::messages::{
    StartMirrorTopicsRequest, StartMirrorTopicsResponse,
    start_mirror_topics_request::StartMirrorTopic,
    start_mirror_topics_response::MirrorTopicResult,
};

use super::patterns::Patterns;
use super::topic_name;
use crate::configs::config_changes;
use crate::decision::Decision;
use crate::error::Error;
use crate::image::{MetadataImage, MirrorRole, MirrorTopic, Settings, StopState, TopicImage};
use crate::mirror_name::MirrorName;
use crate::records::{
    Listing, MetadataRecord, MirrorDesired, MirrorPartitionStarted, MirrorTopicListing,
    MirrorTopicState, ResourceKind,
};
use crate::topics::{NewTopic, check_room, is_internal};

/// What a Start needs beyond its request.
#[derive(Clone, Copy, Debug)]
pub struct StartArgs<'a> {
    /// The replication factor of new topics, `default.replication.factor`.
    pub replication_factor: i16,
    /// Fresh ids, at least one for each topic, for a source that has no topic ids.
    pub topic_ids: &'a [TopicId],
    /// The topic settings that are explicitly set on the source, by topic.
    pub configs: &'a BTreeMap<TopicName, Settings>,
    /// Where the placement starts.
    pub seed: u64,
}

/// What is made for one topic.
struct Started {
    records: Vec<MetadataRecord>,
    /// What was left out, for the operator.
    note: Option<String>,
}

impl MetadataImage {
    /// Starts topics in a mirror and stores the patterns of the request; one result a topic.
    ///
    /// # Errors
    /// No such mirror (137); a pattern that cannot be stored (40).
    ///
    /// # Panics
    /// If there are fewer ids than topics.
    pub fn decide_start_mirror_topics(
        &self,
        request: &StartMirrorTopicsRequest,
        args: StartArgs<'_>,
    ) -> Result<Decision<StartMirrorTopicsResponse>, Error> {
        assert!(args.topic_ids.len() >= request.topics.len(), "an id for each topic");
        self.check_mirroring_enabled()?;
        let mirror = self.existing_mirror(&request.mirror_name)?;
        let include = Patterns::new(&request.include_patterns)?;
        Patterns::new(&request.exclude_patterns)?;
        let before = self.configs.settings(ResourceKind::Mirror, &mirror);
        let after =
            self.with_patterns(&mirror, &request.include_patterns, &request.exclude_patterns);
        let mut records = config_changes(ResourceKind::Mirror, &mirror, before, &after);
        let start = Start {
            mirror: &mirror,
            excluded_settings: Patterns::new(
                &self.mirror_config(&mirror)?.topic_properties_exclude,
            )?,
            args,
        };
        let mut scratch = self.clone();
        let mut response =
            StartMirrorTopicsResponse { mirror_name: mirror.to_string(), ..Default::default() };
        for ((asked, fresh_id), step) in request.topics.iter().zip(args.topic_ids).zip(0u64..) {
            let started = check_room(records.len())
                .and_then(|()| scratch.start_topic(&start, asked, *fresh_id, step))
                .map(|mut started| {
                    let explicit = !include.matches(&asked.topic_name);
                    started.records.extend(scratch.listing_change(&mirror, asked, explicit));
                    scratch.replay_batch(&started.records).expect("a decided start replays");
                    started
                });
            let (error_code, error_message) = match started {
                Ok(started) => {
                    records.extend(started.records);
                    (0, started.note)
                }
                Err(error) => (error.code(), Some(error.to_string())),
            };
            let name = asked.topic_name.clone();
            response.topics.push(MirrorTopicResult { name, error_code, error_message });
        }
        Ok(Decision::new(records, response))
    }

    fn start_topic(
        &self,
        start: &Start<'_>,
        asked: &StartMirrorTopic,
        fresh_id: TopicId,
        step: u64,
    ) -> Result<Started, Error> {
        let name = topic_name(&asked.topic_name)?;
        if is_internal(&name) {
            let reason =
                format!("Topic '{name}' is internal to this cluster and is not mirrored.");
            return Err(Error::InvalidRequest { reason });
        }
        let seed = start.args.seed.wrapping_add(step);
        match self.topics.by_name(&name) {
            Some(topic) => self.start_existing(start.mirror, topic, asked, seed),
            None => self.start_new(start, name, asked, fresh_id, seed),
        }
    }

    fn start_new(
        &self,
        start: &Start<'_>,
        name: TopicName,
        asked: &StartMirrorTopic,
        fresh_id: TopicId,
        seed: u64,
    ) -> Result<Started, Error> {
        if asked.num_partitions <= 0 {
            // Without the source's answer there is nothing to make.
            return Err(Error::UnknownTopic { topic: name.to_string() });
        }
        self.check_new_name(&name)?;
        let source_id = TopicId(asked.topic_id);
        let topic_id = if source_id.is_zero() { fresh_id } else { self.free_id(source_id)? };
        let assignments =
            self.placed(asked.num_partitions, start.args.replication_factor, seed)?;
        self.check_all_active(&assignments, false)?;
        let (configs, note) = start.copied_settings(&name);
        let new = NewTopic { topic_id, name, configs, assignments };
        let mut records = new.records();
        records.push(state_record(start.mirror, topic_id, false));
        Ok(Started { records, note })
    }

    fn start_existing(
        &self,
        mirror: &MirrorName,
        topic: &TopicImage,
        asked: &StartMirrorTopic,
        seed: u64,
    ) -> Result<Started, Error> {
        let source_id = TopicId(asked.topic_id);
        if !source_id.is_zero() && source_id != topic.id {
            let (topic, here) = (topic.name.to_string(), topic.id);
            return Err(Error::InconsistentTopicId { topic, here, source_id });
        }
        let current = topic.partition_count();
        if asked.num_partitions > 0 && asked.num_partitions < current {
            let reason = format!(
                "Topic '{}' has {current} partition(s) here, but only {} on the source.",
                topic.name, asked.num_partitions
            );
            return Err(Error::InvalidPartitions { reason });
        }
        let mut records = Vec::new();
        if let Some(held) = &topic.mirror {
            if held.mirror == *mirror && held.desired == MirrorDesired::Active {
                let grown = self.growth_records(topic, asked.num_partitions, seed)?;
                return Ok(Started { records: grown, note: None });
            }
            check_restartable(mirror, topic, held)?;
        }
        // Local partitions of a topic that never was in a mirror may hold local records; those of
        // a stopped one are told apart by their last stop.
        let adopted = topic.mirror.as_ref().is_none_or(|held| held.adopted);
        records.push(state_record(mirror, topic.id, adopted));
        for (partition, image) in &topic.partitions {
            if matches!(image.stop, StopState::Stopped(_)) {
                records.push(MetadataRecord::MirrorPartitionStarted(MirrorPartitionStarted {
                    topic_id: topic.id,
                    partition: *partition,
                }));
            }
        }
        // Grown after the start, so that the new partitions are not counted as stopped.
        let mut scratch = self.clone();
        scratch.replay_batch(&records).expect("a decided start replays");
        let started = scratch.topics.by_id(topic.id).expect("a start removes no topic");
        records.extend(scratch.growth_records(started, asked.num_partitions, seed)?);
        Ok(Started { records, note: None })
    }

    /// A name that is started by name is kept apart from patterns, and either way is no longer
    /// left alone by discovery.
    fn listing_change(
        &self,
        mirror: &MirrorName,
        asked: &StartMirrorTopic,
        explicit: bool,
    ) -> Option<MetadataRecord> {
        let topic = TopicName::from(asked.topic_name.as_str());
        let known = self.mirrors.get(mirror).and_then(|image| image.listings.get(&topic)).copied();
        let listing = match (explicit, known) {
            (true, _) => Some(Listing::Explicit),
            (false, Some(Listing::Explicit)) => known,
            (false, Some(Listing::Excluded) | None) => None,
        };
        (listing != known).then(|| {
            MetadataRecord::MirrorTopicListing(MirrorTopicListing {
                mirror: mirror.clone(),
                topic,
                listing,
            })
        })
    }
}

/// What all topics of one Start share.
struct Start<'a> {
    mirror: &'a MirrorName,
    excluded_settings: Patterns,
    args: StartArgs<'a>,
}

impl Start<'_> {
    /// The source's explicit settings that are copied, and a sentence on those that cannot be:
    /// a setting this cluster refuses must not keep the data from coming.
    fn copied_settings(&self, topic: &TopicName) -> (Settings, Option<String>) {
        let mut copied = Settings::new();
        let mut refused = Vec::new();
        for (key, value) in self.args.configs.get(topic).into_iter().flatten() {
            if key == config::MIRROR_NAME || self.excluded_settings.matches(key) {
                continue;
            }
            match config::check_copied_topic_setting(key, value) {
                Ok(()) => {
                    copied.insert(key.clone(), value.clone());
                }
                Err(fault) => refused.push(fault.to_string()),
            }
        }
        let note = (!refused.is_empty())
            .then(|| format!("Settings of the source that are not copied: {}", refused.join(" ")));
        (copied, note)
    }
}

fn state_record(mirror: &MirrorName, topic_id: TopicId, adopted: bool) -> MetadataRecord {
    MetadataRecord::MirrorTopicState(MirrorTopicState {
        topic_id,
        mirror: mirror.clone(),
        desired: MirrorDesired::Active,
        adopted,
    })
}

/// A topic of a mirror starts again only when it is stopped everywhere.
fn check_restartable(
    mirror: &MirrorName,
    topic: &TopicImage,
    held: &MirrorTopic,
) -> Result<(), Error> {
    let unfinished = topic.partitions.iter().find(|(_, partition)| {
        !matches!(topic.mirror_role(partition), MirrorRole::Stopped { .. })
    });
    let Some((partition, _)) = unfinished else { return Ok(()) };
    if held.mirror != *mirror {
        return Err(Error::TopicAlreadyInMirror {
            topic: topic.name.clone(),
            mirror: held.mirror.clone(),
            state: held.state_word(),
        });
    }
    Err(Error::InvalidMirrorStates {
        topic: topic.name.clone(),
        partition: *partition,
        state: held.state_word(),
        remedy: match held.desired {
            MirrorDesired::Paused => "resume the topic, or stop it before it is started",
            MirrorDesired::Stopped | MirrorDesired::Active => {
                "wait until every partition is stopped, then start it again"
            }
        },
    })
}
