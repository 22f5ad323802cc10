//! A stopped topic is mirrored again (D7, D8): what was written here after the stop goes, what
//! came from the source stays, also on a replica that was down meanwhile; and who asks for an
//! epoch that only the records that went had is told where the logs part.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use actors::peers::LinkMode;
use protocol::ids::{LeaderEpoch, NodeId, TopicIdPartition};
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use protocol::messages::{
    FetchRequest, FetchResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};

use crate::fixture::{Fixture, eventually, over_both_links, segments};

over_both_links! { a_replica_that_was_down_while_a_mirror_was_started_again }

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
const LOCAL: i64 = 5;

/// Records so large that what was mirrored fills some segments.
const LARGE: usize = 300_000;

/// Both clusters, and what the source has.
struct Pair {
    source: Fixture,
    destination: Fixture,
    id: TopicIdPartition,
    written: BTreeMap<i32, BTreeMap<i64, String>>,
}

/// Which replica is away.
#[derive(Debug, Clone, Copy)]
enum Away {
    Follower,
    Leader,
}

async fn a_replica_that_was_down_while_a_mirror_was_started_again(links: LinkMode) {
    let mut pair = Pair::start(links).await;
    for (round, away) in [(1, Away::Follower), (2, Away::Leader)] {
        pair.write_to_the_source(&format!("mirrored-{round}"), 8).await;
        pair.wait_until_equal(&NODES).await;
        let local_epoch = pair.fail_over_and_write(round).await;
        pair.write_to_the_source(&format!("since-{round}"), 4).await;
        pair.mirror_again_without(away, round, local_epoch).await;
    }
    pair.destination.cluster.stop().await;
    pair.source.cluster.stop().await;
}

impl Pair {
    async fn start(links: LinkMode) -> Pair {
        let settings = [("log.segment.bytes", "1048576")];
        let source = Fixture::start("source", 1, links, &settings).await;
        source.create("t", 1, 1).await;
        let settings = [("log.segment.bytes", "1048576"), ("mirror.topic.num.partitions", "3")];
        let destination = Fixture::start("destination", 3, links, &settings).await;
        destination.create_mirror(&source.cluster.bootstrap()).await;
        destination.start_mirroring("t").await;
        destination.wait_for_replicas("t", 1).await;
        let id = destination.id("t", 0);
        Pair { source, destination, id, written: BTreeMap::new() }
    }

    async fn write_to_the_source(&mut self, name: &str, count: usize) {
        for index in 0..count {
            let value = format!("{name}-{index}-{}", "x".repeat(LARGE));
            let offset = self.source.produce(self.source.id("t", 0), &value).await;
            self.written.entry(0).or_default().insert(offset, value);
        }
    }

    /// Stops mirroring and writes here, to all replicas: the epoch of those records.
    async fn fail_over_and_write(&self, round: i64) -> LeaderEpoch {
        let end = self.log_end(self.destination.leader(self.id).await);
        self.destination.stop_mirroring("t").await;
        let row = self.destination.wait_for_mirror_state("t", 0, "STOPPED").await;
        assert_eq!((row.last_mirror_epoch, row.last_mirrored_offset), (0, end - 1));
        for index in 0..LOCAL {
            self.destination.produce(self.id, &format!("local-{round}-{index}")).await;
        }
        self.destination.wait_for_equal_segments(&NODES, "t", 0).await;
        let leader = self.destination.leader(self.id).await;
        let epoch = self.view(leader).last_epoch();
        assert!(epoch > LeaderEpoch(0), "local records have an epoch above every source's");
        epoch
    }

    /// Starts mirroring again while one replica is down, which comes back afterwards.
    async fn mirror_again_without(&mut self, away: Away, round: i64, local_epoch: LeaderEpoch) {
        let leader = self.destination.leader(self.id).await;
        let down = match away {
            Away::Leader => leader,
            Away::Follower => NODES.into_iter().find(|node| *node != leader).unwrap(),
        };
        let folder = self.destination.folder(down, "t", 0);
        let shared_end = self.local_start(leader);
        let before = sealed_files(&folder);
        assert!(before.len() >= 2, "{away:?}: {before:?}");
        self.destination.cluster.crash_node(down).await;
        self.destination.reconnect().await;
        let up: Vec<NodeId> = NODES.into_iter().filter(|node| *node != down).collect();
        let up_ids: Vec<i32> = up.iter().map(|node| node.0).collect();
        self.destination.wait_for_isr(self.id, &up_ids).await;
        let truncations = self.truncations(&up);

        self.destination.start_mirroring("t").await;
        let row = self.destination.wait_for_mirror_state("t", 0, "MIRRORING").await;
        // The reset of the producers was cut too.
        assert_eq!(row.records_cut, round * (LOCAL + 1), "{row:?}");
        let reason = row.reason.as_deref().unwrap_or_default();
        assert!(reason.contains(&format!("{} records cut", LOCAL + 1)), "{row:?}");
        self.wait_until_equal(&up).await;
        self.assert_lookups(local_epoch, shared_end).await;
        let epoch = self.destination.seen(self.id).leader_epoch;

        self.destination.cluster.start_node(down).await.unwrap();
        self.destination.reconnect().await;
        self.destination.wait_for_isr(self.id, &[1, 2, 3]).await;
        self.wait_until_equal(&NODES).await;
        let after = sealed_files(&folder);
        assert!(before.iter().all(|file| after.contains(file)), "{before:?} {after:?}");

        // Nothing goes on being repaired: one cut each, and one more for the opening of the log.
        self.write_to_the_source(&format!("calm-{round}"), 2).await;
        self.wait_until_equal(&NODES).await;
        let cut: Vec<u64> = truncations.iter().map(|count| count + 1).collect();
        assert_eq!((self.truncations(&up), self.truncations(&[down])), (cut, vec![2]), "{away:?}");
        assert_eq!(self.destination.seen(self.id).leader_epoch, epoch, "no epoch climbs");
    }

