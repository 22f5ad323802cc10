//! Produce: checks what the client sent, hands each partition its batch in order, and gathers the
//! answers. It never waits between two partitions, and copies no record.

use std::pin::Pin;
use std::time::Duration;

use log::Origin;
use protocol::batch::{ProduceRules, Refusal, validate_produced};
use protocol::compression::Compression;
use protocol::error_code::ErrorCode;
use protocol::ids::{PartitionIndex, TopicId, TopicIdPartition};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse,
    TopicProduceResponse,
};
use protocol::messages::{ProduceRequest, ProduceResponse};
use raft::MetadataImage;

use super::context::RequestContext;
use super::dispatch::{Answer, Begun};
use super::listener_view::ListenerView;
use crate::error::Error;
use crate::partition::{Acks, Append, AppendResult};

/// The version from which an answer names partitions' leaders and the brokers that lead elsewhere.
const ENDPOINTS_FROM: i16 = 10;

/// Starts a Produce request: when this returns, every batch has its place in its partition's
/// mailbox, so requests of one connection keep their order.
pub async fn begin(context: RequestContext, request: ProduceRequest) -> Begun {
    let acks = match request.acks {
        -1 => Some(Acks::All),
        0 | 1 => Some(Acks::Leader),
        _ => None,
    };
    let wants_answer = request.acks != 0;
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let image = context.directory.image();
    let mut topics = Vec::with_capacity(request.topic_data.len());
    let transactional = request.transactional_id.is_some();
    for topic in request.topic_data {
        topics.push(begin_topic(&context, &image, topic, acks, transactional).await);
    }
    Begun::later(async move {
        let answers = gather(topics, timeout, &context).await;
        if wants_answer {
            return Answer::Response(answers.into());
        }
        // Nobody reads an answer: as in Kafka, a refused write without acks ends the connection.
        let refused = answers
            .responses
            .iter()
            .flat_map(|topic| &topic.partition_responses)
            .any(|partition| partition.error_code != 0);
        if refused { Answer::Close } else { Answer::Nothing }
    })
}

struct TopicBegun {
    name: String,
    topic_id: TopicId,
    partitions: Vec<(PartitionIndex, Pending)>,
}

/// An append's answer before it is gathered.
enum Pending {
    /// The answer is known.
    Refused(Box<PartitionProduceResponse>),
    /// The partition will say.
    UnderWay(Pin<Box<dyn Future<Output = Result<AppendResult, Error>> + Send>>),
}

async fn begin_topic(
    context: &RequestContext,
    image: &MetadataImage,
    topic: TopicProduceData,
    acks: Option<Acks>,
    transactional: bool,
) -> TopicBegun {
    let by_id = context.version >= 13;
    let found = if by_id {
        image.topics.by_id(TopicId(topic.topic_id))
    } else {
        image.topics.by_name(&topic.name)
    };
    let unknown =
        if by_id { ErrorCode::UnknownTopicId } else { ErrorCode::UnknownTopicOrPartition };
    let refusal = match found {
        None => Some(unknown),
        Some(_) if acks.is_none() => Some(ErrorCode::InvalidRequiredAcks),
        // The transaction coordinator is not built: no transactional producer has an id here.
        Some(_) if transactional => Some(ErrorCode::InvalidProducerIdMapping),
        Some(found) if is_internal(&found.name) => Some(ErrorCode::InvalidTopicException),
        Some(_) => None,
    };
    let topic_id = found.map_or(TopicId(topic.topic_id), |found| found.id);
    let rules = found.map(|found| rules(context, &found.name)).unwrap_or_default();
    let mut partitions = Vec::with_capacity(topic.partition_data.len());
    for data in topic.partition_data {
        let index = PartitionIndex(data.index);
        let pending = match (refusal, acks) {
            (None, Some(acks)) => {
                let id = TopicIdPartition { topic_id, partition: index };
                begin_partition(context, image, id, data, &rules, acks).await
            }
            (Some(code), _) => refused(index, &Error::refused(code)),
            (None, None) => refused(index, &Error::refused(ErrorCode::InvalidRequiredAcks)),
        };
        partitions.push((index, pending));
    }
    TopicBegun { name: topic.name, topic_id, partitions }
}

async fn begin_partition(
    context: &RequestContext,
    image: &MetadataImage,
    id: TopicIdPartition,
    data: PartitionProduceData,
    rules: &ProduceRules,
    acks: Acks,
) -> Pending {
    if image.topics.partition(id).is_none() {
        return refused(id.partition, &Error::refused(ErrorCode::UnknownTopicOrPartition));
    }
    let Some(handle) = context.directory.partition(id) else {
        return refused(id.partition, &Error::refused(ErrorCode::NotLeaderOrFollower));
    };
    let records = data.records.unwrap_or_default();
    let produced = match validate_produced(&records, rules) {
        Ok(produced) => produced,
        Err(refusal) => return refused_records(id.partition, &refusal),
    };
    if produced.batch.header.is_transactional() {
        // A request that names its transaction was refused before.
        let why = "a transactional batch in a request without a transactional id";
        let error = Error::refused_with(ErrorCode::TransactionalIdAuthorizationFailed, why);
        return refused(id.partition, &error);
    }
    let batches = produced.batch.bytes;
    let permit = context.directory.append_budget.acquire(batches.len()).await;
    let append = Append { batches, origin: Origin::Client, acks, expected_epoch: None, permit };
    Pending::UnderWay(Box::pin(handle.append(append)))
}

