//! Copies from one broker of a mirror's source to the partitions that are led here: one fetch
//! session, one request in flight, and one answer being appended meanwhile. It owns no log and
//! decides no state: what it meets goes to the partition, or to its mirror where a leader has to
//! be looked for.
//!
//! The next request goes out as soon as an answer is there, from the positions after it, while its
//! batches are appended. An answer that comes before those appends are done waits for them, so
//! that appends of a partition keep their order and two answers at most are in memory. Where an
//! append fails, the partition's position is read from its log again, and answers to requests that
//! were made before count for nothing.

mod answers;
mod request;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mirror::MirrorEvent;
use net::Client;
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, Offset, TimestampMs, TopicIdPartition};
use protocol::messages::FetchResponse;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::handle::{MirrorShared, SourcePartition};
use super::machine::MirrorInput;
use super::mirror::MirrorMsg;
use super::shared_budget::Seat;
use super::source::Failure;
use super::source_offsets::LastAnswer;
use super::survey::SourceLeader;
use crate::directory::Directory;
use crate::error::Error;
use crate::fetch_session::{FetchLimits, FetchPosition, FetchSession};
use crate::partition::FollowerPosition;
use crate::partition::pending::send;
use crate::runtimes::AbortOnDrop;

use answers::Outstanding;

/// The first wait after a failed request; it doubles up to `mirror.fetch.backoff.ms`.
const LINK_BACKOFF_MIN: Duration = Duration::from_millis(50);

/// The source's longest wait while partitions are coming and going, in milliseconds.
const SHORT_WAIT_MS: i32 = 50;

/// How long after a change of the partitions the source's waits stay short.
const SHORT_WAITS_FOR: Duration = Duration::from_secs(2);

/// How long a partition that cannot be read here yet is left alone.
const PARTITION_BACKOFF: Duration = Duration::from_millis(100);

/// Which fetcher of a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetcherId {
    /// The broker of the source.
    pub broker: i32,
    /// Which of the fetchers for that broker, from 0.
    pub index: u8,
}

/// What a fetcher fetches of one partition.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// The partition.
    pub partition: SourcePartition,
    /// The leader epoch here: the bound of every batch's epoch.
    pub leader_epoch: LeaderEpoch,
    /// The leader epoch at the source; `NONE` asks for no check.
    pub source_epoch: LeaderEpoch,
}

/// What a fetcher tells its mirror.
#[derive(Debug)]
pub enum FetcherReport {
    /// The broker does not lead the partition in that epoch, or does not know it.
    Moved {
        /// Which partition.
        partition: TopicIdPartition,
        /// The leader epoch here, as it was assigned.
        leader_epoch: LeaderEpoch,
        /// Who leads, if the broker said.
        leader: Option<SourceLeader>,
    },
    /// The broker does not answer what was asked at that time. Told once until it does.
    LinkFailed(FetcherId, TimestampMs),
    /// It answers again.
    Answered(FetcherId),
}

/// What a fetcher can be told.
#[derive(Debug)]
pub enum MirrorFetcherMsg {
    /// Fetch this partition from its log end on; from scratch if it is fetched already.
    Assign(Assignment),
    /// Fetch it no longer. Answered when no append of it is under way.
    Release(TopicIdPartition, RpcReplyPort<()>),
    /// A request is over.
    Answered {
        /// Which request.
        number: u64,
        /// The answer, or why there is none.
        outcome: Result<Answer, String>,
    },
    /// An append is over.
    Appended(TopicIdPartition, Result<FollowerPosition, Error>),
    /// The bounds of a partition's log at the source were asked for.
    BoundsFound {
        /// Which partition.
        partition: TopicIdPartition,
        /// Of which assignment.
        valid_from: u64,
        /// Start and end.
        bounds: Result<(Offset, Offset), Failure>,
    },
    /// The wait after a request is over.
    BackoffTimeout(u64),
    /// A partition's wait is over.
    PartitionTimeout(TopicIdPartition, u64),
}

/// An answer, and the version it came in.
#[derive(Debug)]
pub struct Answer {
    /// The answer.
    pub response: FetchResponse,
    /// Whether it names topics by id.
    pub by_id: bool,
}

/// What a fetcher is started with.
#[derive(Debug, Clone)]
pub struct MirrorFetcherArgs {
    /// The node.
    pub directory: Arc<Directory>,
    /// What the mirror shares.
    pub shared: Arc<MirrorShared>,
    /// The mirror.
    pub mirror: ActorRef<MirrorMsg>,
    /// The client to the source.
    pub client: Client,
    /// Which broker, and which of its fetchers.
    pub id: FetcherId,
}

