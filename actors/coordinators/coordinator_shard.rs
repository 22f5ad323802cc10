//! One coordinator over one partition of an internal topic that this node leads: it loads the
//! machine, hands it requests, and carries out what it decides. It decides nothing itself and
//! touches no file: appends are its partition's.
//!
//! A shard is loading or serving. It loads again when an append may have been written although
//! its answer was an error, because then log and machine may differ.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{
    Effect, GroupConfig, GroupMachine, Machine, MirrorStateMachine, Record, RequestId, Token,
};
use log::Origin;
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, TimestampMs, TopicIdPartition};
use ractor::{Actor, ActorProcessingErr, ActorRef, Message, RpcReplyPort};
use tokio::sync::OwnedSemaphorePermit;

use super::appends::{self, InFlight, Outcome, Reports};
use super::handle::CoordinatorShardHandle;
use super::load::{self, Source};
use super::timers::Timers;
use super::{ShardHandle, ShardKind};
use crate::admission::AppendPermit;
use crate::clock::millis;
use crate::directory::Directory;
use crate::error::Error;
use crate::partition::pending::send;
use crate::partition::{Acks, Append};
use crate::runtimes::AbortOnDrop;

/// A machine that a shard can run.
pub trait ShardMachine:
    Machine<Command: Message, Response: Message, Timer: Message> + Send + 'static
{
    /// Which one it is.
    const KIND: ShardKind;

    /// An empty machine with this node's settings.
    fn start(directory: &Directory) -> Self;

    /// The handle as the directory keeps it.
    fn wrap(handle: CoordinatorShardHandle<Self>) -> ShardHandle
    where
        Self: Sized;
}

impl ShardMachine for GroupMachine {
    const KIND: ShardKind = ShardKind::Group;

    fn start(directory: &Directory) -> GroupMachine {
        let groups = &directory.config.groups;
        GroupMachine::new(GroupConfig {
            session_timeout_min_ms: as_millis(groups.min_session_timeout),
            session_timeout_max_ms: as_millis(groups.max_session_timeout),
            initial_rebalance_delay_ms: as_millis(groups.initial_rebalance_delay),
            group_size_max: groups.max_size,
            offset_metadata_bytes_max: groups.offset_metadata_max_bytes,
            ..GroupConfig::default()
        })
    }

    fn wrap(handle: CoordinatorShardHandle<GroupMachine>) -> ShardHandle {
        ShardHandle::Group(handle)
    }
}

impl ShardMachine for MirrorStateMachine {
    const KIND: ShardKind = ShardKind::MirrorState;

    fn start(_directory: &Directory) -> MirrorStateMachine {
        MirrorStateMachine::new()
    }

    fn wrap(handle: CoordinatorShardHandle<MirrorStateMachine>) -> ShardHandle {
        ShardHandle::MirrorState(handle)
    }
}

/// A duration as the wire has it; longer ones are capped.
fn as_millis(duration: Duration) -> i32 {
    i32::try_from(millis(duration)).unwrap_or(i32::MAX)
}

/// Where a request's answer goes.
pub type ShardReply<M> = RpcReplyPort<Result<<M as Machine>::Response, Error>>;

/// What a shard can be told.
pub enum CoordinatorShardMsg<M: ShardMachine> {
    /// A request.
    Request {
        /// What is asked.
        command: M::Command,
        /// Admission, held until the answer.
        permit: OwnedSemaphorePermit,
        /// Who waits; the answer comes at once or much later.
        reply: ShardReply<M>,
    },
    /// The log is read.
    Loaded {
        /// Which load.
        generation: u64,
        /// Everything the log says.
        machine: Box<M>,
    },
    /// The partition answered an append.
    AppendEnded {
        /// The load it was made after.
        generation: u64,
        /// Which append.
        token: Token,
        /// What became of it.
        outcome: Outcome,
    },
    /// The earliest deadline has come.
    TimerTimeout {
        /// The load it was set after.
        generation: u64,
    },
    /// This node leads the partition in a new leader epoch.
    LeaderEpochChanged {
        /// The new epoch.
        leader_epoch: LeaderEpoch,
        /// Nobody else can have led in between.
        continued: bool,
    },
    /// This node leads the partition no more: answer who waits, and end.
    Resign,
}

impl<M: ShardMachine> fmt::Debug for CoordinatorShardMsg<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CoordinatorShardMsg::Request { .. } => "Request",
            CoordinatorShardMsg::Loaded { .. } => "Loaded",
            CoordinatorShardMsg::AppendEnded { .. } => "AppendEnded",
            CoordinatorShardMsg::TimerTimeout { .. } => "TimerTimeout",
            CoordinatorShardMsg::LeaderEpochChanged { .. } => "LeaderEpochChanged",
            CoordinatorShardMsg::Resign => "Resign",
        })
    }
}

