//! Three nodes that copy each other: what was acknowledged outlives its leader, who comes back
//! rejoins, and what was never committed goes from every log.

use std::collections::BTreeSet;

use actors::node::Victim;
use actors::peers::LinkMode;
use actors::supervision::ChildKind;
use protocol::error_code::ErrorCode;
use protocol::ids::{NodeId, TopicIdPartition};

use crate::fixture::{Fixture, eventually, over_both_links};

over_both_links! {
    a_leader_crashes_and_nothing_acknowledged_is_lost,
    a_diverged_leader_truncates_and_all_logs_become_equal,
    a_leader_that_crashed_with_records_of_its_own_comes_back_without_them,
    too_few_in_sync_replicas_refuse_writes_until_one_is_back,
    a_node_copies_from_each_leader_with_one_fetcher,
}

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

/// Three nodes with one partition of which all have a replica in sync.
async fn in_sync(
    name: &str,
    links: LinkMode,
    settings: &[(&str, &str)],
) -> (Fixture, TopicIdPartition) {
    let fixture = Fixture::start(name, 3, links, settings).await;
    fixture.create("t", 1, 3).await;
    let id = fixture.id("t", 0);
    fixture.wait_for_isr(id, &[1, 2, 3]).await;
    (fixture, id)
}

/// Everything that can be read; what was acknowledged must be among it.
async fn read_all_of(
    fixture: &Fixture,
    id: TopicIdPartition,
    acknowledged: &BTreeSet<String>,
) -> BTreeSet<String> {
    let read: BTreeSet<String> = fixture.read(id).await.into_values().collect();
    assert!(acknowledged.is_subset(&read), "lost: {:?}", acknowledged.difference(&read));
    read
}

async fn a_leader_crashes_and_nothing_acknowledged_is_lost(links: LinkMode) {
    let (mut fixture, id) = in_sync("crash", links, &[]).await;
    let mut acknowledged = BTreeSet::new();
    for round in 0..3 {
        write(&fixture, id, &format!("before-{round}"), 10, &mut acknowledged).await;
        let crashed = fixture.leader(id).await;
        fixture.cluster.crash_node(crashed).await;
        write(&fixture, id, &format!("without-{round}"), 10, &mut acknowledged).await;
        let leader = fixture.leader(id).await;
        assert_ne!(leader, crashed, "another node leads");
        read_all_of(&fixture, id, &acknowledged).await;
        fixture.cluster.start_node(crashed).await.unwrap();
        fixture.wait_for_isr(id, &[1, 2, 3]).await;
        fixture.reconnect().await;
    }
    read_all_of(&fixture, id, &acknowledged).await;
    fixture.wait_for_equal_segments(&NODES, "t", 0).await;
    fixture.cluster.stop().await;
}

async fn a_diverged_leader_truncates_and_all_logs_become_equal(links: LinkMode) {
    let (mut fixture, id) = in_sync("diverged", links, &[]).await;
    let mut acknowledged = BTreeSet::new();
    write(&fixture, id, "common", 5, &mut acknowledged).await;

    let old = fixture.leader(id).await;
    let others: Vec<NodeId> = NODES.into_iter().filter(|node| *node != old).collect();
    cut(&fixture, old, &others, true);
    for index in 0..7 {
        let written = fixture.produce_to(old, id, &format!("lost-{index}"), 1).await;
        assert_eq!(written, Some(Ok(5 + index)), "the old leader does not know yet");
    }
    // Cut off, it can neither commit nor shrink its ISR.
    let alone = fixture.produce_to(old, id, "lost-7", -1).await;
    assert!(!matches!(alone, Some(Ok(_))), "{alone:?}");

    let witness = others[0];
    eventually("another node leads", async || {
        fixture.seen_by(witness, id).leader.is_some_and(|leader| leader != old)
    })
    .await;
    let leader = fixture.seen_by(witness, id).leader.unwrap();
    for index in 0..4 {
        let value = format!("after-{index}");
        eventually("the new leader writes", async || {
            matches!(fixture.produce_to(leader, id, &value, -1).await, Some(Ok(_)))
        })
        .await;
        acknowledged.insert(value);
    }
    cut(&fixture, old, &others, false);
    fixture.wait_for_isr(id, &[1, 2, 3]).await;
    write(&fixture, id, "mended", 3, &mut acknowledged).await;
    fixture.wait_for_equal_segments(&NODES, "t", 0).await;
    let read = read_all_of(&fixture, id, &acknowledged).await;
    assert!(!read.iter().any(|value| value.starts_with("lost")), "{read:?}");
    fixture.cluster.stop().await;
}

