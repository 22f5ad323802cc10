//! The node's part in the metadata quorum: owner of the Raft handle, supervisor of who decides
//! while this node leads and of who publishes what was decided. It decides nothing itself.

pub mod bootstrap;
pub mod client;
pub mod decide;
pub mod leader;
pub mod metadata_publisher;
pub mod transport;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{DirectoryId, NodeId};
use protocol::messages::{QuorumHelloResponse, RaftRpcResponse};
use ractor::{Actor, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use raft::consensus::{
    Consensus, ConsensusOptions, Leadership, ProposeError, RaftId, Store, Timing,
};

use crate::children::{Children, Ended};
use crate::directory::Directory;
use crate::error::Error;
use crate::runtimes::AbortOnDrop;
use crate::supervision::{ChildKind, Verdict};
use leader::{
    ControllerLeader, ControllerLeaderArgs, ControllerLeaderHandle, ControllerLeaderMsg,
};
use metadata_publisher::{MetadataPublisher, MetadataPublisherArgs};
use transport::LinkTransport;

/// How long a request may wait for the leader's commit.
const COMMIT_DEADLINE: Duration = Duration::from_secs(30);

/// The pause before it is looked again who leads, after a leadership went while the node began to
/// decide: the news of its successor is on its way.
const OVERTAKEN_PAUSE: Duration = Duration::from_millis(50);

/// What the rest of the node holds of the controller part. It outlives restarts of the actor.
#[derive(Debug, Clone)]
pub struct ControllerHandle {
    consensus: Consensus,
    leader: Arc<ArcSwapOption<ControllerLeaderHandle>>,
}

impl ControllerHandle {
    /// A handle around a running Raft member.
    pub fn new(consensus: Consensus) -> ControllerHandle {
        ControllerHandle { consensus, leader: Arc::default() }
    }

    /// The Raft member.
    pub fn consensus(&self) -> &Consensus {
        &self.consensus
    }

    /// Whether this node decides at the moment.
    pub fn is_deciding(&self) -> bool {
        self.leader.load().is_some()
    }

    /// Answers what only the leader of the quorum may answer.
    ///
    /// # Errors
    /// NOT_CONTROLLER when this node does not lead or lost its leadership meanwhile.
    pub async fn decide(&self, request: Request) -> Result<Response, Error> {
        let not_controller = || Error::refused(ErrorCode::NotController);
        let leader = self.leader.load_full().ok_or_else(not_controller)?;
        leader.decide(request, COMMIT_DEADLINE).await
    }

    /// Answers one call of Raft.
    pub async fn on_raft_rpc(&self, payload: bytes::Bytes) -> RaftRpcResponse {
        RaftRpcResponse { error_code: 0, payload: self.consensus.on_rpc(payload).await }
    }

    /// Says whether this node's metadata directory is empty (first start).
    pub async fn on_quorum_hello(&self, directory: &Directory) -> QuorumHelloResponse {
        let image = directory.image();
        QuorumHelloResponse {
            directory_id: directory.identity.directory_id.0,
            node_id: directory.node_id().0,
            cluster_id: image.cluster.id().map(str::to_string),
            empty: !directory.identity.had_logs
                && !self.consensus.is_initialised().await.unwrap_or(true),
        }
    }
}

/// A child of [`Controller`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerChild {
    /// Decides while this node leads.
    Leader,
    /// Hands images to the node.
    Publisher,
}

/// What the controller part can be told.
#[derive(Debug)]
pub enum ControllerMsg {
    /// Raft elected somebody, or this node's log caught up with its election.
    LeadershipChanged(Leadership),
    /// The leader actor's start succeeded or failed.
    LeaderStarted {
        /// The term it decides in.
        term: u64,
        /// Its actor.
        started: Result<ActorRef<ControllerLeaderMsg>, SpawnErr>,
    },
    /// A child's backoff is over.
    RestartTimeout(ControllerChild),
}

/// What it is started with.
#[derive(Debug, Clone)]
pub struct ControllerArgs {
    /// The node.
    pub directory: Arc<Directory>,
    /// Where Raft keeps its log and vote.
    pub store: Store,
}

/// The actor; everything mutable is in [`ControllerState`].
#[derive(Debug)]
pub struct Controller;