/// The actor; everything mutable is in [`MirrorFetcherState`].
#[derive(Debug)]
pub struct MirrorFetcher;

/// A cheap handle to a fetcher.
#[derive(Debug, Clone)]
pub struct MirrorFetcherHandle {
    actor: ActorRef<MirrorFetcherMsg>,
}

impl MirrorFetcherHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<MirrorFetcherMsg>) -> MirrorFetcherHandle {
        MirrorFetcherHandle { actor }
    }

    /// Gives it a partition, or lets it start over with one it has.
    pub fn assign(&self, assignment: Assignment) {
        if self.actor.cast(MirrorFetcherMsg::Assign(assignment)).is_err() {
            tracing::debug!("the fetcher is restarting: it gets its partitions again then");
        }
    }

    /// Takes a partition away. The receiver fires when no append of it is under way, or closes
    /// when the fetcher dies; `None` when it is dead already.
    pub fn release(&self, partition: TopicIdPartition) -> Option<oneshot::Receiver<()>> {
        let (sender, released) = oneshot::channel();
        let message = MirrorFetcherMsg::Release(partition, RpcReplyPort::from(sender));
        self.actor.cast(message).is_ok().then_some(released)
    }
}

/// The state of one incarnation of the fetcher.
#[derive(Debug)]
pub struct MirrorFetcherState {
    directory: Arc<Directory>,
    shared: Arc<MirrorShared>,
    mirror: ActorRef<MirrorMsg>,
    myself: ActorRef<MirrorFetcherMsg>,
    client: Client,
    id: FetcherId,
    client_id: String,
    session: FetchSession,
    /// The next request opens another session: what this one told of a partition, such as a log
    /// start, may not have been taken, and it does not tell it twice.
    renew: bool,
    /// Its parts of the mirror's and of the node's memory.
    seats: [Seat; 2],
    partitions: BTreeMap<TopicIdPartition, Assigned>,
    outstanding: BTreeMap<TopicIdPartition, Outstanding>,
    stage: Stage,
    /// The number of the last request.
    number: u64,
    /// Which of the two connections: one whose long wait was given up is busy until that is over.
    second_lane: bool,
    short_until: Instant,
    backoff: Duration,
    /// Whether the mirror was told that the broker does not answer.
    failing: bool,
    last_answer: LastAnswer,
    /// When the newest request was sent.
    asked_at: TimestampMs,
    /// Questions beside the fetches.
    tasks: JoinSet<()>,
}

/// A partition of this fetcher.
#[derive(Debug)]
struct Assigned {
    partition: SourcePartition,
    leader_epoch: LeaderEpoch,
    source_epoch: LeaderEpoch,
    /// Answers to requests before this one say nothing of this assignment's position.
    valid_from: u64,
    /// Not fetched until it is assigned again.
    parked: bool,
    told_success: bool,
    told_epoch: LeaderEpoch,
    /// Appends that failed in a row.
    failures: u32,
}

/// What the fetcher is doing.
#[derive(Debug)]
enum Stage {
    /// Nothing to ask for.
    Idle,
    /// A request is in flight.
    Asking { short: bool, _task: AbortOnDrop },
    /// An answer waits for the appends of the one before it.
    Holding(Box<Answer>),
    /// Waiting after a request.
    BackingOff,
}

impl Actor for MirrorFetcher {
    type Msg = MirrorFetcherMsg;
    type State = MirrorFetcherState;
    type Arguments = MirrorFetcherArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let MirrorFetcherArgs { directory, shared, mirror, client, id } = args;
        // The name that quotas on the source are set for (KIP-1279).
        let client_id =
            format!("broker-{}-fetcher-{}-mirror-{}", directory.node_id(), id.index, shared.name);
        Ok(MirrorFetcherState {
            seats: [shared.bytes.take_seat(), directory.mirror_bytes.take_seat()],
            directory,
            shared,
            mirror,
            myself,
            client,
            id,
            client_id,
            session: FetchSession::default(),
            renew: false,
            partitions: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            stage: Stage::Idle,
            number: 0,
            second_lane: false,
            short_until: Instant::now(),
            backoff: LINK_BACKOFF_MIN,
            failing: false,
            last_answer: LastAnswer::default(),
            asked_at: TimestampMs::NONE,
            tasks: JoinSet::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            MirrorFetcherMsg::Assign(assignment) => state.on_assign(assignment),
            MirrorFetcherMsg::Release(id, reply) => state.on_release(id, reply),
            MirrorFetcherMsg::Answered { number, outcome } => state.on_answered(number, outcome),
            MirrorFetcherMsg::Appended(id, result) => state.on_appended(id, result),
            MirrorFetcherMsg::BoundsFound { partition, valid_from, bounds } => {
                state.on_bounds_found(partition, valid_from, bounds);
            }
            MirrorFetcherMsg::BackoffTimeout(number) => state.on_backoff_timeout(number),
            MirrorFetcherMsg::PartitionTimeout(id, valid_from) => {
                state.on_partition_timeout(id, valid_from);
            }
        }
        Ok(())
    }
}

