//! A client of the simulated cluster: finds leaders, asks nodes, loses its answers when a node
//! crashes. Every call takes a little virtual time, by the seed. It retries nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actors::connection::producer_ids::ProducerIds;
use actors::controller::client::{Forwarding, forward};
use actors::directory::Directory;
use actors::entropy::Entropy;
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{
    LeaderEpoch, NodeId, PartitionIndex, ProducerId, TopicIdPartition, TopicName,
};
use protocol::messages::CreateTopicsRequest;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};

use crate::simulation::{PATIENCE, Running};
use crate::trace::Trace;

/// A client is no node.
const NOBODY: NodeId = NodeId(-1);

/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(3);

/// One client. Clones share its random numbers.
#[derive(Clone)]
pub struct Client {
    /// Its random numbers.
    pub random: Entropy,
    /// What happened.
    pub trace: Trace,
    name: String,
    running: Running,
    /// The newest leader epoch seen of each partition: older news is not believed.
    newest: Arc<Mutex<BTreeMap<TopicIdPartition, LeaderEpoch>>>,
}

/// Whom a client believes to lead.
#[derive(Debug, Clone, Copy)]
pub struct Leader {
    /// The partition.
    pub id: TopicIdPartition,
    /// Its leader.
    pub node: NodeId,
    /// The leader's epoch, which fetches name (KIP-320).
    pub epoch: LeaderEpoch,
}

impl Client {
    /// A client called `name` in the trace.
    pub fn new(name: &str, running: &Running, random: Entropy, trace: &Trace) -> Client {
        let (running, trace) = (Arc::clone(running), trace.clone());
        Client { name: name.to_string(), running, random, trace, newest: Arc::default() }
    }

    /// Adds a line to the trace.
    pub fn note(&self, text: &str) {
        self.trace.note(&format!("{}: {text}", self.name));
    }

    /// A node that runs, any of them; waits for one.
    pub async fn any_node(&self) -> Arc<Directory> {
        loop {
            let found = {
                let running = self.running.lock().unwrap();
                let count = u64::try_from(running.len()).unwrap().max(1);
                let at = usize::try_from(self.random.next_u64() % count).unwrap();
                running.values().nth(at).cloned()
            };
            match found {
                Some(directory) => return directory,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// The leader of a partition as a node knows it. A node that is cut off goes on to believe in
    /// an old one; like a real client, this one does not once it has heard of a newer.
    pub async fn leader(&self, topic: &str, partition: i32) -> Option<Leader> {
        let image = self.any_node().await.image();
        let found = image.topics.by_name(topic)?;
        let id = TopicIdPartition { topic_id: found.id, partition: PartitionIndex(partition) };
        let registered = image.topics.partition(id)?;
        let epoch = registered.leader_epoch;
        let mut newest = self.newest.lock().unwrap();
        let known = newest.entry(id).or_insert(epoch);
        if epoch < *known {
            return None;
        }
        *known = epoch;
        Some(Leader { id, node: registered.leader?, epoch })
    }

    /// Asks a node. `None`: no connection, or it broke, or no answer in time.
    pub async fn call(&self, node: NodeId, request: impl Into<Request>) -> Option<Response> {
        let pause = Duration::from_millis(self.random.next_u64() % 4);
        tokio::time::sleep(pause).await;
        let directory = self.running.lock().unwrap().get(&node).cloned()?;
        if !is_open(&directory) {
            return None;
        }
        let request = request.into();
        let serve = actors::connection::serve_peer(Arc::clone(&directory), NOBODY, request);
        tokio::select! {
            biased;
            () = directory.stopped.cancelled() => None,
            answer = tokio::time::timeout(DEADLINE, Box::pin(serve)) => answer.ok().flatten(),
        }
    }

    /// Creates a topic on three nodes; its leader needs two of them.
    pub async fn create_topic(&self, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
        let configs = [("min.insync.replicas", "2")].iter().chain(configs);
        let creatable = CreatableTopic {
            name: topic.to_string(),
            num_partitions: partitions,
            replication_factor: 3,
            configs: configs
                .map(|(name, value)| CreatableTopicConfig {
                    name: (*name).to_string(),
                    value: Some((*value).to_string()),
                })
                .collect(),
            ..CreatableTopic::default()
        };
        let request = Request::from(CreateTopicsRequest {
            topics: vec![creatable],
            timeout_ms: 30_000,
            ..CreateTopicsRequest::default()
        });
        let node = self.any_node().await;
        let answer = Box::pin(forward(&node, Forwarding::default(), &request)).await;
        let Response::CreateTopics(response) = answer.unwrap() else {
            panic!("an answer to another question");
        };
        let code = ErrorCode::from_code(response.topics[0].error_code);
        assert_eq!(code, ErrorCode::None, "creating {topic}");
        self.note(&format!("created {topic}"));
    }

    /// Waits until every node leads or follows every partition of a topic.
    pub async fn wait_for_topic(&self, topic: &str, partitions: i32) {
        let nodes: Vec<_> = self.running.lock().unwrap().values().cloned().collect();
        for directory in &nodes {
            let there = |image: &raft::MetadataImage| {
                let found = image.topics.by_name(topic);
                found.is_some_and(|found| {
                    found.partitions.len() == usize::try_from(partitions).unwrap()
                })
            };
            assert!(directory.wait_for_image(PATIENCE, there).await, "{topic} is in every image");
        }
    }

    /// An id for an idempotent producer.
    pub async fn producer_id(&self) -> ProducerId {
        loop {
            let node = self.any_node().await;
            match ProducerIds::next(&node).await {
                Ok(id) => return id,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// Whether a node's client listeners are open: it is unfenced, and by its newest registration.
fn is_open(directory: &Directory) -> bool {
    let image = directory.image();
    let me = image.cluster.broker(directory.node_id());
    me.is_some_and(|broker| !broker.fenced && broker.epoch == directory.broker_epoch())
}

/// The members of a partition's ISR as a node knows them.
pub fn isr(directory: &Directory, id: TopicIdPartition) -> BTreeSet<NodeId> {
    let image = directory.image();
    image.topics.partition(id).map(|found| found.isr.iter().copied().collect()).unwrap_or_default()
}

/// The id of a partition as a node knows it.
pub fn partition_id(directory: &Directory, topic: &str, partition: i32) -> TopicIdPartition {
    let topic_id = directory.image().topics.id_of(&TopicName::from(topic)).expect("a topic");
    TopicIdPartition { topic_id, partition: PartitionIndex(partition) }
}
