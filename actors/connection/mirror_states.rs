//! ReadMirrorStates and WriteMirrorStates (keys 100 and 101, version 0): between brokers only.
//! Owns the way from a request to the shards that coordinate its partitions, and back; a row of a
//! shard that is not this node's is answered with NOT_COORDINATOR. A write is answered when it is
//! durable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{MirrorStateCommand, MirrorStateResponse};
use futures_util::future::join_all;
use protocol::error_code::ErrorCode;
use protocol::ids::{PartitionIndex, TopicId, TopicIdPartition};
use protocol::messages::read_mirror_states_request::ReadMirrorStateTopic;
use protocol::messages::read_mirror_states_response::{
    ReadMirrorStatePartitionResult, ReadMirrorStateTopicResult,
};
use protocol::messages::write_mirror_states_request::WriteMirrorStateTopic;
use protocol::messages::write_mirror_states_response::{
    WriteMirrorStatePartitionResult, WriteMirrorStateTopicResult,
};
use protocol::messages::{
    ReadMirrorStatesRequest, ReadMirrorStatesResponse, WriteMirrorStatesRequest,
    WriteMirrorStatesResponse,
};
use uuid::Uuid;

use crate::coordinators::locate;
use crate::directory::Directory;

/// How long a shard may take; a write waits for its replicas in it.
const SHARD_DEADLINE: Duration = Duration::from_secs(5);

/// The state byte of a partition without a row.
const UNKNOWN_STATE: i8 = 16;

/// Where a partition stands in the request: topic and partition positions.
type Place = (usize, usize);

/// A request's partitions by the shard that coordinates them, and those that have none here.
struct Sorted {
    shards: BTreeMap<PartitionIndex, Vec<Place>>,
    refused: BTreeMap<Place, ErrorCode>,
}

/// Finds the shard of every partition; `topics` are the ids of the request's topics in its order,
/// each with its partitions.
fn sort(
    directory: &Directory,
    mirror: &str,
    topics: impl Iterator<Item = (Option<TopicId>, Vec<i32>)>,
) -> Sorted {
    let image = directory.image();
    let mut sorted = Sorted { shards: BTreeMap::new(), refused: BTreeMap::new() };
    for (at_topic, (topic_id, partitions)) in topics.enumerate() {
        for (at_partition, partition) in partitions.into_iter().enumerate() {
            let place = (at_topic, at_partition);
            let Some(topic_id) = topic_id else {
                sorted.refused.insert(place, ErrorCode::UnknownTopicOrPartition);
                continue;
            };
            let at = TopicIdPartition { topic_id, partition: PartitionIndex(partition) };
            match locate::mirror_partition(&image, mirror, at) {
                Some(shard) => sorted.shards.entry(shard).or_default().push(place),
                None => {
                    sorted.refused.insert(place, ErrorCode::NotCoordinator);
                }
            }
        }
    }
    sorted
}

/// Asks one shard; an error is its own.
async fn ask(
    directory: &Directory,
    partition: PartitionIndex,
    command: MirrorStateCommand,
) -> Result<MirrorStateResponse, ErrorCode> {
    let shard = locate::mirror_state_shard(directory, partition)?;
    shard.call(command, SHARD_DEADLINE).await.map_err(|error| error.code())
}

/// The id of a topic by its name, for requests that carry no ids.
fn id_of(directory: &Directory, name: &str) -> Option<TopicId> {
    directory.image().topics.id_of(name)
}

/// Serves ReadMirrorStates.
pub async fn read(
    directory: &Arc<Directory>,
    request: ReadMirrorStatesRequest,
) -> ReadMirrorStatesResponse {
    let ids = request.topics.iter().map(|topic| id_of(directory, &topic.name));
    let ids: Vec<Option<TopicId>> = ids.collect();
    let topics = request.topics.iter().zip(&ids).map(|(topic, id)| {
        (*id, topic.partitions.iter().map(|partition| partition.partition_index).collect())
    });
    let sorted = sort(directory, &request.mirror_name, topics);
    let mut results: BTreeMap<Place, ReadMirrorStatePartitionResult> = BTreeMap::new();
    let asked = sorted.shards.into_iter().map(|(shard, places)| {
        let command = read_command(&request, &ids, &places);
        async move { (places, ask(directory, shard, command).await) }
    });
    for (places, answer) in join_all(asked).await {
        let rows = match answer {
            Ok(MirrorStateResponse::Read(response)) => Ok(response),
            Ok(_) => Err(ErrorCode::UnknownServerError),
            Err(code) => Err(code),
        };
        match rows {
            Ok(response) => {
                let rows = response.topics.into_iter().flat_map(|topic| topic.partitions);
                results.extend(places.into_iter().zip(rows));
            }
            Err(code) => results
                .extend(places.into_iter().map(|place| (place, unread(&request, place, code)))),
        }
    }
    for (place, code) in sorted.refused {
        results.insert(place, unread(&request, place, code));
    }
    let mut topics: Vec<ReadMirrorStateTopicResult> = request
        .topics
        .iter()
        .map(|topic| ReadMirrorStateTopicResult { name: topic.name.clone(), partitions: vec![] })
        .collect();
    // By topic, then by partition: the order of the request.
    for ((at_topic, _), row) in results {
        topics[at_topic].partitions.push(row);
    }
    ReadMirrorStatesResponse { topics, ..ReadMirrorStatesResponse::default() }
}

