//! A consumer of one partition that reads up to the high watermark, and reads again what it has
//! read before: nothing that was read once may be gone or changed later.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::api::Response;
use protocol::batch;
use protocol::error_code::ErrorCode;
use protocol::messages::FetchRequest;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};

use crate::client::{Client, Leader};

/// What was read, by offset.
pub type Seen = BTreeMap<i64, String>;

/// A reader under way.
pub struct Reader {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Reader {
    /// Starts to read.
    pub fn start(client: Client, topic: &str, partition: i32) -> Reader {
        let seen = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let run = run(client, topic.to_string(), partition, Arc::clone(&seen), Arc::clone(&stop));
        let task = tokio::spawn(Box::pin(run));
        Reader { seen, stop, task }
    }

    /// Ends, and returns what was read.
    pub async fn finish(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("a read went back");
        let seen = self.seen.lock().unwrap();
        seen.clone()
    }
}

async fn run(
    client: Client,
    topic: String,
    partition: i32,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(Ordering::Relaxed) {
        let next = seen.lock().unwrap().last_key_value().map_or(0, |(offset, _)| offset + 1);
        let again = next > 0 && client.random.next_u64().is_multiple_of(3);
        let from = match again {
            true => {
                i64::try_from(client.random.next_u64() % u64::try_from(next).unwrap()).unwrap()
            }
            false => next,
        };
        match read(&client, &topic, partition, from).await {
            Some(Ok(records)) => {
                client.note(&format!("read {} from {from}", records.len()));
                let mut seen = seen.lock().unwrap();
                for (offset, value) in records {
                    let before = seen.insert(offset, value.clone());
                    let same = before.as_ref().is_none_or(|before| *before == value);
                    assert!(same, "offset {offset} was {before:?} and is {value:?} now");
                }
            }
            Some(Err(ErrorCode::OffsetOutOfRange)) => {
                panic!("{topic}-{partition} was read up to {next}, now {from} is out of range");
            }
            Some(Err(_)) | None => {}
        }
        tokio::time::sleep(Duration::from_millis(10 + client.random.next_u64() % 50)).await;
    }
}

/// What a leader gives from an offset on.
async fn read(
    client: &Client,
    topic: &str,
    partition: i32,
    from: i64,
) -> Option<Result<Vec<(i64, String)>, ErrorCode>> {
    let Leader { id, node, epoch } = client.leader(topic, partition).await?;
    let request = FetchRequest {
        max_wait_ms: 50,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic_id: id.topic_id.0,
            partitions: vec![FetchPartition {
                partition,
                current_leader_epoch: epoch.0,
                fetch_offset: from,
                partition_max_bytes: 1 << 16,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let Response::Fetch(response) = client.call(node, request).await? else {
        panic!("an answer to another question");
    };
    let data = &response.responses.first()?.partitions[0];
    match ErrorCode::from_code(data.error_code) {
        ErrorCode::None => {}
        code => return Some(Err(code)),
    }
    let bytes = data.records.clone().unwrap_or_default();
    let records = records_of(bytes);
    Some(Ok(records.into_iter().filter(|(offset, _)| *offset >= from).collect()))
}

/// The records of whole batches: offset and value.
pub fn records_of(bytes: bytes::Bytes) -> Vec<(i64, String)> {
    let mut records = Vec::new();
    for batch in batch::split(bytes) {
        let batch = batch.expect("whole batches");
        batch.verify_crc().expect("intact batches");
        for record in batch.records().expect("readable records") {
            let record = record.expect("readable records");
            let value = record.value.expect("a value");
            records.push((record.offset.0, String::from_utf8(value.to_vec()).unwrap()));
        }
    }
    records
}