async fn gather(
    topics: Vec<TopicBegun>,
    timeout: Duration,
    context: &RequestContext,
) -> ProduceResponse {
    let deadline = tokio::time::Instant::now() + timeout;
    let mut responses = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut partition_responses = Vec::with_capacity(topic.partitions.len());
        for (index, pending) in topic.partitions {
            let id = TopicIdPartition { topic_id: topic.topic_id, partition: index };
            partition_responses.push(match pending {
                Pending::Refused(answer) => *answer,
                Pending::UnderWay(append) => {
                    match tokio::time::timeout_at(deadline, append).await {
                        Ok(Ok(result)) => appended(index, result),
                        Ok(Err(error)) => failed(index, id, &error, context),
                        Err(_elapsed) => {
                            let error = Error::refused(ErrorCode::RequestTimedOut);
                            failed(index, id, &error, context)
                        }
                    }
                }
            });
        }
        responses.push(TopicProduceResponse {
            name: topic.name,
            topic_id: topic.topic_id.0,
            partition_responses,
        });
    }
    let node_endpoints = endpoints(context, &responses);
    ProduceResponse { responses, node_endpoints, ..ProduceResponse::default() }
}

/// The leaders that partitions were found elsewhere at (KIP-951).
fn endpoints(context: &RequestContext, responses: &[TopicProduceResponse]) -> Vec<NodeEndpoint> {
    let partitions = responses.iter().flat_map(|topic| &topic.partition_responses);
    let mut leaders = partitions
        .map(|partition| partition.current_leader.leader_id)
        .filter(|leader| *leader >= 0)
        .peekable();
    if leaders.peek().is_none() {
        return Vec::new();
    }
    let image = context.directory.image();
    let view = ListenerView::new(&image, &context.listener_name);
    let endpoints = view.endpoints(leaders).map(|(broker, listener)| NodeEndpoint {
        node_id: broker.id.0,
        host: listener.host.clone(),
        port: i32::from(listener.port),
        rack: broker.rack.clone(),
    });
    endpoints.collect()
}

fn appended(index: PartitionIndex, result: AppendResult) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index: index.0,
        base_offset: result.first_offset.0,
        log_append_time_ms: result.log_append_time,
        log_start_offset: result.log_start.0,
        ..PartitionProduceResponse::default()
    }
}

fn failed(
    index: PartitionIndex,
    id: TopicIdPartition,
    error: &Error,
    context: &RequestContext,
) -> PartitionProduceResponse {
    let code = error.code();
    let mut answer = answer_of(index, error);
    if context.version >= ENDPOINTS_FROM
        && matches!(code, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch)
        && let Some(partition) = context.directory.image().topics.partition(id)
    {
        answer.current_leader = LeaderIdAndEpoch {
            leader_id: partition.leader_id().0,
            leader_epoch: partition.leader_epoch.0,
        };
    }
    answer
}

fn refused(index: PartitionIndex, error: &Error) -> Pending {
    Pending::Refused(Box::new(answer_of(index, error)))
}

fn answer_of(index: PartitionIndex, error: &Error) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index: index.0,
        error_code: error.code().code(),
        error_message: Some(error.to_string()),
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        ..PartitionProduceResponse::default()
    }
}

fn refused_records(index: PartitionIndex, refusal: &Refusal) -> Pending {
    let record_errors = refusal.records().iter().map(|record| BatchIndexAndErrorMessage {
        batch_index: record.index,
        batch_index_error_message: Some(record.fault.to_string()),
    });
    Pending::Refused(Box::new(PartitionProduceResponse {
        index: index.0,
        error_code: refusal.code().code(),
        error_message: Some(refusal.to_string()),
        record_errors: record_errors.collect(),
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        ..PartitionProduceResponse::default()
    }))
}

/// Whether only the cluster itself may write to a topic.
pub fn is_internal(topic: &str) -> bool {
    matches!(topic, "__consumer_offsets" | "__mirror_state" | "__transaction_state")
}

fn rules(context: &RequestContext, topic: &str) -> ProduceRules {
    let config = context.directory.topic_config(topic);
    ProduceRules {
        produce_version: context.version,
        max_message_bytes: config.max_message_bytes,
        timestamp_type: match config.message_timestamp_type {
            config::TimestampType::CreateTime => protocol::batch::TimestampType::CreateTime,
            config::TimestampType::LogAppendTime => protocol::batch::TimestampType::LogAppendTime,
        },
        timestamp_before_max_ms: config.message_timestamp_before_max_ms,
        timestamp_after_max_ms: config.message_timestamp_after_max_ms,
        compacted: config.cleanup_policy.compact,
        compression: compression(config.compression_type),
        decompressed_record_bytes_max: i64::from(config.max_decompressed_message_bytes),
        now: context.directory.clock.now(),
    }
}

fn compression(wanted: config::CompressionType) -> Option<Compression> {
    match wanted {
        config::CompressionType::Producer => None,
        config::CompressionType::Uncompressed => Some(Compression::None),
        config::CompressionType::Gzip => Some(Compression::Gzip),
        config::CompressionType::Snappy => Some(Compression::Snappy),
        config::CompressionType::Lz4 => Some(Compression::Lz4),
        config::CompressionType::Zstd => Some(Compression::Zstd),
    }
}
