//! Clusters of one process, made from few words: how many nodes, where, how they talk. It knows
//! defaults for development; everything else is the node's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::{BrokerConfig, Fault, Profile, Properties};
use log::Driver;
use log::disk::Disk;
use protocol::ids::NodeId;
use raft::consensus::{MemoryStore, Store};

use crate::clock::Clock;
use crate::cluster::{self, ClusterHandle};
use crate::directory::Directory;
use crate::entropy::Entropy;
use crate::node::{Left, NodeArgs};
use crate::peers::LinkMode;
use crate::process::ProcessHandle;

/// Most nodes that vote on metadata; the others follow as learners.
const VOTERS_MAX: usize = 3;

/// What a development cluster is made from.
#[derive(Debug, Clone)]
pub struct DevSpec {
    /// Its name within the process.
    pub name: String,
    /// How many nodes, from 1.
    pub nodes: usize,
    /// Port of the first node's client listener; the others follow. 0 takes free ports.
    pub port: u16,
    /// The folder; each node gets one in it.
    pub dir: PathBuf,
    /// Kafka settings over the defaults.
    pub overrides: Properties,
    /// How the nodes talk.
    pub links: LinkMode,
    /// What everything lies on, and how it runs.
    pub world: World,
}

impl DevSpec {
    /// Whether the nodes' settings hold together and fit the number of nodes, without starting
    /// anything.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(&self) -> Result<(), config::Error> {
        let config = node_config(self, NodeId(1), &self.dir)?;
        config::Error::from_faults(replication_faults(&config, self.nodes))
    }
}

/// Replicas that no node is there for: the first topic to be made would be refused, long after the
/// start.
fn replication_faults(config: &BrokerConfig, nodes: usize) -> Vec<Fault> {
    let factors = [
        ("default.replication.factor", config.default_replication_factor),
        ("offsets.topic.replication.factor", config.groups.offsets_topic_replication_factor),
        ("mirror.topic.replication.factor", config.mirror.topic_replication_factor),
    ];
    let replicas = |factor: i32| usize::try_from(factor).unwrap_or(0);
    let mut faults: Vec<Fault> = factors
        .iter()
        .filter(|(_, factor)| replicas(*factor) > nodes)
        .map(|(key, factor)| {
            Fault::Conflict(format!(
                "'{key}' is {factor}, and the cluster has {nodes} node(s): start more nodes or \
                 lower it"
            ))
        })
        .collect();
    let in_sync = config.topic_defaults.min_insync_replicas;
    let factor = config.default_replication_factor;
    if in_sync > replicas(factor) {
        faults.push(Fault::Conflict(format!(
            "'min.insync.replicas' is {in_sync}, above the 'default.replication.factor' of \
             {factor} in a cluster of {nodes} node(s): no write with acks=all would be accepted; \
             lower it"
        )));
    }
    faults
}

/// The outside of a cluster: the machine, or a simulation of it.
#[derive(Debug, Clone)]
pub enum World {
    /// Real files, real time, runtimes of each node's own with this many data threads.
    Machine {
        /// Worker threads for data of each node.
        data_threads: usize,
    },
    /// Memory, paused time, one thread; one seed gives one run.
    Simulation {
        /// The seed.
        seed: u64,
        /// A disk for each node, by id.
        disks: BTreeMap<NodeId, Disk>,
        /// A Raft store for each node, by id.
        stores: BTreeMap<NodeId, MemoryStore>,
    },
}

/// Why a cluster does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// A node.
    #[error(transparent)]
    Node(#[from] cluster::Error),
    /// The process's actor.
    #[error("the cluster's actor did not start: {0}")]
    Spawn(String),
    /// It takes too long until topics can be created.
    #[error("the cluster was not ready within {0:?}; the log says what it waits for")]
    NotReady(Duration),
}

/// A running development cluster.
#[derive(Debug)]
pub struct DevCluster {
    cluster: ClusterHandle,
    directories: BTreeMap<NodeId, Arc<Directory>>,
}

