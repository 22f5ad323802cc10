//! Decides while this node leads the quorum: on a working image (applied plus in flight), through
//! one queue, answering after the commit. Sessions of brokers are its soft state.
//!
//! It begins with an empty batch of its own term: when that is applied, everything proposed before
//! has its outcome, and the applied image is the whole truth.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{BrokerEpoch, NodeId, TopicId};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use raft::consensus::{self, Consensus, LogIndex, ProposeError};
use raft::{Decision, MetadataRecord, WorkingImage};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::decide::{self, Asked, Inputs};
use super::raft_id;
use crate::directory::Directory;
use crate::error::Error;
use crate::partition::pending::send;
use crate::supervision::ChildKind;

/// Bytes and requests are bounded by the connections they come from; this bounds the leader's own
/// queue of answers all the same.
const IN_FLIGHT_MAX: usize = 10_000;

/// Longest wait between two moves of leaderships back to their preferred replicas.
const PREFERRED_EVERY: Duration = Duration::from_secs(300);

/// Leaderships moved back at a time.
const PREFERRED_MAX: usize = 1_000;

type Reply = RpcReplyPort<Result<Response, Error>>;

/// What the leader can be told.
#[derive(Debug)]
pub enum ControllerLeaderMsg {
    /// Answer a request.
    Decide {
        /// Any of the controller's requests.
        request: Box<Request>,
        /// Its answer, after the commit.
        reply: Reply,
    },
    /// A proposal has its outcome.
    Committed {
        /// Its number.
        sequence: u64,
        /// Where it lies in the log, or why it does not.
        result: Result<LogIndex, ProposeError>,
    },
    /// Time to look at the brokers' sessions.
    Tick,
}

/// What the leader is started with.
#[derive(Debug, Clone)]
pub struct ControllerLeaderArgs {
    /// The node.
    pub directory: Arc<Directory>,
    /// The Raft member.
    pub consensus: Consensus,
    /// The term it leads in.
    pub term: u64,
}

/// The actor; everything mutable is in [`ControllerLeaderState`].
#[derive(Debug)]
pub struct ControllerLeader;

/// A cheap handle to the leader.
#[derive(Debug, Clone)]
pub struct ControllerLeaderHandle {
    actor: ActorRef<ControllerLeaderMsg>,
}

impl ControllerLeaderHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<ControllerLeaderMsg>) -> ControllerLeaderHandle {
        ControllerLeaderHandle { actor }
    }

    /// Answers a request after its commit.
    ///
    /// # Errors
    /// NOT_CONTROLLER when the leadership is lost, or no answer within `deadline`.
    pub async fn decide(&self, request: Request, deadline: Duration) -> Result<Response, Error> {
        let (sender, answer) = oneshot::channel();
        let not_controller = || Error::refused(ErrorCode::NotController);
        let reply = RpcReplyPort::from(sender);
        let message = ControllerLeaderMsg::Decide { request: Box::new(request), reply };
        self.actor.cast(message).map_err(|_| not_controller())?;
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_closed)) => Err(not_controller()),
            Err(_elapsed) => Err(Error::NoAnswer { what: "the controller" }),
        }
    }
}

/// A registered broker's session.
#[derive(Debug, Clone, Copy)]
struct Session {
    epoch: BrokerEpoch,
    heard_at: Instant,
}

/// An answer that waits for its records' commit.
#[derive(Debug)]
struct Waiting {
    sequence: u64,
    answer: Option<(Response, Reply)>,
    /// A broker whose registration this commits, with its member id.
    learner: Option<(raft::consensus::RaftId, NodeId)>,
}

/// The state of one leadership.
#[derive(Debug)]
pub struct ControllerLeaderState {
    directory: Arc<Directory>,
    consensus: Consensus,
    term: u64,
    working: WorkingImage,
    waiting: VecDeque<Waiting>,
    proposed: u64,
    committed: u64,
    sessions: BTreeMap<NodeId, Session>,
    balanced_at: Instant,
    /// The newest addition of a learner.
    adding: Option<tokio::task::JoinHandle<()>>,
    /// Broker epochs given out so far: each is above all before.
    last_broker_epoch: BrokerEpoch,
    myself: ActorRef<ControllerLeaderMsg>,
}

