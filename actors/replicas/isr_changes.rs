//! Changes of ISRs on their way to the controller: gathered from all partitions of the node and
//! sent as one AlterPartition request at a time. It decides nothing: partitions ask (or, for one
//! that is offline, their supervisor), the controller answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, TopicIdPartition};
use protocol::messages::AlterPartitionRequest;
use protocol::messages::alter_partition_request::{BrokerState, PartitionData, TopicData};
use tokio::sync::mpsc;

use crate::directory::Directory;
use crate::error::Error;
use crate::runtimes::AbortOnDrop;

/// Changes that go into one request.
const BATCH_MAX: usize = 1_000;

/// How long one request may look for a controller. A change that fails is asked for again by the
/// partition's next tick or fetch.
const DEADLINE: Duration = Duration::from_secs(5);

/// One partition's wish.
#[derive(Debug, Clone)]
pub struct IsrChange {
    /// Which partition.
    pub partition: TopicIdPartition,
    /// The epoch its leader leads in.
    pub leader_epoch: LeaderEpoch,
    /// The registration the wish builds on.
    pub partition_epoch: PartitionEpoch,
    /// The wanted ISR with the members' broker epochs.
    pub isr: Vec<(NodeId, BrokerEpoch)>,
}

/// The node's queue of changes, shared so that it survives a restart of its supervisor.
pub type SharedQueue = Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<IsrChange>>>;

/// Starts the task that sends changes until the node ends or the answer is dropped.
pub fn spawn(directory: Arc<Directory>, changes: SharedQueue) -> AbortOnDrop {
    let runtimes = directory.runtimes.clone();
    AbortOnDrop::new(runtimes.spawn_data(run(directory, changes)))
}

/// One request is in flight at a time, so what gathers meanwhile goes together.
async fn run(directory: Arc<Directory>, changes: SharedQueue) {
    let mut changes = changes.lock().await;
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = directory.stopped.cancelled() => return,
            received = changes.recv_many(&mut batch, BATCH_MAX) => {
                if received == 0 {
                    return;
                }
            }
        }
        let asked = std::mem::take(&mut batch);
        let answers = send(&directory, &asked).await;
        for change in &asked {
            let result = answer_for(&answers, change);
            match (directory.partition(change.partition), result) {
                (Some(partition), result) => partition.isr_answered(change.leader_epoch, result),
                (None, Ok(())) => {}
                (None, Err(error)) => {
                    tracing::debug!(partition = %change.partition, %error, "the ISR stays");
                    directory
                        .with_replicas(|replicas| replicas.resignation_lost(change.partition));
                }
            }
        }
    }
}

type Answers = Result<BTreeMap<TopicIdPartition, ErrorCode>, Error>;

async fn send(directory: &Arc<Directory>, changes: &[IsrChange]) -> Answers {
    let request = Request::from(request_for(directory, changes));
    let response = match directory.call_controller(request, DEADLINE).await? {
        Response::AlterPartition(response) => response,
        other => return Err(crate::peers::unexpected(&other)),
    };
    let code = ErrorCode::from_code(response.error_code);
    if code != ErrorCode::None {
        return Err(Error::refused(code));
    }
    let mut answers = BTreeMap::new();
    for topic in response.topics {
        for partition in topic.partitions {
            let id = TopicIdPartition {
                topic_id: topic.topic_id.into(),
                partition: partition.partition_index.into(),
            };
            answers.insert(id, ErrorCode::from_code(partition.error_code));
        }
    }
    Ok(answers)
}

fn answer_for(answers: &Answers, change: &IsrChange) -> Result<(), Error> {
    let answers = answers.as_ref().map_err(Error::clone)?;
    match answers.get(&change.partition) {
        Some(ErrorCode::None) => Ok(()),
        Some(code) => Err(Error::refused(*code)),
        None => Err(Error::NoAnswer { what: "the controller" }),
    }
}

fn request_for(directory: &Directory, changes: &[IsrChange]) -> AlterPartitionRequest {
    let mut topics: BTreeMap<_, Vec<PartitionData>> = BTreeMap::new();
    for change in changes {
        let isr = change
            .isr
            .iter()
            .map(|(id, epoch)| BrokerState { broker_id: id.0, broker_epoch: epoch.0 });
        topics.entry(change.partition.topic_id).or_default().push(PartitionData {
            partition_index: change.partition.partition.0,
            leader_epoch: change.leader_epoch.0,
            new_isr_with_epochs: isr.collect(),
            partition_epoch: change.partition_epoch.0,
            ..PartitionData::default()
        });
    }
    AlterPartitionRequest {
        broker_id: directory.node_id().0,
        broker_epoch: directory.broker_epoch().0,
        topics: topics
            .into_iter()
            .map(|(topic_id, partitions)| TopicData { topic_id: topic_id.0, partitions })
            .collect(),
    }
}