impl DevCluster {
    /// Starts all nodes side by side. They serve once [`DevCluster::wait_until_ready`] returns.
    ///
    /// # Errors
    /// Settings, a port in use, a locked folder, a corrupt store.
    pub async fn start(process: &ProcessHandle, spec: &DevSpec) -> Result<DevCluster, Error> {
        let mut cluster = DevCluster::describe(process, spec).await?;
        let ids: Vec<NodeId> = node_ids(spec).collect();
        let starts = ids.iter().map(|id| {
            let handle = cluster.cluster.clone();
            let id = *id;
            tokio::spawn(async move { (id, handle.start_node(id).await) })
        });
        let mut failed = None;
        for start in starts.collect::<Vec<_>>() {
            match start.await {
                Ok((id, Ok(directory))) => {
                    cluster.directories.insert(id, directory);
                }
                Ok((_, Err(error))) => failed = failed.or(Some(error)),
                Err(error) => failed = failed.or(Some(cluster::Error::Failed(error.to_string()))),
            }
        }
        match failed {
            None => Ok(cluster),
            Some(error) => {
                cluster.stop().await;
                Err(error.into())
            }
        }
    }

    /// Describes all nodes and starts none.
    ///
    /// # Errors
    /// Settings.
    pub async fn describe(process: &ProcessHandle, spec: &DevSpec) -> Result<DevCluster, Error> {
        let started = process.start_cluster(&spec.name).await;
        let cluster = started.map_err(|error| Error::Spawn(error.to_string()))?;
        for id in node_ids(spec) {
            cluster.describe(node_args(spec, id, &cluster)?);
        }
        Ok(DevCluster { cluster, directories: BTreeMap::new() })
    }

    /// Waits until topics can be created.
    ///
    /// # Errors
    /// Not within `deadline`.
    pub async fn wait_until_ready(&self, deadline: Duration) -> Result<(), Error> {
        let directories: Vec<_> = self.directories.values().cloned().collect();
        if cluster::wait_until_ready(&directories, deadline).await {
            Ok(())
        } else {
            Err(Error::NotReady(deadline))
        }
    }

    /// The client addresses of the running nodes, for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<String> = self
            .directories
            .values()
            .filter_map(|directory| {
                let advertised = directory.advertised();
                let first = advertised.first()?;
                Some(format!("{}:{}", first.host, first.port))
            })
            .collect();
        addresses.join(",")
    }

    /// The running nodes.
    pub fn directories(&self) -> &BTreeMap<NodeId, Arc<Directory>> {
        &self.directories
    }

    /// The cluster's handle, for links and faults.
    pub fn handle(&self) -> &ClusterHandle {
        &self.cluster
    }

    /// Starts a node that is described and does not run.
    ///
    /// # Errors
    /// See [`ClusterHandle::start_node`].
    pub async fn start_node(&mut self, id: NodeId) -> Result<Arc<Directory>, cluster::Error> {
        let directory = self.cluster.start_node(id).await?;
        self.directories.insert(id, Arc::clone(&directory));
        Ok(directory)
    }

    /// Ends a node as a killed process ends.
    pub async fn crash_node(&mut self, id: NodeId) {
        self.directories.remove(&id);
        self.cluster.crash_node(id).await;
    }

    /// Ends a node in order.
    pub async fn stop_node(&mut self, id: NodeId) {
        self.directories.remove(&id);
        self.cluster.stop_node(id, Left::Others).await;
    }

    /// Ends all nodes as killed processes end.
    pub async fn crash(&mut self) {
        self.end_all(|cluster, id| async move { cluster.crash_node(id).await }).await;
    }

    /// Ends all nodes in order.
    pub async fn stop(&mut self) {
        self.end_all(|cluster, id| async move { cluster.stop_node(id, Left::Nobody).await }).await;
    }

    async fn end_all<F>(&mut self, end: impl Fn(ClusterHandle, NodeId) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let ids = std::mem::take(&mut self.directories).into_keys();
        let ends: Vec<_> = ids.map(|id| tokio::spawn(end(self.cluster.clone(), id))).collect();
        for ended in ends {
            if let Err(error) = ended.await {
                tracing::error!(%error, "a node did not end");
            }
        }
    }
}

fn node_ids(spec: &DevSpec) -> impl Iterator<Item = NodeId> + use<> {
    let nodes = i32::try_from(spec.nodes).unwrap_or(i32::MAX);
    (1..=nodes).map(NodeId)
}

