//! Topics: creation by clients, by brokers on first use, and of the internal ones.
//!
//! Owns the rules of a new topic: its name, its size, its assignment, its configuration. Deletion
//! and growth have files of their own. Ids and seeds are arguments.

mod assignment;
mod deletion;
mod growth;

use std::collections::BTreeMap;

use protocol::ids::{LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicId, TopicName};
use protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse,
    create_topics_request::{CreatableTopic, CreatableTopicConfig},
    create_topics_response::{CreatableTopicConfigs, CreatableTopicResult},
};

pub use growth::Authority;

use crate::decision::Decision;
use crate::error::Error;
use crate::image::{MetadataImage, Settings};
use crate::mirror_name::name_fault;
use crate::records::{ConfigRecord, MetadataRecord, PartitionRecord, ResourceKind, TopicRecord};

/// The topic group coordinators keep their state in.
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// The topic mirror coordinators keep their state in (D2).
pub const MIRROR_STATE: &str = "__mirror_state";

/// Past this, a decision takes on no further topic: a Raft entry stays in megabytes.
const ENTRY_RECORDS_MAX: usize = 100_000;

/// `DescribeConfigs`' number for a value set on the topic itself.
const SOURCE_DYNAMIC_TOPIC: i8 = 1;

/// Whether the cluster itself keeps state in a topic of this name.
pub fn is_internal(topic: &str) -> bool {
    topic == CONSUMER_OFFSETS || topic == MIRROR_STATE
}

/// The size of a topic whose creator leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicDefaults {
    /// `num.partitions`.
    pub partitions: i32,
    /// `default.replication.factor`.
    pub replication_factor: i16,
}

/// What a creation needs beyond its request.
#[derive(Clone, Copy, Debug)]
pub struct CreationArgs<'a> {
    /// For what the request leaves open.
    pub defaults: TopicDefaults,
    /// Fresh ids, at least one for each topic of the request.
    pub topic_ids: &'a [TopicId],
    /// Where the placement starts.
    pub seed: u64,
}

/// A topic the cluster makes for itself when it first needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InternalTopic {
    /// Its name.
    pub name: &'static str,
    /// How many partitions, from 1.
    pub partitions: i32,
    /// The replication factor wanted; capped to the registered brokers, fenced ones included.
    pub replication_factor: i16,
    /// Bytes after which its segments roll; `None` leaves it to the broker's default.
    pub segment_bytes: Option<u32>,
}

impl InternalTopic {
    fn configs(&self) -> Settings {
        let kept = (self.name == MIRROR_STATE).then(|| ("retention.ms", "-1".to_owned()));
        let rolls = self.segment_bytes.map(|bytes| ("segment.bytes", bytes.to_string()));
        [("cleanup.policy", "compact".to_owned()), ("compression.type", "producer".to_owned())]
            .into_iter()
            .chain(kept)
            .chain(rolls)
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }
}

/// A topic that is about to exist.
#[derive(Debug)]
pub(crate) struct NewTopic {
    pub(crate) topic_id: TopicId,
    pub(crate) name: TopicName,
    pub(crate) configs: Settings,
    pub(crate) assignments: Vec<Assignment>,
}

/// The replicas of one new partition and which of them are in sync from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) replicas: Vec<NodeId>,
    pub(crate) isr: Vec<NodeId>,
}

impl NewTopic {
    pub(crate) fn records(&self) -> Vec<MetadataRecord> {
        let (topic_id, name) = (self.topic_id, self.name.clone());
        let mut records = vec![MetadataRecord::Topic(TopicRecord { name, topic_id })];
        records.extend(self.configs.iter().map(|(key, value)| {
            MetadataRecord::Config(ConfigRecord {
                resource: ResourceKind::Topic,
                name: self.name.to_string(),
                key: key.clone(),
                value: Some(value.clone()),
            })
        }));
        records.extend(partition_records(topic_id, 0, &self.assignments));
        records
    }
}