/// The state of one incarnation.
#[derive(Debug)]
pub struct ControllerState {
    directory: Arc<Directory>,
    handle: Arc<ControllerHandle>,
    myself: ActorRef<ControllerMsg>,
    children: Children<ControllerChild>,
    leadership: Leadership,
    /// The term of the running or starting leader actor.
    deciding_in: Option<u64>,
    _tasks: [AbortOnDrop; 2],
}

impl Actor for Controller {
    type Msg = ControllerMsg;
    type State = ControllerState;
    type Arguments = ControllerArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let ControllerArgs { directory, store } = args;
        // The Raft core is no child: a killed owner leaves it running for its successor.
        let handle = match directory.controller() {
            Ok(running) => running,
            Err(_not_started) => {
                let consensus = start_consensus(&directory, store).await?;
                Arc::new(ControllerHandle::new(consensus))
            }
        };
        directory.set_controller(Some(Arc::clone(&handle)));
        handle.leader.store(None);
        let consensus = handle.consensus().clone();
        let follow = AbortOnDrop::new(tokio::spawn(follow(consensus.clone(), myself.clone())));
        let first_start = bootstrap::run(Arc::clone(&directory), consensus);
        let mut state = ControllerState {
            directory,
            handle,
            myself,
            children: Children::default(),
            leadership: Leadership::default(),
            deciding_in: None,
            _tasks: [follow, AbortOnDrop::new(tokio::spawn(first_start))],
        };
        state.start_publisher().await?;
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ControllerMsg::LeadershipChanged(leadership) => {
                state.leadership = leadership;
                state.follow_leadership();
            }
            ControllerMsg::LeaderStarted { term, started } => {
                state.on_leader_started(term, started)?;
            }
            ControllerMsg::RestartTimeout(child) => state.on_restart_timeout(child).await?,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match state.children.on_event(&event) {
            Some(ended) => state.on_child_ended(ended),
            None => Ok(()),
        }
    }
}

async fn start_consensus(
    directory: &Arc<Directory>,
    store: Store,
) -> Result<Consensus, raft::consensus::Error> {
    let raft_id = RaftId::of_directory(directory.identity.directory_id);
    let mut options = ConsensusOptions::new(raft_id, directory.node_id(), store);
    let timing = &directory.config.timing;
    options.timing = Timing {
        heartbeat: timing.raft_heartbeat,
        election_min: timing.raft_election_min,
        election_max: timing.raft_election_max,
        call_timeout: timing.raft_election_max.max(Duration::from_millis(500)),
    };
    options.seed = Some(directory.entropy.next_u64());
    let transport = Arc::new(LinkTransport::new(Arc::downgrade(directory)));
    Consensus::start(options, transport).await
}

/// Casts every change of the leadership until the owner is gone.
async fn follow(consensus: Consensus, myself: ActorRef<ControllerMsg>) {
    let mut leadership = consensus.leadership();
    loop {
        let now = leadership.borrow_and_update().clone();
        if myself.cast(ControllerMsg::LeadershipChanged(now)).is_err() {
            return;
        }
        if leadership.changed().await.is_err() {
            return;
        }
    }
}

impl ControllerState {
    /// Starts to decide when elected and caught up, stops when deposed.
    fn follow_leadership(&mut self) {
        let Leadership { term, ready, .. } = self.leadership;
        match self.deciding_in {
            Some(deciding) if !ready || deciding != term => {
                let node = self.directory.node_id();
                tracing::info!(%node, term = deciding, "controller → follower");
                self.stop_deciding();
                self.follow_leadership();
            }
            None if ready => self.start_deciding(term),
            Some(_) | None => {}
        }
    }

    fn start_deciding(&mut self, term: u64) {
        self.deciding_in = Some(term);
        let args = ControllerLeaderArgs {
            directory: Arc::clone(&self.directory),
            consensus: self.handle.consensus().clone(),
            term,
        };
        let myself = self.myself.clone();
        tokio::spawn(async move {
            let started =
                Actor::spawn_linked(None, ControllerLeader, args, myself.get_cell()).await;
            let started = started.map(|(actor, _join)| actor);
            if myself.cast(ControllerMsg::LeaderStarted { term, started }).is_err() {
                tracing::debug!(term, "the controller part is gone");
            }
        });
    }

