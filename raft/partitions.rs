//! Partitions: elections, the in-sync replicas, leader epochs.
//!
//! Owns who leads and who is in sync, and every reason for a new leader epoch. A leader comes
//! from the ISR; only `unclean.leader.election.enable` lets one come from elsewhere.

use std::collections::BTreeSet;

use protocol::ids::{
    BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicId, TopicIdPartition,
};
use protocol::messages::{
    AlterPartitionRequest, AlterPartitionResponse, BumpLeaderEpochsRequest,
    BumpLeaderEpochsResponse, alter_partition_request, alter_partition_response,
    bump_leader_epochs_request, bump_leader_epochs_response,
};

use crate::decision::Decision;
use crate::error::Error;
use crate::image::{MetadataImage, PartitionImage, TopicImage};
use crate::records::{MetadataRecord, PartitionChange, ResourceKind};

/// The largest step a leader epoch may be raised by at once.
pub const LEADER_EPOCH_JUMP_MAX: i32 = 1_000_000;

/// A broker's new standing, for which partitions must change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may lead and be in sync from here on.
    Active(NodeId),
    /// It leads nothing and leaves each ISR that has another member. A sole member stays, because
    /// it alone has every acknowledged record; it leads nothing while it is away.
    Away(NodeId),
}

impl MetadataImage {
    /// The changes of partitions that follow from a broker's new standing.
    pub(crate) fn updates_for(&self, standing: Standing) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        for topic in self.topics.iter() {
            for (partition, image) in &topic.partitions {
                let change = match standing {
                    Standing::Active(broker) => self.with_broker(topic, image, broker),
                    Standing::Away(broker) => self.without_broker(topic, image, broker),
                };
                let Some(change) = change else { continue };
                let at = PartitionChange { topic_id: topic.id, partition: *partition, ..change };
                records.push(MetadataRecord::PartitionChange(at));
            }
        }
        records
    }

    /// A leader for a partition that had none, now that `broker` is active.
    fn with_broker(
        &self,
        topic: &TopicImage,
        image: &PartitionImage,
        broker: NodeId,
    ) -> Option<PartitionChange> {
        if image.leader.is_some() || !image.is_replica(broker) {
            return None;
        }
        let can_lead = |id: NodeId| id == broker || self.cluster.is_active(id);
        self.elect(topic, image, &image.isr, can_lead)
    }

    /// The partition's ISR and leader without `broker`.
    fn without_broker(
        &self,
        topic: &TopicImage,
        image: &PartitionImage,
        broker: NodeId,
    ) -> Option<PartitionChange> {
        if !image.is_in_sync(broker) && image.leader != Some(broker) {
            return None;
        }
        let others: Vec<NodeId> = image.isr.iter().copied().filter(|id| *id != broker).collect();
        let isr = if others.is_empty() { image.isr.clone() } else { others };
        let can_lead = |id: NodeId| id != broker && self.cluster.is_active(id);
        let mut change = if image.leader == Some(broker) || image.leader.is_none() {
            self.elect(topic, image, &isr, can_lead).unwrap_or_else(nothing)
        } else {
            nothing()
        };
        if change.isr.is_none() && isr != image.isr {
            change.isr = Some(isr);
        }
        (!change.is_empty()).then_some(change)
    }

    /// Elects the first replica in the ISR that can lead; without one, an unclean leader if the
    /// topic allows it; without that, none, with the ISR kept. `None` if the leader stays.
    fn elect(
        &self,
        topic: &TopicImage,
        image: &PartitionImage,
        isr: &[NodeId],
        can_lead: impl Fn(NodeId) -> bool,
    ) -> Option<PartitionChange> {
        let able = || image.replicas.iter().copied().filter(|id| can_lead(*id));
        let mut change = nothing();
        if let Some(leader) = able().find(|id| isr.contains(id)) {
            change.leader = Some(Some(leader));
        } else if let Some(leader) = able().next().filter(|_| self.unclean_allowed(topic)) {
            change.leader = Some(Some(leader));
            change.isr = Some(vec![leader]);
        } else {
            change.leader = Some(None);
        }
        if change.leader == Some(image.leader) { None } else { Some(change) }
    }

    fn unclean_allowed(&self, topic: &TopicImage) -> bool {
        let key = "unclean.leader.election.enable";
        let topic = self.configs.get(ResourceKind::Topic, &topic.name, key);
        let set = topic.or_else(|| self.configs.get(ResourceKind::Broker, "", key));
        set.is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Elects leaders for partitions without one, as far as possible now: after a change of the
    /// configuration that allows unclean elections.
    pub fn decide_leaderless_partitions(&self) -> Decision<usize> {
        let mut records = Vec::new();
        for topic in self.topics.iter() {
            for (partition, image) in topic.partitions.iter().filter(|(_, p)| p.leader.is_none()) {
                let change = self.elect(topic, image, &image.isr, |id| self.cluster.is_active(id));
                records.extend(change.map(|change| {
                    let partition = *partition;
                    let at = PartitionChange { topic_id: topic.id, partition, ..change };
                    MetadataRecord::PartitionChange(at)
                }));
            }
        }
        let elected = records.len();
        Decision::new(records, elected)
    }

    /// Moves leadership back to preferred replicas that are in sync and active, for at most
    /// `limit` partitions.
    pub fn decide_preferred_leaders(&self, limit: usize) -> Decision<usize> {
        let moves = self.topics.partitions().filter_map(|(at, image)| {
            let preferred = *image.replicas.first()?;
            let better = image.leader != Some(preferred)
                && image.is_in_sync(preferred)
                && self.cluster.is_active(preferred);
            better.then(|| {
                MetadataRecord::PartitionChange(PartitionChange {
                    leader: Some(Some(preferred)),
                    ..PartitionChange::new(at.topic_id, at.partition)
                })
            })
        });
        let records: Vec<MetadataRecord> = moves.take(limit).collect();
        let moved = records.len();
        Decision::new(records, moved)
    }

    /// Changes ISRs as their leaders ask (KIP-497, KIP-841, KIP-903).
    ///
    /// A leader that asks for the ISR without itself gives the leadership up: its replica is
    /// offline while its broker lives on. Kafka refuses that request, so none of its brokers sends
    /// it; it says the same as Kafka's replica in a lost directory (KIP-858) for a single
    /// partition, and the leader and partition epochs that guard any other change guard it too.
    ///
    /// # Errors
    /// The broker is not registered, or under another epoch. Refusals of single partitions stand
    /// in the response.
    pub fn decide_alter_partition(
        &self,
        request: &AlterPartitionRequest,
    ) -> Result<Decision<AlterPartitionResponse>, Error> {
        let broker = NodeId(request.broker_id);
        self.check_broker_epoch(broker, BrokerEpoch(request.broker_epoch))?;
        let mut records = Vec::new();
        let mut response = AlterPartitionResponse::default();
        for topic in &request.topics {
            let topic_id = TopicId(topic.topic_id);
            let partitions = topic.partitions.iter().map(|asked| {
                let altered = self.alter_partition(broker, topic_id, asked);
                match altered {
                    Ok((image, change)) => {
                        let answer = altered_to(asked.partition_index, image, change.as_ref());
                        records.extend(change.map(MetadataRecord::PartitionChange));
                        answer
                    }
                    Err(error) => alter_partition_response::PartitionData {
                        partition_index: asked.partition_index,
                        error_code: error.code(),
                        ..Default::default()
                    },
                }
            });
            response.topics.push(alter_partition_response::TopicData {
                topic_id: topic.topic_id,
                partitions: partitions.collect(),
            });
        }
        Ok(Decision::new(records, response))
    }

    fn alter_partition(
        &self,
        broker: NodeId,
        topic_id: TopicId,
        asked: &alter_partition_request::PartitionData,
    ) -> Result<(&PartitionImage, Option<PartitionChange>), Error> {
        let topic = self.topics.by_id(topic_id).ok_or(Error::UnknownTopicId { topic_id })?;
        let partition = PartitionIndex(asked.partition_index);
        let image = topic
            .partitions
            .get(&partition)
            .ok_or_else(|| Error::UnknownPartition { topic: topic.name.clone(), partition })?;
        check_leader(image, broker, asked)?;
        let isr = self.checked_isr(image, broker, asked)?;
        let change = if isr.contains(&broker) {
            (isr != image.isr).then(|| PartitionChange {
                isr: Some(isr),
                ..PartitionChange::new(topic_id, partition)
            })
        } else {
            let resigned = self.without_broker(topic, image, broker);
            resigned.map(|change| PartitionChange { topic_id, partition, ..change })
        };
        Ok((image, change))
    }

    fn checked_isr(
        &self,
        image: &PartitionImage,
        leader: NodeId,
        asked: &alter_partition_request::PartitionData,
    ) -> Result<Vec<NodeId>, Error> {
        let with_epochs: Vec<(NodeId, BrokerEpoch)> = if asked.new_isr_with_epochs.is_empty() {
            asked.new_isr.iter().map(|id| (NodeId(*id), BrokerEpoch::NONE)).collect()
        } else {
            let states = asked.new_isr_with_epochs.iter();
            states
                .map(|state| (NodeId(state.broker_id), BrokerEpoch(state.broker_epoch)))
                .collect()
        };
        let isr: Vec<NodeId> = with_epochs.iter().map(|(id, _)| *id).collect();
        let distinct: BTreeSet<NodeId> = isr.iter().copied().collect();
        if distinct.len() != isr.len() || isr.iter().any(|id| !image.is_replica(*id)) {
            let reason =
                format!("the ISR {isr:?} does not lie within the replicas {:?}", image.replicas);
            return Err(Error::InvalidRequest { reason });
        }
        let resigned = image.isr.iter().filter(|id| **id != leader);
        if !isr.contains(&leader) && !isr.iter().eq(resigned) {
            let reason = format!(
                "the ISR {isr:?} is without its leader {leader}, and not the rest of {:?}",
                image.isr
            );
            return Err(Error::InvalidRequest { reason });
        }
        // A stale leader must not bring back one that was fenced or registered again since.
        let ineligible = with_epochs.iter().filter(|(id, epoch)| {
            self.cluster.broker(*id).is_none_or(|known| {
                !known.is_active() || (*epoch != BrokerEpoch::NONE && known.epoch != *epoch)
            })
        });
        let replicas: Vec<NodeId> = ineligible.map(|(id, _)| *id).collect();
        if !replicas.is_empty() {
            return Err(Error::IneligibleReplica { replicas });
        }
        Ok(isr)
    }

    /// Raises leader epochs above what their partitions' logs hold (D8). One that is high enough
    /// already stays and succeeds.
    pub fn decide_bump_leader_epochs(
        &self,
        request: &BumpLeaderEpochsRequest,
    ) -> Decision<BumpLeaderEpochsResponse> {
        let mut records = Vec::new();
        let mut response = BumpLeaderEpochsResponse::default();
        for topic in &request.topics {
            let topic_id = TopicId(topic.topic_id);
            let partitions = topic.partitions.iter().map(|asked| {
                let bump = self.bump(topic_id, asked);
                let error_code = bump.as_ref().map_or_else(Error::code, |_| 0);
                records.extend(bump.ok().flatten());
                bump_leader_epochs_response::BumpPartitionResult {
                    partition_index: asked.partition_index,
                    error_code,
                }
            });
            let topic_name = self.topics.name_of(topic_id).map(ToString::to_string);
            response.topics.push(bump_leader_epochs_response::BumpTopicResult {
                partitions: partitions.collect(),
                topic_name: topic_name.unwrap_or_default(),
            });
        }
        Decision::new(records, response)
    }

    fn bump(
        &self,
        topic_id: TopicId,
        asked: &bump_leader_epochs_request::BumpPartition,
    ) -> Result<Option<MetadataRecord>, Error> {
        let topic = self.topics.by_id(topic_id).ok_or(Error::UnknownTopicId { topic_id })?;
        let partition = PartitionIndex(asked.partition_index);
        let at = TopicIdPartition { topic_id, partition };
        let image = self
            .topics
            .partition(at)
            .ok_or_else(|| Error::UnknownPartition { topic: topic.name.clone(), partition })?;
        let (current, min) = (image.leader_epoch.0, asked.min_leader_epoch);
        if current > min {
            return Ok(None);
        }
        if i64::from(min) + 1 - i64::from(current) > i64::from(LEADER_EPOCH_JUMP_MAX) {
            return Err(Error::InvalidRequest {
                reason: format!(
                    "leader epoch {current} would jump above {min}, more than \
                     {LEADER_EPOCH_JUMP_MAX} at once"
                ),
            });
        }
        Ok(Some(MetadataRecord::PartitionChange(PartitionChange {
            min_leader_epoch: Some(LeaderEpoch(min)),
            ..PartitionChange::new(topic_id, partition)
        })))
    }
}