/// Records of new partitions that begin at index `first`.
pub(crate) fn partition_records(
    topic_id: TopicId,
    first: i32,
    assignments: &[Assignment],
) -> Vec<MetadataRecord> {
    let indexes = (first..).map(PartitionIndex);
    let records = indexes.zip(assignments).map(|(partition, assignment)| {
        MetadataRecord::Partition(PartitionRecord {
            topic_id,
            partition,
            replicas: assignment.replicas.clone(),
            isr: assignment.isr.clone(),
            leader: assignment.isr.first().copied(),
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
        })
    });
    records.collect()
}

impl MetadataImage {
    /// Creates topics as Kafka 4.4 does, one result a topic. With `validate_only` the results are
    /// the same and nothing is recorded. A topic with `MirrorInfo` gets the id it names, and each
    /// of its replicas must be active (spec 2.12).
    ///
    /// # Panics
    /// If there are fewer ids than topics.
    pub fn decide_create_topics(
        &self,
        request: &CreateTopicsRequest,
        args: CreationArgs<'_>,
    ) -> Decision<CreateTopicsResponse> {
        assert!(args.topic_ids.len() >= request.topics.len(), "an id for each topic");
        let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
        for topic in &request.topics {
            *asked.entry(topic.name.as_str()).or_default() += 1;
        }
        // Later topics of one request are decided on what earlier ones will have made.
        let mut scratch = self.clone();
        let mut records = Vec::new();
        let mut response = CreateTopicsResponse::default();
        for ((topic, fresh_id), step) in request.topics.iter().zip(args.topic_ids).zip(0u64..) {
            let outcome = if asked[topic.name.as_str()] > 1 {
                Err(Error::InvalidRequest { reason: "Duplicate topic name.".to_owned() })
            } else {
                let args = CreationArgs { seed: args.seed.wrapping_add(step), ..args };
                check_room(records.len()).and_then(|()| scratch.new_topic(topic, *fresh_id, args))
            };
            if let Ok(new) = &outcome {
                let made = new.records();
                scratch.replay_batch(&made).expect("a topic decided on the scratch image replays");
                records.extend(made);
            }
            response.topics.push(result(topic, outcome, request.validate_only));
        }
        if request.validate_only {
            records.clear();
        }
        Decision::new(records, response)
    }

    /// Creates the topics a client's Metadata request named, at the default size. A topic that
    /// exists is one of the results, as `TOPIC_ALREADY_EXISTS`.
    pub fn decide_auto_create_topics(
        &self,
        names: &[TopicName],
        args: CreationArgs<'_>,
    ) -> Decision<CreateTopicsResponse> {
        let topics = names.iter().map(|name| CreatableTopic {
            name: name.to_string(),
            num_partitions: -1,
            replication_factor: -1,
            ..CreatableTopic::default()
        });
        let request = CreateTopicsRequest { topics: topics.collect(), ..Default::default() };
        self.decide_create_topics(&request, args)
    }

    /// Creates an internal topic on first use; its id if it exists already.
    ///
    /// # Errors
    /// No broker is active.
    pub fn decide_create_internal_topic(
        &self,
        topic: InternalTopic,
        topic_id: TopicId,
        seed: u64,
    ) -> Result<Decision<TopicId>, Error> {
        if let Some(known) = self.topics.id_of(topic.name) {
            return Ok(Decision::unchanged(known));
        }
        let registered = i16::try_from(self.cluster.brokers.len()).unwrap_or(i16::MAX);
        let replication_factor = topic.replication_factor.min(registered).max(1);
        let assignments = self.placed(topic.partitions, replication_factor, seed)?;
        let name = TopicName::from(topic.name);
        let new = NewTopic { topic_id, name, configs: topic.configs(), assignments };
        Ok(Decision::new(new.records(), topic_id))
    }

    fn new_topic(
        &self,
        topic: &CreatableTopic,
        fresh_id: TopicId,
        args: CreationArgs<'_>,
    ) -> Result<NewTopic, Error> {
        self.check_new_name(&topic.name)?;
        let topic_id = match &topic.mirror_info {
            None => fresh_id,
            Some(info) => self.free_id(TopicId(info.topic_id))?,
        };
        let configs = checked_configs(&topic.configs)?;
        let assignments = self.new_assignments(topic, args)?;
        if topic.mirror_info.is_some() {
            self.check_all_active(&assignments, !topic.assignments.is_empty())?;
        }
        Ok(NewTopic { topic_id, name: TopicName::from(topic.name.as_str()), configs, assignments })
    }

