//! An idempotent producer with acks=all that writes numbered records to one partition and tries
//! each batch again until it is acknowledged: nothing it writes may be lost or doubled. It knows
//! which errors are worth another try, as a real client does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use protocol::api::Response;
use protocol::batch::BatchBuilder;
use protocol::error_code::ErrorCode;
use protocol::ids::{ProducerEpoch, ProducerId, Sequence, TimestampMs};
use protocol::messages::ProduceRequest;
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};

use crate::client::{Client, Leader};

/// What a writer has acknowledged, in order.
#[derive(Debug, Default, Clone)]
pub struct Acknowledged {
    /// The values of the records.
    pub values: Vec<String>,
}

/// A writer under way.
pub struct Writer {
    /// The partition it writes to.
    pub partition: i32,
    acknowledged: Arc<Mutex<Acknowledged>>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Writer {
    /// Starts to write.
    pub fn start(client: Client, topic: &str, partition: i32) -> Writer {
        let acknowledged = Arc::new(Mutex::new(Acknowledged::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let run = run(
            client,
            topic.to_string(),
            partition,
            Arc::clone(&acknowledged),
            Arc::clone(&stop),
        );
        let task = tokio::spawn(Box::pin(run));
        Writer { partition, acknowledged, stop, task }
    }

    /// What is acknowledged by now.
    pub fn acknowledged(&self) -> Acknowledged {
        self.acknowledged.lock().unwrap().clone()
    }

    /// Lets it finish its batch, and returns everything it wrote, all of it acknowledged.
    pub async fn finish(self) -> Acknowledged {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the writer got an error that is worth no other try");
        self.acknowledged.lock().unwrap().clone()
    }

    /// Ends at once.
    pub fn abandon(self) -> Acknowledged {
        self.task.abort();
        self.acknowledged()
    }
}

async fn run(
    client: Client,
    topic: String,
    partition: i32,
    acknowledged: Arc<Mutex<Acknowledged>>,
    stop: Arc<AtomicBool>,
) {
    let id = client.producer_id().await;
    client.note(&format!("writes to partition {partition} as producer {id}"));
    let mut sequence = 0;
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let count = 1 + i32::try_from(client.random.next_u64() % 3).unwrap();
        let values: Vec<String> =
            (number..number + count).map(|number| format!("p{id} {number}")).collect();
        let batch = batch(id, sequence, &values);
        write(&client, &topic, partition, &batch).await;
        acknowledged.lock().unwrap().values.extend(values);
        (sequence, number) = (sequence + count, number + count);
        tokio::time::sleep(Duration::from_millis(client.random.next_u64() % 40)).await;
    }
}

fn batch(id: ProducerId, sequence: i32, values: &[String]) -> Bytes {
    let mut builder = BatchBuilder::new().producer(id, ProducerEpoch(0), Sequence(sequence));
    for value in values {
        builder = builder.record(TimestampMs(1_700_000_000_000), None, Some(value.as_bytes()));
    }
    builder.build()
}

async fn write(client: &Client, topic: &str, partition: i32, batch: &Bytes) {
    loop {
        let Some(Leader { id, node: leader, .. }) = client.leader(topic, partition).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 1_500,
            topic_data: vec![TopicProduceData {
                topic_id: id.topic_id.0,
                partition_data: vec![PartitionProduceData {
                    index: partition,
                    records: Some(batch.clone()),
                }],
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        };
        match client.call(leader, request).await {
            Some(Response::Produce(response)) => {
                let answer = &response.responses[0].partition_responses[0];
                let code = ErrorCode::from_code(answer.error_code);
                client.note(&format!("{leader} says {code:?} at {}", answer.base_offset));
                match code {
                    // The other means that an earlier try was kept.
                    ErrorCode::None | ErrorCode::DuplicateSequenceNumber => return,
                    code if code.is_retriable() => {}
                    code => panic!("{topic}-{partition}: {code:?} {:?}", answer.error_message),
                }
            }
            Some(other) => panic!("an answer to another question: {:?}", other.api_key()),
            None => client.note(&format!("{leader} does not answer")),
        }
        tokio::time::sleep(Duration::from_millis(10 + client.random.next_u64() % 30)).await;
    }
}
