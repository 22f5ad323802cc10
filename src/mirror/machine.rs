//! The machine of one mirror partition, run by the partition's leader: events in, effects out.
//! Owns every decision about the partition's mirror state; never does anything itself.
//!
//! # The table
//!
//! - UNKNOWN goes to PREPARING when the topic shall be mirrored, to STOPPING when it shall be
//!   stopped.
//! - PREPARING goes to MIRRORING when the log agrees with the source and no follower holds more,
//!   to EPOCH_FENCING when the leader epoch must rise first.
//! - EPOCH_FENCING goes to MIRRORING when the leader epoch is far enough above the source's.
//! - MIRRORING goes to EPOCH_FENCING when a batch's epoch is above the leader epoch, to PAUSING
//!   when the topic shall be paused.
//! - PAUSING goes to PAUSED when the fetcher is gone; PAUSED goes to MIRRORING on a resume.
//! - Every state but STOPPED goes to STOPPING when the topic shall be stopped; STOPPING goes to
//!   STOPPED only.
//! - STOPPED goes to PREPARING on a start.
//! - PREPARING, EPOCH_FENCING and MIRRORING go to FAILED; FAILED goes back to the state before by
//!   itself, or at once on a start.
//!
//! # How an actor runs it
//!
//! [`next`] changes nothing it is given: on an error the actor logs it and keeps its state. A
//! move is [`MirrorEffect::WriteState`], then [`StoreEvent::Written`], then the effects of the
//! new state: nothing is acted on before it is durable. Every effect that asks something is
//! answered by exactly one event, its own or [`MirrorEvent::StepFailed`] /
//! [`SourceEvent::Failed`]; the actor sets the deadlines. Effects may be repeated and must be
//! idempotent. Answers to effects of an earlier leadership are dropped by the actor; answers
//! that come too late within one are ignored here. There is one timer: `SetTimer` replaces it,
//! and [`MirrorEvent::Woke`] says that it went off.

mod effects;
mod events;
mod failed;
mod fencing;
mod leading;
mod mirroring;
mod pausing;
mod preparing;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod scripted;
mod stopping;

use protocol::ids::{LeaderEpoch, TimestampMs};

use crate::retry::FailureRetries;
use crate::states::{DesiredState, MirrorState};
use crate::stored::StoredState;

pub use effects::MirrorEffect;
pub use events::{
    ControllerRecord, FetchEvent, LeadershipEvent, LogEvent, MirrorEvent, SourceError,
    SourceEvent, SourceFacts, StopEvent, StoreEvent,
};
pub use failed::Failure;
pub use fencing::FencingStep;
pub use mirroring::MirroringStep;
pub use preparing::PreparingStep;
pub use stopping::{StoppedStep, StoppingStep};

/// Why an event was refused. The state is unchanged; the actor logs it and goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The event cannot happen in this state.
    #[error("{event} does not fit a partition that is {state}")]
    Unexpected {
        /// What the machine is doing.
        state: &'static str,
        /// The event's name.
        event: &'static str,
    },
    /// A leader epoch went backwards.
    #[error("leader epoch {offered} is behind {current}")]
    LeaderEpochBehind {
        /// The epoch the machine knows.
        current: LeaderEpoch,
        /// The epoch the event carries.
        offered: LeaderEpoch,
    },
    /// The coordinator confirmed a row that is not the one in flight.
    #[error("row {confirmed} was confirmed, but {in_flight} is in flight")]
    WrongTransition {
        /// The transition number in flight.
        in_flight: i64,
        /// The transition number confirmed.
        confirmed: i64,
    },
}

/// What a leader knows of its leadership and of the operator's wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The partition's leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// What the operator wants.
    pub desired: DesiredState,
    /// What the controller's log holds of the partition.
    pub record: ControllerRecord,
    /// Spreads the retries of many partitions; any number, the same for the whole leadership.
    pub jitter_seed: u64,
    /// How failures are tried again.
    pub retries: FailureRetries,
}

/// A leadership together with the newest durable row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The leadership.
    pub lead: Lead,
    /// The newest row known to be durable.
    pub row: StoredState,
}

/// A row on its way to the coordinator, and what follows when it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writing {
    held: Box<Held>,
    row: StoredState,
    then: Then,
    attempt: u32,
}

/// The work that begins when a row is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Prepare,
    Fence { source_epoch: LeaderEpoch },
    Mirror,
    Pause,
    Rest,
    Stop(StoppingStep),
    StopLater { step: StoppingStep, attempt: u32 },
    End,
    Fail(Failure),
}

