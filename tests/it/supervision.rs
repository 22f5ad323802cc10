//! Parts of a running node are killed in turn: each comes back alone, no client connection ends,
//! nothing acknowledged is lost; what ends too often stops, and says so.

use std::collections::BTreeSet;

use actors::node::Victim;
use actors::peers::LinkMode;
use actors::supervision::ChildKind;
use protocol::ids::{NodeId, TopicIdPartition};
use protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};

use crate::fixture::{Fixture, OpenConnection, eventually, over_both_links};

over_both_links! {
    each_part_restarts_alone,
    what_a_part_supervises_restarts_without_it,
    a_killed_controller_drops_no_connection_and_decides_again,
    killed_partitions_keep_acked_records,
    a_part_that_ends_too_often_stops_its_node,
    a_killed_node_ends_whole_and_starts_again,
    a_partition_that_ends_too_often_is_led_elsewhere,
    the_only_replica_that_ends_too_often_waits_for_its_node,
}

#[cfg(feature = "failpoints")]
over_both_links! { partition_panic_restarts_and_keeps_acked_records }

const PARTS: [ChildKind; 7] = [
    ChildKind::Storage,
    ChildKind::Controller,
    ChildKind::Replicas,
    ChildKind::Coordinators,
    ChildKind::Mirrors,
    ChildKind::Edge,
    ChildKind::Lifecycle,
];

async fn each_part_restarts_alone(links: LinkMode) {
    let mut fixture = Fixture::start("parts", 3, links, &[]).await;
    let led = topics_led_by_each(&fixture).await;
    let victim = NodeId(2);
    let node = fixture.cluster.handle().node(victim).await.unwrap();
    let mut connection = OpenConnection::open(fixture.node(victim)).await;
    assert!(connection.answers().await);
    let mut acknowledged = BTreeSet::new();
    for kind in PARTS {
        let before = node.parts().await;
        assert_eq!(before.len(), PARTS.len(), "all parts run");
        assert_eq!(node.kill(Victim::Part(kind)).await, 1);
        eventually("the part runs again", async || {
            node.parts().await.get(&kind).is_some_and(|now| *now != before[&kind])
        })
        .await;
        let after = node.parts().await;
        for other in PARTS.into_iter().filter(|other| *other != kind) {
            assert_eq!(after.get(&other), before.get(&other), "{other:?} after {kind:?}");
        }
        assert!(connection.answers().await, "the connection outlives {kind:?}");
        for id in &led {
            let value = format!("{kind:?}");
            fixture.produce(*id, &value).await;
            acknowledged.insert(value);
        }
    }
    for id in &led {
        let read: BTreeSet<String> = fixture.read(*id).await.into_values().collect();
        assert_eq!(read, acknowledged);
    }
    assert!(connection.answers().await);
    fixture.create("afterwards", 3, 3).await;
    fixture.cluster.stop().await;
}

async fn what_a_part_supervises_restarts_without_it(links: LinkMode) {
    let mut fixture = Fixture::start("children", 3, links, &[]).await;
    let led = topics_led_by_each(&fixture).await;
    make_coordinators(&fixture).await;
    let mut acknowledged = BTreeSet::new();
    let supervisors =
        [ChildKind::Controller, ChildKind::Replicas, ChildKind::Coordinators, ChildKind::Edge];
    for kind in supervisors {
        for id in [1, 2, 3].map(NodeId) {
            let node = fixture.cluster.handle().node(id).await.unwrap();
            let mut connection = OpenConnection::open(fixture.node(id)).await;
            let before = node.parts().await;
            assert!(node.kill(Victim::ChildrenOf(kind)).await > 0, "{kind:?} has children");
            assert!(connection.answers().await, "the connection outlives children of {kind:?}");
            for id in &led {
                let value = format!("{kind:?}-{}", acknowledged.len());
                fixture.produce(*id, &value).await;
                acknowledged.insert(value);
            }
            assert_eq!(node.parts().await, before, "no part had to restart");
            // A new connection is taken as well.
            eventually("a listener accepts", async || {
                OpenConnection::open(fixture.node(id)).await.answers().await
            })
            .await;
        }
    }
    let mut read = BTreeSet::new();
    for id in &led {
        read.extend(fixture.read(*id).await.into_values());
    }
    assert_eq!(read, acknowledged);
    make_coordinators(&fixture).await;
    fixture.create("afterwards", 3, 3).await;
    fixture.cluster.stop().await;
}

