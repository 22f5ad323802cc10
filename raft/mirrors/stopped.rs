//! The end of a failover: leaders report partitions as STOPPED, and they take writes (D3).
//!
//! Owns that only the present leader of a partition that is wanted stopped can end its mirroring.

use protocol::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId};
use protocol::messages::{
    RecordMirrorStopsRequest, RecordMirrorStopsResponse,
    record_mirror_stops_request::StoppedPartition,
    record_mirror_stops_response::{StoppedPartitionResult, StoppedTopicResult},
};

use crate::decision::Decision;
use crate::error::Error;
use crate::image::{MetadataImage, StopState};
use crate::mirror_name::MirrorName;
use crate::records::{MetadataRecord, MirrorDesired, MirrorPartitionStopped, MirrorStop};

impl MetadataImage {
    /// Records partitions as STOPPED, one code a partition. A report that came before succeeds
    /// again; one of a deposed leader is fenced.
    ///
    /// # Errors
    /// No such mirror (137).
    pub fn decide_record_mirror_stops(
        &self,
        request: &RecordMirrorStopsRequest,
    ) -> Result<Decision<RecordMirrorStopsResponse>, Error> {
        let mirror = self.existing_mirror(&request.mirror)?;
        let mut records = Vec::new();
        let mut response = RecordMirrorStopsResponse::default();
        for topic in &request.topics {
            let partitions = topic.partitions.iter().map(|stopped| {
                let outcome = self.stop_partition(&mirror, TopicId(topic.topic_id), stopped);
                let error_code = outcome.as_ref().map_or_else(Error::code, |_| 0);
                records.extend(outcome.ok().flatten());
                StoppedPartitionResult { partition: stopped.partition, error_code }
            });
            let partitions = partitions.collect();
            response.topics.push(StoppedTopicResult { topic_id: topic.topic_id, partitions });
        }
        Ok(Decision::new(records, response))
    }

    fn stop_partition(
        &self,
        mirror: &MirrorName,
        topic_id: TopicId,
        stopped: &StoppedPartition,
    ) -> Result<Option<MetadataRecord>, Error> {
        let topic = self.topics.by_id(topic_id).ok_or(Error::UnknownTopicId { topic_id })?;
        let partition = PartitionIndex(stopped.partition);
        let image = topic
            .partitions
            .get(&partition)
            .ok_or_else(|| Error::UnknownPartition { topic: topic.name.clone(), partition })?;
        let held =
            topic.mirror.as_ref().filter(|held| held.mirror == *mirror).ok_or_else(|| {
                Error::TopicNotInMirror { topic: topic.name.clone(), mirror: mirror.to_string() }
            })?;
        let (request, current) = (LeaderEpoch(stopped.leader_epoch), image.leader_epoch);
        if request < current {
            return Err(Error::FencedLeaderEpoch { request, current });
        }
        if request > current {
            return Err(Error::AheadOfController { request: request.0, current: current.0 });
        }
        if held.desired != MirrorDesired::Stopped {
            return Err(Error::InvalidMirrorStates {
                topic: topic.name.clone(),
                partition,
                state: held.state_word(),
                remedy: "it is not wanted stopped any more",
            });
        }
        if matches!(image.stop, StopState::Stopped(_)) {
            return Ok(None);
        }
        let stop = MirrorStop {
            mirror: mirror.clone(),
            leader_epoch: request,
            last_mirror_epoch: LeaderEpoch(stopped.last_mirror_epoch),
            last_mirrored_offset: Offset(stopped.last_mirrored_offset),
        };
        let record = MirrorPartitionStopped { topic_id, partition, stop };
        Ok(Some(MetadataRecord::MirrorPartitionStopped(record)))
    }
}
