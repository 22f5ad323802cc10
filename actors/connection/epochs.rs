//! OffsetForLeaderEpoch: where a leader epoch ends in the leader's log, so that whoever copies the
//! log, or read it before, finds where the two part. It reads views and changes nothing.

use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, Offset, PartitionIndex, TopicIdPartition};
use protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::context::RequestContext;
use super::fetch::{end_offset_for_epoch, leading_view};

/// Answers OffsetForLeaderEpoch.
pub fn offset_for_leader_epoch(
    context: &RequestContext,
    request: &OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.iter().map(|topic| OffsetForLeaderTopicResult {
        topic: topic.topic.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| {
                let found = find(context, &topic.topic, partition);
                answer(partition.partition, found)
            })
            .collect(),
    });
    OffsetForLeaderEpochResponse {
        topics: topics.collect(),
        ..OffsetForLeaderEpochResponse::default()
    }
}

/// The end of the epoch that was asked for; −1 in epoch −1 if the log has none to name.
fn find(
    context: &RequestContext,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<(LeaderEpoch, Offset), ErrorCode> {
    let image = context.directory.image();
    let topic_id = image.topics.id_of(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let id = TopicIdPartition { topic_id, partition: PartitionIndex(asked.partition) };
    let (_, view) = leading_view(context, id, LeaderEpoch(asked.current_leader_epoch))?;
    let found = end_offset_for_epoch(&view, LeaderEpoch(asked.leader_epoch));
    Ok(found.unwrap_or((LeaderEpoch::NONE, Offset::NONE)))
}

fn answer(partition: i32, found: Result<(LeaderEpoch, Offset), ErrorCode>) -> EpochEndOffset {
    match found {
        Ok((epoch, end)) => EpochEndOffset {
            partition,
            leader_epoch: epoch.0,
            end_offset: end.0,
            ..EpochEndOffset::default()
        },
        Err(code) => {
            EpochEndOffset { error_code: code.code(), partition, ..EpochEndOffset::default() }
        }
    }
}