/// What a shard is started with.
#[derive(Debug, Clone)]
pub struct CoordinatorShardArgs {
    /// Its partition, the epoch it leads in, and what an earlier life left under way.
    pub source: Source,
}

/// The actor; everything mutable is in [`CoordinatorShardState`].
pub struct CoordinatorShard<M> {
    machine: PhantomData<fn() -> M>,
}

impl<M> Default for CoordinatorShard<M> {
    fn default() -> CoordinatorShard<M> {
        CoordinatorShard { machine: PhantomData }
    }
}

/// The state of one incarnation.
pub struct CoordinatorShardState<M: ShardMachine> {
    directory: Arc<Directory>,
    partition: TopicIdPartition,
    leader_epoch: LeaderEpoch,
    in_flight: InFlight,
    myself: ActorRef<CoordinatorShardMsg<M>>,
    phase: Phase<M>,
    /// Counts loads: what belongs to an earlier one is not heard any more.
    generation: u64,
    waiting: BTreeMap<RequestId, Waiting<M>>,
    last_request: u64,
}

enum Phase<M: ShardMachine> {
    Loading { _task: AbortOnDrop },
    Serving(Box<Serving<M>>),
}

struct Serving<M: ShardMachine> {
    machine: M,
    timers: Timers<M::Timer>,
    reports: Reports,
    /// The wake-up under way, and when it comes.
    wake: Option<(TimestampMs, AbortOnDrop)>,
}

struct Waiting<M: ShardMachine> {
    reply: ShardReply<M>,
    /// What bounds the requests of a shard.
    _permit: OwnedSemaphorePermit,
}

impl<M: ShardMachine> Actor for CoordinatorShard<M> {
    type Msg = CoordinatorShardMsg<M>;
    type State = CoordinatorShardState<M>;
    type Arguments = CoordinatorShardArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let Source { directory, partition, leader_epoch, in_flight } = args.source.clone();
        let generation = 1;
        Ok(CoordinatorShardState {
            directory,
            partition,
            leader_epoch,
            in_flight,
            phase: start_load(args.source, myself.clone(), generation),
            myself,
            generation,
            waiting: BTreeMap::new(),
            last_request: 0,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CoordinatorShardMsg::Request { command, permit, reply } => {
                state.on_request(command, permit, reply);
            }
            CoordinatorShardMsg::Loaded { generation, machine } => {
                state.on_loaded(generation, *machine);
            }
            CoordinatorShardMsg::AppendEnded { generation, token, outcome } => {
                state.on_append_ended(generation, token, outcome);
            }
            CoordinatorShardMsg::TimerTimeout { generation } => state.on_timer_timeout(generation),
            CoordinatorShardMsg::LeaderEpochChanged { leader_epoch, continued } => {
                state.on_leader_epoch_changed(leader_epoch, continued);
            }
            CoordinatorShardMsg::Resign => {
                state.resign();
                myself.stop(None);
            }
        }
        Ok(())
    }
}

fn start_load<M: ShardMachine>(
    source: Source,
    myself: ActorRef<CoordinatorShardMsg<M>>,
    generation: u64,
) -> Phase<M> {
    let runtimes = source.directory.runtimes.clone();
    let task = runtimes.spawn_data(async move {
        let machine = load::load::<M>(&source).await;
        if myself.cast(CoordinatorShardMsg::Loaded { generation, machine }).is_err() {
            tracing::trace!("the coordinator ended while it was loaded");
        }
    });
    Phase::Loading { _task: AbortOnDrop::new(task) }
}

impl<M: ShardMachine> CoordinatorShardState<M> {
    fn on_request(
        &mut self,
        command: M::Command,
        permit: OwnedSemaphorePermit,
        reply: ShardReply<M>,
    ) {
        let Phase::Serving(serving) = &mut self.phase else {
            return send(reply, Err(Error::refused(ErrorCode::CoordinatorLoadInProgress)));
        };
        self.last_request += 1;
        let request = RequestId(self.last_request);
        self.waiting.insert(request, Waiting { reply, _permit: permit });
        let effects = serving.machine.handle(self.directory.clock.now(), request, command);
        self.carry_out(effects);
    }

    fn on_loaded(&mut self, generation: u64, machine: M) {
        if generation != self.generation {
            return;
        }
        let mut serving = Box::new(Serving {
            machine,
            timers: Timers::new(),
            reports: Reports::default(),
            wake: None,
        });
        let effects = serving.machine.on_loaded(self.directory.clock.now());
        self.phase = Phase::Serving(serving);
        self.carry_out(effects);
    }