/// The part of a request that one shard answers, partition by partition in the order of `places`.
fn read_command(
    request: &ReadMirrorStatesRequest,
    ids: &[Option<TopicId>],
    places: &[Place],
) -> MirrorStateCommand {
    let mut topic_ids: BTreeMap<String, Uuid> = BTreeMap::new();
    let mut topics = Vec::new();
    for of_topic in places.chunk_by(|left, right| left.0 == right.0) {
        let at_topic = of_topic[0].0;
        let topic = &request.topics[at_topic];
        if let Some(id) = ids[at_topic] {
            topic_ids.insert(topic.name.clone(), id.0);
        }
        topics.push(ReadMirrorStateTopic {
            name: topic.name.clone(),
            partitions: of_topic.iter().map(|place| topic.partitions[place.1].clone()).collect(),
        });
    }
    let request = ReadMirrorStatesRequest { mirror_name: request.mirror_name.clone(), topics };
    MirrorStateCommand::Read { request, topic_ids }
}

fn unread(
    request: &ReadMirrorStatesRequest,
    place: Place,
    code: ErrorCode,
) -> ReadMirrorStatePartitionResult {
    ReadMirrorStatePartitionResult {
        partition_index: request.topics[place.0].partitions[place.1].partition_index,
        state: UNKNOWN_STATE,
        error_code: code.code(),
        ..ReadMirrorStatePartitionResult::default()
    }
}

/// Serves WriteMirrorStates. StoppedTopics is ignored, as in revision 205.
pub async fn write(
    directory: &Arc<Directory>,
    mut request: WriteMirrorStatesRequest,
) -> WriteMirrorStatesResponse {
    // Other implementations send no ids.
    for topic in &mut request.topics {
        if topic.topic_id.is_nil() {
            topic.topic_id = id_of(directory, &topic.name).map_or(Uuid::nil(), |id| id.0);
        }
    }
    let topics = request.topics.iter().map(|topic| {
        let id = (!topic.topic_id.is_nil()).then_some(TopicId(topic.topic_id));
        (id, topic.partitions.iter().map(|partition| partition.partition_index).collect())
    });
    let sorted = sort(directory, &request.mirror_name, topics);
    let mut codes: BTreeMap<Place, i16> = BTreeMap::new();
    let asked = sorted.shards.into_iter().map(|(shard, places)| {
        let command = write_command(&request, &places);
        async move { (places, ask(directory, shard, command).await) }
    });
    for (places, answer) in join_all(asked).await {
        match answer {
            Ok(MirrorStateResponse::Write(response)) => {
                let rows = response.topics.into_iter().flat_map(|topic| topic.partitions);
                codes.extend(places.into_iter().zip(rows.map(|row| row.error_code)));
            }
            Ok(_) => {
                let code = ErrorCode::UnknownServerError.code();
                codes.extend(places.into_iter().map(|place| (place, code)));
            }
            Err(code) => {
                codes.extend(places.into_iter().map(|place| (place, code.code())));
            }
        }
    }
    codes.extend(sorted.refused.into_iter().map(|(place, code)| (place, code.code())));
    let mut topics: Vec<WriteMirrorStateTopicResult> = request
        .topics
        .iter()
        .map(|topic| WriteMirrorStateTopicResult { name: topic.name.clone(), partitions: vec![] })
        .collect();
    for ((at_topic, at_partition), error_code) in codes {
        let asked = &request.topics[at_topic].partitions[at_partition];
        let row =
            WriteMirrorStatePartitionResult { partition_index: asked.partition_index, error_code };
        topics[at_topic].partitions.push(row);
    }
    WriteMirrorStatesResponse { topics, ..WriteMirrorStatesResponse::default() }
}

/// The part of a request that one shard answers, partition by partition in the order of `places`.
fn write_command(request: &WriteMirrorStatesRequest, places: &[Place]) -> MirrorStateCommand {
    let topics = places.chunk_by(|left, right| left.0 == right.0).map(|of_topic| {
        let topic = &request.topics[of_topic[0].0];
        WriteMirrorStateTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: of_topic.iter().map(|place| topic.partitions[place.1].clone()).collect(),
        }
    });
    MirrorStateCommand::Write(WriteMirrorStatesRequest {
        mirror_name: request.mirror_name.clone(),
        topics: topics.collect(),
        stopped_topics: Vec::new(),
    })
}