async fn a_killed_controller_drops_no_connection_and_decides_again(links: LinkMode) {
    let mut fixture = Fixture::start("controller", 3, links, &[]).await;
    fixture.create("t", 1, 3).await;
    let id = fixture.id("t", 0);
    let leadership = |fixture: &Fixture| {
        let metrics = fixture.any().controller().unwrap().consensus().metrics();
        (metrics.term, metrics.leader)
    };
    for round in 0..3 {
        let leader = leadership(&fixture).1.unwrap();
        let mut connections = Vec::new();
        for node in fixture.cluster.directories().values() {
            connections.push(OpenConnection::open(node).await);
        }
        let node = fixture.cluster.handle().node(leader).await.unwrap();
        assert_eq!(node.kill(Victim::Part(ChildKind::Controller)).await, 1);
        for connection in &mut connections {
            assert!(connection.answers().await);
        }
        fixture.produce(id, &format!("{round}")).await;
        fixture.create(&format!("made-{round}"), 1, 3).await;
        for connection in &mut connections {
            assert!(connection.answers().await, "the same connection, all the time");
        }
    }
    let read: Vec<String> = fixture.read(id).await.into_values().collect();
    assert_eq!(read, ["0", "1", "2"]);
    fixture.cluster.stop().await;
}

async fn killed_partitions_keep_acked_records(links: LinkMode) {
    let mut fixture = Fixture::start("partition", 3, links, &[]).await;
    fixture.create("t", 1, 3).await;
    let id = fixture.id("t", 0);
    let mut acknowledged = BTreeSet::new();
    for round in 0..6 {
        let leader = fixture.leader(id).await;
        // The leader's actor, and a follower's every other time.
        let at = NodeId((leader.0 - 1 + round % 2) % 3 + 1);
        let value = format!("before-{round}");
        fixture.produce(id, &value).await;
        acknowledged.insert(value);
        if let Some(partition) = fixture.node(at).partition(id) {
            partition.cell().kill();
        }
        let value = format!("after-{round}");
        fixture.produce(id, &value).await;
        acknowledged.insert(value);
    }
    let read: BTreeSet<String> = fixture.read(id).await.into_values().collect();
    assert!(acknowledged.is_subset(&read), "lost: {:?}", acknowledged.difference(&read));
    let nodes = [1, 2, 3].map(NodeId);
    fixture.wait_for_equal_segments(&nodes, "t", 0).await;
    fixture.cluster.stop().await;
}

#[cfg(feature = "failpoints")]
async fn partition_panic_restarts_and_keeps_acked_records(links: LinkMode) {
    let topic = format!("panics-{links:?}");
    let point = format!("partition-append-{topic}");
    let mut fixture = Fixture::start("panic", 3, links, &[]).await;
    fixture.create(&topic, 1, 3).await;
    let id = fixture.id(&topic, 0);
    let mut acknowledged = BTreeSet::new();
    for round in 0..4 {
        let value = format!("before-{round}");
        fixture.produce(id, &value).await;
        acknowledged.insert(value);
        let leader = fixture.leader(id).await;
        let mut connection = OpenConnection::open(fixture.node(leader)).await;
        fail::cfg(&point, "1*panic").unwrap();
        let refused = fixture.produce_to(leader, id, &format!("panics-{round}"), -1).await;
        assert!(matches!(refused, Some(Err(code)) if code.is_retriable()), "{refused:?}");
        assert!(connection.answers().await, "the panic is the partition's own");
        let value = format!("after-{round}");
        fixture.produce(id, &value).await;
        acknowledged.insert(value);
    }
    fail::remove(&point);
    let read: BTreeSet<String> = fixture.read(id).await.into_values().collect();
    assert_eq!(read, acknowledged);
    fixture.wait_for_equal_segments(&[1, 2, 3].map(NodeId), &topic, 0).await;
    fixture.cluster.stop().await;
}

