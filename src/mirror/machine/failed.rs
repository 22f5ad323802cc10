//! FAILED and the ways back (D12). Owns the judgement of what an error means; the delays are
//! `retry`'s.

use protocol::ids::TimestampMs;

use super::leading::write;
use super::{Held, MirrorEffect, Outcome, PartitionMirror, SourceError, SourceEvent, Then, keep};
use crate::retry::{AUTHORIZATION_RETRY_MS, Backoff, UNREACHABLE_LIMIT_MS};
use crate::states::MirrorState;
use crate::stored::{NOT_RETRIED, StoredState};

/// How a failure is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The source does not answer: probed without limit, stored once as attempt 0.
    Unreachable {
        /// Probes so far, in memory only.
        probes: u32,
    },
    /// A right is missing: tried again every 60 s, without limit, stored as attempt 0.
    NotAuthorized,
    /// Tried again with growing delays; the row counts the attempts.
    Retrying,
    /// Never tried again by itself; an operator's start tries once more.
    ForGood,
}

impl Failure {
    /// The failure a stored row speaks of. Both unlimited kinds are stored alike, and a probe
    /// tells them apart again.
    pub(super) fn of_row(row: &StoredState) -> Failure {
        match row.attempt {
            0 => Failure::Unreachable { probes: 0 },
            NOT_RETRIED => Failure::ForGood,
            _ => Failure::Retrying,
        }
    }
}

/// What an error of the source means for the partition.
pub(super) enum Judgement {
    /// Nothing yet: ask again at that time.
    Wait { at: TimestampMs },
    /// FAILED, with this row.
    Fail { failure: Failure, row: StoredState },
}

/// Judges an error after `attempt` failures in a row.
pub(super) fn judge(
    held: &Held,
    attempt: i16,
    error: &SourceError,
    now: TimestampMs,
) -> Judgement {
    match error {
        SourceError::Unreachable { since } if now.0 - since.0 < UNREACHABLE_LIMIT_MS => {
            let delay = held.lead.retries.backoff.delay_ms(1, held.lead.jitter_seed);
            let limit = since.0 + UNREACHABLE_LIMIT_MS;
            Judgement::Wait { at: TimestampMs(limit.min(now.0 + delay)) }
        }
        SourceError::Unreachable { .. } => Judgement::Fail {
            failure: Failure::Unreachable { probes: 0 },
            row: row(held, 0, "no broker of the source answers".to_owned()),
        },
        SourceError::NotLeader => {
            let delay = Backoff::LOCAL.delay_ms(2, held.lead.jitter_seed);
            Judgement::Wait { at: TimestampMs(now.0 + delay) }
        }
        SourceError::NotAuthorized { right } => Judgement::Fail {
            failure: Failure::NotAuthorized,
            row: row(held, 0, format!("the mirror's user lacks {right} at the source")),
        },
        SourceError::TopicDeleted => {
            permanent(held, "the topic was deleted at the source".to_owned())
        }
        SourceError::TopicRecreated { found } => permanent(
            held,
            format!(
                "the topic was deleted and created again at the source, its id is now {found}"
            ),
        ),
        SourceError::ClusterChanged { expected, found } => permanent(
            held,
            format!("the source is cluster {found}, but this mirror's source is {expected}"),
        ),
        SourceError::OldFormat => permanent(
            held,
            "the source holds record batches of format v0 or v1; convert them there".to_owned(),
        ),
        SourceError::Other { reason } => counted(held, attempt, reason),
    }
}

fn permanent(held: &Held, reason: String) -> Judgement {
    Judgement::Fail { failure: Failure::ForGood, row: row(held, NOT_RETRIED, reason) }
}

fn counted(held: &Held, attempt: i16, reason: &str) -> Judgement {
    let attempts_max = held.lead.retries.attempts_max;
    if attempt >= attempts_max {
        return permanent(held, format!("gave up after {attempts_max} attempts: {reason}"));
    }
    let attempt = attempt.max(0) + 1;
    Judgement::Fail { failure: Failure::Retrying, row: row(held, attempt, reason.to_owned()) }
}

/// The row FAILED; its previous state is the one to return to.
fn row(held: &Held, attempt: i16, reason: String) -> StoredState {
    let previous = match held.row.state {
        MirrorState::Failed => held.row.previous,
        MirrorState::Preparing
        | MirrorState::EpochFencing
        | MirrorState::Mirroring
        | MirrorState::Pausing
        | MirrorState::Paused
        | MirrorState::Stopping
        | MirrorState::Stopped
        | MirrorState::Unknown => held.row.state,
    };
    StoredState {
        attempt,
        previous,
        reason: Some(reason),
        ..held.row.moved_to(MirrorState::Failed)
    }
}

