//! The nodes of one cluster that live in this process. It starts, stops and crashes them; a node
//! that ended stays ended until it is started again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::ids::NodeId;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use raft::MetadataImage;
use tokio::sync::oneshot;

use crate::children::{Children, why_not_started};
use crate::directory::Directory;
use crate::node::{Left, Node, NodeArgs, NodeHandle};
use crate::partition::pending::send;
use crate::peers::Neighbours;
use crate::supervision::ChildKind;

/// How often listeners are looked at while they open.
const LISTENING_POLL: Duration = Duration::from_millis(1);

/// Why a node was not started.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The node is running.
    #[error("node {0} is running already")]
    Running(NodeId),
    /// No such node was ever described to this cluster.
    #[error("the cluster has no node {0}")]
    Unknown(NodeId),
    /// Its start failed; the sentence says why and what to do.
    #[error("{0}")]
    Failed(String),
    /// The cluster's actor is gone.
    #[error("the cluster has ended")]
    Gone,
}

/// What a cluster can be told.
#[derive(Debug)]
pub enum ClusterMsg {
    /// Describe a node, so that it can be started.
    Describe(Box<NodeArgs>),
    /// Start a node.
    Start {
        /// Which.
        node: NodeId,
        /// Its directory once its parts run.
        reply: RpcReplyPort<Result<Arc<Directory>, Error>>,
    },
    /// A start ended.
    Started {
        /// Which node.
        node: NodeId,
        /// Its handle and its directory.
        result: Result<(NodeHandle, ractor::ActorCell, Arc<Directory>), Error>,
        /// Who asked.
        reply: RpcReplyPort<Result<Arc<Directory>, Error>>,
    },
    /// Lend a node's handle.
    Find {
        /// Which node.
        node: NodeId,
        /// Its handle, if it runs.
        reply: RpcReplyPort<Option<NodeHandle>>,
    },
    /// Tell why a node ended of itself.
    WhyEnded {
        /// Which node.
        node: NodeId,
        /// The sentence; none for a node that runs, or was crashed or stopped.
        reply: RpcReplyPort<Option<String>>,
    },
    /// Give out a node's handle, to crash or stop it.
    Take {
        /// Which node.
        node: NodeId,
        /// Its handle, if it runs. The cluster counts it as ended from now on.
        reply: RpcReplyPort<Option<NodeHandle>>,
    },
}

/// What a cluster is started with.
#[derive(Debug, Clone)]
pub struct ClusterArgs {
    /// Its name within the process.
    pub name: String,
}

/// The actor; everything mutable is in [`ClusterState`].
#[derive(Debug)]
pub struct Cluster;

/// The state of a cluster.
#[derive(Debug)]
pub struct ClusterState {
    name: String,
    described: BTreeMap<NodeId, NodeArgs>,
    running: BTreeMap<NodeId, NodeHandle>,
    ended: BTreeMap<NodeId, String>,
    children: Children<NodeId>,
}

/// A cheap handle to a cluster.
#[derive(Debug, Clone)]
pub struct ClusterHandle {
    actor: ActorRef<ClusterMsg>,
    neighbours: Arc<Neighbours>,
}

impl ClusterHandle {
    /// Starts a cluster without nodes under `supervisor`.
    ///
    /// # Errors
    /// ractor's, when the actor does not start.
    pub async fn start(
        name: &str,
        supervisor: ractor::ActorCell,
    ) -> Result<(ClusterHandle, ractor::ActorCell), ractor::SpawnErr> {
        let args = ClusterArgs { name: name.to_string() };
        let (actor, _join) = Actor::spawn_linked(None, Cluster, args, supervisor).await?;
        let cell = actor.get_cell();
        Ok((ClusterHandle { actor, neighbours: Arc::default() }, cell))
    }

    /// The nodes of the cluster in this process, for links and faults.
    pub fn neighbours(&self) -> &Arc<Neighbours> {
        &self.neighbours
    }

    /// Describes a node, so that it can be started (again and again).
    pub fn describe(&self, args: NodeArgs) {
        if self.actor.cast(ClusterMsg::Describe(Box::new(args))).is_err() {
            tracing::debug!("the cluster has ended");
        }
    }

    /// Starts a node. Its parts run when this returns; it serves once it is registered.
    ///
    /// # Errors
    /// Its start failed: a port in use, a locked folder, a corrupt store.
    pub async fn start_node(&self, node: NodeId) -> Result<Arc<Directory>, Error> {
        self.ask(|reply| ClusterMsg::Start { node, reply }).await.unwrap_or(Err(Error::Gone))
    }

    /// Ends a node as a killed process ends. Returns when it may be started again.
    pub async fn crash_node(&self, node: NodeId) {
        if let Some(node) = self.take(node).await {
            node.crash().await;
        }
    }

    /// Ends a node in order. Returns when it may be started again.
    pub async fn stop_node(&self, node: NodeId, left: Left) {
        if let Some(node) = self.take(node).await {
            node.stop(left).await;
        }
    }

