//! What the tests of this ring start from: a cluster in temporary folders, clients over real
//! sockets, and waiting for conditions. It asserts nothing of its own but that waiting ends.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actors::dev::{DevCluster, DevSpec, World};
use actors::directory::Directory;
use actors::peers::LinkMode;
use actors::process::ProcessHandle;
use net::{Client, ClientOptions};
use protocol::api::{ApiKey, Request, Response, ResponseHeader};
use protocol::batch::BatchBuilder;
use protocol::error_code::ErrorCode;
use protocol::frame::{read_response, request_frame};
use protocol::ids::{NodeId, PartitionIndex, TimestampMs, TopicIdPartition};
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    FetchRequest, FetchResponse, ProduceRequest, ProduceResponse,
};
use raft::{MetadataImage, PartitionImage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long anything may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// How long one request may take.
pub const CALL: Duration = Duration::from_secs(5);

/// Between two looks at a condition.
const POLL: Duration = Duration::from_millis(10);

/// Runs an async function of a [`LinkMode`] as two tests: over casts, and over sockets.
macro_rules! over_both_links {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use actors::peers::LinkMode;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn local() {
                super::$name(LinkMode::Local).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn tcp() {
                super::$name(LinkMode::Tcp).await;
            }
        })*
    };
}
pub(crate) use over_both_links;

/// A description of a cluster on free ports. Elections are slower than a development cluster's:
/// many clusters share the machine, and votes that take longer than a term elect nobody.
pub fn spec(name: &str, nodes: usize, links: LinkMode, dir: &Path) -> DevSpec {
    DevSpec {
        name: name.to_string(),
        nodes,
        port: 0,
        dir: dir.to_path_buf(),
        overrides: [("controller.quorum.election.timeout.ms".to_owned(), "1000".to_owned())]
            .into(),
        links,
        world: World::Machine { data_threads: 1 },
    }
}

/// Waits until `condition` holds.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// A running cluster and a client to it.
pub struct Fixture {
    /// The cluster.
    pub cluster: DevCluster,
    /// A client that knows every node that ran when it was made.
    pub client: Client,
    /// The folders; they go with the fixture.
    pub dir: tempfile::TempDir,
}

impl Fixture {
    /// Starts `nodes` nodes with Kafka settings over the defaults.
    pub async fn start(
        name: &str,
        nodes: usize,
        links: LinkMode,
        settings: &[(&str, &str)],
    ) -> Fixture {
        log_to_the_test();
        let dir = tempfile::tempdir().unwrap();
        let process = ProcessHandle::start().await.unwrap();
        let mut spec = spec(name, nodes, links, dir.path());
        spec.overrides.extend(settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let cluster = DevCluster::start(&process, &spec).await.unwrap();
        cluster.wait_until_ready(PATIENCE).await.unwrap();
        let client = client_of(&cluster).await;
        Fixture { cluster, client, dir }
    }

    /// A client with the addresses of now: ports change when nodes start again.
    pub async fn reconnect(&mut self) {
        self.client = client_of(&self.cluster).await;
    }

    /// Any running node.
    pub fn any(&self) -> &Arc<Directory> {
        self.cluster.directories().values().next().unwrap()
    }

    /// A running node.
    pub fn node(&self, id: NodeId) -> &Arc<Directory> {
        &self.cluster.directories()[&id]
    }

    /// Asks a node, which answers.
    pub async fn ask<T>(&self, node: i32, request: impl Into<Request>) -> T
    where
        T: TryFrom<Response, Error = protocol::Error>,
    {
        T::try_from(self.client.call(node, request, PATIENCE).await.unwrap()).unwrap()
    }

    /// Asks a node that may be away. After a failure the client looks where the nodes are.
    pub async fn try_ask<T>(&self, node: NodeId, request: impl Into<Request>) -> Option<T>
    where
        T: TryFrom<Response, Error = protocol::Error>,
    {
        match self.client.call(node.0, request, CALL).await {
            Ok(response) => Some(T::try_from(response).unwrap()),
            Err(_error) => {
                drop(self.client.refresh(CALL).await);
                None
            }
        }
    }

    /// Creates a topic and waits until each of its replicas runs.
    pub async fn create(&self, name: &str, partitions: i32, factor: i16) {
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: factor,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 10_000,
            ..CreateTopicsRequest::default()
        };
        let made: CreateTopicsResponse = self.ask(self.any().node_id().0, request).await;
        // An election may take the first attempt's answer: the next one finds the topic there.
        let code = ErrorCode::from_code(made.topics[0].error_code);
        assert!(matches!(code, ErrorCode::None | ErrorCode::TopicAlreadyExists), "{made:?}");
        self.wait_for_replicas(name, usize::try_from(partitions).unwrap()).await;
    }

