//! Copies from one leader broker to this node's followers: one fetch session, one request in
//! flight, the next only when every append of the last has its answer. It owns no log.
//!
//! Positions are read from the partitions' views when a request is made, never remembered, so a
//! restarted partition or a lost answer needs no repair here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicIdPartition};
use protocol::messages::FetchResponse;
use protocol::messages::fetch_request::ReplicaState;
use protocol::messages::fetch_response::PartitionData;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::directory::Directory;
use crate::error::Error;
use crate::fetch_session::{FetchLimits, FetchPosition, FetchSession};
use crate::partition::{FollowerPosition, PartitionShared, ReplicaAppend};
use crate::peers::Plane;
use crate::runtimes::AbortOnDrop;

/// How long a partition with an error is left alone, unless the image brings news before.
const PARTITION_BACKOFF: Duration = Duration::from_millis(100);

/// The wait after a first failed request; it doubles up to `replica.fetch.backoff.ms`.
const LINK_BACKOFF_MIN: Duration = Duration::from_millis(20);

/// How long a partition may take to append; past it, the round goes on without it.
const APPEND_DEADLINE: Duration = Duration::from_secs(30);

/// What a fetcher can be told.
#[derive(Debug)]
pub enum ReplicaFetcherMsg {
    /// Copy this partition, in this leader epoch.
    Assign(TopicIdPartition, LeaderEpoch, Arc<PartitionShared>),
    /// Copy it no longer.
    Unassign(TopicIdPartition),
    /// A request was answered and its appends are done.
    RoundDone(RoundOutcome),
    /// The wait after a failed request is over.
    BackoffTimeout,
    /// A partition's wait after an error is over.
    PartitionBackoffTimeout(TopicIdPartition, LeaderEpoch),
}

/// How one request went.
#[derive(Debug)]
pub enum RoundOutcome {
    /// The leader answered; what failed is listed.
    Answered {
        /// The session to go on with.
        session_id: i32,
        /// Partitions that need a pause.
        failed: Vec<(TopicIdPartition, Error)>,
    },
    /// The session is unknown to the leader, or the whole request was refused.
    Refused(ErrorCode),
    /// No answer.
    LinkFailed(String),
    /// Given up because the assignments changed.
    Interrupted,
}

/// What a fetcher is started with.
#[derive(Debug, Clone)]
pub struct ReplicaFetcherArgs {
    /// The node.
    pub directory: Arc<Directory>,
    /// The broker it copies from.
    pub leader: NodeId,
}

/// The actor; everything mutable is in [`ReplicaFetcherState`].
#[derive(Debug)]
pub struct ReplicaFetcher;

/// A cheap handle to a fetcher.
#[derive(Debug, Clone)]
pub struct ReplicaFetcherHandle {
    actor: ActorRef<ReplicaFetcherMsg>,
}

impl ReplicaFetcherHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<ReplicaFetcherMsg>) -> ReplicaFetcherHandle {
        ReplicaFetcherHandle { actor }
    }

    /// Gives it a partition, or a new leader epoch of one it has.
    pub fn assign(&self, id: TopicIdPartition, epoch: LeaderEpoch, shared: Arc<PartitionShared>) {
        self.tell(ReplicaFetcherMsg::Assign(id, epoch, shared));
    }

    /// Takes a partition away.
    pub fn unassign(&self, id: TopicIdPartition) {
        self.tell(ReplicaFetcherMsg::Unassign(id));
    }

    fn tell(&self, message: ReplicaFetcherMsg) {
        if self.actor.cast(message).is_err() {
            tracing::debug!("the fetcher is restarting: it gets its assignments again then");
        }
    }
}

/// The state of one incarnation of the fetcher.
#[derive(Debug)]
pub struct ReplicaFetcherState {
    directory: Arc<Directory>,
    leader: NodeId,
    myself: ActorRef<ReplicaFetcherMsg>,
    session: FetchSession,
    followers: BTreeMap<TopicIdPartition, Follower>,
    round: Round,
    backoff: Duration,
}

#[derive(Debug, Clone)]
struct Follower {
    leader_epoch: LeaderEpoch,
    shared: Arc<PartitionShared>,
}

#[derive(Debug)]
enum Round {
    /// Nothing to ask for.
    Idle,
    /// A request is under way; the notifier ends its wait early.
    Running { interrupt: Arc<Notify>, _task: AbortOnDrop },
    /// Waiting after a failed request.
    BackingOff,
}

