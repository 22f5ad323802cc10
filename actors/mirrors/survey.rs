//! What a mirror knows of its source at one moment: cluster id, topics, leaders, last mirror
//! epochs. Owns what an answer of the source means for one partition; asks nothing itself.

use std::collections::BTreeMap;

use mirror::{MirrorState, SourceError, SourceFacts};
use protocol::error_code::{ErrorCode, MirrorErrorCode};
use protocol::ids::{LeaderEpoch, PartitionIndex, TopicId, TopicName};
use protocol::messages::metadata_response::MetadataResponseTopic;
use protocol::messages::{
    DescribeMirrorsResponse, ListMirrorsResponse, MetadataRequest, MetadataResponse,
    metadata_request::MetadataRequestTopic,
};

use super::handle::{ListedTopic, SourcePartition, TopicListing};

/// One look at the source.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// The cluster's id, if it has one.
    pub cluster_id: Option<String>,
    topics: BTreeMap<TopicName, SourceTopic>,
    /// What the source's own mirrors of this cluster say, where that was asked.
    mirrors: Option<Result<SourceMirrors, SourceError>>,
}

/// A topic as the source's metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SourceTopic {
    Found { topic_id: TopicId, internal: bool, leaders: BTreeMap<PartitionIndex, SourceLeader> },
    Missing,
    Refused(SourceError),
}

/// Who leads a partition on the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLeader {
    /// The broker; `None` while there is none.
    pub broker: Option<i32>,
    /// Its leader epoch; `NONE` from a source that does not say.
    pub epoch: LeaderEpoch,
}

/// What the source's mirrors that copy from this cluster know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceMirrors {
    rows: BTreeMap<(TopicName, PartitionIndex), SourceMirrorRow>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceMirrorRow {
    last_mirror_epoch: LeaderEpoch,
    /// The mirror that is not STOPPED, if one is.
    active: Option<String>,
}

/// What became of a topic that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicFault {
    /// The source has no such topic. Seen once it may be a broker that is behind.
    Missing,
    /// Final, or retried by the partition's own rules.
    Failed(SourceError),
}

/// Asks for some topics, or for all.
pub fn metadata_request(names: Option<&[TopicName]>) -> MetadataRequest {
    let topic = |name: &TopicName| MetadataRequestTopic {
        name: Some(name.to_string()),
        ..MetadataRequestTopic::default()
    };
    MetadataRequest {
        topics: names.map(|names| names.iter().map(topic).collect()),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    }
}

impl Survey {
    /// Reads a Metadata answer.
    pub fn new(metadata: MetadataResponse) -> Survey {
        let topics = metadata
            .topics
            .into_iter()
            .filter_map(|topic| {
                let name = TopicName::from(topic.name.as_deref()?);
                Some((name.clone(), SourceTopic::read(&name, topic)))
            })
            .collect();
        Survey { cluster_id: metadata.cluster_id, topics, mirrors: None }
    }

    /// Adds what the source's mirrors said.
    #[must_use]
    pub fn with_mirrors(self, mirrors: Result<SourceMirrors, SourceError>) -> Survey {
        Survey { mirrors: Some(mirrors), ..self }
    }

    /// Whether the source's mirrors were asked.
    pub fn knows_mirrors(&self) -> bool {
        self.mirrors.is_some()
    }

    /// Whether the topic was asked for.
    pub fn covers(&self, topic: &TopicName) -> bool {
        self.topics.contains_key(topic)
    }

    /// The topics that were asked for.
    pub fn topic_names(&self) -> impl Iterator<Item = &TopicName> {
        self.topics.keys()
    }

    /// Whether the source says that it has no such topic.
    pub fn is_missing(&self, topic: &TopicName) -> bool {
        self.topics.get(topic) == Some(&SourceTopic::Missing)
    }

    /// Who leads a partition.
    ///
    /// # Errors
    /// Why it cannot be mirrored.
    pub fn leader(&self, partition: &SourcePartition) -> Result<SourceLeader, TopicFault> {
        match self.topics.get(&partition.topic) {
            None | Some(SourceTopic::Missing) => Err(TopicFault::Missing),
            Some(SourceTopic::Refused(error)) => Err(TopicFault::Failed(error.clone())),
            Some(SourceTopic::Found { topic_id, leaders, .. }) => {
                if !topic_id.is_zero() && *topic_id != partition.topic_id {
                    let error = SourceError::TopicRecreated { found: *topic_id };
                    return Err(TopicFault::Failed(error));
                }
                leaders.get(&partition.partition).copied().ok_or_else(|| {
                    let reason = format!(
                        "topic {} has {} partitions at the source and no partition {}",
                        partition.topic,
                        leaders.len(),
                        partition.partition
                    );
                    TopicFault::Failed(SourceError::Other { reason })
                })
            }
        }
    }

    /// The answer to the question what the source knows of a partition.
    ///
    /// # Errors
    /// As [`Survey::leader`], and when the source's mirrors could not be asked.
    pub fn facts(&self, partition: &SourcePartition) -> Result<SourceFacts, TopicFault> {
        let leader = self.leader(partition)?;
        let row = match &self.mirrors {
            None => None,
            Some(Err(error)) => return Err(TopicFault::Failed(error.clone())),
            Some(Ok(mirrors)) => mirrors.rows.get(&(partition.topic.clone(), partition.partition)),
        };
        Ok(SourceFacts {
            leader_epoch: leader.epoch,
            last_mirror_epoch: row.map_or(LeaderEpoch::NONE, |row| row.last_mirror_epoch),
            mirroring_from_us: row.and_then(|row| row.active.clone()),
        })
    }

