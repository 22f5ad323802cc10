//! One topic of one cluster, over the wire: made, found, written to, read and deleted as any
//! client does. Owns which broker leads which partition; decides nothing about what a refusal
//! means.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use net::{Client, ClientOptions};
use protocol::api::Request;
use protocol::batch::{self, RecordBatch};
use protocol::error_code::ErrorCode;
use protocol::ids::TopicId;
use protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
    MetadataResponse, ProduceRequest, ProduceResponse, create_topics_request,
    delete_topics_request, fetch_request, list_offsets_request, metadata_request, produce_request,
};
use tokio::sync::watch;

/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long a topic may take until every partition has a leader.
const LEADERS_DEADLINE: Duration = Duration::from_secs(30);
/// Between two questions for something that is on its way.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of one Fetch answer.
const FETCH_BYTES: i32 = 8 << 20;
/// The acks of a write that the whole in-sync set has.
const ACKS_ALL: i16 = -1;
/// ListOffsets' question for the end of what consumers may read.
const LATEST: i64 = -1;

/// A topic. Clones share its client and what is known of its leaders.
#[derive(Clone, Debug)]
pub struct Topic {
    client: Client,
    name: Arc<str>,
    id: TopicId,
    leaders: watch::Sender<BTreeMap<i32, i32>>,
}

/// Why a write was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The broker said so.
    #[error("{code:?} ({}): {message}", code.code())]
    Code {
        /// Kafka's code.
        code: ErrorCode,
        /// The broker's words, or the code's.
        message: String,
    },
    /// No answer: it may have been accepted.
    #[error(transparent)]
    NoAnswer(#[from] anyhow::Error),
}

/// A client to the cluster with these bootstrap servers.
pub fn client(bootstrap: &str) -> Client {
    let servers = bootstrap.split(',').map(|server| server.trim().to_owned()).collect();
    let seed = u64::from(std::process::id());
    Client::new(ClientOptions::new(servers, "heliograph-demo", seed))
}

impl Topic {
    /// Creates the topic with the cluster's default replication, and waits for its leaders.
    ///
    /// # Errors
    /// The cluster refuses or does not answer.
    pub async fn create(client: &Client, name: &str, partitions: i32) -> Result<Topic> {
        let request = CreateTopicsRequest {
            topics: vec![create_topics_request::CreatableTopic {
                name: name.to_owned(),
                num_partitions: partitions,
                replication_factor: -1,
                ..Default::default()
            }],
            timeout_ms: 30_000,
            ..CreateTopicsRequest::default()
        };
        let answer = CreateTopicsResponse::try_from(ask_controller(client, request).await?)?;
        let result = answer.topics.first().ok_or_else(|| anyhow!("no answer for {name}"))?;
        if result.error_code != ErrorCode::None.code() {
            bail!(
                "topic {name} was not created: {}",
                words(result.error_code, &result.error_message)
            );
        }
        Topic::find(client, name, partitions).await
    }