impl Actor for ReplicaFetcher {
    type Msg = ReplicaFetcherMsg;
    type State = ReplicaFetcherState;
    type Arguments = ReplicaFetcherArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(ReplicaFetcherState {
            directory: args.directory,
            leader: args.leader,
            myself,
            session: FetchSession::default(),
            followers: BTreeMap::new(),
            round: Round::Idle,
            backoff: LINK_BACKOFF_MIN,
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ReplicaFetcherMsg::Assign(id, leader_epoch, shared) => {
                state.on_assign(id, leader_epoch, shared);
            }
            ReplicaFetcherMsg::Unassign(id) => state.on_unassign(id),
            ReplicaFetcherMsg::RoundDone(outcome) => state.on_round_done(outcome),
            ReplicaFetcherMsg::BackoffTimeout => state.on_backoff_timeout(),
            ReplicaFetcherMsg::PartitionBackoffTimeout(id, leader_epoch) => {
                state.on_partition_backoff_timeout(id, leader_epoch);
            }
        }
        Ok(())
    }
}

impl ReplicaFetcherState {
    fn on_assign(
        &mut self,
        id: TopicIdPartition,
        leader_epoch: LeaderEpoch,
        shared: Arc<PartitionShared>,
    ) {
        let known = self.followers.get(&id).is_some_and(|f| f.leader_epoch == leader_epoch);
        self.followers.insert(id, Follower { leader_epoch, shared });
        if !known {
            self.session.hold(id, false);
            self.wake();
        }
    }

    fn on_unassign(&mut self, id: TopicIdPartition) {
        self.followers.remove(&id);
        self.session.remove(id);
    }

    /// Starts a round, or ends the wait of the one under way so that the next sees the change.
    fn wake(&mut self) {
        match &self.round {
            Round::Idle => self.start_round(),
            Round::Running { interrupt, .. } => interrupt.notify_one(),
            Round::BackingOff => {}
        }
    }

    fn start_round(&mut self) {
        for (id, follower) in &self.followers {
            match follower.position() {
                Some(position) => self.session.set(*id, position),
                // Its actor has not taken the lease yet.
                None => self.session.remove(*id),
            }
        }
        if self.session.is_empty() && !self.followers.is_empty() {
            return self.back_off();
        }
        if self.session.is_idle() {
            self.round = Round::Idle;
            return;
        }
        let interrupt = Arc::new(Notify::new());
        let round = self.round_task(Arc::clone(&interrupt));
        let myself = self.myself.clone();
        let task = self.directory.runtimes.spawn_data(async move {
            let outcome = round.await;
            if myself.cast(ReplicaFetcherMsg::RoundDone(outcome)).is_err() {
                tracing::trace!("the fetcher is gone");
            }
        });
        self.round = Round::Running { interrupt, _task: AbortOnDrop::new(task) };
    }

    fn limits(&self) -> FetchLimits {
        FetchLimits::from(&self.directory.config.replica_fetch)
    }

    fn round_task(
        &mut self,
        interrupt: Arc<Notify>,
    ) -> impl Future<Output = RoundOutcome> + Send + use<> {
        let limits = self.limits();
        let mut request = self.session.next_request(limits);
        let me = self.directory.node_id();
        request.replica_state =
            ReplicaState { replica_id: me.0, replica_epoch: self.directory.broker_epoch().0 };
        let link = self.directory.peers.link(self.leader, Plane::Data);
        let directory = Arc::clone(&self.directory);
        let followers = self.followers.clone();
        let wait = Duration::from_millis(u64::try_from(limits.wait_max_ms).unwrap_or(0));
        let deadline = wait + self.directory.config.replica_fetch.request_timeout;
        async move {
            let answer = tokio::select! {
                biased;
                answer = link.call(Request::from(request), deadline) => answer,
                () = interrupt.notified() => return RoundOutcome::Interrupted,
            };
            match answer {
                Ok(Response::Fetch(response)) => apply(&directory, &followers, response).await,
                Ok(other) => {
                    RoundOutcome::LinkFailed(crate::peers::unexpected(&other).to_string())
                }
                Err(error) => RoundOutcome::LinkFailed(error.to_string()),
            }
        }
    }

    fn on_round_done(&mut self, outcome: RoundOutcome) {
        match outcome {
            RoundOutcome::Answered { session_id, failed } => {
                self.backoff = LINK_BACKOFF_MIN;
                self.session.on_response(session_id);
                for (id, error) in failed {
                    self.hold(id, &error);
                }
                self.start_round();
            }
            RoundOutcome::Interrupted => {
                self.session.restart();
                self.start_round();
            }
            RoundOutcome::Refused(code) => {
                tracing::debug!(leader = %self.leader, ?code, "the fetch session starts over");
                self.session.restart();
                self.back_off();
            }
            RoundOutcome::LinkFailed(why) => {
                tracing::debug!(leader = %self.leader, why, "the leader does not answer");
                self.session.restart();
                self.back_off();
            }
        }
    }

