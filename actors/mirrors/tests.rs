//! Mirroring between two clusters of one process, over sockets: what is copied is equal byte for
//! byte, the destination grows and follows, and a failover needs no source.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use log::{ReadMode, ReadUpTo};
use net::{Client, ClientOptions};
use protocol::api::{Request, Response};
use protocol::batch::BatchBuilder;
use protocol::ids::{NodeId, PartitionIndex, TimestampMs, TopicIdPartition};
use protocol::messages::create_mirror_request::CreatableMirrorConfig;
use protocol::messages::create_partitions_request::CreatePartitionsTopic;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::describe_mirrors_response::DescribedMirrorPartition;
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::start_mirror_topics_request::StartMirrorTopic;
use protocol::messages::stop_mirror_topics_request::StopMirrorTopic;
use protocol::messages::{
    CreateMirrorRequest, CreateMirrorResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DescribeMirrorsRequest, DescribeMirrorsResponse,
    ListMirrorsRequest, ListMirrorsResponse, ProduceRequest, ProduceResponse,
    StartMirrorTopicsRequest, StartMirrorTopicsResponse, StopMirrorTopicsRequest,
    StopMirrorTopicsResponse,
};
use tokio::time::Instant;

use crate::connection::context::{ListenerKind, RequestContext};
use crate::connection::dispatch;
use crate::dev::{DevCluster, DevSpec, World};
use crate::directory::Directory;
use crate::peers::LinkMode;
use crate::process::ProcessHandle;

const PATIENCE: Duration = Duration::from_secs(30);
const MIRROR: &str = "dr";

async fn start(name: &str, nodes: usize, links: LinkMode, dir: &std::path::Path) -> DevCluster {
    let overrides =
        [("mirror.topic.num.partitions", "4"), ("mirror.metadata.refresh.interval.ms", "1000")];
    let spec = DevSpec {
        name: name.to_owned(),
        nodes,
        port: 0,
        dir: dir.to_owned(),
        overrides: overrides.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        links,
        world: World::Machine { data_threads: 1 },
    };
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    // The first test of the process has set it already.
    drop(tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init());
    let process = ProcessHandle::start().await.unwrap();
    let cluster = DevCluster::start(&process, &spec).await.unwrap();
    cluster.wait_until_ready(PATIENCE).await.unwrap();
    cluster
}

fn any(cluster: &DevCluster) -> &Arc<Directory> {
    cluster.directories().values().next().unwrap()
}

/// A client's request to any node of a cluster.
async fn send<R: TryFrom<Response>>(cluster: &DevCluster, request: impl Into<Request>) -> R {
    let request = request.into();
    let version = *request.api_key().versions().end();
    let name = Arc::from("PLAINTEXT");
    let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let node = Arc::clone(any(cluster));
    let context = RequestContext::of_client(node, ListenerKind::InterBroker, name, host);
    let context = context.with_request(version, Some("test".to_owned()));
    let answer = dispatch::serve(context, request).await.expect("it is served");
    R::try_from(answer).ok().expect("a request is answered by its own response")
}