async fn a_part_that_ends_too_often_stops_its_node(links: LinkMode) {
    let mut fixture = Fixture::start("escalates", 3, links, &[]).await;
    let led = topics_led_by_each(&fixture).await;
    for id in &led {
        fixture.produce(*id, "before").await;
    }
    let victim = NodeId(3);
    let handle = fixture.cluster.handle().clone();
    let node = handle.node(victim).await.unwrap();
    let mut connection = OpenConnection::open(fixture.node(victim)).await;
    assert_eq!(handle.why_ended(victim).await, None);
    eventually("the node has ended", async || {
        node.kill(Victim::Part(ChildKind::Mirrors)).await;
        handle.node(victim).await.is_none()
    })
    .await;
    let why = handle.why_ended(victim).await.unwrap();
    assert!(why.starts_with("node 3 stops: its Mirrors ended too often"), "{why}");
    let ended = fixture.node(victim).clone();
    eventually("all of it stops", async || ended.stopped.is_cancelled()).await;
    eventually("its connections end", async || !connection.answers().await).await;
    fixture.cluster.crash_node(victim).await;
    for id in &led {
        fixture.produce(*id, "without").await;
    }
    fixture.cluster.start_node(victim).await.unwrap();
    assert_eq!(handle.why_ended(victim).await, None);
    fixture.reconnect().await;
    for id in &led {
        fixture.wait_for_isr(*id, &[1, 2, 3]).await;
        let read: Vec<String> = fixture.read(*id).await.into_values().collect();
        assert!(read.contains(&"before".to_owned()) && read.contains(&"without".to_owned()));
    }
    fixture.cluster.stop().await;
}

async fn a_killed_node_ends_whole_and_starts_again(links: LinkMode) {
    let mut fixture = Fixture::start("node", 3, links, &[]).await;
    let led = topics_led_by_each(&fixture).await;
    let mut acknowledged = BTreeSet::new();
    for victim in [1, 2, 3].map(NodeId) {
        let handle = fixture.cluster.handle().clone();
        let node = handle.node(victim).await.unwrap();
        let mut connection = OpenConnection::open(fixture.node(victim)).await;
        let directory = fixture.node(victim).clone();
        node.kill(Victim::Node).await;
        eventually("the node has ended", async || handle.node(victim).await.is_none()).await;
        assert!(handle.why_ended(victim).await.is_some());
        eventually("all of it stops", async || directory.stopped.is_cancelled()).await;
        eventually("its connections end", async || !connection.answers().await).await;
        drop(directory);
        fixture.cluster.crash_node(victim).await;
        for id in &led {
            let value = format!("without-{victim}");
            fixture.produce(*id, &value).await;
            acknowledged.insert(value);
        }
        // Nobody waited for its store and its logs to close.
        eventually("it starts again", async || fixture.cluster.start_node(victim).await.is_ok())
            .await;
        fixture.reconnect().await;
        for id in &led {
            fixture.wait_for_isr(*id, &[1, 2, 3]).await;
        }
    }
    for id in &led {
        let read: BTreeSet<String> = fixture.read(*id).await.into_values().collect();
        assert_eq!(read, acknowledged);
    }
    fixture.cluster.stop().await;
}