async fn a_leader_that_crashed_with_records_of_its_own_comes_back_without_them(links: LinkMode) {
    let (mut fixture, id) = in_sync("own", links, &[]).await;
    let mut acknowledged = BTreeSet::new();
    write(&fixture, id, "common", 5, &mut acknowledged).await;

    let old = fixture.leader(id).await;
    let others: Vec<NodeId> = NODES.into_iter().filter(|node| *node != old).collect();
    cut(&fixture, old, &others, true);
    for index in 0..3 {
        let written = fixture.produce_to(old, id, &format!("lost-{index}"), 1).await;
        assert_eq!(written, Some(Ok(5 + index)));
    }
    fixture.cluster.crash_node(old).await;
    cut(&fixture, old, &others, false);
    write(&fixture, id, "after", 5, &mut acknowledged).await;
    fixture.cluster.start_node(old).await.unwrap();
    fixture.wait_for_isr(id, &[1, 2, 3]).await;
    fixture.reconnect().await;
    fixture.wait_for_equal_segments(&NODES, "t", 0).await;
    let read = read_all_of(&fixture, id, &acknowledged).await;
    assert!(!read.iter().any(|value| value.starts_with("lost")), "{read:?}");
    fixture.cluster.stop().await;
}

async fn too_few_in_sync_replicas_refuse_writes_until_one_is_back(links: LinkMode) {
    let settings = [("min.insync.replicas", "3")];
    let (mut fixture, id) = in_sync("min-isr", links, &settings).await;
    fixture.produce(id, "three").await;
    let leader = fixture.leader(id).await;
    let follower = NODES.into_iter().find(|node| *node != leader).unwrap();
    fixture.cluster.crash_node(follower).await;
    let left: Vec<i32> =
        NODES.into_iter().filter(|node| *node != follower).map(|node| node.0).collect();
    fixture.wait_for_isr(id, &left).await;
    let refused = fixture.produce_to(leader, id, "two", -1).await;
    // The image may be ahead of the leader, which has appended then and cannot commit.
    let few = [ErrorCode::NotEnoughReplicas, ErrorCode::NotEnoughReplicasAfterAppend];
    assert!(few.map(|code| Some(Err(code))).contains(&refused), "{refused:?}");
    fixture.cluster.start_node(follower).await.unwrap();
    fixture.wait_for_isr(id, &[1, 2, 3]).await;
    fixture.produce(id, "three again").await;
    let mut read: Vec<String> = fixture.read(id).await.into_values().collect();
    read.retain(|value| value != "two");
    assert_eq!(read, ["three", "three again"]);
    fixture.cluster.stop().await;
}

async fn a_node_copies_from_each_leader_with_one_fetcher(links: LinkMode) {
    let mut fixture = Fixture::start("fetchers", 3, links, &[]).await;
    // Many partitions of a leader come in one change, while its fetcher is not up yet.
    fixture.create("t", 12, 3).await;
    for partition in 0..12 {
        fixture.wait_for_isr(fixture.id("t", partition), &[1, 2, 3]).await;
    }
    for id in NODES {
        let node = fixture.cluster.handle().node(id).await.unwrap();
        let ended = node.kill(Victim::ChildrenOf(ChildKind::Replicas)).await;
        assert_eq!(ended, 12 + 2, "partitions, and a fetcher for each other node, on {id}");
    }
    fixture.cluster.stop().await;
}

/// Writes records of distinct values and notes which were acknowledged: all.
async fn write(
    fixture: &Fixture,
    id: TopicIdPartition,
    name: &str,
    count: usize,
    acknowledged: &mut BTreeSet<String>,
) {
    for index in 0..count {
        let value = format!("{name}-{index}");
        fixture.produce(id, &value).await;
        acknowledged.insert(value);
    }
}

/// Cuts a node off from others, or mends the links.
fn cut(fixture: &Fixture, one: NodeId, others: &[NodeId], cut: bool) {
    let neighbours = fixture.cluster.handle().neighbours();
    for other in others {
        for faults in [neighbours.faults(one, *other), neighbours.faults(*other, one)] {
            if cut {
                faults.cut();
            } else {
                faults.mend();
            }
        }
    }
}