    fn on_append_ended(&mut self, generation: u64, token: Token, outcome: Outcome) {
        if generation != self.generation {
            return;
        }
        if let Phase::Serving(serving) = &mut self.phase {
            serving.reports.end(token, outcome);
        }
        while let Phase::Serving(serving) = &mut self.phase
            && let Some((token, outcome)) = serving.reports.pop()
        {
            let result = match outcome {
                Outcome::Committed => Ok(()),
                Outcome::Refused(code) => Err(code),
                Outcome::Unknown(code) => {
                    tracing::info!(
                        kind = ?M::KIND, partition = %self.partition, ?code,
                        "an append may or may not be in the log: the coordinator loads again"
                    );
                    return self.reload();
                }
            };
            let effects = serving.machine.on_appended(self.directory.clock.now(), token, result);
            self.carry_out(effects);
        }
    }

    fn on_timer_timeout(&mut self, generation: u64) {
        if generation != self.generation {
            return;
        }
        if let Phase::Serving(serving) = &mut self.phase {
            serving.wake = None;
        }
        let now = self.directory.clock.now();
        while let Phase::Serving(serving) = &mut self.phase
            && let Some(timer) = serving.timers.pop_due(now)
        {
            let effects = serving.machine.on_timer(now, timer);
            self.carry_out(effects);
        }
        self.set_wake();
    }

    fn on_leader_epoch_changed(&mut self, leader_epoch: LeaderEpoch, continued: bool) {
        self.leader_epoch = leader_epoch;
        if let Phase::Serving(serving) = &self.phase
            && continued
            && serving.reports.is_empty()
        {
            return;
        }
        self.reload();
    }

    /// Answers who waits and reads the log again.
    fn reload(&mut self) {
        self.resign();
        self.generation += 1;
        let source = Source {
            directory: Arc::clone(&self.directory),
            partition: self.partition,
            leader_epoch: self.leader_epoch,
            in_flight: self.in_flight.clone(),
        };
        self.phase = start_load(source, self.myself.clone(), self.generation);
    }

    /// Answers everybody who waits.
    fn resign(&mut self) {
        if let Phase::Serving(serving) = &mut self.phase {
            for effect in serving.machine.on_resigned() {
                if let Effect::Reply { to, response } = effect {
                    self.reply(to, response);
                }
            }
        }
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            send(waiting.reply, Err(Error::refused(ErrorCode::NotCoordinator)));
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect<M::Response, M::Timer>>) {
        for effect in effects {
            match effect {
                Effect::Append { records, token } => self.append(&records, token),
                Effect::Reply { to, response } => self.reply(to, response),
                Effect::SetTimer { timer, at } => {
                    if let Phase::Serving(serving) = &mut self.phase {
                        serving.timers.set(timer, at);
                    }
                }
                Effect::CancelTimer { timer } => {
                    if let Phase::Serving(serving) = &mut self.phase {
                        serving.timers.cancel(&timer);
                    }
                }
            }
        }
        self.set_wake();
    }

    fn append(&mut self, records: &[Record], token: Token) {
        let Phase::Serving(serving) = &mut self.phase else {
            return;
        };
        serving.reports.begin(token);
        let begun = self.in_flight.begin();
        let append = Append {
            batches: appends::batches(records, self.directory.clock.now()),
            origin: Origin::Coordinator,
            acks: Acks::All,
            expected_epoch: Some(self.leader_epoch),
            permit: AppendPermit::internal(),
        };
        // Handed over now, so that appends keep their order.
        let answer = self.directory.partition(self.partition).map(|found| found.append(append));
        let (myself, generation) = (self.myself.clone(), self.generation);
        self.directory.runtimes.spawn_data(async move {
            let result = match answer {
                Some(answer) => answer.await,
                None => Err(Error::NoAnswer { what: "the coordinator's partition" }),
            };
            let outcome = Outcome::of(&result);
            drop(begun);
            let ended = CoordinatorShardMsg::AppendEnded { generation, token, outcome };
            if myself.cast(ended).is_err() {
                tracing::trace!("the coordinator ended before its append");
            }
        });
    }

    fn reply(&mut self, to: RequestId, response: M::Response) {
        if let Some(waiting) = self.waiting.remove(&to) {
            send(waiting.reply, Ok(response));
        }
    }

    /// Sees to it that the shard wakes for its earliest deadline. A wake-up that comes before any
    /// deadline does no harm, so one that is under way is only replaced by an earlier one.
    fn set_wake(&mut self) {
        let Phase::Serving(serving) = &mut self.phase else {
            return;
        };
        let Some(at) = serving.timers.next_at() else {
            return;
        };
        if serving.wake.as_ref().is_some_and(|(planned, _)| *planned <= at) {
            return;
        }
        let left = at.0.saturating_sub(self.directory.clock.now().0);
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        let (myself, generation) = (self.myself.clone(), self.generation);
        let task = self.directory.runtimes.spawn_data(async move {
            tokio::time::sleep(left).await;
            if myself.cast(CoordinatorShardMsg::TimerTimeout { generation }).is_err() {
                tracing::trace!("the coordinator ended before its timer");
            }
        });
        serving.wake = Some((at, AbortOnDrop::new(task)));
    }
}
