//! One node: its directory, its runtimes, and the supervisor of its parts. It lives on the
//! process's runtime, so that it survives the crash of what it supervises.

pub mod meta;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use log::Driver;
use log::disk::Disk;
use protocol::ids::NodeId;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use raft::consensus::Store;

use crate::children::{Children, Ended};
use crate::clock::Clock;
use crate::controller::{Controller, ControllerArgs};
use crate::coordinators::{Coordinators, CoordinatorsArgs};
use crate::directory::{Directory, DirectoryParts, Identity};
use crate::edge::{Edge, EdgeArgs};
use crate::entropy::Entropy;
use crate::lifecycle::{Lifecycle, LifecycleArgs};
use crate::mirrors::{Mirrors, MirrorsArgs};
use crate::partition::pending::send;
use crate::peers::{LinkMode, Neighbours, Peers};
use crate::replicas::isr_changes::SharedQueue;
use crate::replicas::{Replicas, ReplicasArgs};
use crate::runtimes::NodeRuntimes;
use crate::storage::{Storage, StorageArgs};
use crate::supervision::{ChildKind, Verdict};

/// How long a clean stop may take before it becomes a hard one.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// The parts of a node, in the order they start.
const PARTS: [ChildKind; 7] = [
    ChildKind::Storage,
    ChildKind::Controller,
    ChildKind::Replicas,
    ChildKind::Coordinators,
    ChildKind::Mirrors,
    ChildKind::Edge,
    ChildKind::Lifecycle,
];

/// What a node is started with.
#[derive(Debug, Clone)]
pub struct NodeArgs {
    /// Name of its cluster within the process.
    pub cluster: String,
    /// Its settings.
    pub config: Arc<config::BrokerConfig>,
    /// Where its logs lie.
    pub log_path: PathBuf,
    /// What they lie on.
    pub disk: Disk,
    /// Who runs the log's writer.
    pub driver: Driver,
    /// Where Raft keeps its log and vote.
    pub store: Store,
    /// How it talks to the nodes of this process.
    pub links: LinkMode,
    /// Its neighbours.
    pub neighbours: Arc<Neighbours>,
    /// Its clock.
    pub clock: Clock,
    /// Its random numbers.
    pub entropy: Entropy,
    /// Worker threads for data; `None` runs everything where the node is started (simulation).
    pub data_threads: Option<usize>,
}

/// What a node can be told.
#[derive(Debug)]
pub enum NodeMsg {
    /// A part's backoff is over.
    RestartTimeout(ChildKind),
    /// A part was started again, or failed to.
    PartStarted(ChildKind, Result<ActorCell, ractor::SpawnErr>),
    /// Kill something, as a bug would.
    Kill {
        /// What.
        victim: Victim,
        /// How many actors were killed.
        reply: RpcReplyPort<usize>,
    },
    /// Tell which actors are the node's parts at present.
    Parts {
        /// The parts that run, each with the number of its incarnation, unique in the process.
        reply: RpcReplyPort<BTreeMap<ChildKind, u64>>,
    },
    /// End at once, as a killed process does: queues are dropped, nothing is synced.
    Crash {
        /// Answered when the directories may be opened again.
        reply: RpcReplyPort<()>,
    },
    /// Write checkpoints and end.
    Stop {
        /// Whether somebody is left to take the leaderships over.
        left: Left,
        /// Answered when the directories may be opened again.
        reply: RpcReplyPort<()>,
    },
}

/// What to kill in a node: to practise, and to test that it comes back alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// A part, and with it everything it supervises.
    Part(ChildKind),
    /// What a part supervises directly, and not the part.
    ChildrenOf(ChildKind),
    /// The node's own actor.
    Node,
}

/// Who is left when a node stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Other nodes go on: leaderships move to them first.
    Others,
    /// The whole cluster stops: there is nobody to hand anything to.
    Nobody,
}

/// The actor; everything mutable is in [`NodeState`].
#[derive(Debug)]
pub struct Node;

/// The state of a running node.
#[derive(Debug)]
pub struct NodeState {
    args: NodeArgs,
    directory: Arc<Directory>,
    runtimes: Arc<NodeRuntimes>,
    isr_changes: SharedQueue,
    children: Children<ChildKind>,
    myself: ActorRef<NodeMsg>,
}

/// A cheap handle to a node.
#[derive(Debug, Clone)]
pub struct NodeHandle {
    actor: ActorRef<NodeMsg>,
}