    fn on_leader_started(
        &mut self,
        term: u64,
        started: Result<ActorRef<ControllerLeaderMsg>, SpawnErr>,
    ) -> Result<(), ActorProcessingErr> {
        match started {
            Ok(actor) if self.deciding_in != Some(term) => {
                actor.stop(None);
                Ok(())
            }
            Ok(actor) => {
                tracing::info!(node = %self.directory.node_id(), term, "follower → controller");
                let cell = actor.get_cell();
                self.children.on_started(
                    ControllerChild::Leader,
                    ChildKind::ControllerLeader,
                    cell,
                );
                self.handle.leader.store(Some(Arc::new(ControllerLeaderHandle::new(actor))));
                Ok(())
            }
            Err(error) => {
                if self.deciding_in != Some(term) {
                    return Ok(());
                }
                if was_overtaken(&error) {
                    let node = self.directory.node_id();
                    tracing::debug!(%node, term, "the leadership went before the node decided");
                    self.deciding_in = None;
                    self.myself.send_after(OVERTAKEN_PAUSE, || {
                        ControllerMsg::RestartTimeout(ControllerChild::Leader)
                    });
                    return Ok(());
                }
                let kind = ChildKind::ControllerLeader;
                let ended = self.children.on_start_failed(ControllerChild::Leader, kind, &error);
                self.on_child_ended(ended)
            }
        }
    }

    fn stop_deciding(&mut self) {
        self.deciding_in = None;
        self.handle.leader.store(None);
        self.children.stop_and_forget(&ControllerChild::Leader);
    }

    async fn start_publisher(&mut self) -> Result<(), ActorProcessingErr> {
        let args = MetadataPublisherArgs {
            directory: Arc::clone(&self.directory),
            consensus: self.handle.consensus().clone(),
        };
        let me = self.myself.get_cell();
        let (actor, _join) = Actor::spawn_linked(None, MetadataPublisher, args, me).await?;
        let cell = actor.get_cell();
        self.children.on_started(ControllerChild::Publisher, ChildKind::MetadataPublisher, cell);
        Ok(())
    }

    fn on_child_ended(&mut self, ended: Ended<ControllerChild>) -> Result<(), ActorProcessingErr> {
        if ended.key == ControllerChild::Leader {
            self.handle.leader.store(None);
            self.deciding_in = None;
        }
        match ended.verdict {
            Verdict::Restart(delay) => {
                let child = ended.key;
                self.myself.send_after(delay, move || ControllerMsg::RestartTimeout(child));
                Ok(())
            }
            Verdict::Stop | Verdict::GiveUp => Ok(()),
            Verdict::Escalate => Err(format!("{:?} ended too often", ended.key).into()),
        }
    }

    async fn on_restart_timeout(
        &mut self,
        child: ControllerChild,
    ) -> Result<(), ActorProcessingErr> {
        if self.directory.stopped.is_cancelled() {
            return Ok(());
        }
        match child {
            ControllerChild::Leader => {
                self.follow_leadership();
                Ok(())
            }
            ControllerChild::Publisher => self.start_publisher().await,
        }
    }
}

/// Whether the leader did not start because the quorum had elected another meanwhile: that is an
/// election's ordinary course and no failure of the actor.
fn was_overtaken(error: &SpawnErr) -> bool {
    let SpawnErr::StartupFailed(inner) = error else {
        return false;
    };
    match inner.downcast_ref::<ProposeError>() {
        Some(ProposeError::NotLeader { .. } | ProposeError::OutcomeUnknown { .. }) => true,
        Some(ProposeError::TooLarge { .. } | ProposeError::Stopped { .. }) | None => false,
    }
}

/// The voters as the settings list them.
pub fn voters(directory: &Directory) -> Vec<NodeId> {
    let mut voters: Vec<NodeId> =
        directory.config.voters.iter().map(|voter| NodeId(voter.node_id)).collect();
    voters.sort_unstable();
    voters
}

/// The Raft id of a broker, which its registration tells by its directory.
pub fn raft_id(directory_id: uuid::Uuid) -> RaftId {
    RaftId::of_directory(DirectoryId(directory_id))
}