/// One mirror partition as the node that holds a replica sees it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum PartitionMirror {
    /// Another node leads the partition, or nobody does.
    #[default]
    Following,
    /// We lead; what is stored is not known yet.
    Loading {
        /// The leadership.
        lead: Lead,
        /// How often reading failed.
        attempt: u32,
    },
    /// A row is on its way to the coordinator; nothing moves until it is durable.
    Writing(Box<Writing>),
    /// PREPARING.
    Preparing {
        /// Leadership and row.
        held: Box<Held>,
        /// What is waited for.
        step: PreparingStep,
    },
    /// EPOCH_FENCING.
    EpochFencing {
        /// Leadership and row.
        held: Box<Held>,
        /// What is waited for.
        step: FencingStep,
    },
    /// MIRRORING.
    Mirroring {
        /// Leadership and row.
        held: Box<Held>,
        /// Fetching, or a repair of the log.
        step: MirroringStep,
        /// Failures in a row before this; 0 once a fetch succeeded.
        attempt: i16,
    },
    /// PAUSING: the fetcher is being taken away.
    Pausing {
        /// Leadership and row.
        held: Box<Held>,
    },
    /// PAUSED.
    Paused {
        /// Leadership and row.
        held: Box<Held>,
    },
    /// STOPPING.
    Stopping {
        /// Leadership and row.
        held: Box<Held>,
        /// The step of the failover that runs.
        step: StoppingStep,
        /// How often this step failed.
        attempt: u32,
    },
    /// STOPPED.
    Stopped {
        /// The leadership.
        lead: Lead,
        /// Whether the controller's log has it too.
        step: StoppedStep,
    },
    /// FAILED.
    Failed {
        /// Leadership and row.
        held: Box<Held>,
        /// What kind of failure, and how it is retried.
        failure: Failure,
    },
}

/// Whether clients may write to the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAccess {
    /// As to any topic.
    Allowed,
    /// Refused: POLICY_VIOLATION (44), naming the state.
    ReadOnly(MirrorState),
    /// Not decided here or not yet: NOT_LEADER_OR_FOLLOWER (6), which clients retry.
    NotYet,
}

/// What a step of the machine gives: the new state and what is to be done, in order.
pub type Outcome = (PartitionMirror, Vec<MirrorEffect>);

/// Takes one event: the new state and the effects to carry out, in order.
///
/// # Errors
/// For an event that cannot happen in this state; the state stays as it is.
pub fn next(
    state: &PartitionMirror,
    event: MirrorEvent,
    now: TimestampMs,
) -> Result<Outcome, Error> {
    let state = state.clone();
    let name = event.name();
    match event {
        MirrorEvent::Leadership(event) => leading::on_leadership(state, event, now),
        MirrorEvent::Store(event) => leading::on_store(state, event, now),
        MirrorEvent::Log(event) => on_log(state, event, name),
        MirrorEvent::Source(event) => on_source(state, event, name, now),
        MirrorEvent::Fetch(event) => on_fetch(state, event, name),
        MirrorEvent::Stop(event) => on_stop(state, event, name, now),
        MirrorEvent::StepFailed { reason } => on_step_failed(state, &reason, name, now),
        MirrorEvent::Woke => on_woke(state, name, now),
    }
}

impl PartitionMirror {
    /// The newest durable state this node knows; UNKNOWN while it follows or loads.
    #[must_use]
    pub fn state(&self) -> MirrorState {
        match self {
            PartitionMirror::Following | PartitionMirror::Loading { .. } => MirrorState::Unknown,
            PartitionMirror::Writing(writing) => writing.held.row.state,
            PartitionMirror::Preparing { .. } => MirrorState::Preparing,
            PartitionMirror::EpochFencing { .. } => MirrorState::EpochFencing,
            PartitionMirror::Mirroring { .. } => MirrorState::Mirroring,
            PartitionMirror::Pausing { .. } => MirrorState::Pausing,
            PartitionMirror::Paused { .. } => MirrorState::Paused,
            PartitionMirror::Stopping { .. } => MirrorState::Stopping,
            PartitionMirror::Stopped { .. } => MirrorState::Stopped,
            PartitionMirror::Failed { .. } => MirrorState::Failed,
        }
    }

    /// Whether clients may write.
    #[must_use]
    pub fn write_access(&self) -> WriteAccess {
        match self {
            PartitionMirror::Following | PartitionMirror::Loading { .. } => WriteAccess::NotYet,
            PartitionMirror::Stopped { step, .. } => match step {
                StoppedStep::Recording { .. } => WriteAccess::NotYet,
                StoppedStep::Writable => WriteAccess::Allowed,
            },
            PartitionMirror::Writing(_)
            | PartitionMirror::Preparing { .. }
            | PartitionMirror::EpochFencing { .. }
            | PartitionMirror::Mirroring { .. }
            | PartitionMirror::Pausing { .. }
            | PartitionMirror::Paused { .. }
            | PartitionMirror::Stopping { .. }
            | PartitionMirror::Failed { .. } => WriteAccess::ReadOnly(self.state()),
        }
    }

