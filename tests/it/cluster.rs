//! Clusters of one to five nodes inside the test's process: they become ready, spread replicas,
//! hand over what they lead when they stop, and lose nothing when one that does not vote ends.

use std::collections::{BTreeMap, BTreeSet};

use actors::peers::LinkMode;
use protocol::ids::{NodeId, TopicIdPartition};

use crate::fixture::{Fixture, eventually, over_both_links};

over_both_links! {
    one_node_and_three_become_ready,
    of_five_nodes_three_vote_and_a_learner_may_die,
    a_clean_stop_hands_leaderships_over,
}

async fn one_node_and_three_become_ready(links: LinkMode) {
    for nodes in [1, 3] {
        let mut fixture = Fixture::start("ready", nodes, links, &[]).await;
        assert_eq!(fixture.client.view().brokers.len(), nodes);
        fixture.cluster.stop().await;
    }
}

async fn of_five_nodes_three_vote_and_a_learner_may_die(links: LinkMode) {
    let mut fixture = Fixture::start("five", 5, links, &[]).await;
    eventually("three vote and two follow, as all five say", async || {
        fixture.cluster.directories().values().all(|node| {
            let metrics = node.controller().unwrap().consensus().metrics();
            let voters: BTreeSet<NodeId> =
                metrics.voters.iter().filter_map(|id| metrics.members.get(id).copied()).collect();
            voters == [1, 2, 3].map(NodeId).into() && metrics.members.len() == 5
        })
    })
    .await;
    fixture.create("t", 10, 3).await;
    let ids: Vec<TopicIdPartition> = (0..10).map(|index| fixture.id("t", index)).collect();
    let mut held: BTreeMap<NodeId, usize> = BTreeMap::new();
    for id in &ids {
        let partition = fixture.seen(*id);
        assert_eq!(partition.replicas.len(), 3);
        partition.replicas.iter().for_each(|node| *held.entry(*node).or_default() += 1);
    }
    assert_eq!(held.len(), 5, "every node holds replicas: {held:?}");
    for (index, id) in ids.iter().enumerate() {
        fixture.produce(*id, &format!("before-{index}")).await;
    }
    let learner = NodeId(5);
    let led = |fixture: &Fixture| {
        ids.iter().filter(|id| fixture.seen(**id).leader == Some(learner)).count()
    };
    assert!(led(&fixture) > 0, "it leads something");
    fixture.cluster.crash_node(learner).await;
    eventually("others lead", async || led(&fixture) == 0).await;
    for (index, id) in ids.iter().enumerate() {
        fixture.produce(*id, &format!("after-{index}")).await;
        let read: Vec<String> = fixture.read(*id).await.into_values().collect();
        assert!(read.contains(&format!("before-{index}")), "{read:?}");
        assert!(read.contains(&format!("after-{index}")), "{read:?}");
    }
    fixture.cluster.start_node(learner).await.unwrap();
    fixture.reconnect().await;
    for id in &ids {
        let replicas: Vec<i32> = fixture.seen(*id).replicas.iter().map(|node| node.0).collect();
        fixture.wait_for_isr(*id, &replicas).await;
    }
    fixture.cluster.stop().await;
}

/// Sessions outlast the test's patience: whoever waited for one to run out would fail.
async fn a_clean_stop_hands_leaderships_over(links: LinkMode) {
    let settings = [("broker.session.timeout.ms", "120000")];
    let mut fixture = Fixture::start("handover", 3, links, &settings).await;
    fixture.create("t", 6, 3).await;
    let ids: Vec<TopicIdPartition> = (0..6).map(|index| fixture.id("t", index)).collect();
    for id in &ids {
        fixture.wait_for_isr(*id, &[1, 2, 3]).await;
    }
    let mut acknowledged: BTreeMap<TopicIdPartition, BTreeSet<String>> = BTreeMap::new();
    for round in 0..3 {
        let stopped = NodeId(round + 1);
        let written = write_while_it_stops(&mut fixture, &ids, stopped, round).await;
        for (id, values) in written {
            acknowledged.entry(id).or_default().extend(values);
        }
        for id in &ids {
            assert_ne!(fixture.leader(*id).await, stopped);
        }
        fixture.cluster.start_node(stopped).await.unwrap();
        fixture.reconnect().await;
        for id in &ids {
            fixture.wait_for_isr(*id, &[1, 2, 3]).await;
        }
    }
    for (id, values) in acknowledged {
        let read: BTreeSet<String> = fixture.read(id).await.into_values().collect();
        assert!(values.is_subset(&read), "lost: {:?}", values.difference(&read));
    }
    fixture.cluster.stop().await;
}

/// Stops a node while records are written to every partition. Says what was acknowledged.
async fn write_while_it_stops(
    fixture: &mut Fixture,
    ids: &[TopicIdPartition],
    stopped: NodeId,
    round: i32,
) -> BTreeMap<TopicIdPartition, BTreeSet<String>> {
    let handle = fixture.cluster.handle().clone();
    let witness = fixture.cluster.directories().values().find(|n| n.node_id() != stopped);
    let witness = std::sync::Arc::clone(witness.unwrap());
    let stop = tokio::spawn(async move {
        handle.stop_node(stopped, actors::node::Left::Others).await;
        // What the others know at this moment is what the stop left behind.
        witness.image()
    });
    let mut acknowledged: BTreeMap<TopicIdPartition, BTreeSet<String>> = BTreeMap::new();
    let mut index = 0;
    while !stop.is_finished() || index < 20 {
        for id in ids {
            let value = format!("{round}-{index}");
            fixture.produce(*id, &value).await;
            acknowledged.entry(*id).or_default().insert(value);
        }
        index += 1;
    }
    let left = stop.await.unwrap();
    for id in ids {
        let leader = left.topics.partition(*id).unwrap().leader;
        assert!(leader.is_some_and(|leader| leader != stopped), "left behind: {leader:?}");
    }
    fixture.cluster.stop_node(stopped).await;
    acknowledged
}