impl MirrorFetcherState {
    fn on_assign(&mut self, assignment: Assignment) {
        let Assignment { partition, leader_epoch, source_epoch } = assignment;
        let id = partition.id();
        let assigned = Assigned {
            partition,
            leader_epoch,
            source_epoch,
            valid_from: self.number + 1,
            parked: false,
            told_success: false,
            told_epoch: LeaderEpoch::NONE,
            failures: 0,
        };
        self.partitions.insert(id, assigned);
        self.renew |= self.session.has_sent(id);
        self.position(id);
        self.short_until = Instant::now() + SHORT_WAITS_FOR;
        self.wake();
    }

    fn on_release(&mut self, id: TopicIdPartition, reply: RpcReplyPort<()>) {
        if self.partitions.remove(&id).is_some() {
            self.session.remove(id);
            self.shared.offsets.release(id);
        }
        match self.outstanding.get_mut(&id) {
            Some(outstanding) => outstanding.waiters.push(reply),
            None => send(reply, ()),
        }
    }

    /// Lets a partition's next fetch begin at its log's end. While an append is under way the end
    /// is not known: its answer leads here again.
    fn position(&mut self, id: TopicIdPartition) {
        let Some(assigned) = self.partitions.get(&id) else {
            return;
        };
        self.session.hold(id, false);
        if self.outstanding.contains_key(&id) {
            return self.session.remove(id);
        }
        match self.directory.partition(id).and_then(|partition| partition.shared().view()) {
            Some(view) => {
                let position = FetchPosition {
                    topic: assigned.partition.topic.clone(),
                    leader_epoch: assigned.source_epoch,
                    offset: view.log_end(),
                    last_fetched_epoch: view.last_epoch(),
                    // Only leaders of our own cluster are told.
                    log_start: Offset::NONE,
                };
                self.session.set(id, position);
            }
            None => {
                self.session.remove(id);
                self.wait_out(id, PARTITION_BACKOFF);
            }
        }
    }

    /// Looks at a partition again in a while.
    fn wait_out(&mut self, id: TopicIdPartition, pause: Duration) {
        let Some(assigned) = self.partitions.get(&id) else {
            return;
        };
        let valid_from = assigned.valid_from;
        self.myself.send_after(pause, move || MirrorFetcherMsg::PartitionTimeout(id, valid_from));
    }

    /// Fetches a partition no more until it is assigned again.
    fn park(&mut self, id: TopicIdPartition) {
        self.session.remove(id);
        if let Some(assigned) = self.partitions.get_mut(&id) {
            assigned.parked = true;
        }
    }

    fn on_partition_timeout(&mut self, id: TopicIdPartition, valid_from: u64) {
        let current = self.partitions.get(&id);
        if current.is_some_and(|a| a.valid_from == valid_from && !a.parked) {
            self.restart_partition(id);
            self.wake();
        }
    }

    /// Starts over at the log's end: what was asked for before says nothing any more.
    fn restart_partition(&mut self, id: TopicIdPartition) {
        if let Some(assigned) = self.partitions.get_mut(&id) {
            assigned.valid_from = self.number + 1;
        }
        self.position(id);
    }

    /// Asks now if nothing is asked, and gives up a long wait, so that the next request has what
    /// changed.
    fn wake(&mut self) {
        match self.stage {
            Stage::Idle => self.ask(),
            Stage::Asking { short: false, .. } => {
                // The source is still waiting on that connection, and forgets the session there.
                self.second_lane = !self.second_lane;
                self.session.restart();
                self.ask();
            }
            Stage::Asking { short: true, .. } | Stage::Holding(_) | Stage::BackingOff => {}
        }
    }