    /// Where the records of the source end, and those begin that were written here.
    fn local_start(&self, leader: NodeId) -> i64 {
        let found = self.view(leader).end_offset_for_epoch(LeaderEpoch(0));
        found.expect("all that was mirrored is of epoch 0").1.0
    }

    /// Between the log's newest epoch, the source's, and the leader's own, the source's answers.
    async fn assert_lookups(&self, local_epoch: LeaderEpoch, shared_end: i64) {
        let leader = self.destination.leader(self.id).await;
        let own = self.destination.seen(self.id).leader_epoch;
        let end = self.log_end(leader);
        assert!(local_epoch <= own && shared_end < end);
        assert_eq!(self.end_of_epoch(leader, LeaderEpoch(0)).await, (0, end));
        assert_eq!(self.end_of_epoch(leader, LeaderEpoch(own.0 + 1)).await, (-1, -1));
        let between = [LeaderEpoch(1), local_epoch, own];
        for asked in BTreeSet::from(between) {
            assert_eq!(self.end_of_epoch(leader, asked).await, (0, end), "{asked}");
            let found = self.fetch_after(leader, asked, shared_end + 1).await;
            let diverging = (found.diverging_epoch.epoch, found.diverging_epoch.end_offset);
            assert_eq!((found.error_code, diverging), (0, (0, end)), "{asked}");
        }
        let found = self.fetch_after(leader, LeaderEpoch(0), shared_end).await;
        assert_eq!((found.error_code, found.diverging_epoch.epoch), (0, -1), "it goes on there");
    }

    async fn end_of_epoch(&self, leader: NodeId, asked: LeaderEpoch) -> (i32, i64) {
        let partition = OffsetForLeaderPartition {
            leader_epoch: asked.0,
            ..OffsetForLeaderPartition::default()
        };
        let request = OffsetForLeaderEpochRequest {
            topics: vec![OffsetForLeaderTopic {
                topic: "t".to_owned(),
                partitions: vec![partition],
            }],
            ..OffsetForLeaderEpochRequest::default()
        };
        let answer: OffsetForLeaderEpochResponse = self.destination.ask(leader.0, request).await;
        let found = &answer.topics[0].partitions[0];
        assert_eq!(found.error_code, 0);
        (found.leader_epoch, found.end_offset)
    }

    async fn fetch_after(&self, leader: NodeId, epoch: LeaderEpoch, offset: i64) -> PartitionData {
        let partition = FetchPartition {
            fetch_offset: offset,
            last_fetched_epoch: epoch.0,
            partition_max_bytes: 1,
            ..FetchPartition::default()
        };
        let topic = FetchTopic {
            topic_id: self.id.topic_id.0,
            partitions: vec![partition],
            ..FetchTopic::default()
        };
        let request = FetchRequest {
            max_bytes: 1,
            session_epoch: -1,
            topics: vec![topic],
            ..FetchRequest::default()
        };
        let answer: FetchResponse = self.destination.ask(leader.0, request).await;
        answer.responses[0].partitions[0].clone()
    }

    /// Waits until these replicas hold what the source holds, byte for byte, and nothing else.
    async fn wait_until_equal(&self, nodes: &[NodeId]) {
        self.destination.wait_for_copy("t", &self.written).await;
        let whole = bytes(&self.source.folder(NodeId(1), "t", 0));
        eventually("the replicas equal the source", async || {
            nodes.iter().all(|node| bytes(&self.destination.folder(*node, "t", 0)) == whole)
        })
        .await;
    }

    fn view(&self, node: NodeId) -> std::sync::Arc<log::ReadView> {
        self.destination.node(node).partition(self.id).unwrap().shared().view().unwrap()
    }

    fn log_end(&self, node: NodeId) -> i64 {
        self.view(node).log_end().0
    }

    fn truncations(&self, nodes: &[NodeId]) -> Vec<u64> {
        nodes.iter().map(|node| self.view(*node).truncations()).collect()
    }
}

/// All batches of a partition's folder.
fn bytes(folder: &Path) -> Vec<u8> {
    segments(folder).into_values().flatten().collect()
}

/// The segments that are full: which file each is, and when it was written last.
fn sealed_files(folder: &Path) -> Vec<(String, u64, i64, i64)> {
    let mut names: Vec<String> = segments(folder).into_keys().collect();
    // The last two may lie, as a whole or in part, behind what was mirrored.
    names.truncate(names.len().saturating_sub(2));
    let stat = |name: String| {
        let found = std::fs::metadata(folder.join(&name)).unwrap();
        (name, found.ino(), found.mtime(), found.mtime_nsec())
    };
    names.into_iter().map(stat).collect()
}