    /// Finds a topic once all of its partitions have leaders.
    ///
    /// # Errors
    /// Not within half a minute.
    pub async fn find(client: &Client, name: &str, partitions: i32) -> Result<Topic> {
        let until = Instant::now() + LEADERS_DEADLINE;
        let wanted = usize::try_from(partitions)?;
        loop {
            if let Ok((id, leaders)) = describe(client, name).await
                && leaders.len() == wanted
            {
                let leaders = watch::Sender::new(leaders);
                return Ok(Topic { client: client.clone(), name: Arc::from(name), id, leaders });
            }
            if Instant::now() > until {
                bail!("topic {name} has no leader for each of its {partitions} partitions");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its partitions, in order.
    pub fn partitions(&self) -> Vec<i32> {
        self.leaders.borrow().keys().copied().collect()
    }

    /// Asks the cluster again who leads. Leaders that are not known now stay as they were.
    pub async fn refresh(&self) {
        if let Ok((_, leaders)) = describe(&self.client, &self.name).await {
            self.leaders.send_modify(|known| known.extend(leaders));
        }
    }

    /// Writes one batch with acks=all and returns the offset of its first record.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn write(&self, partition: i32, batch: Bytes) -> Result<i64, Refusal> {
        let data =
            produce_request::PartitionProduceData { index: partition, records: Some(batch) };
        let request = ProduceRequest {
            acks: ACKS_ALL,
            timeout_ms: 5_000,
            topic_data: vec![produce_request::TopicProduceData {
                name: self.name.to_string(),
                topic_id: self.id.0,
                partition_data: vec![data],
            }],
            ..ProduceRequest::default()
        };
        let answer = self.ask_leader(partition, request).await?;
        let answer = ProduceResponse::try_from(answer).map_err(anyhow::Error::from)?;
        let result = answer.responses.first().and_then(|topic| topic.partition_responses.first());
        let result = result.ok_or_else(|| anyhow!("an answer without the partition"))?;
        let code = ErrorCode::from_code(result.error_code);
        if code.is_none() {
            return Ok(result.base_offset);
        }
        let message = result.error_message.as_deref().unwrap_or(code.message());
        Err(Refusal::Code { code, message: message.to_owned() })
    }

    /// The end of what consumers may read of a partition.
    ///
    /// # Errors
    /// The leader refuses or does not answer.
    pub async fn end(&self, partition: i32) -> Result<i64> {
        let asked = list_offsets_request::ListOffsetsPartition {
            partition_index: partition,
            timestamp: LATEST,
            ..Default::default()
        };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![list_offsets_request::ListOffsetsTopic {
                name: self.name.to_string(),
                partitions: vec![asked],
            }],
            ..ListOffsetsRequest::default()
        };
        let answer = ListOffsetsResponse::try_from(self.ask_leader(partition, request).await?)?;
        let result = answer.topics.first().and_then(|topic| topic.partitions.first());
        let result = result.ok_or_else(|| anyhow!("an answer without the partition"))?;
        if result.error_code != ErrorCode::None.code() {
            bail!("{}-{partition}: {}", self.name, words(result.error_code, &None));
        }
        Ok(result.offset)
    }

    /// All batches of a partition below `end`, read over Fetch.
    ///
    /// # Errors
    /// The leader refuses, does not answer, or has nothing there.
    pub async fn read(&self, partition: i32, end: i64) -> Result<Vec<RecordBatch>> {
        let mut batches: Vec<RecordBatch> = Vec::new();
        let mut next = 0;
        while next < end {
            let records = self.fetch(partition, next).await?;
            let before = next;
            for batch in batch::split(records) {
                match batch {
                    Ok(batch) if batch.header.base_offset.0 >= end => break,
                    Ok(batch) => {
                        next = batch.header.next_offset().0;
                        batches.push(batch);
                    }
                    // The answer was cut at its limit: the rest comes with the next one.
                    Err(batch::Error::Torn { .. }) => break,
                    Err(error) => bail!("{}-{partition}: {error}", self.name),
                }
            }
            if next == before {
                bail!("{}-{partition} has nothing at offset {next}, below {end}", self.name);
            }
        }
        Ok(batches)
    }

    async fn fetch(&self, partition: i32, offset: i64) -> Result<Bytes> {
        let request = FetchRequest {
            max_wait_ms: 1_000,
            min_bytes: 1,
            max_bytes: FETCH_BYTES,
            topics: vec![fetch_request::FetchTopic {
                topic: self.name.to_string(),
                topic_id: self.id.0,
                partitions: vec![fetch_request::FetchPartition {
                    partition,
                    fetch_offset: offset,
                    partition_max_bytes: FETCH_BYTES,
                    ..Default::default()
                }],
            }],
            ..FetchRequest::default()
        };
        let answer = FetchResponse::try_from(self.ask_leader(partition, request).await?)?;
        let result = answer.responses.into_iter().next();
        let result = result.and_then(|topic| topic.partitions.into_iter().next());
        let result = result.ok_or_else(|| anyhow!("an answer without the partition"))?;
        if result.error_code != ErrorCode::None.code() {
            let code = words(result.error_code, &None);
            bail!("{}-{partition} at offset {offset}: {code}", self.name);
        }
        Ok(result.records.unwrap_or_default())
    }

    /// Asks the partition's leader, on a lane of the partition's own.
    async fn ask_leader(
        &self,
        partition: i32,
        request: impl Into<Request>,
    ) -> Result<protocol::api::Response> {
        let leader = self.leaders.borrow().get(&partition).copied();
        let leader = leader.ok_or_else(|| anyhow!("{}-{partition} has no leader", self.name))?;
        let lane = u8::try_from(partition).unwrap_or(u8::MAX);
        Ok(self.client.call_on(leader, lane, None, request, DEADLINE).await?)
    }
}

/// Deletes the topic, if there is one of that name.
///
/// # Errors
/// The cluster refuses or does not answer.
pub async fn delete(client: &Client, name: &str) -> Result<()> {
    let request = DeleteTopicsRequest {
        topics: vec![delete_topics_request::DeleteTopicState {
            name: Some(name.to_owned()),
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..DeleteTopicsRequest::default()
    };
    let answer = DeleteTopicsResponse::try_from(ask_controller(client, request).await?)?;
    let result = answer.responses.first();
    match result.map(|result| (ErrorCode::from_code(result.error_code), result)) {
        Some((ErrorCode::None | ErrorCode::UnknownTopicOrPartition, _)) => Ok(()),
        Some((_, result)) => {
            let why = words(result.error_code, &result.error_message);
            bail!("topic {name} was not deleted: {why}; delete it by hand")
        }
        None => bail!("topic {name} was not deleted: the answer is empty; delete it by hand"),
    }
}

/// Brokers pass on what is the controller's; where they do not, they tell who it is.
async fn ask_controller(
    client: &Client,
    request: impl Into<Request>,
) -> Result<protocol::api::Response> {
    let view = client.refresh(DEADLINE).await?;
    let known = view.controller_id.filter(|id| view.brokers.contains_key(id));
    let asked = known.or_else(|| view.brokers.keys().next().copied());
    let asked = asked.ok_or_else(|| anyhow!("the cluster names no broker"))?;
    Ok(client.call(asked, request, LEADERS_DEADLINE).await?)
}

/// The topic's id, and the leader of each partition that has one.
async fn describe(client: &Client, name: &str) -> Result<(TopicId, BTreeMap<i32, i32>)> {
    let topic = metadata_request::MetadataRequestTopic {
        name: Some(name.to_owned()),
        ..Default::default()
    };
    let request = MetadataRequest {
        topics: Some(vec![topic]),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let answer = MetadataResponse::try_from(client.call_any(request, DEADLINE).await?)?;
    let topic = answer.topics.first().ok_or_else(|| anyhow!("no answer for {name}"))?;
    if topic.error_code != ErrorCode::None.code() {
        bail!("{name}: {}", words(topic.error_code, &None));
    }
    let led = topic.partitions.iter().filter(|partition| partition.leader_id >= 0);
    let leaders = led.map(|partition| (partition.partition_index, partition.leader_id)).collect();
    Ok((TopicId(topic.topic_id), leaders))
}

fn words(code: i16, message: &Option<String>) -> String {
    let known = ErrorCode::from_code(code);
    let said = message.as_deref().filter(|said| !said.is_empty());
    format!("{known:?} ({code}): {}", said.unwrap_or(known.message()))
}
