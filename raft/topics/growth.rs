//! More partitions for a topic that exists. Owns who may ask for them on a mirror topic.

use std::collections::BTreeSet;

use protocol::ids::{LeaderEpoch, Offset, PartitionIndex, TopicName};
use protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse,
    create_partitions_request::CreatePartitionsTopic,
    create_partitions_response::CreatePartitionsTopicResult,
};

use super::{Assignment, check_room, count, is_internal, partition_records};
use crate::decision::Decision;
use crate::error::Error;
use crate::image::{MetadataImage, TopicImage};
use crate::records::{MetadataRecord, MirrorDesired, MirrorPartitionStopped, MirrorStop};

/// On whose behalf partitions are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// A client: refused on a mirror topic that is not stopped (D22).
    Client,
    /// The mirror that feeds the topic: its source has more partitions.
    Mirror,
}

impl MetadataImage {
    /// Adds partitions to topics, one result a topic.
    pub fn decide_create_partitions(
        &self,
        request: &CreatePartitionsRequest,
        authority: Authority,
        seed: u64,
    ) -> Decision<CreatePartitionsResponse> {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut records = Vec::new();
        let mut response = CreatePartitionsResponse::default();
        for (asked, step) in request.topics.iter().zip(0u64..) {
            let outcome = if seen.insert(&asked.name) {
                check_room(records.len())
                    .and_then(|()| self.grown(asked, authority, seed.wrapping_add(step)))
            } else {
                Err(Error::InvalidRequest { reason: "Duplicate topic name.".to_owned() })
            };
            let (error_code, error_message) = match outcome {
                Ok(added) => {
                    records.extend(added);
                    (0, None)
                }
                Err(error) => (error.code(), Some(error.to_string())),
            };
            let name = asked.name.clone();
            response.results.push(CreatePartitionsTopicResult { name, error_code, error_message });
        }
        if request.validate_only {
            records.clear();
        }
        Decision::new(records, response)
    }

    fn grown(
        &self,
        asked: &CreatePartitionsTopic,
        authority: Authority,
        seed: u64,
    ) -> Result<Vec<MetadataRecord>, Error> {
        let topic = self
            .topics
            .by_name(&asked.name)
            .ok_or_else(|| Error::UnknownTopic { topic: asked.name.clone() })?;
        if authority == Authority::Client {
            check_not_mirrored(topic)?;
            check_not_internal(&topic.name)?;
        }
        let current = topic.partition_count();
        if asked.count <= current {
            let reason = if asked.count == current {
                format!("Topic already has {current} partition(s).")
            } else {
                format!(
                    "The topic {} currently has {current} partition(s); {} would not be an \
                     increase.",
                    topic.name, asked.count
                )
            };
            return Err(Error::InvalidPartitions { reason });
        }
        let Some(chosen) = &asked.assignments else {
            return self.growth_records(topic, asked.count, seed);
        };
        let added = asked.count - current;
        if count(chosen.len()) != added {
            return Err(Error::InvalidReplicaAssignment {
                reason: format!(
                    "Attempted to add {added} additional partition(s), but only {} assignment(s) \
                     were specified.",
                    chosen.len()
                ),
            });
        }
        let wanted = usize::try_from(topic.replication_factor()).ok().filter(|rf| *rf > 0);
        let checked = chosen.iter().zip(current..).map(|(assignment, partition)| {
            self.checked_assignment(partition, &assignment.broker_ids, wanted)
        });
        let assignments = checked.collect::<Result<Vec<_>, _>>()?;
        Ok(records_of(topic, &assignments))
    }

    /// Grows a topic to `partitions`, placed by us. Nothing if it has as many.
    pub(crate) fn growth_records(
        &self,
        topic: &TopicImage,
        partitions: i32,
        seed: u64,
    ) -> Result<Vec<MetadataRecord>, Error> {
        let added = partitions - topic.partition_count();
        if added <= 0 {
            return Ok(Vec::new());
        }
        let assignments = self.placed(added, topic.replication_factor().max(1), seed)?;
        Ok(records_of(topic, &assignments))
    }
}

fn records_of(topic: &TopicImage, assignments: &[Assignment]) -> Vec<MetadataRecord> {
    let first = topic.partition_count();
    let mut records = partition_records(topic.id, first, assignments);
    let Some(mirror) = topic.mirror.as_ref().filter(|m| m.desired == MirrorDesired::Stopped)
    else {
        return records;
    };
    if topic.is_read_only() {
        // It is stopping: the new partitions go through the same steps as the others.
        return records;
    }
    // The topic takes writes; a partition that was never mirrored must not wait for a stop.
    let end = first + count(assignments.len());
    records.extend((first..end).map(|partition| {
        MetadataRecord::MirrorPartitionStopped(MirrorPartitionStopped {
            topic_id: topic.id,
            partition: PartitionIndex(partition),
            stop: MirrorStop {
                mirror: mirror.mirror.clone(),
                leader_epoch: LeaderEpoch::NONE,
                last_mirror_epoch: LeaderEpoch::NONE,
                last_mirrored_offset: Offset::NONE,
            },
        })
    }));
    records
}

/// What a coordinator keeps lies in the partition that a hash modulo their count gives: with more
/// of them it would no longer be found.
fn check_not_internal(topic: &TopicName) -> Result<(), Error> {
    if !is_internal(topic) {
        return Ok(());
    }
    let reason = format!("The number of partitions of the internal topic '{topic}' is fixed.");
    Err(Error::InvalidPartitions { reason })
}

fn check_not_mirrored(topic: &TopicImage) -> Result<(), Error> {
    match &topic.mirror {
        Some(mirror) if topic.is_read_only() => Err(Error::MirrorTopic {
            topic: topic.name.clone(),
            mirror: mirror.mirror.clone(),
            state: mirror.state_word(),
            command: "adding partitions",
        }),
        Some(_) | None => Ok(()),
    }
}