async fn create_topic(cluster: &DevCluster, name: &str, partitions: i32, config: (&str, &str)) {
    let topic = CreatableTopic {
        name: name.to_owned(),
        num_partitions: partitions,
        replication_factor: -1,
        configs: vec![CreatableTopicConfig {
            name: config.0.to_owned(),
            value: Some(config.1.to_owned()),
        }],
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    let response: CreateTopicsResponse = send(cluster, request).await;
    assert_eq!(response.topics[0].error_code, 0, "{:?}", response.topics[0].error_message);
}

fn client_of(cluster: &DevCluster) -> Client {
    let bootstrap = cluster.bootstrap().split(',').map(str::to_owned).collect();
    Client::new(ClientOptions::new(bootstrap, "test", 1))
}

/// Writes batches of `count` records each to a partition, and retries while it has no leader.
async fn produce(
    cluster: &DevCluster,
    client: &Client,
    (topic, partition): (&str, i32),
    batches: usize,
    count: usize,
) -> Result<(), i16> {
    for number in 0..batches {
        let mut batch = BatchBuilder::new();
        for record in 0..count {
            let value = format!("{partition}/{number}/{record}/{}", "x".repeat(100));
            batch = batch.record(TimestampMs(1_700_000_000_000), None, Some(value.as_bytes()));
        }
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 10_000,
            topic_data: vec![TopicProduceData {
                name: topic.to_owned(),
                topic_id: any(cluster).image().topics.id_of(topic).unwrap().0,
                partition_data: vec![PartitionProduceData {
                    index: partition,
                    records: Some(batch.build()),
                }],
            }],
            ..ProduceRequest::default()
        };
        let end = Instant::now() + PATIENCE;
        loop {
            let leader = leader(cluster, topic, partition);
            let response = match leader {
                Some((node, ..)) => client.call(node.0, request.clone(), PATIENCE).await.unwrap(),
                None => Response::from(ProduceResponse::default()),
            };
            let response = ProduceResponse::try_from(response).unwrap();
            let code =
                response.responses.first().map_or(6, |r| r.partition_responses[0].error_code);
            match code {
                0 => break,
                6 | 3 | 100 if Instant::now() < end => {}
                code => return Err(code),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}

fn leader(
    cluster: &DevCluster,
    topic: &str,
    partition: i32,
) -> Option<(NodeId, Arc<Directory>, TopicIdPartition)> {
    let image = any(cluster).image();
    let topic_id = image.topics.id_of(topic)?;
    let at = TopicIdPartition { topic_id, partition: PartitionIndex(partition) };
    let node = image.topics.partition(at)?.leader?;
    Some((node, Arc::clone(cluster.directories().get(&node)?), at))
}

/// Everything in a partition's log at its leader.
fn bytes_of(cluster: &DevCluster, topic: &str, partition: i32) -> Bytes {
    let (_, directory, at) = leader(cluster, topic, partition).expect("the partition is led");
    let view = directory.partition(at).unwrap().shared().view().unwrap();
    let mut all = Vec::new();
    let mut offset = view.log_start();
    while offset < view.log_end() {
        let read = view
            .read(offset, 1 << 20, ReadUpTo::LogEnd, true, ReadMode::MayBlock)
            .expect("the log can be read");
        for batch in protocol::batch::split(read.bytes.clone()) {
            offset = batch.unwrap().header.next_offset();
        }
        all.extend_from_slice(&read.bytes);
    }
    all.into()
}

async fn create_mirror(destination: &DevCluster, bootstrap: &str) -> CreateMirrorResponse {
    let request = CreateMirrorRequest {
        mirror_name: MIRROR.to_owned(),
        config: vec![CreatableMirrorConfig {
            name: "bootstrap.servers".to_owned(),
            value: Some(bootstrap.to_owned()),
        }],
        ..CreateMirrorRequest::default()
    };
    send(destination, request).await
}

async fn start_topics(
    destination: &DevCluster,
    names: &[&str],
    patterns: &[&str],
) -> StartMirrorTopicsResponse {
    let topic = |name: &&str| StartMirrorTopic {
        topic_name: (*name).to_owned(),
        ..StartMirrorTopic::default()
    };
    let request = StartMirrorTopicsRequest {
        mirror_name: MIRROR.to_owned(),
        topics: names.iter().map(topic).collect(),
        include_patterns: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
        ..StartMirrorTopicsRequest::default()
    };
    send(destination, request).await
}

async fn stop_topic(destination: &DevCluster, name: &str) {
    let request = StopMirrorTopicsRequest {
        mirror_name: MIRROR.to_owned(),
        topics: vec![StopMirrorTopic {
            topic_name: name.to_owned(),
            ..StopMirrorTopic::default()
        }],
        ..StopMirrorTopicsRequest::default()
    };
    let response: StopMirrorTopicsResponse = send(destination, request).await;
    assert_eq!((response.error_code, response.topics[0].error_code), (0, 0), "{response:?}");
}

type Described = BTreeMap<(String, i32), DescribedMirrorPartition>;

async fn describe(destination: &DevCluster) -> Described {
    let response: DescribeMirrorsResponse =
        send(destination, DescribeMirrorsRequest::default()).await;
    let mut rows = Described::new();
    for mirror in response.mirrors {
        assert_eq!(mirror.error_code, 0);
        for topic in mirror.topics {
            for partition in topic.partitions {
                rows.insert((topic.topic_name.clone(), partition.partition_index), partition);
            }
        }
    }
    rows
}

/// Describes until all of a topic's partitions are as wanted.
async fn wait_for(
    destination: &DevCluster,
    topic: &str,
    partitions: usize,
    wanted: impl Fn(&DescribedMirrorPartition) -> bool,
) -> Vec<DescribedMirrorPartition> {
    let end = Instant::now() + PATIENCE;
    loop {
        let rows = describe(destination).await;
        let rows: Vec<_> =
            rows.into_iter().filter(|((name, _), _)| name == topic).map(|(_, row)| row).collect();
        if rows.len() == partitions && rows.iter().all(&wanted) {
            return rows;
        }
        assert!(Instant::now() < end, "{rows:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn wait_until_copied(
    source: &DevCluster,
    destination: &DevCluster,
    topic: &str,
    count: i32,
) {
    let end = |partition: i32| {
        let (_, directory, at) = leader(source, topic, partition).unwrap();
        directory.partition(at).unwrap().shared().view().unwrap().log_end().0
    };
    wait_for(destination, topic, usize::try_from(count).unwrap(), |row| {
        row.state == "MIRRORING"
            && row.lag == 0
            && row.destination_offset == end(row.partition_index)
    })
    .await;
    for partition in 0..count {
        let (ours, theirs) =
            (bytes_of(destination, topic, partition), bytes_of(source, topic, partition));
        assert!(ours == theirs, "{topic}-{partition}: {} and {} bytes", ours.len(), theirs.len());
    }
}

async fn mirrors_grows_and_fails_over(name: &str, nodes: usize, links: LinkMode) {
    let dir = tempfile::tempdir().unwrap();
    let source_name = format!("{name}-source");
    let mut source = start(&source_name, 1, LinkMode::Local, &dir.path().join("source")).await;
    let mut destination = start(name, nodes, links, &dir.path().join("destination")).await;
    let client = client_of(&source);
    create_topic(&source, "orders", 2, ("segment.ms", "86400000")).await;
    for partition in 0..2 {
        produce(&source, &client, ("orders", partition), 20, 50).await.unwrap();
    }

    let created = create_mirror(&destination, &source.bootstrap()).await;
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    let listed: ListMirrorsResponse = send(&destination, ListMirrorsRequest::default()).await;
    let source_id = any(&source).image().cluster.id().unwrap().to_owned();
    assert_eq!(listed.mirrors[0].source_cluster_id, source_id);
    let started = start_topics(&destination, &["orders", "nothing"], &[]).await;
    assert_eq!(started.error_code, 0, "{:?}", started.error_message);
    let codes: BTreeMap<&str, i16> =
        started.topics.iter().map(|topic| (topic.name.as_str(), topic.error_code)).collect();
    assert_eq!(codes, BTreeMap::from([("orders", 0), ("nothing", 3)]));
    wait_until_copied(&source, &destination, "orders", 2).await;
    let image = any(&destination).image();
    let copied = image.configs.topic("orders").and_then(|settings| settings.get("segment.ms"));
    assert_eq!(copied.map(String::as_str), Some("86400000"));

    // It is read-only, and it goes on.
    let writer = client_of(&destination);
    assert_eq!(produce(&destination, &writer, ("orders", 0), 1, 1).await, Err(44));
    produce(&source, &client, ("orders", 0), 5, 7).await.unwrap();
    wait_until_copied(&source, &destination, "orders", 2).await;

    // It grows with the source.
    let grow = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: "orders".to_owned(),
            count: 3,
            assignments: None,
        }],
        timeout_ms: 10_000,
        validate_only: false,
    };
    let grown: CreatePartitionsResponse = send(&source, grow).await;
    assert_eq!(grown.results[0].error_code, 0);
    produce(&source, &client, ("orders", 2), 3, 3).await.unwrap();
    wait_until_copied(&source, &destination, "orders", 3).await;

    // The failover needs no source, and what was copied stays.
    let before = bytes_of(&destination, "orders", 0);
    source.crash().await;
    stop_topic(&destination, "orders").await;
    let rows = wait_for(&destination, "orders", 3, |row| row.state == "STOPPED").await;
    assert_eq!(rows[0].last_mirrored_offset, 20 * 50 + 5 * 7 - 1);
    produce(&destination, &writer, ("orders", 0), 1, 1).await.unwrap();
    let after = bytes_of(&destination, "orders", 0);
    assert!(after.len() > before.len() && after[..before.len()] == before[..]);
    destination.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_mirrors_grows_and_fails_over() {
    mirrors_grows_and_fails_over("one", 1, LinkMode::Local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_mirror_grow_and_fail_over_in_one_process() {
    mirrors_grows_and_fails_over("three-local", 3, LinkMode::Local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_mirror_grow_and_fail_over_over_sockets() {
    mirrors_grows_and_fails_over("three-tcp", 3, LinkMode::Tcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_not_its_own_source() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = start("own-source", 1, LinkMode::Local, dir.path()).await;
    let refused = create_mirror(&cluster, &cluster.bootstrap()).await;
    assert_eq!(refused.error_code, 40, "{:?}", refused.error_message);
    let request = DescribeMirrorsRequest {
        mirror_names: vec![MIRROR.to_owned()],
        ..DescribeMirrorsRequest::default()
    };
    let described: DescribeMirrorsResponse = send(&cluster, request).await;
    assert_eq!(described.mirrors[0].error_code, 137);
    let started = start_topics(&cluster, &["a"], &[]).await;
    assert_eq!(started.error_code, 137);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_are_resolved_on_the_source_and_an_unreachable_source_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = start("patterns-source", 1, LinkMode::Local, &dir.path().join("s")).await;
    let mut destination = start("patterns", 1, LinkMode::Local, &dir.path().join("d")).await;
    for topic in ["orders-eu", "orders-us", "payments"] {
        create_topic(&source, topic, 1, ("max.message.bytes", "2000000")).await;
    }
    assert_eq!(create_mirror(&destination, &source.bootstrap()).await.error_code, 0);
    let started = start_topics(&destination, &[], &["orders-.*"]).await;
    assert_eq!(started.error_code, 0, "{:?}", started.error_message);
    let names: Vec<&str> = started.topics.iter().map(|topic| topic.name.as_str()).collect();
    assert_eq!(names, ["orders-eu", "orders-us"]);
    for topic in names {
        wait_for(&destination, topic, 1, |row| row.state == "MIRRORING" && row.lag == 0).await;
    }
    source.crash().await;
    let refused = start_topics(&destination, &["payments"], &[]).await;
    assert_eq!(refused.error_code, 8, "{:?}", refused.error_message);
    // An empty partition fails over too.
    stop_topic(&destination, "orders-eu").await;
    wait_for(&destination, "orders-eu", 1, |row| row.state == "STOPPED").await;
    let row = &describe(&destination).await[&("orders-us".to_owned(), 0)];
    assert_eq!((row.source_offset, row.lag), (0, 0), "the last known values stay");
    assert!(row.source_offset_age_ms >= 0);
    destination.stop().await;
}