    fn ask(&mut self) {
        if self.session.is_idle() {
            self.stage = Stage::Idle;
            return;
        }
        if std::mem::take(&mut self.renew) {
            self.session.restart();
        }
        let short = Instant::now() < self.short_until;
        let mut limits = FetchLimits::from(&self.directory.config.mirror_fetch);
        for seat in &self.seats {
            let share = i32::try_from(seat.share()).unwrap_or(i32::MAX);
            limits.response_max_bytes = limits.response_max_bytes.min(share);
            limits.partition_max_bytes = limits.partition_max_bytes.min(share);
        }
        if short {
            limits.wait_max_ms = limits.wait_max_ms.min(SHORT_WAIT_MS);
        }
        self.number += 1;
        self.asked_at = self.directory.clock.now();
        let number = self.number;
        let wait = Duration::from_millis(u64::try_from(limits.wait_max_ms).unwrap_or(0));
        let fetch = request::Fetch {
            client: self.client.clone(),
            broker: self.id.broker,
            lane: 1 + 2 * self.id.index + u8::from(self.second_lane),
            client_id: self.client_id.clone(),
            request: self.session.next_request(limits),
            deadline: wait + self.directory.config.mirror_fetch.request_timeout,
        };
        let myself = self.myself.clone();
        let task = self.directory.runtimes.spawn_data(async move {
            let outcome = fetch.run().await;
            if myself.cast(MirrorFetcherMsg::Answered { number, outcome }).is_err() {
                tracing::trace!("the fetcher is gone");
            }
        });
        self.stage = Stage::Asking { short, _task: AbortOnDrop::new(task) };
    }

    fn on_answered(&mut self, number: u64, outcome: Result<Answer, String>) {
        if number != self.number || !matches!(self.stage, Stage::Asking { .. }) {
            return;
        }
        match outcome {
            Ok(answer) => {
                self.on_broker_answered();
                if self.outstanding.is_empty() {
                    self.take(answer);
                } else {
                    self.stage = Stage::Holding(Box::new(answer));
                }
            }
            Err(why) => self.on_link_failed(&why),
        }
    }

    /// Goes on once the appends of the last answer are done.
    fn on_appends_done(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Holding(answer) => self.take(*answer),
            Stage::Idle => self.ask(),
            other @ (Stage::Asking { .. } | Stage::BackingOff) => self.stage = other,
        }
    }

    /// Takes an answer apart, hands its batches to the partitions and asks for more.
    fn take(&mut self, answer: Answer) {
        let code = ErrorCode::from_code(answer.response.error_code);
        if code != ErrorCode::None {
            tracing::debug!(mirror = %self.shared.name, fetcher = ?self.id, ?code, "starts over");
            self.session.restart();
            return self.back_off();
        }
        let throttle = u64::try_from(answer.response.throttle_time_ms).unwrap_or(0);
        self.session.on_response(answer.response.session_id);
        self.take_partitions(answer);
        self.backoff = LINK_BACKOFF_MIN;
        if throttle > 0 {
            self.back_off_for(Duration::from_millis(throttle));
        } else {
            self.ask();
        }
    }

    fn on_broker_answered(&mut self) {
        self.last_answer.set(self.directory.clock.now());
        if std::mem::take(&mut self.failing) {
            self.report(FetcherReport::Answered(self.id));
        }
    }

    fn on_link_failed(&mut self, why: &str) {
        tracing::debug!(mirror = %self.shared.name, fetcher = ?self.id, why, "no answer");
        self.session.restart();
        if !std::mem::replace(&mut self.failing, true) {
            self.report(FetcherReport::LinkFailed(self.id, self.asked_at));
        }
        self.back_off();
    }

    fn back_off(&mut self) {
        let pause = u64::try_from(self.backoff.as_millis()).unwrap_or(u64::MAX);
        let spread = self.directory.entropy.jitter_ms(pause, 20);
        let longest = self.directory.config.mirror_fetch.backoff.max(LINK_BACKOFF_MIN);
        self.backoff = (self.backoff * 2).min(longest);
        self.back_off_for(Duration::from_millis(spread));
    }

    fn back_off_for(&mut self, pause: Duration) {
        self.stage = Stage::BackingOff;
        let number = self.number;
        self.myself.send_after(pause, move || MirrorFetcherMsg::BackoffTimeout(number));
    }

    fn on_backoff_timeout(&mut self, number: u64) {
        if number == self.number && matches!(self.stage, Stage::BackingOff) {
            self.ask();
        }
    }

    fn report(&self, report: FetcherReport) {
        if self.mirror.cast(MirrorMsg::FetcherReported(report)).is_err() {
            tracing::trace!("the mirror is gone, and this fetcher with it");
        }
    }

    /// Tells a partition what happened to it.
    fn tell(
        &self,
        id: TopicIdPartition,
        leader_epoch: LeaderEpoch,
        event: impl Into<MirrorEvent>,
    ) {
        if let Some(partition) = self.directory.partition(id) {
            partition.mirror(MirrorInput::Event { leader_epoch, event: event.into() });
        }
    }
}
