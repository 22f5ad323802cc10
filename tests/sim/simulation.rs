//! One simulated cluster: its runtime, its disks, its Raft stores, and the ways a node can go. It
//! writes and reads no record.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actors::dev::{DevCluster, DevSpec, World};
use actors::directory::Directory;
use actors::entropy::Entropy;
use actors::peers::LinkMode;
use actors::process::ProcessHandle;
use log::disk::{Disk, MemoryDisk};
use net::Faults;
use protocol::ids::NodeId;
use raft::consensus::MemoryStore;
use tracing_subscriber::layer::SubscriberExt;

use crate::trace::Trace;

/// Virtual time after which a cluster counts as stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes that run, shared with clients. A node that ended is taken out.
pub type Running = Arc<Mutex<BTreeMap<NodeId, Arc<Directory>>>>;

/// How a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// As by kill -9: what was written is there, synced or not.
    Kill,
    /// As by a power cut: what was not synced is gone.
    PowerCut,
}

/// A running cluster of the simulation.
pub struct Simulation {
    /// What all random choices come from.
    pub random: Entropy,
    /// What happened.
    pub trace: Trace,
    /// The running nodes.
    pub running: Running,
    cluster: DevCluster,
    disks: BTreeMap<NodeId, MemoryDisk>,
    stores: BTreeMap<NodeId, MemoryStore>,
    _process: ProcessHandle,
}

/// Runs one story with one seed and returns its trace. A panic of the story names the seed and
/// shows the end of the trace.
pub fn run<T>(
    seed: u64,
    nodes: usize,
    story: impl AsyncFnOnce(&mut Simulation) -> T,
) -> (Trace, T) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let trace = Trace::default();
    let subscriber = tracing_subscriber::registry().with(trace.clone());
    let shown = ShowOnPanic { seed, trace: trace.clone() };
    let told = tracing::subscriber::with_default(subscriber, || {
        let told = runtime.block_on(async {
            trace.start();
            let mut simulation = Simulation::start(seed, nodes, trace.clone()).await;
            let told = story(&mut simulation).await;
            trace.end();
            simulation.end().await;
            told
        });
        drop(runtime);
        told
    });
    drop(shown);
    (trace, told)
}

struct ShowOnPanic {
    seed: u64,
    trace: Trace,
}

impl Drop for ShowOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} failed; its last events:\n{}", self.seed, self.trace.tail(60));
            if let Some(dir) = std::env::var_os("HELIOGRAPH_SIM_TRACES") {
                let file = PathBuf::from(dir).join(format!("seed-{}.log", self.seed));
                if let Err(error) = std::fs::write(&file, self.trace.tail(usize::MAX)) {
                    eprintln!("{}: {error}", file.display());
                }
            }
        }
    }
}

impl Simulation {
    async fn start(seed: u64, nodes: usize, trace: Trace) -> Simulation {
        let ids = || (1..=i32::try_from(nodes).unwrap()).map(NodeId);
        let disks: BTreeMap<_, _> = ids().map(|id| (id, MemoryDisk::new())).collect();
        let stores: BTreeMap<_, _> = ids().map(|id| (id, MemoryStore::new())).collect();
        let spec = DevSpec {
            name: format!("simulated-{seed}"),
            nodes,
            port: 0,
            dir: PathBuf::from("/simulated"),
            overrides: config::Properties::new(),
            links: LinkMode::Local,
            world: World::Simulation {
                seed,
                disks: disks.iter().map(|(id, disk)| (*id, Disk::Memory(disk.clone()))).collect(),
                stores: stores.clone(),
            },
        };
        let process = ProcessHandle::start().await.unwrap();
        let cluster = DevCluster::start(&process, &spec).await.unwrap();
        cluster.wait_until_ready(PATIENCE).await.unwrap();
        let running = Arc::new(Mutex::new(cluster.directories().clone()));
        let random = Entropy::seeded(seed ^ 0x5eed);
        Simulation { random, trace, running, cluster, disks, stores, _process: process }
    }

    /// All nodes, running or not.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.disks.keys().copied().collect()
    }

    /// The disk of a node.
    pub fn disk(&self, node: NodeId) -> &MemoryDisk {
        &self.disks[&node]
    }

    /// The Raft store of a node.
    pub fn store(&self, node: NodeId) -> &MemoryStore {
        &self.stores[&node]
    }

    /// The faults on the way from one node to another.
    pub fn faults(&self, from: NodeId, to: NodeId) -> Faults {
        self.cluster.handle().neighbours().faults(from, to)
    }

    /// Whether a node runs.
    pub fn runs(&self, node: NodeId) -> bool {
        self.running.lock().unwrap().contains_key(&node)
    }

    /// Ends nodes, all at one moment.
    pub async fn crash(&mut self, nodes: &[NodeId], how: Crash) {
        self.trace.note(&format!("crash {nodes:?} {how:?}"));
        for node in nodes {
            if how == Crash::PowerCut {
                // Nothing the node still does reaches its disk.
                self.disks[node].crash();
                self.stores[node].crash();
            }
        }
        for node in nodes {
            if let Some(directory) = self.running.lock().unwrap().remove(node) {
                directory.stopped.cancel();
            }
        }
        for node in nodes {
            self.cluster.crash_node(*node).await;
        }
    }

    /// Ends a node in order.
    pub async fn stop(&mut self, node: NodeId) {
        self.trace.note(&format!("stop {node}"));
        self.running.lock().unwrap().remove(&node);
        self.cluster.stop_node(node).await;
    }

    /// Starts a node that does not run.
    pub async fn restart(&mut self, node: NodeId) {
        self.trace.note(&format!("start {node}"));
        let directory = self.cluster.start_node(node).await.unwrap();
        self.running.lock().unwrap().insert(node, directory);
    }

    /// Mends every link and starts every node.
    pub async fn heal(&mut self) {
        for (from, to) in self.pairs() {
            self.faults(from, to).clear();
        }
        for node in self.nodes() {
            if !self.runs(node) {
                self.restart(node).await;
            }
        }
        self.cluster.wait_until_ready(PATIENCE).await.expect("the healed cluster becomes ready");
    }

    /// All directed pairs of different nodes.
    pub fn pairs(&self) -> Vec<(NodeId, NodeId)> {
        let nodes = self.nodes();
        let to = |from: NodeId| nodes.clone().into_iter().map(move |to| (from, to));
        nodes.iter().flat_map(|from| to(*from)).filter(|(from, to)| from != to).collect()
    }

    async fn end(&mut self) {
        self.cluster.crash().await;
    }
}