impl NodeHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<NodeMsg>) -> NodeHandle {
        NodeHandle { actor }
    }

    /// Kills something in the node. Says how many actors that were.
    pub async fn kill(&self, victim: Victim) -> usize {
        self.ask(|reply| NodeMsg::Kill { victim, reply }).await.unwrap_or_default()
    }

    /// The parts that run at present, each with the number of its incarnation.
    pub async fn parts(&self) -> BTreeMap<ChildKind, u64> {
        self.ask(|reply| NodeMsg::Parts { reply }).await.unwrap_or_default()
    }

    async fn ask<T: Send + 'static>(
        &self,
        message: impl FnOnce(RpcReplyPort<T>) -> NodeMsg,
    ) -> Option<T> {
        let (sender, answer) = tokio::sync::oneshot::channel();
        self.actor.cast(message(RpcReplyPort::from(sender))).ok()?;
        answer.await.ok()
    }

    /// Ends the node as a killed process ends. Returns when it may be started again.
    pub async fn crash(&self) {
        self.end(|reply| NodeMsg::Crash { reply }).await;
    }

    /// Ends the node in order. Returns when it may be started again.
    pub async fn stop(&self, left: Left) {
        self.end(|reply| NodeMsg::Stop { left, reply }).await;
    }

    async fn end(&self, message: impl FnOnce(RpcReplyPort<()>) -> NodeMsg) {
        let (sender, ended) = tokio::sync::oneshot::channel();
        if self.actor.cast(message(RpcReplyPort::from(sender))).is_ok() && ended.await.is_err() {
            tracing::warn!("the node's actor went away while it ended");
        }
    }
}

impl Actor for Node {
    type Msg = NodeMsg;
    type State = NodeState;
    type Arguments = (NodeArgs, tokio::sync::oneshot::Sender<Arc<Directory>>);

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (args, made): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let meta = meta::load_or_create(&args.disk, &args.log_path, &args.config, &args.entropy)?;
        let had_logs = log::log_dir::holds_logs(&args.disk, &args.log_path)?;
        let node_id = NodeId(args.config.node_id);
        let runtimes = Arc::new(match args.data_threads {
            Some(threads) => {
                NodeRuntimes::start(&format!("{}-{}", args.cluster, node_id), threads)?
            }
            None => NodeRuntimes::shared_current(),
        });
        let (directory, isr_changes) = Directory::new(DirectoryParts {
            identity: Identity {
                cluster: args.cluster.clone(),
                node_id,
                directory_id: meta.directory_id,
                had_logs,
            },
            config: Arc::clone(&args.config),
            clock: args.clock,
            entropy: args.entropy.clone(),
            runtimes: runtimes.handles(),
            peers: Peers::new(
                node_id,
                args.links,
                args.config.network.connection_setup_timeout,
                Arc::clone(&args.neighbours),
            ),
        });
        let directory = Arc::new(directory);
        let mut state = NodeState {
            args,
            directory: Arc::clone(&directory),
            runtimes,
            isr_changes: Arc::new(tokio::sync::Mutex::new(isr_changes)),
            children: Children::default(),
            myself,
        };
        for kind in state.parts() {
            match state.spawn_part(kind).await {
                Ok(cell) => state.children.on_started(kind, kind, cell),
                Err(error) => {
                    state.end_at_once().await;
                    return Err(error.into());
                }
            }
            if kind == ChildKind::Controller {
                // Raft has to be there before a peer asks.
                state.args.neighbours.join(node_id, &directory);
            }
        }
        if made.send(directory).is_err() {
            tracing::debug!("nobody waits for the node any more");
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            NodeMsg::RestartTimeout(kind) => state.on_restart_timeout(kind),
            NodeMsg::PartStarted(kind, started) => {
                let result = state.on_part_started(kind, started);
                state.end_if_escalated(result).await?;
            }
            NodeMsg::Kill { victim, reply } => send(reply, state.kill(victim)),
            NodeMsg::Parts { reply } => send(reply, state.incarnations()),
            NodeMsg::Crash { reply } => {
                state.end_at_once().await;
                send(reply, ());
                myself.stop(None);
            }
            NodeMsg::Stop { left, reply } => {
                state.end_in_order(left).await;
                send(reply, ());
                myself.stop(None);
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
            let result = state.on_part_ended(ended);
            state.end_if_escalated(result).await?;
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.end_at_once().await;
        Ok(())
    }
}

impl NodeState {
    /// The parts this node starts. A simulated one opens no sockets: its requests come over links.
    fn parts(&self) -> Vec<ChildKind> {
        if self.args.data_threads.is_some() {
            return PARTS.to_vec();
        }
        let nowhere = raft::Listener {
            name: "PLAINTEXT".to_string(),
            host: "simulated".to_string(),
            port: 1,
            security_protocol: 0,
        };
        self.directory.set_advertised(vec![nowhere]);
        PARTS.into_iter().filter(|kind| *kind != ChildKind::Edge).collect()
    }