    fn hold(&mut self, id: TopicIdPartition, error: &Error) {
        let Some(follower) = self.followers.get(&id) else {
            return;
        };
        tracing::debug!(partition = %id, leader = %self.leader, %error, "fetch failed");
        let leader_epoch = follower.leader_epoch;
        self.session.hold(id, true);
        self.myself.send_after(PARTITION_BACKOFF, move || {
            ReplicaFetcherMsg::PartitionBackoffTimeout(id, leader_epoch)
        });
    }

    fn back_off(&mut self) {
        self.round = Round::BackingOff;
        self.myself.send_after(self.backoff, || ReplicaFetcherMsg::BackoffTimeout);
        self.backoff = (self.backoff * 2).min(self.directory.config.replica_fetch.backoff);
    }

    fn on_backoff_timeout(&mut self) {
        if matches!(self.round, Round::BackingOff) {
            self.start_round();
        }
    }

    fn on_partition_backoff_timeout(&mut self, id: TopicIdPartition, leader_epoch: LeaderEpoch) {
        if self.followers.get(&id).is_some_and(|f| f.leader_epoch == leader_epoch) {
            self.session.hold(id, false);
            self.wake();
        }
    }
}

impl Follower {
    fn position(&self) -> Option<FetchPosition> {
        let view = self.shared.view()?;
        Some(FetchPosition {
            topic: self.shared.topic.clone(),
            leader_epoch: self.leader_epoch,
            offset: view.log_end(),
            last_fetched_epoch: view.last_epoch(),
            log_start: view.log_start(),
        })
    }
}

/// Hands every partition its part of the response and waits until all have stored it.
async fn apply(
    directory: &Arc<Directory>,
    followers: &BTreeMap<TopicIdPartition, Follower>,
    response: FetchResponse,
) -> RoundOutcome {
    let code = ErrorCode::from_code(response.error_code);
    if code != ErrorCode::None {
        return RoundOutcome::Refused(code);
    }
    let mut appends = JoinSet::new();
    for topic in response.responses {
        let topic_id = TopicId(topic.topic_id);
        for data in topic.partitions {
            let id =
                TopicIdPartition { topic_id, partition: PartitionIndex(data.partition_index) };
            if let Some(follower) = followers.get(&id) {
                let leader_epoch = follower.leader_epoch;
                let directory = Arc::clone(directory);
                appends.spawn(async move {
                    (id, apply_partition(&directory, id, leader_epoch, data).await)
                });
            }
        }
    }
    let mut failed = Vec::new();
    while let Some(joined) = appends.join_next().await {
        match joined {
            Ok((_, Ok(()))) => {}
            Ok((id, Err(error))) => failed.push((id, error)),
            Err(error) => tracing::error!(%error, "an append task failed"),
        }
    }
    RoundOutcome::Answered { session_id: response.session_id, failed }
}

async fn apply_partition(
    directory: &Directory,
    id: TopicIdPartition,
    leader_epoch: LeaderEpoch,
    data: PartitionData,
) -> Result<(), Error> {
    let gone = Error::NoAnswer { what: "the follower" };
    let partition = directory.partition(id).ok_or(gone)?;
    let code = ErrorCode::from_code(data.error_code);
    match code {
        ErrorCode::None => {}
        ErrorCode::OffsetOutOfRange => {
            let start = Offset(data.log_start_offset);
            let end = Offset(i64::MAX);
            return partition
                .out_of_range(leader_epoch, start, end, APPEND_DEADLINE)
                .await
                .map(|_| ());
        }
        code => return Err(Error::refused(code)),
    }
    if data.diverging_epoch.epoch >= 0 || data.diverging_epoch.end_offset >= 0 {
        let epoch = LeaderEpoch(data.diverging_epoch.epoch);
        let end = Offset(data.diverging_epoch.end_offset);
        let before = partition.shared().view().map(|view| FollowerPosition::of(&view));
        let after = partition.diverged(leader_epoch, epoch, end, APPEND_DEADLINE).await?;
        // Asking the same again at once would get the same answer.
        return if before == Some(after) {
            Err(Error::refused(ErrorCode::FencedLeaderEpoch))
        } else {
            Ok(())
        };
    }
    let append = ReplicaAppend {
        leader_epoch,
        batches: data.records.unwrap_or_default(),
        high_watermark: Offset(data.high_watermark),
        log_start: Offset(data.log_start_offset),
    };
    partition.replica_append(append, APPEND_DEADLINE).await.map(|_| ())
}