impl Actor for ControllerLeader {
    type Msg = ControllerLeaderMsg;
    type State = ControllerLeaderState;
    type Arguments = ControllerLeaderArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let ControllerLeaderArgs { directory, consensus, term } = args;
        consensus.propose_in_term(term, Vec::new()).await?;
        if consensus.image().cluster.id().is_none() {
            let cluster_id = TopicId(directory.entropy.next_uuid()).to_string();
            consensus.propose_in_term(term, raft::bootstrap_records(&cluster_id)).await?;
            tracing::info!(cluster_id, "the cluster was made");
        }
        let image = consensus.image();
        let now = Instant::now();
        // Soft state is not inherited: every broker gets a full session.
        let sessions = image
            .cluster
            .brokers
            .values()
            .map(|broker| (broker.id, Session { epoch: broker.epoch, heard_at: now }))
            .collect();
        let newest = image.cluster.brokers.values().map(|broker| broker.epoch).max();
        let session = directory.config.timing.broker_session;
        myself.send_interval(session / 10, || ControllerLeaderMsg::Tick);
        Ok(ControllerLeaderState {
            directory,
            consensus,
            term,
            working: WorkingImage::new((*image).clone()),
            waiting: VecDeque::new(),
            proposed: 0,
            committed: 0,
            sessions,
            balanced_at: now,
            adding: None,
            last_broker_epoch: newest.unwrap_or(BrokerEpoch(-1)),
            myself,
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ControllerLeaderMsg::Decide { request, reply } => state.on_decide(*request, reply),
            ControllerLeaderMsg::Committed { sequence, result } => {
                state.on_committed(sequence, result)
            }
            ControllerLeaderMsg::Tick => state.on_tick(),
        }
    }
}

impl ControllerLeaderState {
    fn on_decide(&mut self, request: Request, reply: Reply) -> Result<(), ActorProcessingErr> {
        if self.waiting.len() >= IN_FLIGHT_MAX {
            send(reply, Err(Error::refused(ErrorCode::ThrottlingQuotaExceeded)));
            return Ok(());
        }
        let asked = match Asked::open(request) {
            Ok(asked) => asked,
            Err(error) => {
                send(reply, Err(error));
                return Ok(());
            }
        };
        self.note_contact(asked.request());
        let inputs = self.inputs(&asked);
        let learner = learner_of(asked.request());
        match decide::decide(self.working.image(), &asked, &inputs) {
            Ok(decision) => self.propose(decision, Some(reply), learner),
            Err(error) => {
                send(reply, Err(error));
                Ok(())
            }
        }
    }

    /// Keeps the session of a broker that still speaks at its registered epoch.
    fn note_contact(&mut self, request: &Request) {
        if let Request::BrokerHeartbeat(heartbeat) = request
            && let Some(session) = self.sessions.get_mut(&NodeId(heartbeat.broker_id))
            && session.epoch.0 == heartbeat.broker_epoch
        {
            session.heard_at = Instant::now();
        }
    }

    fn inputs(&mut self, asked: &Asked) -> Inputs {
        let entropy = &self.directory.entropy;
        let mut inputs = Inputs {
            config: Arc::clone(&self.directory.config),
            topic_ids: (0..asked.topic_ids()).map(|_| TopicId(entropy.next_uuid())).collect(),
            seed: entropy.next_u64(),
            broker_epoch: BrokerEpoch(-1),
            session_alive: false,
        };
        if let Request::BrokerRegistration(registration) = asked.request() {
            let id = NodeId(registration.broker_id);
            let session = self.directory.config.timing.broker_session;
            inputs.session_alive =
                self.sessions.get(&id).is_some_and(|s| s.heard_at.elapsed() < session);
            inputs.broker_epoch = self.next_broker_epoch();
        }
        inputs
    }

    /// The index the registration's record will have, or one below it that is above every earlier
    /// registration's.
    fn next_broker_epoch(&mut self) -> BrokerEpoch {
        let last = self.consensus.metrics().last.map_or(0, |index| index.0);
        let last = i64::try_from(last).unwrap_or(i64::MAX - 1);
        let epoch = BrokerEpoch((last + 1).max(self.last_broker_epoch.0 + 1));
        self.last_broker_epoch = epoch;
        epoch
    }

    fn propose(
        &mut self,
        decision: Decision<Response>,
        reply: Option<Reply>,
        learner: Option<(raft::consensus::RaftId, NodeId)>,
    ) -> Result<(), ActorProcessingErr> {
        let Decision { records, response } = decision;
        let answer = reply.map(|reply| (response, reply));
        if records.is_empty() {
            // It rests on what is in flight, so it is told only when that is committed.
            let sequence = self.proposed;
            self.waiting.push_back(Waiting { sequence, answer, learner });
            self.answer_up_to(self.committed);
            return Ok(());
        }
        self.note_registrations(&records);
        let delta = self.working.propose(&records)?;
        tracing::debug!(records = records.len(), topics = delta.topics.len(), "proposed");
        self.proposed += 1;
        let sequence = self.proposed;
        self.waiting.push_back(Waiting { sequence, answer, learner });
        let outcome = self.consensus.propose_in_term(self.term, records);
        let myself = self.myself.clone();
        tokio::spawn(async move {
            let result = outcome.await;
            if myself.cast(ControllerLeaderMsg::Committed { sequence, result }).is_err() {
                tracing::trace!("the leader has stepped down");
            }
        });
        Ok(())
    }