    /// Starts one part on its runtime, linked to this actor.
    fn spawn_part(
        &self,
        kind: ChildKind,
    ) -> impl Future<Output = Result<ActorCell, ractor::SpawnErr>> + Send + use<> {
        let me = self.myself.get_cell();
        let directory = Arc::clone(&self.directory);
        let args = self.args.clone();
        let isr_changes = Arc::clone(&self.isr_changes);
        let runtime = match kind {
            ChildKind::Controller | ChildKind::Lifecycle => {
                self.directory.runtimes.control.clone()
            }
            _ => self.directory.runtimes.data.clone(),
        };
        let spawned = runtime.spawn(spawn(kind, args, directory, isr_changes, me));
        async move {
            match spawned.await {
                Ok(result) => result,
                Err(error) => Err(ractor::SpawnErr::StartupFailed(Box::new(error))),
            }
        }
    }

    fn on_part_ended(&mut self, ended: Ended<ChildKind>) -> Result<(), ActorProcessingErr> {
        if self.directory.stopped.is_cancelled() {
            return Ok(());
        }
        match ended.verdict {
            Verdict::Restart(delay) => {
                let kind = ended.key;
                self.myself.send_after(delay, move || NodeMsg::RestartTimeout(kind));
                Ok(())
            }
            Verdict::Stop | Verdict::GiveUp => Ok(()),
            Verdict::Escalate => {
                let node = self.directory.node_id();
                let why = format!(
                    "node {node} stops: its {:?} ended too often, at last because {}",
                    ended.key,
                    ended.ending.why()
                );
                tracing::error!("{why}");
                Err(why.into())
            }
        }
    }

    /// An actor that fails is not asked to clean up, so the node ends before it fails: what it
    /// owns that is no actor (Raft's core, the log directory, sockets) would live on without it.
    async fn end_if_escalated(
        &self,
        result: Result<(), ActorProcessingErr>,
    ) -> Result<(), ActorProcessingErr> {
        if result.is_err() {
            self.end_at_once().await;
        }
        result
    }

    fn on_restart_timeout(&mut self, kind: ChildKind) {
        if self.directory.stopped.is_cancelled() {
            return;
        }
        let part = self.spawn_part(kind);
        let myself = self.myself.clone();
        tokio::spawn(async move {
            let started = part.await;
            if myself.cast(NodeMsg::PartStarted(kind, started)).is_err() {
                tracing::debug!(?kind, "the node ended before its part started");
            }
        });
    }

    fn on_part_started(
        &mut self,
        kind: ChildKind,
        started: Result<ActorCell, ractor::SpawnErr>,
    ) -> Result<(), ActorProcessingErr> {
        match started {
            Ok(cell) => {
                self.children.on_started(kind, kind, cell);
                Ok(())
            }
            Err(error) => {
                let ended = self.children.on_start_failed(kind, kind, &error);
                self.on_part_ended(ended)
            }
        }
    }

    fn kill(&self, victim: Victim) -> usize {
        let killed = match victim {
            Victim::Part(kind) => self.children.cell(&kind).cloned().into_iter().collect(),
            Victim::ChildrenOf(kind) => {
                self.children.cell(&kind).map(ActorCell::get_children).unwrap_or_default()
            }
            Victim::Node => vec![self.myself.get_cell()],
        };
        killed.iter().for_each(ActorCell::kill);
        killed.len()
    }

    fn incarnations(&self) -> BTreeMap<ChildKind, u64> {
        let running = PARTS.iter().filter_map(|kind| {
            let cell = self.children.cell(kind)?;
            Some((*kind, cell.get_id().pid()))
        });
        running.collect()
    }