    /// Waits until every replica of a topic runs on its node.
    pub async fn wait_for_replicas(&self, name: &str, partitions: usize) {
        eventually("every replica runs", async || {
            self.cluster.directories().values().all(|node| {
                let image = node.image();
                let Some(topic) = image.topics.by_name(name) else { return false };
                let here = |index: &PartitionIndex| {
                    let id = TopicIdPartition { topic_id: topic.id, partition: *index };
                    node.partition(id).is_some()
                };
                topic.partitions.len() == partitions
                    && topic.partitions.iter().all(|(index, partition)| {
                        !partition.is_replica(node.node_id()) || here(index)
                    })
            })
        })
        .await;
    }

    /// The id of a partition.
    pub fn id(&self, topic: &str, partition: i32) -> TopicIdPartition {
        let topic_id = self.any().image().topics.id_of(topic).unwrap();
        TopicIdPartition { topic_id, partition: PartitionIndex(partition) }
    }

    /// A partition as `node` knows it.
    pub fn seen_by(&self, node: NodeId, id: TopicIdPartition) -> Arc<PartitionImage> {
        Arc::clone(self.node(node).image().topics.partition(id).unwrap())
    }

    /// A partition as the node knows it that has the newest of it.
    pub fn seen(&self, id: TopicIdPartition) -> Arc<PartitionImage> {
        let nodes = self.cluster.directories().values();
        let seen = nodes.filter_map(|node| node.image().topics.partition(id).cloned());
        seen.max_by_key(|partition| partition.partition_epoch).unwrap()
    }

    /// Who leads a partition, as soon as somebody does.
    pub async fn leader(&self, id: TopicIdPartition) -> NodeId {
        let mut leader = None;
        eventually("somebody leads", async || {
            leader = self.seen(id).leader;
            leader.is_some()
        })
        .await;
        leader.unwrap()
    }

    /// Waits until every running node's image satisfies `wanted`.
    pub async fn wait_for_images(&self, what: &str, wanted: impl Fn(&MetadataImage) -> bool) {
        for node in self.cluster.directories().values() {
            assert!(node.wait_for_image(PATIENCE, &wanted).await, "{what} on {}", node.node_id());
        }
    }

    /// Waits until the ISR of a partition is `isr`, on every running node.
    pub async fn wait_for_isr(&self, id: TopicIdPartition, isr: &[i32]) {
        let wanted: BTreeSet<NodeId> = isr.iter().copied().map(NodeId).collect();
        self.wait_for_images("the ISR", |image| {
            let found = image.topics.partition(id);
            found.is_some_and(|found| found.isr.iter().copied().collect::<BTreeSet<_>>() == wanted)
        })
        .await;
    }

    /// Writes one record to `node`, once: its offset, or why not; `None` without an answer.
    pub async fn produce_to(
        &self,
        node: NodeId,
        id: TopicIdPartition,
        value: &str,
        acks: i16,
    ) -> Option<Result<i64, ErrorCode>> {
        let mut batch = BatchBuilder::new();
        batch.append(TimestampMs(1), None, Some(value.as_bytes()), &[]);
        let image = self.any().image();
        let name = image.topics.name_of(id.topic_id)?.to_string();
        let request = ProduceRequest {
            acks,
            timeout_ms: 4_000,
            topic_data: vec![TopicProduceData {
                name,
                topic_id: id.topic_id.0,
                partition_data: vec![PartitionProduceData {
                    index: id.partition.0,
                    records: Some(batch.build()),
                }],
            }],
            ..ProduceRequest::default()
        };
        let answer: ProduceResponse = self.try_ask(node, request).await?;
        let partition = &answer.responses[0].partition_responses[0];
        Some(match ErrorCode::from_code(partition.error_code) {
            ErrorCode::None => Ok(partition.base_offset),
            code => Err(code),
        })
    }