    fn note_registrations(&mut self, records: &[MetadataRecord]) {
        for record in records {
            if let MetadataRecord::RegisterBroker(broker) = record {
                let session = Session { epoch: broker.epoch, heard_at: Instant::now() };
                self.sessions.insert(broker.id, session);
            }
        }
    }

    fn on_committed(
        &mut self,
        sequence: u64,
        result: Result<LogIndex, ProposeError>,
    ) -> Result<(), ActorProcessingErr> {
        match result {
            Ok(_index) => {
                self.working.committed();
                // Proposals are committed in order; their tasks may report in another.
                self.committed = self.committed.max(sequence);
                self.answer_up_to(self.committed);
                Ok(())
            }
            Err(error) => {
                // The working image holds records that may never be applied: start over.
                for waiting in self.waiting.drain(..) {
                    if let Some((_, reply)) = waiting.answer {
                        send(reply, Err(Error::refused(ErrorCode::NotController)));
                    }
                }
                Err(format!("{:?} lost a proposal: {error}", ChildKind::ControllerLeader).into())
            }
        }
    }

    fn answer_up_to(&mut self, committed: u64) {
        while self.waiting.front().is_some_and(|waiting| waiting.sequence <= committed) {
            let Some(waiting) = self.waiting.pop_front() else {
                return;
            };
            if let Some((member, node)) = waiting.learner {
                self.add_learner(member, node);
            }
            if let Some((response, reply)) = waiting.answer {
                send(reply, Ok(response));
            }
        }
    }

    /// A broker outside the quorum follows its log as a learner.
    fn add_learner(&mut self, member: raft::consensus::RaftId, node: NodeId) {
        if self.consensus.metrics().members.contains_key(&member) {
            return;
        }
        let consensus = self.consensus.clone();
        self.adding = Some(tokio::spawn(async move {
            match consensus.add_learner(member, node).await {
                Ok(()) => tracing::info!(%node, %member, "follows the metadata log"),
                // One change of the membership at a time: where many nodes start at once, most
                // additions wait for the next tick.
                Err(
                    error @ (consensus::Error::Membership { .. }
                    | consensus::Error::NotLeader { .. }),
                ) => {
                    tracing::debug!(%node, %error, "was not added as a learner yet");
                }
                Err(error) => tracing::warn!(%node, %error, "was not added as a learner yet"),
            }
        }));
    }

    /// A registered broker that does not follow the log never comes out of its fence: its addition
    /// failed, or the leader that registered it was gone before.
    fn add_missing_learner(&mut self) {
        if self.adding.as_ref().is_some_and(|adding| !adding.is_finished()) {
            return;
        }
        let members = self.consensus.metrics().members;
        let image = self.consensus.image();
        let missing = image
            .cluster
            .brokers
            .values()
            .map(|broker| (raft_id(broker.directory_id.0), broker.id))
            .find(|(member, _)| !members.contains_key(member));
        if let Some((member, node)) = missing {
            self.add_learner(member, node);
        }
    }

    fn on_tick(&mut self) -> Result<(), ActorProcessingErr> {
        self.add_missing_learner();
        let session = self.directory.config.timing.broker_session;
        let silent: Vec<(NodeId, BrokerEpoch)> = self
            .sessions
            .iter()
            .filter(|(_, state)| state.heard_at.elapsed() >= session)
            .map(|(id, state)| (*id, state.epoch))
            .collect();
        for (id, epoch) in silent {
            let image = self.working.image();
            let unfenced = image.cluster.broker(id).is_some_and(|broker| !broker.fenced);
            if !unfenced {
                continue;
            }
            tracing::info!(broker = %id, after = ?session, "unfenced → fenced: no heartbeat");
            match image.decide_fence_broker(id, epoch) {
                Ok(decision) => {
                    let nobody = Response::BrokerHeartbeat(Default::default());
                    self.propose(decision.map(|()| nobody), None, None)?;
                }
                Err(error) => tracing::debug!(broker = %id, %error, "not fenced"),
            }
        }
        self.balance()
    }

    /// Moves leaderships back to their preferred replicas now and then, as Kafka does.
    fn balance(&mut self) -> Result<(), ActorProcessingErr> {
        if self.balanced_at.elapsed() < PREFERRED_EVERY {
            return Ok(());
        }
        self.balanced_at = Instant::now();
        let decision = self.working.image().decide_preferred_leaders(PREFERRED_MAX);
        if decision.records.is_empty() {
            return Ok(());
        }
        tracing::info!(partitions = decision.response, "moving back to preferred leaders");
        let nobody = Response::BrokerHeartbeat(Default::default());
        self.propose(decision.map(|_| nobody), None, None)
    }
}

fn learner_of(request: &Request) -> Option<(raft::consensus::RaftId, NodeId)> {
    let Request::BrokerRegistration(registration) = request else {
        return None;
    };
    let directory = registration.log_dirs.first()?;
    Some((raft_id(*directory), NodeId(registration.broker_id)))
}
