//! What keeps a mirror running is killed on the destination: mirrors and their fetchers, their
//! supervisor, a whole node; every record of the source arrives once all the same.

use std::collections::BTreeMap;

use actors::node::Victim;
use actors::peers::LinkMode;
use actors::supervision::ChildKind;
use protocol::error_code::ErrorCode;
use protocol::ids::NodeId;

use crate::fixture::{Fixture, OpenConnection, over_both_links};

over_both_links! { killed_mirrors_go_on_where_they_were }

const PARTITIONS: i32 = 3;

async fn killed_mirrors_go_on_where_they_were(links: LinkMode) {
    let mut source = Fixture::start("source", 1, links, &[]).await;
    source.create("t", PARTITIONS, 1).await;
    let mut written = BTreeMap::new();
    write(&source, "first", &mut written).await;
    let settings = [("mirror.topic.num.partitions", "3")];
    let mut destination = Fixture::start("destination", 3, links, &settings).await;
    destination.create_mirror(&source.cluster.bootstrap()).await;
    destination.start_mirroring("t").await;
    destination.wait_for_replicas("t", 3).await;
    destination.wait_for_copy("t", &written).await;

    for victim in [Victim::ChildrenOf(ChildKind::Mirrors), Victim::Part(ChildKind::Mirrors)] {
        for id in [1, 2, 3].map(NodeId) {
            let node = destination.cluster.handle().node(id).await.unwrap();
            let mut connection = OpenConnection::open(destination.node(id)).await;
            let before = node.parts().await;
            assert!(node.kill(victim).await > 0, "{victim:?}");
            write(&source, &format!("{victim:?}-{id}"), &mut written).await;
            destination.wait_for_copy("t", &written).await;
            assert!(connection.answers().await);
            let mut after = node.parts().await;
            if victim == Victim::Part(ChildKind::Mirrors) {
                after.insert(ChildKind::Mirrors, before[&ChildKind::Mirrors]);
            }
            assert_eq!(after, before, "nothing else restarted");
        }
    }
    for round in 1..=3 {
        let crashed = NodeId(round);
        destination.cluster.crash_node(crashed).await;
        write(&source, &format!("crashed-{round}"), &mut written).await;
        destination.wait_for_copy("t", &written).await;
        destination.cluster.start_node(crashed).await.unwrap();
        destination.reconnect().await;
        for partition in 0..PARTITIONS {
            destination.wait_for_isr(destination.id("t", partition), &[1, 2, 3]).await;
        }
    }
    let id = destination.id("t", 0);
    let leader = destination.leader(id).await;
    let refused = destination.produce_to(leader, id, "a client's", -1).await;
    assert_eq!(refused, Some(Err(ErrorCode::PolicyViolation)), "it is read-only all the same");
    destination.cluster.stop().await;
    source.cluster.stop().await;
}

type Written = BTreeMap<i32, BTreeMap<i64, String>>;

/// Writes to every partition of the source.
async fn write(source: &Fixture, name: &str, written: &mut Written) {
    for partition in 0..PARTITIONS {
        let id = source.id("t", partition);
        for index in 0..3 {
            let value = format!("{name}-{index}");
            let offset = source.produce(id, &value).await;
            written.entry(partition).or_default().insert(offset, value);
        }
    }
}