    /// The leadership, unless another node leads.
    #[must_use]
    pub fn lead(&self) -> Option<&Lead> {
        match self {
            PartitionMirror::Following => None,
            PartitionMirror::Loading { lead, .. } | PartitionMirror::Stopped { lead, .. } => {
                Some(lead)
            }
            PartitionMirror::Writing(writing) => Some(&writing.held.lead),
            PartitionMirror::Preparing { held, .. }
            | PartitionMirror::EpochFencing { held, .. }
            | PartitionMirror::Mirroring { held, .. }
            | PartitionMirror::Pausing { held }
            | PartitionMirror::Paused { held }
            | PartitionMirror::Stopping { held, .. }
            | PartitionMirror::Failed { held, .. } => Some(&held.lead),
        }
    }

    /// The newest durable row, where it is known.
    #[must_use]
    pub fn row(&self) -> Option<&StoredState> {
        match self {
            PartitionMirror::Following
            | PartitionMirror::Loading { .. }
            | PartitionMirror::Stopped { .. } => None,
            PartitionMirror::Writing(writing) => Some(&writing.held.row),
            PartitionMirror::Preparing { held, .. }
            | PartitionMirror::EpochFencing { held, .. }
            | PartitionMirror::Mirroring { held, .. }
            | PartitionMirror::Pausing { held }
            | PartitionMirror::Paused { held }
            | PartitionMirror::Stopping { held, .. }
            | PartitionMirror::Failed { held, .. } => Some(&held.row),
        }
    }

    /// The row on its way to the coordinator, if one is.
    #[must_use]
    pub fn in_flight(&self) -> Option<&StoredState> {
        if let PartitionMirror::Writing(writing) = self { Some(&writing.row) } else { None }
    }

    /// What the machine is doing, in a word, for messages.
    #[must_use]
    pub fn doing(&self) -> &'static str {
        match self {
            PartitionMirror::Following => "following",
            PartitionMirror::Loading { .. } => "loading",
            PartitionMirror::Writing(_) => "writing",
            PartitionMirror::Preparing { .. }
            | PartitionMirror::EpochFencing { .. }
            | PartitionMirror::Mirroring { .. }
            | PartitionMirror::Pausing { .. }
            | PartitionMirror::Paused { .. }
            | PartitionMirror::Stopping { .. }
            | PartitionMirror::Stopped { .. }
            | PartitionMirror::Failed { .. } => self.state().name(),
        }
    }

    fn refuse(&self, event: &'static str) -> Error {
        Error::Unexpected { state: self.doing(), event }
    }
}

/// Keeps the state: the event is late, or says nothing new.
fn keep(state: PartitionMirror) -> Outcome {
    (state, Vec::new())
}

fn on_log(state: PartitionMirror, event: LogEvent, name: &'static str) -> Result<Outcome, Error> {
    match state {
        PartitionMirror::Following => Err(state.refuse(name)),
        PartitionMirror::Preparing { held, step } => Ok(preparing::on_log(held, step, event)),
        PartitionMirror::Mirroring { held, step, attempt } => {
            Ok(mirroring::on_log(held, step, attempt, event))
        }
        PartitionMirror::Loading { .. }
        | PartitionMirror::Writing(_)
        | PartitionMirror::EpochFencing { .. }
        | PartitionMirror::Pausing { .. }
        | PartitionMirror::Paused { .. }
        | PartitionMirror::Stopping { .. }
        | PartitionMirror::Stopped { .. }
        | PartitionMirror::Failed { .. } => Ok(keep(state)),
    }
}

fn on_source(
    state: PartitionMirror,
    event: SourceEvent,
    name: &'static str,
    now: TimestampMs,
) -> Result<Outcome, Error> {
    match state {
        PartitionMirror::Following => Err(state.refuse(name)),
        PartitionMirror::Preparing { held, step } => {
            Ok(preparing::on_source(held, step, event, now))
        }
        PartitionMirror::EpochFencing { held, step } => {
            Ok(fencing::on_source(held, step, event, now))
        }
        PartitionMirror::Mirroring { held, step, attempt } => {
            Ok(mirroring::on_source(held, step, attempt, event, now))
        }
        PartitionMirror::Failed { held, failure } => {
            Ok(failed::on_source(held, failure, event, now))
        }
        // A stop never needs the source, and a paused partition looks at it when it resumes.
        PartitionMirror::Loading { .. }
        | PartitionMirror::Writing(_)
        | PartitionMirror::Pausing { .. }
        | PartitionMirror::Paused { .. }
        | PartitionMirror::Stopping { .. }
        | PartitionMirror::Stopped { .. } => Ok(keep(state)),
    }
}

