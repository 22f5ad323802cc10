//! The log start of a mirror partition follows the source's on every replica (D21), also where the
//! source's lies above the high watermark when it becomes known.

use std::collections::BTreeMap;
use std::time::Duration;

use actors::peers::LinkMode;
use bytes::Bytes;
use protocol::ids::{NodeId, Offset, TopicIdPartition};

use crate::fixture::{Fixture, PATIENCE, eventually, over_both_links};

over_both_links! { a_log_start_above_the_high_watermark_is_followed_once_that_rises }

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

async fn a_log_start_above_the_high_watermark_is_followed_once_that_rises(links: LinkMode) {
    let mut written = BTreeMap::new();
    let mut source = Fixture::start("source", 1, links, &[]).await;
    source.create("t", 1, 1).await;
    write(&source, 10, &mut written).await;
    let settings = [("mirror.topic.num.partitions", "3")];
    let mut destination = Fixture::start("destination", 3, links, &settings).await;
    destination.create_mirror(&source.cluster.bootstrap()).await;
    destination.start_mirroring("t").await;
    destination.wait_for_replicas("t", 1).await;
    destination.wait_for_copy("t", &written).await;
    let id = destination.id("t", 0);
    destination.wait_for_isr(id, &[1, 2, 3]).await;

    let leader = destination.leader(id).await;
    let follower = NODES.into_iter().find(|node| *node != leader).unwrap();
    let neighbours = destination.cluster.handle().neighbours();
    let fetches = neighbours.faults(follower, leader);
    fetches.cut();
    write(&source, 5, &mut written).await;
    eventually("the leader has what no follower has", async || {
        view(&destination, leader, id).log_end() == Offset(15)
    })
    .await;
    assert_eq!(view(&destination, leader, id).high_watermark(), Offset(10));
    // What the source says when its records up to 15 were deleted: once, and no more.
    let partition = destination.node(leader).partition(id).unwrap();
    partition.mirror_append(Bytes::new(), Offset(15), PATIENCE).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(view(&destination, leader, id).log_start(), Offset(0), "not before the followers");
    fetches.mend();

    wait_for_start(&destination, id, 15).await;
    write(&source, 2, &mut written).await;
    let copied = written[&0].clone().split_off(&15);
    eventually("reading begins at the log start", async || {
        view(&destination, destination.leader(id).await, id).high_watermark() == Offset(17)
    })
    .await;
    assert_eq!(destination.read_from(id, 15).await, copied);
    destination.wait_for_equal_segments(&NODES, "t", 0).await;
    destination.cluster.stop().await;
    source.cluster.stop().await;
}

async fn write(
    source: &Fixture,
    count: usize,
    written: &mut BTreeMap<i32, BTreeMap<i64, String>>,
) {
    for _ in 0..count {
        let offset = source.produce(source.id("t", 0), "a record").await;
        written.entry(0).or_default().insert(offset, "a record".to_owned());
    }
}

/// Waits until every replica begins there.
async fn wait_for_start(destination: &Fixture, id: TopicIdPartition, start: i64) {
    eventually("every replica follows the log start", async || {
        NODES.iter().all(|node| view(destination, *node, id).log_start() == Offset(start))
    })
    .await;
}

fn view(cluster: &Fixture, node: NodeId, id: TopicIdPartition) -> std::sync::Arc<log::ReadView> {
    cluster.node(node).partition(id).unwrap().shared().view().unwrap()
}