    /// Writes one record with acks=all until it is acknowledged, like a client that retries.
    pub async fn produce(&self, id: TopicIdPartition, value: &str) -> i64 {
        let mut last = None;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(leader) = self.seen(id).leader {
                last = self.produce_to(leader, id, value, -1).await;
                if let Some(Ok(offset)) = last {
                    return offset;
                }
            }
            assert!(Instant::now() < end, "{value} was not acknowledged: {last:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Everything a consumer reads of a partition: values by offset.
    pub async fn read(&self, id: TopicIdPartition) -> BTreeMap<i64, String> {
        self.read_from(id, 0).await
    }

    /// As [`Fixture::read`], from an offset on.
    pub async fn read_from(&self, id: TopicIdPartition, from: i64) -> BTreeMap<i64, String> {
        let mut found = BTreeMap::new();
        let mut next = from;
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = match self.seen(id).leader {
                Some(leader) => self.fetch(leader, id, next).await,
                None => Err("nobody leads".to_owned()),
            };
            let (high_watermark, records) = match answer {
                Ok(answer) => answer,
                Err(why) => {
                    assert!(Instant::now() < end, "read up to {next}, and then: {why}");
                    tokio::time::sleep(POLL).await;
                    continue;
                }
            };
            for (offset, value) in records {
                next = next.max(offset + 1);
                found.insert(offset, value);
            }
            if next >= high_watermark {
                return found;
            }
        }
    }

    async fn fetch(
        &self,
        leader: NodeId,
        id: TopicIdPartition,
        from: i64,
    ) -> Result<(i64, Vec<(i64, String)>), String> {
        let request = FetchRequest {
            max_bytes: 1 << 20,
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic_id: id.topic_id.0,
                partitions: vec![FetchPartition {
                    partition: id.partition.0,
                    fetch_offset: from,
                    partition_max_bytes: 1 << 20,
                    ..FetchPartition::default()
                }],
                ..FetchTopic::default()
            }],
            ..FetchRequest::default()
        };
        let answer: Option<FetchResponse> = self.try_ask(leader, request).await;
        let answer = answer.ok_or_else(|| format!("no answer from {leader}"))?;
        let topic = answer.responses.first();
        let Some(partition) = topic.and_then(|topic| topic.partitions.first()) else {
            return Err(format!("{leader} answers without the partition: {answer:?}"));
        };
        let code = ErrorCode::from_code(partition.error_code);
        if code != ErrorCode::None {
            return Err(format!("{leader} answers {code:?}"));
        }
        let mut records = Vec::new();
        for batch in protocol::batch::split(partition.records.clone().unwrap_or_default()) {
            for record in batch.unwrap().records().unwrap() {
                let record = record.unwrap();
                let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                records.push((record.offset.0, value));
            }
        }
        Ok((partition.high_watermark, records))
    }

    /// Where a node keeps a partition.
    pub fn folder(&self, node: NodeId, topic: &str, partition: i32) -> PathBuf {
        self.data(node).join(format!("{topic}-{partition}"))
    }

    /// A node's log directory.
    pub fn data(&self, node: NodeId) -> PathBuf {
        self.dir.path().join(format!("node-{node}")).join("data")
    }

    /// Waits until the segment files of a partition are the same, byte for byte, on `nodes`.
    pub async fn wait_for_equal_segments(&self, nodes: &[NodeId], topic: &str, partition: i32) {
        eventually("all replicas' segments are byte-equal", async || {
            let mut logs =
                nodes.iter().map(|node| segments(&self.folder(*node, topic, partition)));
            let first = logs.next().unwrap();
            !first.is_empty() && logs.all(|log| log == first)
        })
        .await;
    }
}

/// The segment files of a partition's folder: contents by name.
pub fn segments(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.insert(name, std::fs::read(&path).unwrap());
        }
    }
    found
}

/// The client address of a node.
pub fn address(node: &Directory) -> SocketAddr {
    let advertised = node.advertised();
    format!("127.0.0.1:{}", advertised[0].port).parse().unwrap()
}

/// One connection to a node, to see that it stays the same.
pub struct OpenConnection {
    stream: TcpStream,
    asked: i32,
}

impl OpenConnection {
    /// Connects to a node's client listener.
    pub async fn open(node: &Directory) -> OpenConnection {
        OpenConnection { stream: TcpStream::connect(address(node)).await.unwrap(), asked: 0 }
    }

    /// Asks for the versions, on this connection and no other. False when it is closed.
    pub async fn answers(&mut self) -> bool {
        self.asked += 1;
        let request = ApiVersionsRequest {
            client_software_name: "it".to_owned(),
            client_software_version: "1".to_owned(),
            ..ApiVersionsRequest::default()
        };
        let frame = request_frame(&request.into(), 4, self.asked, Some("it")).unwrap();
        if self.stream.write_all(&frame).await.is_err() {
            return false;
        }
        let answer = tokio::time::timeout(PATIENCE, self.read()).await;
        let Some(frame) = answer.expect("an answer or the end in time") else { return false };
        let (header, response): (ResponseHeader, Response) =
            read_response(frame.into(), ApiKey::ApiVersions, 4).unwrap();
        let response = ApiVersionsResponse::try_from(response).unwrap();
        assert_eq!((header.correlation_id, response.error_code), (self.asked, 0));
        true
    }

    async fn read(&mut self) -> Option<Vec<u8>> {
        let length = self.stream.read_u32().await.ok()?;
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame)
    }
}

async fn client_of(cluster: &DevCluster) -> Client {
    let bootstrap = cluster.bootstrap().split(',').map(str::to_owned).collect();
    let client = Client::new(ClientOptions::new(bootstrap, "it", 1));
    client.refresh(CALL).await.unwrap();
    client
}

/// Shows what the cluster logs, with `RUST_LOG`, beside the test it belongs to.
pub fn log_to_the_test() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    // The first test of the process has set it already.
    drop(tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init());
}