    /// What a killed process leaves behind: everything stops where it is.
    async fn end_at_once(&self) {
        self.directory.stopped.cancel();
        self.args.neighbours.leave(self.directory.node_id());
        self.directory.close_sockets().await;
        let consensus = self.directory.controller().ok().map(|c| c.consensus().clone());
        let store = consensus.map(|consensus| consensus.crash());
        if let Ok(log_dir) = self.directory.log_dir() {
            match self.args.driver {
                Driver::Inline => log_dir.crash(),
                // It waits for the write that is under way.
                Driver::Thread => {
                    let crashed = tokio::task::spawn_blocking(move || log_dir.crash());
                    if let Err(error) = crashed.await {
                        tracing::error!(%error, "the log directory did not end");
                    }
                }
            }
        }
        self.directory.set_log_dir(None);
        self.directory.set_controller(None);
        self.runtimes.shutdown_background();
        if let Some(store) = store {
            store.closed().await;
        }
    }

    /// Leaderships move away first, then the logs are closed cleanly.
    async fn end_in_order(&mut self, left: Left) {
        let ordered = async {
            if left == Left::Others {
                crate::lifecycle::controlled_shutdown(&self.directory).await;
            }
            let parts =
                [ChildKind::Edge, ChildKind::Lifecycle, ChildKind::Replicas, ChildKind::Storage];
            for kind in parts {
                if let Some(cell) = self.children.cell(&kind).cloned() {
                    self.children.forget(&kind);
                    if let Err(error) = cell.stop_and_wait(None, None).await {
                        tracing::debug!(?kind, %error, "the part had ended already");
                    }
                }
            }
            if let Ok(log_dir) = self.directory.log_dir() {
                let (sender, closed) = tokio::sync::oneshot::channel();
                log_dir.close(true, Box::new(move |result| drop(sender.send(result))));
                match closed.await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::error!(%error, "the logs were not closed cleanly"),
                    Err(_) => tracing::error!("the log directory's writer is gone"),
                }
            }
        };
        if tokio::time::timeout(STOP_DEADLINE, ordered).await.is_err() {
            let node = self.directory.node_id();
            tracing::warn!(%node, "the stop took too long: ending at once");
        }
        self.end_at_once().await;
    }
}

/// The last resort, after a panic or a kill of the node's own actor: nothing of the node goes on.
impl Drop for NodeState {
    fn drop(&mut self) {
        if self.directory.stopped.is_cancelled() {
            return;
        }
        let node = self.directory.node_id();
        tracing::error!(%node, "the node's actor is gone: ending the node");
        self.directory.stopped.cancel();
        self.args.neighbours.leave(node);
        self.directory.give_up_sockets();
        if let Ok(controller) = self.directory.controller() {
            drop(controller.consensus().crash());
        }
        self.directory.set_controller(None);
        self.directory.set_log_dir(None);
        self.runtimes.shutdown_background();
    }
}

async fn spawn(
    kind: ChildKind,
    args: NodeArgs,
    directory: Arc<Directory>,
    isr_changes: SharedQueue,
    me: ActorCell,
) -> Result<ActorCell, ractor::SpawnErr> {
    match kind {
        ChildKind::Storage => {
            let NodeArgs { log_path: path, disk, driver, .. } = args;
            let args = StorageArgs { directory, path, disk, driver };
            Actor::spawn_linked(None, Storage, args, me).await.map(|(actor, _)| actor.get_cell())
        }
        ChildKind::Controller => {
            let args = ControllerArgs { directory, store: args.store };
            Actor::spawn_linked(None, Controller, args, me)
                .await
                .map(|(actor, _)| actor.get_cell())
        }
        ChildKind::Replicas => {
            let args = ReplicasArgs { directory, isr_changes };
            Actor::spawn_linked(None, Replicas, args, me).await.map(|(actor, _)| actor.get_cell())
        }
        ChildKind::Coordinators => {
            let args = CoordinatorsArgs { directory };
            Actor::spawn_linked(None, Coordinators, args, me)
                .await
                .map(|(actor, _)| actor.get_cell())
        }
        ChildKind::Mirrors => {
            let args = MirrorsArgs { directory };
            Actor::spawn_linked(None, Mirrors, args, me).await.map(|(actor, _)| actor.get_cell())
        }
        ChildKind::Edge => {
            let args = EdgeArgs { directory };
            Actor::spawn_linked(None, Edge, args, me).await.map(|(actor, _)| actor.get_cell())
        }
        ChildKind::Lifecycle => {
            let args = LifecycleArgs { directory };
            Actor::spawn_linked(None, Lifecycle, args, me).await.map(|(actor, _)| actor.get_cell())
        }
        other => {
            let why = format!("{other:?} is no part of a node");
            Err(ractor::SpawnErr::StartupFailed(why.into()))
        }
    }
}
