//! ListOffsets: where a partition's log begins and ends, and where a time lies in it. Consumers
//! see no further than they may read.

use std::collections::BTreeSet;
use std::sync::Arc;

use log::{Error as LogError, ReadMode, ReadUpTo, ReadView, TimestampedOffset};
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, Offset, PartitionIndex, TimestampMs, TopicIdPartition};
use protocol::messages::list_offsets_request::ListOffsetsPartition;
use protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::context::RequestContext;
use super::fetch::leading_view;

/// The end of what the asker may read.
const LATEST: i64 = -1;
/// The log's first offset.
const EARLIEST: i64 = -2;
/// The record with the largest timestamp (KIP-734).
const MAX_TIMESTAMP: i64 = -3;
/// The first offset on this broker's disk: the log's, without tiers (KIP-405).
const EARLIEST_LOCAL: i64 = -4;
/// The last offset that was moved to a tier (KIP-1005).
const LATEST_TIERED: i64 = -5;
/// The first offset that was not (KIP-1023).
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// The version from which an answer names leader epochs.
const EPOCHS_FROM: i16 = 4;
/// The version from which an offset that is not known yet has a code of its own (KIP-207).
const NOT_AVAILABLE_FROM: i16 = 5;

/// A consumer's replica id.
const CONSUMER: i32 = -1;

/// Where something was found; `None` for nothing.
type Found = Option<TimestampedOffset>;

/// Answers ListOffsets.
pub async fn list_offsets(
    context: RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let up_to = match (request.replica_id, request.isolation_level) {
        (CONSUMER, 1) => ReadUpTo::LastStable,
        (replica, _) if replica != CONSUMER && context.is_broker() => ReadUpTo::LogEnd,
        (_, _) => ReadUpTo::HighWatermark,
    };
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            if !seen.insert((&topic.name, partition.partition_index)) {
                twice.insert((&topic.name, partition.partition_index));
            }
        }
    }
    let mut response = ListOffsetsResponse::default();
    for topic in &request.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let found = if twice.contains(&(&topic.name, partition.partition_index)) {
                Err(ErrorCode::InvalidRequest)
            } else {
                find(&context, &topic.name, partition, up_to).await
            };
            answers.push(answer(partition.partition_index, found, context.version));
        }
        let topic = ListOffsetsTopicResponse { name: topic.name.clone(), partitions: answers };
        response.topics.push(topic);
    }
    response
}

fn answer(
    partition_index: i32,
    found: Result<Found, ErrorCode>,
    version: i16,
) -> ListOffsetsPartitionResponse {
    let nothing = ListOffsetsPartitionResponse {
        partition_index,
        ..ListOffsetsPartitionResponse::default()
    };
    match found {
        Err(code) => ListOffsetsPartitionResponse { error_code: code.code(), ..nothing },
        Ok(None) => nothing,
        Ok(Some(found)) => ListOffsetsPartitionResponse {
            timestamp: found.timestamp.0,
            offset: found.offset.0,
            leader_epoch: if version >= EPOCHS_FROM { found.leader_epoch.0 } else { -1 },
            ..nothing
        },
    }
}

async fn find(
    context: &RequestContext,
    topic: &str,
    partition: &ListOffsetsPartition,
    up_to: ReadUpTo,
) -> Result<Found, ErrorCode> {
    if !is_asked_in(partition.timestamp, context.version) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let image = context.directory.image();
    let topic_id = image.topics.id_of(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let id = TopicIdPartition { topic_id, partition: PartitionIndex(partition.partition_index) };
    let (_, view) = leading_view(context, id, LeaderEpoch(partition.current_leader_epoch))?;
    let serving = view.serving();
    let found = look(&view, partition.timestamp, up_to).await?;
    if view.serving() != serving {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    let near_end = found.is_none() || partition.timestamp == LATEST;
    if near_end && up_to != ReadUpTo::LogEnd && is_behind_its_epoch(&view, up_to) {
        return Err(if context.version >= NOT_AVAILABLE_FROM {
            ErrorCode::OffsetNotAvailable
        } else {
            ErrorCode::LeaderNotAvailable
        });
    }
    Ok(found)
}

/// Whether a version may ask this: each place in the log came with a version of its own.
fn is_asked_in(timestamp: i64, version: i16) -> bool {
    match timestamp {
        LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        EARLIEST_PENDING_UPLOAD => version >= 11,
        time => time >= 0,
    }
}

async fn look(view: &Arc<ReadView>, timestamp: i64, up_to: ReadUpTo) -> Result<Found, ErrorCode> {
    let place = |offset: Offset, leader_epoch: LeaderEpoch| {
        Some(TimestampedOffset { timestamp: TimestampMs(-1), offset, leader_epoch })
    };
    match timestamp {
        LATEST => Ok(place(view.bound(up_to), view.serving().leader_epoch)),
        EARLIEST | EARLIEST_LOCAL => {
            let start = view.log_start();
            Ok(place(start, view.epoch_at(start).unwrap_or(LeaderEpoch::NONE)))
        }
        // Nothing is ever moved to a tier.
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(None),
        MAX_TIMESTAMP => {
            let found = read(view, move |view, mode| view.max_timestamp(mode)).await?;
            Ok(found.filter(|found| found.offset < view.bound(up_to)))
        }
        time => {
            let time = TimestampMs(time);
            read(view, move |view, mode| view.offset_for_timestamp(time, up_to, mode)).await
        }
    }
}

/// Looks in memory, and on a blocking thread for what is not there.
async fn read(
    view: &Arc<ReadView>,
    look: impl Fn(&ReadView, ReadMode) -> Result<Found, LogError> + Send + 'static,
) -> Result<Found, ErrorCode> {
    let found = match look(view, ReadMode::CachedOnly) {
        Err(LogError::WouldBlock) => {
            let view = Arc::clone(view);
            tokio::task::spawn_blocking(move || look(&view, ReadMode::MayBlock))
                .await
                .unwrap_or(Err(LogError::WouldBlock))
        }
        found => found,
    };
    found.map_err(|error| {
        tracing::warn!(%error, "an offset was not found");
        error.error_code()
    })
}

/// Whether a new leader does not know yet how far its own epoch may be read: until its high
/// watermark reaches the epoch's start, an answer could lie below one an earlier leader gave
/// (KIP-207).
fn is_behind_its_epoch(view: &ReadView, up_to: ReadUpTo) -> bool {
    let epoch = view.serving().leader_epoch;
    if view.last_epoch() != epoch {
        return false;
    }
    let start = view.end_offset_for_epoch(LeaderEpoch(epoch.0 - 1));
    start.is_some_and(|(_, start)| start > view.bound(up_to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_came_with_a_version() {
        for (timestamp, first) in
            [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (0, 1), (1_700_000_000_000, 1)]
        {
            assert!(is_asked_in(timestamp, first), "{timestamp}");
            assert!(first == 1 || !is_asked_in(timestamp, first - 1), "{timestamp}");
        }
        assert!(!is_asked_in(-7, 11));
    }

    #[test]
    fn an_answer_fits_its_version() {
        let found = TimestampedOffset {
            timestamp: TimestampMs(9),
            offset: Offset(7),
            leader_epoch: LeaderEpoch(3),
        };
        assert_eq!(answer(0, Ok(Some(found)), 3).leader_epoch, -1);
        assert_eq!(answer(0, Ok(Some(found)), 4).leader_epoch, 3);
        assert_eq!(answer(0, Ok(None), 4).offset, -1);
        assert_eq!(answer(0, Err(ErrorCode::OffsetNotAvailable), 5).error_code, 78);
    }
}