fn on_fetch(
    state: PartitionMirror,
    event: FetchEvent,
    name: &'static str,
) -> Result<Outcome, Error> {
    match state {
        PartitionMirror::Following => Err(state.refuse(name)),
        PartitionMirror::Mirroring { held, step, attempt } => {
            Ok(mirroring::on_fetch(held, step, attempt, event))
        }
        // A fetch that was under way when the fetcher was taken away.
        PartitionMirror::Loading { .. }
        | PartitionMirror::Writing(_)
        | PartitionMirror::Preparing { .. }
        | PartitionMirror::EpochFencing { .. }
        | PartitionMirror::Pausing { .. }
        | PartitionMirror::Paused { .. }
        | PartitionMirror::Stopping { .. }
        | PartitionMirror::Stopped { .. }
        | PartitionMirror::Failed { .. } => Ok(keep(state)),
    }
}

fn on_stop(
    state: PartitionMirror,
    event: StopEvent,
    name: &'static str,
    now: TimestampMs,
) -> Result<Outcome, Error> {
    match state {
        PartitionMirror::Following => Err(state.refuse(name)),
        PartitionMirror::Pausing { held } => Ok(pausing::on_stop(held, &event)),
        PartitionMirror::Stopping { held, step, attempt } => {
            Ok(stopping::on_stop(held, step, attempt, event, now))
        }
        PartitionMirror::Loading { .. }
        | PartitionMirror::Writing(_)
        | PartitionMirror::Preparing { .. }
        | PartitionMirror::EpochFencing { .. }
        | PartitionMirror::Mirroring { .. }
        | PartitionMirror::Paused { .. }
        | PartitionMirror::Stopped { .. }
        | PartitionMirror::Failed { .. } => Ok(keep(state)),
    }
}

fn on_step_failed(
    state: PartitionMirror,
    reason: &str,
    name: &'static str,
    now: TimestampMs,
) -> Result<Outcome, Error> {
    match state {
        PartitionMirror::Following => Err(state.refuse(name)),
        PartitionMirror::Preparing { held, .. } => {
            let attempt = held.row.attempt;
            Ok(failed::on_error(held, attempt, reason))
        }
        PartitionMirror::EpochFencing { held, step } => {
            Ok(fencing::on_step_failed(held, step, now))
        }
        PartitionMirror::Mirroring { held, step, attempt } => {
            Ok(mirroring::on_step_failed(held, step, attempt, reason))
        }
        PartitionMirror::Pausing { held } => Ok(pausing::on_step_failed(held, now)),
        PartitionMirror::Stopping { held, step, attempt } => {
            Ok(stopping::on_step_failed(held, step, attempt, reason, now))
        }
        PartitionMirror::Stopped { lead, step } => Ok(stopping::on_record_failed(lead, step, now)),
        PartitionMirror::Loading { .. }
        | PartitionMirror::Writing(_)
        | PartitionMirror::Paused { .. }
        | PartitionMirror::Failed { .. } => Ok(keep(state)),
    }
}

fn on_woke(
    state: PartitionMirror,
    name: &'static str,
    now: TimestampMs,
) -> Result<Outcome, Error> {
    match state {
        PartitionMirror::Following => Err(state.refuse(name)),
        PartitionMirror::Loading { lead, attempt } => {
            Ok((PartitionMirror::Loading { lead, attempt }, vec![MirrorEffect::ReadState]))
        }
        PartitionMirror::Writing(writing) => {
            let effects = vec![MirrorEffect::WriteState(writing.row.clone())];
            Ok((PartitionMirror::Writing(writing), effects))
        }
        PartitionMirror::Preparing { held, step } => {
            let effects = step.effects();
            Ok((PartitionMirror::Preparing { held, step }, effects))
        }
        PartitionMirror::EpochFencing { held, step } => {
            let effects = step.effects();
            Ok((PartitionMirror::EpochFencing { held, step }, effects))
        }
        PartitionMirror::Mirroring { held, step, attempt } => {
            Ok(mirroring::on_woke(held, step, attempt, now))
        }
        PartitionMirror::Pausing { held } => Ok(pausing::enter(held)),
        PartitionMirror::Paused { .. } => Ok(keep(state)),
        PartitionMirror::Stopping { held, step, attempt } => {
            Ok(stopping::on_woke(held, step, attempt, now))
        }
        PartitionMirror::Stopped { lead, step } => Ok(stopping::on_record_woke(lead, step, now)),
        PartitionMirror::Failed { held, failure } => Ok(failed::on_woke(held, failure, now)),
    }
}
