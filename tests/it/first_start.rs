//! Clusters that form on empty folders, however late one of them is, and that find themselves
//! again on the same folders under other addresses.

use std::collections::BTreeSet;
use std::time::Duration;

use actors::dev::DevCluster;
use actors::peers::LinkMode;
use actors::process::ProcessHandle;
use protocol::ids::NodeId;

use crate::fixture::{
    Fixture, PATIENCE, address, eventually, log_to_the_test, over_both_links, spec,
};

over_both_links! {
    a_late_voter_is_waited_for_and_is_a_member,
    a_cluster_keeps_its_id_and_its_data_under_other_ports,
}

/// How much later the third node starts: longer than elections and sessions last.
const LATE: Duration = Duration::from_secs(2);

async fn a_late_voter_is_waited_for_and_is_a_member(links: LinkMode) {
    log_to_the_test();
    let dir = tempfile::tempdir().unwrap();
    let process = ProcessHandle::start().await.unwrap();
    let described = DevCluster::describe(&process, &spec("late", 3, links, dir.path())).await;
    let mut cluster = described.unwrap();
    for id in [1, 2] {
        cluster.start_node(NodeId(id)).await.unwrap();
    }
    tokio::time::sleep(LATE).await;
    for node in cluster.directories().values() {
        assert_eq!(node.image().cluster.id(), None, "nobody makes a cluster without the third");
    }
    cluster.start_node(NodeId(3)).await.unwrap();
    cluster.wait_until_ready(PATIENCE).await.unwrap();
    let ids: BTreeSet<String> = cluster_ids(&cluster);
    assert_eq!(ids.len(), 1, "{ids:?}");
    for node in cluster.directories().values() {
        let metrics = node.controller().unwrap().consensus().metrics();
        assert_eq!(metrics.voters.len(), 3);
        let members: BTreeSet<NodeId> = metrics.members.values().copied().collect();
        assert_eq!(members, [1, 2, 3].map(NodeId).into());
    }
    cluster.stop().await;
}

async fn a_cluster_keeps_its_id_and_its_data_under_other_ports(links: LinkMode) {
    let mut fixture = Fixture::start("again", 3, links, &[]).await;
    fixture.create("t", 4, 3).await;
    for partition in 0..4 {
        let id = fixture.id("t", partition);
        for index in 0..5 {
            fixture.produce(id, &format!("{partition}-{index}")).await;
        }
    }
    let before = cluster_ids(&fixture.cluster);
    assert_eq!(before.len(), 1);
    for orderly in [true, false] {
        let ports = ports(&fixture.cluster);
        if orderly {
            fixture.cluster.stop().await;
        } else {
            fixture.cluster.crash().await;
        }
        // Held by somebody else, so that no node gets its old one.
        let held: Vec<_> =
            ports.iter().map(|port| std::net::TcpListener::bind(("127.0.0.1", *port))).collect();
        let process = ProcessHandle::start().await.unwrap();
        let spec = spec("again", 3, links, fixture.dir.path());
        fixture.cluster = DevCluster::start(&process, &spec).await.unwrap();
        fixture.cluster.wait_until_ready(PATIENCE).await.unwrap();
        drop(held);
        assert!(ports.is_disjoint(&self::ports(&fixture.cluster)));
        fixture.reconnect().await;
        assert_eq!(cluster_ids(&fixture.cluster), before);
        for partition in 0..4 {
            let id = fixture.id("t", partition);
            eventually("it has a leader", async || fixture.seen(id).leader.is_some()).await;
            let read: Vec<String> = fixture.read(id).await.into_values().collect();
            let written: Vec<String> =
                (0..5).map(|index| format!("{partition}-{index}")).collect();
            assert_eq!(read, written);
        }
    }
    fixture.cluster.stop().await;
}

fn cluster_ids(cluster: &DevCluster) -> BTreeSet<String> {
    let id = |image: &raft::MetadataImage| image.cluster.id().unwrap_or_default().to_owned();
    cluster.directories().values().map(|node| id(&node.image())).collect()
}

fn ports(cluster: &DevCluster) -> BTreeSet<u16> {
    let neighbours = cluster.handle().neighbours();
    let nodes = cluster.directories().values();
    nodes
        .flat_map(|node| {
            let control = neighbours.addresses(node.node_id()).control.unwrap();
            [address(node).port(), control.port()]
        })
        .collect()
}
