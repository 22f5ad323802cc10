//! A cluster in one process for tests: members joined by calls that can be cut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::*;
use crate::{FeatureLevel, MetadataRecord};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The links between members.
#[derive(Default)]
pub(super) struct Links {
    pub(super) up: Mutex<BTreeMap<NodeId, Consensus>>,
    cut: Mutex<BTreeSet<(NodeId, NodeId)>>,
}

struct Link {
    links: Arc<Links>,
    from: NodeId,
}

impl Transport for Link {
    fn call(
        &self,
        target: NodeId,
        request: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        let (links, from) = (Arc::clone(&self.links), self.from);
        Box::pin(async move {
            let refused = |reason: &str| TransportError { target, reason: reason.to_owned() };
            let peer = links.reach(from, target).ok_or_else(|| refused("down"))?;
            let answer = peer.on_rpc(request).await;
            links.reach(target, from).map(|_| answer).ok_or_else(|| refused("cut"))
        })
    }
}

impl Links {
    fn reach(&self, from: NodeId, to: NodeId) -> Option<Consensus> {
        let pair = (from.min(to), from.max(to));
        if self.cut.lock().contains(&pair) { None } else { self.up.lock().get(&to).cloned() }
    }
}

/// Which store a test runs on.
#[derive(Clone, Copy, Debug)]
pub(super) enum On {
    Memory,
    Sled,
}

/// Members 1 to n on nodes 1 to n.
pub(super) struct TestCluster {
    pub(super) links: Arc<Links>,
    pub(super) stores: BTreeMap<NodeId, Store>,
    pub(super) snapshot_after: u64,
    pub(super) keep_entries: u64,
    pub(super) seed: u64,
    raft_ids: BTreeMap<NodeId, RaftId>,
    _dir: TempDir,
}

pub(super) fn node(id: i32) -> NodeId {
    NodeId(id)
}

pub(super) fn record(name: &str, level: i16) -> MetadataRecord {
    MetadataRecord::FeatureLevel(FeatureLevel { name: name.to_owned(), level })
}

pub(super) fn level(image: &crate::MetadataImage, name: &str) -> Option<i16> {
    image.features.get(name).copied()
}

impl TestCluster {
    pub(super) fn new(on: On, nodes: i32) -> TestCluster {
        let dir = TempDir::new().unwrap();
        let store = |id: i32| match on {
            On::Memory => Store::Memory(MemoryStore::new()),
            On::Sled => Store::Sled { dir: dir.path().join(id.to_string()), sync: true },
        };
        TestCluster {
            links: Arc::default(),
            stores: (1..=nodes).map(|id| (node(id), store(id))).collect(),
            snapshot_after: 1_000,
            keep_entries: 100,
            seed: 7,
            raft_ids: (1..=nodes)
                .map(|id| (node(id), RaftId(u64::try_from(id).unwrap() * 11)))
                .collect(),
            _dir: dir,
        }
    }

    pub(super) fn members(&self) -> BTreeMap<RaftId, NodeId> {
        self.raft_ids.iter().map(|(node, id)| (*id, *node)).collect()
    }

    pub(super) fn raft_id(&self, node: NodeId) -> RaftId {
        self.raft_ids[&node]
    }

    /// Gives a node an empty directory, which makes it another member.
    pub(super) fn empty(&mut self, node: NodeId, store: Store) {
        self.stores.insert(node, store);
        self.raft_ids.insert(node, RaftId(self.raft_ids[&node].0 + 1_000));
    }

    pub(super) async fn try_start(&self, node: NodeId) -> Result<Consensus, Error> {
        let store = self.stores[&node].clone();
        let mut options = ConsensusOptions::new(self.raft_ids[&node], node, store);
        options.snapshot_after_entries = self.snapshot_after;
        options.keep_entries = self.keep_entries;
        options.seed = Some(self.seed + u64::try_from(node.0).unwrap());
        let link = Link { links: Arc::clone(&self.links), from: node };
        let consensus = Consensus::start(options, Arc::new(link)).await?;
        self.links.up.lock().insert(node, consensus.clone());
        Ok(consensus)
    }

    pub(super) async fn start(&self, node: NodeId) -> Consensus {
        self.try_start(node).await.unwrap()
    }

    /// Starts all nodes and forms the cluster on the first.
    pub(super) async fn form(&self) -> BTreeMap<NodeId, Consensus> {
        let mut nodes = BTreeMap::new();
        for node in self.stores.keys() {
            nodes.insert(*node, self.start(*node).await);
        }
        let first = nodes.first_key_value().unwrap().1;
        first.initialise(self.members()).await.unwrap();
        nodes
    }

    /// Takes a node off the links, so that nobody reaches it and it reaches nobody.
    pub(super) fn unplug(&self, node: NodeId) {
        self.links.up.lock().remove(&node);
        for other in self.stores.keys() {
            self.links.cut.lock().insert((node.min(*other), node.max(*other)));
        }
    }

    pub(super) fn plug(&self, consensus: &Consensus) {
        let node = consensus.node_id();
        self.links.cut.lock().retain(|(one, other)| *one != node && *other != node);
        self.links.up.lock().insert(node, consensus.clone());
    }

    /// Waits for one of `nodes` to be a leader that may decide.
    pub(super) async fn leader(&self, nodes: &BTreeMap<NodeId, Consensus>) -> Consensus {
        let waits = async {
            loop {
                for consensus in nodes.values() {
                    if consensus.leadership().borrow().ready {
                        return consensus.clone();
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waits).await.expect("a leader within the patience")
    }
}

/// Waits until the image of a node says so.
pub(super) async fn until(
    consensus: &Consensus,
    what: &str,
    holds: impl Fn(&crate::MetadataImage) -> bool,
) {
    let waits = async {
        while !holds(&consensus.image()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, waits).await.is_err() {
        panic!("{consensus:?} never saw: {what}; {:?}", consensus.metrics());
    }
}

/// Stops a node in order and waits until its directory is free.
pub(super) async fn stop(cluster: &TestCluster, consensus: Consensus) {
    cluster.links.up.lock().remove(&consensus.node_id());
    let guard = consensus.shutdown().await;
    drop(consensus);
    closed(guard).await;
}

pub(super) async fn closed(guard: StoreGuard) {
    tokio::time::timeout(PATIENCE, guard.closed()).await.expect("the store closes");
}
