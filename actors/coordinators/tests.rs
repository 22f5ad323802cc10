//! Coordinators on three nodes of one process, over both kinds of link: groups and mirror states
//! move with the leadership of their partition and lose nothing that was acknowledged.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use mirror::states::MirrorState;
use mirror::stored::StoredState;
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicIdPartition};
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, FindCoordinatorRequest, FindCoordinatorResponse,
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, ListGroupsRequest,
    ListGroupsResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchResponse, SyncGroupRequest, SyncGroupResponse,
};
use tokio::time::Instant;

use super::{ShardId, ShardKind, locate, mirror_states};
use crate::connection::context::{ListenerKind, RequestContext};
use crate::connection::dispatch;
use crate::controller::client::{self, Forwarding};
use crate::dev::{DevCluster, DevSpec, World};
use crate::directory::Directory;
use crate::peers::LinkMode;
use crate::process::ProcessHandle;

const PATIENCE: Duration = Duration::from_secs(20);
const GROUP: &str = "readers";
const MIRROR: &str = "dr";

async fn start(name: &str, links: LinkMode, dir: &std::path::Path) -> DevCluster {
    let overrides = [("offsets.topic.num.partitions", "4"), ("mirror.topic.num.partitions", "4")];
    let spec = DevSpec {
        name: name.to_owned(),
        nodes: 3,
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

async fn send<R: TryFrom<Response>>(
    directory: &Arc<Directory>,
    version: i16,
    request: impl Into<Request>,
) -> R {
    let name = Arc::from("PLAINTEXT");
    let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let node = Arc::clone(directory);
    let context = RequestContext::of_client(node, ListenerKind::InterBroker, name, host);
    let context = context.with_request(version, Some("test".to_owned()));
    let answer = dispatch::serve(context, request.into()).await.expect("it is served");
    R::try_from(answer).ok().expect("a request is answered by its own response")
}

async fn create_topic(cluster: &DevCluster, name: &str, partitions: i32) -> TopicId {
    let any = cluster.directories().values().next().unwrap();
    let topic = CreatableTopic {
        name: name.to_owned(),
        num_partitions: partitions,
        replication_factor: 3,
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..CreateTopicsRequest::default() };
    let request = Request::CreateTopics(request);
    client::forward(any, Forwarding::default(), &request).await.unwrap();
    for directory in cluster.directories().values() {
        assert!(directory.wait_for_image(PATIENCE, |i| i.topics.by_name(name).is_some()).await);
    }
    any.image().topics.id_of(name).unwrap()
}

/// The coordinator of the group as a client finds it, from any running node.
async fn coordinator(cluster: &DevCluster) -> Arc<Directory> {
    let end = Instant::now() + PATIENCE;
    loop {
        let any = cluster.directories().values().next().unwrap();
        let request = FindCoordinatorRequest {
            coordinator_keys: vec![GROUP.to_owned()],
            ..FindCoordinatorRequest::default()
        };
        let response: FindCoordinatorResponse = send(any, 4, request).await;
        let found = &response.coordinators[0];
        if found.error_code == 0
            && let Some(directory) = cluster.directories().get(&NodeId(found.node_id))
        {
            assert_eq!(i32::from(directory.advertised()[0].port), found.port);
            return Arc::clone(directory);
        }
        assert!(Instant::now() < end, "no coordinator: {found:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asks the group's coordinator until it neither moves nor loads.
async fn ask<R: TryFrom<Response>>(
    cluster: &DevCluster,
    version: i16,
    request: impl Into<Request> + Clone,
    code: impl Fn(&R) -> i16,
) -> R {
    let end = Instant::now() + PATIENCE;
    loop {
        let node = coordinator(cluster).await;
        let response: R = send(&node, version, request.clone()).await;
        let code = ErrorCode::from_code(code(&response));
        if !matches!(
            code,
            ErrorCode::NotCoordinator
                | ErrorCode::CoordinatorLoadInProgress
                | ErrorCode::CoordinatorNotAvailable
        ) {
            return response;
        }
        assert!(Instant::now() < end, "{code:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn join(member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: GROUP.to_owned(),
        member_id: member_id.to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: b"m"[..].into(),
        }],
        ..JoinGroupRequest::default()
    }
}

async fn committed(cluster: &DevCluster) -> BTreeMap<(String, i32), i64> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: GROUP.to_owned(),
            topics: None,
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let response: OffsetFetchResponse =
        ask(cluster, 8, request, |r: &OffsetFetchResponse| r.groups[0].error_code).await;
    assert_eq!(response.groups[0].error_code, 0);
    let mut offsets = BTreeMap::new();
    for topic in &response.groups[0].topics {
        for partition in &topic.partitions {
            let key = (topic.name.clone(), partition.partition_index);
            offsets.insert(key, partition.committed_offset);
        }
    }
    offsets
}

fn commit(member_id: &str, generation: i32, topics: &[&str], offset: i64) -> OffsetCommitRequest {
    let topics = topics.iter().map(|name| OffsetCommitRequestTopic {
        name: (*name).to_owned(),
        partitions: vec![OffsetCommitRequestPartition {
            partition_index: 0,
            committed_offset: offset,
            ..OffsetCommitRequestPartition::default()
        }],
        ..OffsetCommitRequestTopic::default()
    });
    OffsetCommitRequest {
        group_id: GROUP.to_owned(),
        member_id: member_id.to_owned(),
        generation_id_or_member_epoch: generation,
        topics: topics.collect(),
        ..OffsetCommitRequest::default()
    }
}

async fn group_lives_through_a_crash_of_its_coordinator(name: &str, links: LinkMode) {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = start(name, links, dir.path()).await;
    create_topic(&cluster, "t", 1).await;

    let first: JoinGroupResponse =
        ask(&cluster, 9, join(""), |r: &JoinGroupResponse| r.error_code).await;
    assert_eq!(ErrorCode::from_code(first.error_code), ErrorCode::MemberIdRequired);
    let member = first.member_id;
    let joined: JoinGroupResponse =
        ask(&cluster, 9, join(&member), |r: &JoinGroupResponse| r.error_code).await;
    assert_eq!((joined.error_code, joined.leader.as_str()), (0, member.as_str()));
    let generation = joined.generation_id;
    let sync = SyncGroupRequest {
        group_id: GROUP.to_owned(),
        generation_id: generation,
        member_id: member.clone(),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: member.clone(),
            assignment: b"all"[..].into(),
        }],
        ..SyncGroupRequest::default()
    };
    let synced: SyncGroupResponse =
        ask(&cluster, 5, sync, |r: &SyncGroupResponse| r.error_code).await;
    assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"all"[..]));

    let request = commit(&member, generation, &["missing", "t"], 42);
    let committed_at: OffsetCommitResponse =
        ask(&cluster, 9, request, |r: &OffsetCommitResponse| r.topics[1].partitions[0].error_code)
            .await;
    let code = |at: usize| {
        let topic = &committed_at.topics[at];
        (topic.name.as_str(), ErrorCode::from_code(topic.partitions[0].error_code))
    };
    assert_eq!(code(0), ("missing", ErrorCode::UnknownTopicOrPartition));
    assert_eq!(code(1), ("t", ErrorCode::None));
    let expected = BTreeMap::from([(("t".to_owned(), 0), 42)]);
    assert_eq!(committed(&cluster).await, expected);

    let crashed = coordinator(&cluster).await.node_id();
    cluster.crash_node(crashed).await;
    assert_eq!(committed(&cluster).await, expected);
    let heartbeat = HeartbeatRequest {
        group_id: GROUP.to_owned(),
        generation_id: generation,
        member_id: member.clone(),
        ..HeartbeatRequest::default()
    };
    let beaten: HeartbeatResponse =
        ask(&cluster, 4, heartbeat, |r: &HeartbeatResponse| r.error_code).await;
    assert_eq!(beaten.error_code, 0, "the member is known to the new coordinator");
    let node = coordinator(&cluster).await;
    let listed: ListGroupsResponse = send(&node, 4, ListGroupsRequest::default()).await;
    assert_eq!(listed.groups[0].group_id, GROUP);
    cluster.start_node(crashed).await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_lives_through_a_crash_of_its_coordinator_over_local_links() {
    group_lives_through_a_crash_of_its_coordinator("group-local", LinkMode::Local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_lives_through_a_crash_of_its_coordinator_over_sockets() {
    group_lives_through_a_crash_of_its_coordinator("group-tcp", LinkMode::Tcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_shard_reads_its_log_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = start("killed-shard", LinkMode::Local, dir.path()).await;
    create_topic(&cluster, "t", 1).await;
    for offset in 0..20 {
        let request = commit("", -1, &["t"], offset);
        let response: OffsetCommitResponse =
            ask(&cluster, 9, request, |r: &OffsetCommitResponse| {
                r.topics[0].partitions[0].error_code
            })
            .await;
        assert_eq!(response.topics[0].partitions[0].error_code, 0);
        let node = coordinator(&cluster).await;
        let partition = locate::group_partition(&node.image(), GROUP).unwrap();
        if offset % 5 == 4 {
            let id = ShardId { kind: ShardKind::Group, partition };
            node.shard(id).unwrap().cell().kill();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(committed(&cluster).await, BTreeMap::from([(("t".to_owned(), 0), offset)]));
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_of_a_deleted_topic_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = start("deleted", LinkMode::Local, dir.path()).await;
    create_topic(&cluster, "kept", 1).await;
    create_topic(&cluster, "gone", 1).await;
    let request = commit("", -1, &["kept", "gone"], 7);
    let response: OffsetCommitResponse =
        ask(&cluster, 9, request, |r: &OffsetCommitResponse| r.topics[0].partitions[0].error_code)
            .await;
    assert_eq!(response.topics[1].partitions[0].error_code, 0);
    let request = DeleteTopicsRequest {
        topic_names: vec!["gone".to_owned()],
        topics: vec![protocol::messages::delete_topics_request::DeleteTopicState {
            name: Some("gone".to_owned()),
            ..Default::default()
        }],
        ..DeleteTopicsRequest::default()
    };
    let any = cluster.directories().values().next().unwrap();
    client::forward(any, Forwarding::default(), &Request::DeleteTopics(request)).await.unwrap();
    let end = Instant::now() + PATIENCE;
    while committed(&cluster).await.len() > 1 {
        assert!(Instant::now() < end, "the deleted topic's offset is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(committed(&cluster).await, BTreeMap::from([(("kept".to_owned(), 0), 7)]));
    cluster.stop().await;
}

fn row(state: MirrorState, leader_epoch: i32, transition: i64) -> StoredState {
    StoredState {
        state,
        leader_epoch: LeaderEpoch(leader_epoch),
        transition,
        reason: Some("because".to_owned()),
        ..StoredState::unknown()
    }
}

async fn mirror_states_are_kept(name: &str, links: LinkMode) {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = start(name, links, dir.path()).await;
    let topic_id = create_topic(&cluster, "t", 8).await;
    let partitions: Vec<TopicIdPartition> = (0..8)
        .map(|index| TopicIdPartition { topic_id, partition: PartitionIndex(index) })
        .collect();
    let first = Arc::clone(&cluster.directories()[&NodeId(1)]);
    let second = Arc::clone(&cluster.directories()[&NodeId(2)]);
    locate::ensure_topic(&first, ShardKind::MirrorState, PATIENCE).await.unwrap();

    let read = mirror_states::read(&second, MIRROR, partitions.clone(), PATIENCE).await;
    assert!(read.values().all(|row| *row == Ok(StoredState::unknown())), "{read:?}");
    let preparing = row(MirrorState::Preparing, 3, 1);
    let rows = partitions.iter().map(|at| (*at, preparing.clone()));
    let written = mirror_states::write(&first, MIRROR, rows.clone(), PATIENCE).await;
    assert!(written.len() == 8 && written.values().all(|row| row.is_ok()), "{written:?}");
    let resent = mirror_states::write(&second, MIRROR, rows, PATIENCE).await;
    assert!(resent.values().all(|row| row.is_ok()), "a resend succeeds: {resent:?}");

    let deposed = partitions.iter().map(|at| (*at, row(MirrorState::Mirroring, 2, 9)));
    let written = mirror_states::write(&first, MIRROR, deposed, PATIENCE).await;
    let fenced = Err(ErrorCode::FencedLeaderEpoch);
    assert!(written.values().all(|row| *row == fenced), "{written:?}");

    cluster.crash_node(NodeId(3)).await;
    let read = mirror_states::read(&second, MIRROR, partitions.clone(), PATIENCE).await;
    assert!(read.values().all(|row| row.as_ref() == Ok(&preparing)), "{read:?}");
    let mirroring = row(MirrorState::Mirroring, 4, 2);
    let rows = partitions.iter().map(|at| (*at, mirroring.clone()));
    let written = mirror_states::write(&first, MIRROR, rows, PATIENCE).await;
    assert!(written.values().all(|row| row.is_ok()), "{written:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_states_are_kept_over_local_links() {
    mirror_states_are_kept("states-local", LinkMode::Local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_states_are_kept_over_sockets() {
    mirror_states_are_kept("states-tcp", LinkMode::Tcp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_types_that_are_not_served_are_refused_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = start("types", LinkMode::Local, dir.path()).await;
    let any = Arc::clone(&cluster.directories()[&NodeId(1)]);
    let code = async |key_type: i8, key: &str, version: i16| {
        let request = FindCoordinatorRequest {
            key: key.to_owned(),
            key_type,
            coordinator_keys: vec![key.to_owned()],
        };
        let response: FindCoordinatorResponse = send(&any, version, request).await;
        ErrorCode::from_code(if version < 4 {
            response.error_code
        } else {
            response.coordinators[0].error_code
        })
    };
    assert_eq!(code(1, "t", 3).await, ErrorCode::InvalidRequest);
    assert_eq!(code(2, "g:AAAAAAAAAAAAAAAAAAAAAQ:0", 6).await, ErrorCode::InvalidRequest);
    assert_eq!(code(3, "dr", 6).await, ErrorCode::InvalidRequest);
    assert_eq!(code(3, "dr/x", 7).await, ErrorCode::InvalidRequest);
    assert_eq!(code(3, "dr", 7).await, ErrorCode::None);
    assert_eq!(code(3, "dr:AAAAAAAAAAAAAAAAAAAAAQ:0", 7).await, ErrorCode::None);
    assert_eq!(code(0, "g", 0).await, ErrorCode::None);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_partition_costs_the_coordinator_no_acknowledged_commit() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = start("killed-partition", LinkMode::Local, dir.path()).await;
    create_topic(&cluster, "t", 1).await;
    for offset in 0..30 {
        let node = coordinator(&cluster).await;
        let image = node.image();
        // Only from the node's own image: another's may have told of the coordinator before.
        if offset % 5 == 4
            && let Some(topic_id) = image.topics.id_of(ShardKind::Group.topic())
            && let Some(partition) = locate::group_partition(&image, GROUP)
            && let Some(found) = node.partition(TopicIdPartition { topic_id, partition })
        {
            found.cell().kill();
        }
        let request = commit("", -1, &["t"], offset);
        let code = |r: &OffsetCommitResponse| r.topics[0].partitions[0].error_code;
        let response: OffsetCommitResponse = ask(&cluster, 9, request, code).await;
        assert_eq!(response.topics[0].partitions[0].error_code, 0);
        assert_eq!(committed(&cluster).await, BTreeMap::from([(("t".to_owned(), 0), offset)]));
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_coordinators_start_their_shards_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = start("killed-supervisor", LinkMode::Local, dir.path()).await;
    create_topic(&cluster, "t", 1).await;
    for offset in 0..3 {
        let request = commit("", -1, &["t"], offset);
        let code = |r: &OffsetCommitResponse| r.topics[0].partitions[0].error_code;
        let response: OffsetCommitResponse = ask(&cluster, 9, request, code).await;
        assert_eq!(response.topics[0].partitions[0].error_code, 0);
        let node = coordinator(&cluster).await;
        node.set_part(|parts| parts.coordinators.as_ref().unwrap().cell().kill());
        assert_eq!(committed(&cluster).await, BTreeMap::from([(("t".to_owned(), 0), offset)]));
    }
    cluster.stop().await;
}