/// A change of nothing, of no partition yet.
fn nothing() -> PartitionChange {
    PartitionChange::new(TopicId::ZERO, PartitionIndex(0))
}

fn check_leader(
    image: &PartitionImage,
    broker: NodeId,
    asked: &alter_partition_request::PartitionData,
) -> Result<(), Error> {
    let (leader_epoch, current) = (LeaderEpoch(asked.leader_epoch), image.leader_epoch);
    let (partition_epoch, current_partition) =
        (PartitionEpoch(asked.partition_epoch), image.partition_epoch);
    if leader_epoch > current {
        return Err(Error::AheadOfController { request: leader_epoch.0, current: current.0 });
    }
    if partition_epoch > current_partition {
        let (request, current) = (partition_epoch.0, current_partition.0);
        return Err(Error::AheadOfController { request, current });
    }
    if leader_epoch < current {
        return Err(Error::FencedLeaderEpoch { request: leader_epoch, current });
    }
    if image.leader != Some(broker) {
        let reason = format!("broker {broker} asks, but the leader is {}", image.leader_id());
        return Err(Error::InvalidRequest { reason });
    }
    if partition_epoch < current_partition {
        let (request, current) = (partition_epoch, current_partition);
        return Err(Error::InvalidUpdateVersion { request, current });
    }
    Ok(())
}

/// The partition as the leader that asked will find it.
fn altered_to(
    partition_index: i32,
    image: &PartitionImage,
    change: Option<&PartitionChange>,
) -> alter_partition_response::PartitionData {
    let isr = change.and_then(|change| change.isr.as_ref()).unwrap_or(&image.isr);
    let moved = change.and_then(|change| change.leader);
    let step = i32::from(change.is_some());
    alter_partition_response::PartitionData {
        partition_index,
        error_code: 0,
        leader_id: moved.unwrap_or(image.leader).map_or(NodeId::NONE.0, |leader| leader.0),
        leader_epoch: image.leader_epoch.0 + i32::from(moved.is_some()),
        isr: isr.iter().map(|id| id.0).collect(),
        leader_recovery_state: 0,
        partition_epoch: image.partition_epoch.0 + step,
    }
}