    /// A running node, for chaos.
    pub async fn node(&self, node: NodeId) -> Option<NodeHandle> {
        self.ask(|reply| ClusterMsg::Find { node, reply }).await.flatten()
    }

    /// Why a node ended of itself, until it is started again.
    pub async fn why_ended(&self, node: NodeId) -> Option<String> {
        self.ask(|reply| ClusterMsg::WhyEnded { node, reply }).await.flatten()
    }

    async fn take(&self, node: NodeId) -> Option<NodeHandle> {
        self.ask(|reply| ClusterMsg::Take { node, reply }).await.flatten()
    }

    async fn ask<T: Send + 'static>(
        &self,
        message: impl FnOnce(RpcReplyPort<T>) -> ClusterMsg,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.actor.cast(message(RpcReplyPort::from(sender))).ok()?;
        answer.await.ok()
    }
}

impl Actor for Cluster {
    type Msg = ClusterMsg;
    type State = ClusterState;
    type Arguments = ClusterArgs;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(ClusterState {
            name: args.name,
            described: BTreeMap::new(),
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            children: Children::default(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ClusterMsg::Describe(args) => {
                state.described.insert(NodeId(args.config.node_id), *args);
            }
            ClusterMsg::Start { node, reply } => state.on_start(&myself, node, reply),
            ClusterMsg::Started { node, result, reply } => state.on_started(node, result, reply),
            ClusterMsg::Find { node, reply } => send(reply, state.running.get(&node).cloned()),
            ClusterMsg::WhyEnded { node, reply } => send(reply, state.ended.get(&node).cloned()),
            ClusterMsg::Take { node, reply } => {
                state.children.forget(&node);
                send(reply, state.running.remove(&node));
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(ended) = state.children.on_event(&event) {
            tracing::error!(
                cluster = state.name, node = %ended.key, ending = ?ended.ending,
                "a node ended; it stays stopped until it is started again"
            );
            state.running.remove(&ended.key);
            state.ended.insert(ended.key, ended.ending.why().to_owned());
        }
        Ok(())
    }
}

impl ClusterState {
    fn on_start(
        &mut self,
        myself: &ActorRef<ClusterMsg>,
        node: NodeId,
        reply: RpcReplyPort<Result<Arc<Directory>, Error>>,
    ) {
        if self.running.contains_key(&node) {
            return send(reply, Err(Error::Running(node)));
        }
        let Some(args) = self.described.get(&node).cloned() else {
            return send(reply, Err(Error::Unknown(node)));
        };
        let myself = myself.clone();
        // Nodes start side by side: the parts of one take a while.
        tokio::spawn(async move {
            let (made, directory) = oneshot::channel();
            let started = Actor::spawn_linked(None, Node, (args, made), myself.get_cell()).await;
            let result = match started {
                Ok((actor, _join)) => match directory.await {
                    Ok(directory) => {
                        Ok((NodeHandle::new(actor.clone()), actor.get_cell(), directory))
                    }
                    Err(_dropped) => Err(Error::Failed("the node ended while it started".into())),
                },
                Err(error) => Err(Error::Failed(why_not_started(&error))),
            };
            if myself.cast(ClusterMsg::Started { node, result, reply }).is_err() {
                tracing::debug!(%node, "the cluster ended before its node started");
            }
        });
    }

    fn on_started(
        &mut self,
        node: NodeId,
        result: Result<(NodeHandle, ractor::ActorCell, Arc<Directory>), Error>,
        reply: RpcReplyPort<Result<Arc<Directory>, Error>>,
    ) {
        match result {
            Ok((handle, cell, directory)) => {
                self.children.on_started(node, ChildKind::Node, cell);
                self.running.insert(node, handle);
                self.ended.remove(&node);
                send(reply, Ok(directory));
            }
            Err(error) => send(reply, Err(error)),
        }
    }
}

/// Waits until every node of `directories` is unfenced in every one's image and listens, so that
/// topics can be created. False when it takes longer than `deadline`.
pub async fn wait_until_ready(directories: &[Arc<Directory>], deadline: Duration) -> bool {
    // The registration of an earlier life may still stand unfenced: only this life's counts.
    let unfenced = |image: &MetadataImage| {
        directories.iter().all(|node| {
            let broker = image.cluster.broker(node.node_id());
            broker.is_some_and(|broker| broker.is_active() && broker.epoch == node.broker_epoch())
        })
    };
    let wait = async {
        for directory in directories {
            if !directory.wait_for_image(deadline, unfenced).await {
                return false;
            }
        }
        while !directories.iter().all(|node| is_listening(node)) {
            tokio::time::sleep(LISTENING_POLL).await;
        }
        true
    };
    tokio::time::timeout(deadline, wait).await.unwrap_or(false)
}

/// A simulated node has no sockets and needs none.
fn is_listening(node: &Directory) -> bool {
    node.sockets().is_none_or(|sockets| sockets.are_listening())
}