async fn a_partition_that_ends_too_often_is_led_elsewhere(links: LinkMode) {
    let mut fixture = Fixture::start("offline", 3, links, &[]).await;
    let led = topics_led_by_each(&fixture).await;
    let id = led[0];
    let old = fixture.leader(id).await;
    let kept: Vec<TopicIdPartition> =
        led.iter().copied().filter(|other| fixture.seen(*other).leader != Some(old)).collect();
    let handle = fixture.cluster.handle().node(old).await.unwrap();
    let parts = handle.parts().await;
    fixture.produce(id, "before").await;
    kill_until(&fixture, old, id, async || fixture.seen(id).leader != Some(old)).await;
    let partition = fixture.seen(id);
    assert!(!partition.is_in_sync(old), "{partition:?}");
    fixture.produce(id, "without").await;
    for other in kept {
        fixture.produce(other, "not touched").await;
    }
    assert_eq!(handle.parts().await, parts, "nothing else of the node ended");
    assert!(fixture.node(old).partition(id).is_none(), "it stays offline there");

    fixture.cluster.crash_node(old).await;
    fixture.cluster.start_node(old).await.unwrap();
    fixture.reconnect().await;
    fixture.wait_for_isr(id, &[1, 2, 3]).await;
    let read: Vec<String> = fixture.read(id).await.into_values().collect();
    assert_eq!(read, ["before", "without"]);
    fixture.cluster.stop().await;
}

async fn the_only_replica_that_ends_too_often_waits_for_its_node(links: LinkMode) {
    let mut fixture = Fixture::start("only", 3, links, &[]).await;
    fixture.create("t", 1, 1).await;
    let id = fixture.id("t", 0);
    let only = fixture.leader(id).await;
    fixture.produce(id, "before").await;
    kill_until(&fixture, only, id, async || fixture.seen(id).leader.is_none()).await;
    assert!(fixture.seen(id).is_in_sync(only), "it alone has everything");
    fixture.cluster.stop_node(only).await;
    fixture.cluster.start_node(only).await.unwrap();
    fixture.reconnect().await;
    fixture.produce(id, "after").await;
    let read: Vec<String> = fixture.read(id).await.into_values().collect();
    assert_eq!(read, ["before", "after"]);
    fixture.cluster.stop().await;
}

/// Kills a partition's actor whenever it runs, until `done`.
async fn kill_until(
    fixture: &Fixture,
    node: NodeId,
    id: TopicIdPartition,
    mut done: impl AsyncFnMut() -> bool,
) {
    eventually("it was killed often enough", async || {
        if let Some(partition) = fixture.node(node).partition(id) {
            partition.cell().kill();
        }
        done().await
    })
    .await;
}

/// A topic of three partitions, of which each node leads one.
async fn topics_led_by_each(fixture: &Fixture) -> Vec<TopicIdPartition> {
    fixture.create("t", 3, 3).await;
    let ids: Vec<TopicIdPartition> = (0..3).map(|index| fixture.id("t", index)).collect();
    let leaders: BTreeSet<NodeId> = ids.iter().filter_map(|id| fixture.seen(*id).leader).collect();
    assert_eq!(leaders.len(), 3, "each leads one");
    for id in &ids {
        fixture.wait_for_isr(*id, &[1, 2, 3]).await;
    }
    ids
}

/// Waits until every node finds a group's coordinator, which makes the offsets topic first.
async fn make_coordinators(fixture: &Fixture) {
    for node in [1, 2, 3] {
        eventually("a coordinator is found", async || {
            let request = FindCoordinatorRequest {
                coordinator_keys: vec!["group".to_owned()],
                ..FindCoordinatorRequest::default()
            };
            let found: FindCoordinatorResponse = fixture.ask(node, request).await;
            found.coordinators[0].error_code == 0
        })
        .await;
    }
    eventually("every node coordinates something", async || {
        fixture.cluster.directories().values().all(|node| !node.shards().is_empty())
    })
    .await;
}