    /// Whether a topic of this name can be made now.
    pub(crate) fn check_new_name(&self, name: &str) -> Result<(), Error> {
        if let Some(fault) = name_fault(name) {
            return Err(Error::InvalidTopic { reason: format!("Topic name {fault}") });
        }
        if self.topics.by_name(name).is_some() {
            return Err(Error::TopicExists { topic: name.to_owned() });
        }
        if !name.contains(['.', '_']) {
            return Ok(());
        }
        // Metric names replace '.' by '_', so two such topics would report as one.
        let merged = name.replace('.', "_");
        let collides =
            |other: &&TopicName| other.contains(['.', '_']) && other.replace('.', "_") == merged;
        match self.topics.names().find(collides) {
            None => Ok(()),
            Some(other) => Err(Error::InvalidTopic {
                reason: format!("Topic '{name}' collides with existing topic: {other}"),
            }),
        }
    }

    /// An id that comes from a source, if no topic has it.
    pub(crate) fn free_id(&self, topic_id: TopicId) -> Result<TopicId, Error> {
        if topic_id.is_zero() {
            let reason = "The topic id of a mirrored topic must not be zero.".to_owned();
            return Err(Error::InvalidRequest { reason });
        }
        match self.topics.name_of(topic_id) {
            None => Ok(topic_id),
            Some(name) => Err(Error::TopicIdInUse { topic_id, used_by: name.clone() }),
        }
    }
}

fn checked_configs(configs: &[CreatableTopicConfig]) -> Result<Settings, Error> {
    let mut checked = Settings::new();
    for entry in configs {
        if entry.name == config::MIRROR_NAME {
            let reason = "'mirror.name' is set by the commands of mirroring only.".to_owned();
            return Err(Error::InvalidRequest { reason });
        }
        let Some(value) = &entry.value else {
            let reason = format!("Null value not supported for topic configs: {}", entry.name);
            return Err(Error::InvalidConfig { reason });
        };
        config::check_topic_setting(&entry.name, value)
            .map_err(|fault| Error::InvalidConfig { reason: fault.to_string() })?;
        checked.insert(entry.name.clone(), value.clone());
    }
    Ok(checked)
}

fn result(
    topic: &CreatableTopic,
    outcome: Result<NewTopic, Error>,
    validate_only: bool,
) -> CreatableTopicResult {
    match outcome {
        Err(error) => CreatableTopicResult {
            name: topic.name.clone(),
            error_code: error.code(),
            error_message: Some(error.to_string()),
            ..CreatableTopicResult::default()
        },
        Ok(new) => CreatableTopicResult {
            name: topic.name.clone(),
            error_message: None,
            topic_id: if validate_only { TopicId::ZERO.0 } else { new.topic_id.0 },
            num_partitions: count(new.assignments.len()),
            replication_factor: new
                .assignments
                .first()
                .map_or(-1, |first| i16::try_from(first.replicas.len()).unwrap_or(i16::MAX)),
            configs: Some(new.configs.iter().map(shown).collect()),
            ..CreatableTopicResult::default()
        },
    }
}

fn shown((name, value): (&String, &String)) -> CreatableTopicConfigs {
    CreatableTopicConfigs {
        name: name.clone(),
        value: Some(value.clone()),
        config_source: SOURCE_DYNAMIC_TOPIC,
        ..CreatableTopicConfigs::default()
    }
}

/// Whether an entry of `records` records may grow by another topic's. A part of a request that
/// comes too late is refused; the rest stands.
pub(crate) fn check_room(records: usize) -> Result<(), Error> {
    if records < ENTRY_RECORDS_MAX {
        return Ok(());
    }
    let reason = format!("The request makes more than {ENTRY_RECORDS_MAX} records: split it.");
    Err(Error::InvalidRequest { reason })
}

/// A length that came from a wire or a partition count.
pub(crate) fn count(length: usize) -> i32 {
    i32::try_from(length).expect("a topic has fewer than 2^31 partitions")
}