fn node_args(spec: &DevSpec, id: NodeId, cluster: &ClusterHandle) -> Result<NodeArgs, Error> {
    let dir = spec.dir.join(format!("node-{id}"));
    let log_path = dir.join("data");
    let config = Arc::new(node_config(spec, id, &log_path)?);
    let index = u64::from(id.0.unsigned_abs());
    let (disk, driver, store, clock, entropy, data_threads) = match &spec.world {
        World::Machine { data_threads } => (
            Disk::os(),
            Driver::Thread,
            Store::Sled { dir: dir.join("metadata"), sync: true },
            Clock::System,
            Entropy::System,
            Some(*data_threads),
        ),
        World::Simulation { seed, disks, stores } => (
            disks.get(&id).cloned().unwrap_or_else(Disk::memory),
            Driver::Inline,
            Store::Memory(stores.get(&id).cloned().unwrap_or_default()),
            Clock::simulated(protocol::ids::TimestampMs(1_700_000_000_000)),
            Entropy::seeded(seed.wrapping_mul(31).wrapping_add(index)),
            None,
        ),
    };
    Ok(NodeArgs {
        cluster: spec.name.clone(),
        config,
        log_path,
        disk,
        driver,
        store,
        links: spec.links,
        neighbours: Arc::clone(cluster.neighbours()),
        clock,
        entropy,
        data_threads,
    })
}

fn node_config(
    spec: &DevSpec,
    id: NodeId,
    log_path: &std::path::Path,
) -> Result<BrokerConfig, config::Error> {
    let voters: Vec<NodeId> = voters(spec);
    let port = match spec.port {
        0 => 0,
        first => first.saturating_add(u16::try_from(id.0 - 1).unwrap_or(u16::MAX)),
    };
    let controller = voters.contains(&id);
    let replicas = spec.nodes.min(3).to_string();
    let listed: Vec<String> = voters.iter().map(|id| format!("{id}@127.0.0.1:0")).collect();
    let mut settings = Properties::new();
    let mut set = |key: &str, value: String| settings.insert(key.to_string(), value);
    set("node.id", id.to_string());
    set("process.roles", if controller { "broker,controller" } else { "broker" }.to_string());
    set("listeners", format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"));
    set("controller.listener.names", "CONTROLLER".to_string());
    set("controller.quorum.voters", listed.join(","));
    set("log.dirs", log_path.display().to_string());
    set("default.replication.factor", replicas.clone());
    set("offsets.topic.replication.factor", replicas.clone());
    set("mirror.topic.replication.factor", replicas);
    settings.extend(spec.overrides.clone());
    BrokerConfig::from_settings(settings, Profile::Dev)
}

/// An even number of voters survives no more than one less.
fn voters(spec: &DevSpec) -> Vec<NodeId> {
    let count = if spec.nodes < VOTERS_MAX { 1 } else { VOTERS_MAX };
    node_ids(spec).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(nodes: usize, overrides: &[(&str, &str)]) -> Vec<String> {
        let settings = overrides.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        let spec = DevSpec {
            name: "dev".to_owned(),
            nodes,
            port: 0,
            dir: PathBuf::from("/nowhere"),
            overrides: settings.collect(),
            links: LinkMode::Local,
            world: World::Machine { data_threads: 1 },
        };
        match spec.check() {
            Ok(()) => Vec::new(),
            Err(error) => error.faults().iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn more_replicas_than_nodes_are_refused_at_the_start() {
        assert_eq!(faults(1, &[]), Vec::<String>::new());
        assert_eq!(faults(5, &[("default.replication.factor", "5")]), Vec::<String>::new());
        for key in [
            "default.replication.factor",
            "offsets.topic.replication.factor",
            "mirror.topic.replication.factor",
        ] {
            let faults = faults(3, &[(key, "5")]);
            let [fault] = faults.as_slice() else { panic!("{faults:?}") };
            assert!(fault.contains(key) && fault.contains("is 5"), "{fault}");
            assert!(fault.contains("3 node(s)"), "{fault}");
        }
    }

    #[test]
    fn more_in_sync_replicas_than_replicas_are_refused_at_the_start() {
        assert_eq!(faults(3, &[("min.insync.replicas", "3")]), Vec::<String>::new());
        let faults = faults(1, &[("min.insync.replicas", "2")]);
        assert!(matches!(faults.as_slice(), [fault] if fault.contains("is 2")), "{faults:?}");
    }
}