    /// How many partitions the source has of a topic with this id; `None` when it has none such.
    pub fn partition_count(&self, topic: &TopicName, id: TopicId) -> Option<i32> {
        match self.topics.get(topic)? {
            SourceTopic::Found { topic_id, leaders, .. }
                if topic_id.is_zero() || *topic_id == id =>
            {
                i32::try_from(leaders.len()).ok()
            }
            SourceTopic::Found { .. } | SourceTopic::Missing | SourceTopic::Refused(_) => None,
        }
    }

    /// The topics as a listing. One that is missing is refused as deleted.
    pub fn listing(&self) -> TopicListing {
        let mut listing = TopicListing::default();
        for (name, topic) in &self.topics {
            match topic {
                SourceTopic::Found { topic_id, internal, leaders } => {
                    let listed = ListedTopic {
                        topic_id: *topic_id,
                        partitions: i32::try_from(leaders.len()).unwrap_or(i32::MAX),
                        internal: *internal,
                    };
                    listing.topics.insert(name.clone(), listed);
                }
                SourceTopic::Missing => {
                    listing.refused.insert(name.clone(), SourceError::TopicDeleted);
                }
                SourceTopic::Refused(error) => {
                    listing.refused.insert(name.clone(), error.clone());
                }
            }
        }
        listing
    }
}

impl SourceTopic {
    fn read(name: &TopicName, topic: MetadataResponseTopic) -> SourceTopic {
        match ErrorCode::from_code(topic.error_code) {
            // A topic whose leaders are being elected is there all the same.
            ErrorCode::None | ErrorCode::LeaderNotAvailable => SourceTopic::Found {
                topic_id: TopicId(topic.topic_id),
                internal: topic.is_internal,
                leaders: topic
                    .partitions
                    .iter()
                    .map(|partition| {
                        let broker = Some(partition.leader_id).filter(|id| *id >= 0);
                        let epoch = LeaderEpoch(partition.leader_epoch);
                        (PartitionIndex(partition.partition_index), SourceLeader { broker, epoch })
                    })
                    .collect(),
            },
            ErrorCode::UnknownTopicOrPartition => SourceTopic::Missing,
            ErrorCode::TopicAuthorizationFailed => SourceTopic::Refused(missing_right(name)),
            code => SourceTopic::Refused(SourceError::Other {
                reason: format!("the source's metadata of topic {name}: {}", code.message()),
            }),
        }
    }
}

fn missing_right(topic: &TopicName) -> SourceError {
    SourceError::NotAuthorized { right: format!("DESCRIBE on topic {topic}") }
}

/// The names of the source's mirrors that copy from the cluster `ours`.
///
/// # Errors
/// The source refused to list them.
pub fn mirrors_of_ours(
    list: &ListMirrorsResponse,
    ours: &str,
) -> Result<Vec<String>, SourceError> {
    check_answer("ListMirrors", list.error_code)?;
    let copying = list.mirrors.iter().filter(|mirror| mirror.source_cluster_id == ours);
    Ok(copying.map(|mirror| mirror.mirror_name.clone()).collect())
}

impl SourceMirrors {
    /// Reads a DescribeMirrors answer about mirrors that copy from this cluster.
    ///
    /// # Errors
    /// The source refused to describe one: what it knows must not be taken for nothing.
    pub fn new(described: &DescribeMirrorsResponse) -> Result<SourceMirrors, SourceError> {
        check_answer("DescribeMirrors", described.error_code)?;
        let mut mirrors = SourceMirrors::default();
        for mirror in &described.mirrors {
            // It was deleted since it was listed.
            if mirror.error_code == MirrorErrorCode::UnknownMirror.code() {
                continue;
            }
            check_answer("DescribeMirrors", mirror.error_code)?;
            for topic in &mirror.topics {
                let name = TopicName::from(topic.topic_name.as_str());
                for partition in &topic.partitions {
                    let at = (name.clone(), PartitionIndex(partition.partition_index));
                    let epoch = LeaderEpoch(partition.last_mirror_epoch);
                    let stopped = partition.state == MirrorState::Stopped.name();
                    mirrors.note(at, epoch, (!stopped).then_some(&mirror.mirror_name));
                }
            }
        }
        Ok(mirrors)
    }

    fn note(
        &mut self,
        at: (TopicName, PartitionIndex),
        epoch: LeaderEpoch,
        active: Option<&String>,
    ) {
        let row = self
            .rows
            .entry(at)
            .or_insert(SourceMirrorRow { last_mirror_epoch: epoch, active: None });
        row.last_mirror_epoch = row.last_mirror_epoch.max(epoch);
        if row.active.is_none() {
            row.active = active.cloned();
        }
    }
}

/// An answer of the mirroring APIs as a whole. A source whose mirroring is switched off has no
/// mirrors.
fn check_answer(api: &str, code: i16) -> Result<(), SourceError> {
    let known = ErrorCode::from_code(code);
    if code == MirrorErrorCode::MirrorAuthorizationFailed.code()
        || known == ErrorCode::ClusterAuthorizationFailed
    {
        let right = "DESCRIBE on its cluster mirrors".to_owned();
        return Err(SourceError::NotAuthorized { right });
    }
    match known {
        ErrorCode::None | ErrorCode::UnsupportedVersion => Ok(()),
        code => {
            Err(SourceError::Other { reason: format!("{api} at the source: {}", code.message()) })
        }
    }
}

#[cfg(test)]
#[path = "survey_tests.rs"]
mod tests;