/// Starts the move to FAILED; a fetcher that runs is taken away at once.
pub(super) fn begin(held: Box<Held>, row: StoredState, failure: Failure) -> Outcome {
    let fetching = held.row.state == MirrorState::Mirroring;
    let (state, mut effects) = write(held, row, Then::Fail(failure));
    if fetching {
        effects.insert(0, MirrorEffect::StopFetching);
    }
    (state, effects)
}

/// FAILED for an error of our own that is tried again.
pub(super) fn on_error(held: Box<Held>, attempt: i16, reason: &str) -> Outcome {
    match counted(&held, attempt, reason) {
        Judgement::Fail { failure, row } => begin(held, row, failure),
        Judgement::Wait { .. } => unreachable!("a counted failure never waits"),
    }
}

/// FAILED without retries.
pub(super) fn for_good(held: Box<Held>, reason: String) -> Outcome {
    let row = row(&held, NOT_RETRIED, reason);
    begin(held, row, Failure::ForGood)
}

pub(super) fn enter(held: Box<Held>, failure: Failure, now: TimestampMs) -> Outcome {
    let seed = held.lead.jitter_seed;
    let delay = match failure {
        Failure::Unreachable { probes } => Some(Backoff::PROBE.delay_ms(probes + 1, seed)),
        Failure::NotAuthorized => Some(AUTHORIZATION_RETRY_MS),
        Failure::Retrying => {
            let attempt = u32::try_from(held.row.attempt).unwrap_or(1);
            Some(held.lead.retries.backoff.delay_ms(attempt, seed))
        }
        Failure::ForGood => None,
    };
    let effects = delay
        .map(|delay| MirrorEffect::SetTimer { at: TimestampMs(now.0 + delay) })
        .into_iter()
        .collect();
    (PartitionMirror::Failed { held, failure }, effects)
}

pub(super) fn on_woke(held: Box<Held>, failure: Failure, now: TimestampMs) -> Outcome {
    match failure {
        Failure::Unreachable { probes } => {
            let failure = Failure::Unreachable { probes: probes.saturating_add(1) };
            let (state, timer) = enter(held, failure, now);
            let mut effects = vec![MirrorEffect::ProbeSource];
            effects.extend(timer);
            (state, effects)
        }
        Failure::NotAuthorized | Failure::Retrying => retry(held),
        Failure::ForGood => keep(PartitionMirror::Failed { held, failure }),
    }
}

/// A probe's answer. Other failures have their own clock and do not listen to it.
pub(super) fn on_source(
    held: Box<Held>,
    failure: Failure,
    event: SourceEvent,
    now: TimestampMs,
) -> Outcome {
    match (failure, event) {
        (Failure::Unreachable { .. }, SourceEvent::Reached) => retry(held),
        (Failure::Unreachable { .. }, SourceEvent::Failed(SourceError::Unreachable { .. })) => {
            keep(PartitionMirror::Failed { held, failure })
        }
        (Failure::Unreachable { .. }, SourceEvent::Failed(error)) => {
            let attempt = held.row.attempt;
            match judge(&held, attempt, &error, now) {
                Judgement::Fail { failure, row } => begin(held, row, failure),
                Judgement::Wait { .. } => keep(PartitionMirror::Failed { held, failure }),
            }
        }
        (
            Failure::Unreachable { .. }
            | Failure::NotAuthorized
            | Failure::Retrying
            | Failure::ForGood,
            SourceEvent::Facts(_)
            | SourceEvent::EpochEnd(_)
            | SourceEvent::Failed(_)
            | SourceEvent::Reached,
        ) => keep(PartitionMirror::Failed { held, failure }),
    }
}

/// Starts the move back to where the failure happened. The attempts stay counted until a fetch
/// succeeds.
pub(super) fn retry(held: Box<Held>) -> Outcome {
    let (state, then) = match held.row.previous {
        MirrorState::EpochFencing => (
            MirrorState::EpochFencing,
            Then::Fence { source_epoch: protocol::ids::LeaderEpoch::NONE },
        ),
        MirrorState::Mirroring | MirrorState::Pausing | MirrorState::Paused => {
            (MirrorState::Mirroring, Then::Mirror)
        }
        MirrorState::Preparing
        | MirrorState::Stopping
        | MirrorState::Stopped
        | MirrorState::Failed
        | MirrorState::Unknown => (MirrorState::Preparing, Then::Prepare),
    };
    let row = StoredState { attempt: held.row.attempt.max(0), ..held.row.moved_to(state) };
    write(held, row, then)
}
