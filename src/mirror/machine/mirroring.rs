//! MIRRORING: fetch, and repair the log when the source's differs (D8, D9). Owns what a fetch's
//! findings mean; the fetcher itself is an actor.

use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use super::leading::write;
use super::{
    FetchEvent, Held, LogEvent, MirrorEffect, Outcome, PartitionMirror, SourceError, SourceEvent,
    Then, failed, keep,
};
use crate::epochs::{self, EpochEnd};
use crate::retry::UNREACHABLE_LIMIT_MS;
use crate::states::MirrorState;
use crate::stored::StoredState;
use crate::truncation::{self, LogFacts};

/// What MIRRORING does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirroringStep {
    /// The fetcher runs.
    Fetching {
        /// Since when no broker of the source answers, if so.
        unreachable_since: Option<TimestampMs>,
        /// The MinLeaderEpoch asked of the controller and not seen yet.
        bump_asked: Option<LeaderEpoch>,
    },
    /// The source's log diverged: our log's bounds are read.
    ReadingLog {
        /// What the source answered.
        answer: EpochEnd,
    },
    /// Our end of the epoch the source answered is looked up.
    FindingEnd {
        /// Our log.
        log: LogFacts,
        /// What the source answered.
        answer: EpochEnd,
    },
    /// The log is cut.
    Truncating {
        /// Where to.
        to: Offset,
    },
    /// The log is emptied, to begin where the source's begins.
    Resetting {
        /// Our log end before.
        from: Offset,
        /// The source's log start.
        to: Offset,
    },
}

impl MirroringStep {
    /// Fetching, with nothing known.
    const FRESH: MirroringStep =
        MirroringStep::Fetching { unreachable_since: None, bump_asked: None };

    fn effects(&self, leader_epoch: LeaderEpoch) -> Vec<MirrorEffect> {
        match self {
            MirroringStep::Fetching { .. } => vec![MirrorEffect::StartFetching { leader_epoch }],
            MirroringStep::ReadingLog { .. } => vec![MirrorEffect::ReadLog],
            MirroringStep::FindingEnd { answer, .. } => {
                vec![MirrorEffect::FindEpochEnd { epoch: answer.epoch }]
            }
            MirroringStep::Truncating { to } => vec![MirrorEffect::Truncate { to: *to }],
            MirroringStep::Resetting { to, .. } => vec![MirrorEffect::Reset { start: *to }],
        }
    }
}

pub(super) fn enter(held: Box<Held>) -> Outcome {
    let attempt = held.row.attempt;
    go(held, MirroringStep::FRESH, attempt)
}

fn go(held: Box<Held>, step: MirroringStep, attempt: i16) -> Outcome {
    let effects = step.effects(held.lead.leader_epoch);
    (PartitionMirror::Mirroring { held, step, attempt }, effects)
}

fn stay(held: Box<Held>, step: MirroringStep, attempt: i16) -> Outcome {
    keep(PartitionMirror::Mirroring { held, step, attempt })
}

pub(super) fn on_raised(held: Box<Held>, step: MirroringStep, attempt: i16) -> Outcome {
    match step {
        MirroringStep::Fetching { unreachable_since, .. } => {
            let step = MirroringStep::Fetching { unreachable_since, bump_asked: None };
            go(held, step, attempt)
        }
        MirroringStep::ReadingLog { .. }
        | MirroringStep::FindingEnd { .. }
        | MirroringStep::Truncating { .. }
        | MirroringStep::Resetting { .. } => go(held, step, attempt),
    }
}

pub(super) fn on_fetch(
    held: Box<Held>,
    step: MirroringStep,
    attempt: i16,
    event: FetchEvent,
) -> Outcome {
    let MirroringStep::Fetching { unreachable_since, bump_asked } = step else {
        // The fetcher waits for the repair; what it sent before means nothing any more.
        return stay(held, step, attempt);
    };
    match event {
        FetchEvent::Succeeded => {
            let step = MirroringStep::Fetching { unreachable_since: None, bump_asked };
            (PartitionMirror::Mirroring { held, step, attempt: 0 }, cancelled(unreachable_since))
        }
        FetchEvent::EpochSeen { epoch } => {
            let near = epochs::needs_bump(held.lead.leader_epoch, epoch);
            if !near || bump_asked.is_some() {
                return stay(held, step, attempt);
            }
            let min = epochs::bump_target(epoch);
            let step = MirroringStep::Fetching { unreachable_since, bump_asked: Some(min) };
            (
                PartitionMirror::Mirroring { held, step, attempt },
                vec![MirrorEffect::BumpLeaderEpoch { min }],
            )
        }
        FetchEvent::EpochTooHigh { epoch } => {
            if epochs::may_append(held.lead.leader_epoch, epoch) {
                // The leader epoch rose while that batch was on its way.
                return go(held, step, attempt);
            }
            let row = StoredState { attempt, ..held.row.moved_to(MirrorState::EpochFencing) };
            let (state, mut effects) = write(held, row, Then::Fence { source_epoch: epoch });
            effects.insert(0, MirrorEffect::StopFetching);
            (state, effects)
        }
        FetchEvent::Diverged { epoch, end_offset } => {
            go(held, MirroringStep::ReadingLog { answer: EpochEnd { epoch, end_offset } }, attempt)
        }
        FetchEvent::OutOfRange { source_start, source_end, log_start, log_end } => {
            let source = (source_start, source_end);
            on_out_of_range(held, attempt, source, (log_start, log_end))
        }
    }
}

fn cancelled(unreachable_since: Option<TimestampMs>) -> Vec<MirrorEffect> {
    unreachable_since.map(|_| MirrorEffect::CancelTimer).into_iter().collect()
}

fn on_out_of_range(
    held: Box<Held>,
    attempt: i16,
    (source_start, source_end): (Offset, Offset),
    (log_start, log_end): (Offset, Offset),
) -> Outcome {
    if source_end < log_start {
        let reason = format!(
            "the source ends at offset {source_end}, below the local log start {log_start}; \
             delete the topic here and start it again"
        );
        failed::for_good(held, reason)
    } else if source_end < log_end {
        go(held, MirroringStep::Truncating { to: source_end }, attempt)
    } else if source_start > log_end {
        go(held, MirroringStep::Resetting { from: log_end, to: source_start }, attempt)
    } else {
        // It moved between the fetch and the question, or it does not know our newest epoch: then
        // trying again for ever without a word would look like mirroring.
        let reason = format!(
            "the source refuses offset {log_end}, though its log spans {source_start} to \
             {source_end}: it does not know the epoch of our last record"
        );
        failed::on_error(held, attempt, &reason)
    }
}

pub(super) fn on_log(
    held: Box<Held>,
    step: MirroringStep,
    attempt: i16,
    event: LogEvent,
) -> Outcome {
    match (step, event) {
        (MirroringStep::ReadingLog { answer }, LogEvent::Facts(log)) => {
            go(held, MirroringStep::FindingEnd { log, answer }, attempt)
        }
        (MirroringStep::FindingEnd { log, answer }, LogEvent::EpochEnd(found)) => {
            on_divergence(held, attempt, &log, answer, found)
        }
        (MirroringStep::Truncating { to }, LogEvent::Truncated { records_cut, .. }) => {
            let reason = format!("{records_cut} records cut at offset {to}: the source diverged");
            let cut = held.row.records_cut + records_cut;
            rewrite(held, attempt, cut, Some(reason))
        }
        (MirroringStep::Resetting { from, to }, LogEvent::Truncated { .. }) => {
            if from == Offset::ZERO {
                // A first copy that begins at a later start is no gap (D21).
                return go(held, MirroringStep::FRESH, attempt);
            }
            let reason = format!(
                "gap: offsets {from} to {} were gone at the source before they were copied",
                to.0 - 1
            );
            let cut = held.row.records_cut;
            let (state, mut effects) = rewrite(held, attempt, cut, Some(reason));
            effects.insert(0, MirrorEffect::ReportGap { from, to });
            (state, effects)
        }
        (
            step,
            LogEvent::Facts(_)
            | LogEvent::EpochEnd(_)
            | LogEvent::Truncated { .. }
            | LogEvent::FollowersAligned,
        ) => stay(held, step, attempt),
    }
}

/// A diverging epoch always cuts: the source's history is the truth here.
fn on_divergence(
    held: Box<Held>,
    attempt: i16,
    log: &LogFacts,
    answer: EpochEnd,
    found: Option<EpochEnd>,
) -> Outcome {
    let shared = found.map(|own| EpochEnd {
        epoch: own.epoch,
        end_offset: own.end_offset.min(answer.end_offset),
    });
    match truncation::point(log, shared) {
        Ok(to) if to < log.end => go(held, MirroringStep::Truncating { to }, attempt),
        Ok(_) => {
            let reason = format!(
                "the source answered a diverging epoch {} ending at {}, which cuts nothing here",
                answer.epoch, answer.end_offset
            );
            failed::on_error(held, attempt, &reason)
        }
        Err(error) => failed::for_good(held, error.to_string()),
    }
}

/// Notes a repair in the row, then fetches on.
fn rewrite(held: Box<Held>, attempt: i16, cut: i64, reason: Option<String>) -> Outcome {
    let row = StoredState { attempt, records_cut: cut, reason, ..held.row.clone() };
    write(held, row, Then::Mirror)
}

pub(super) fn on_source(
    held: Box<Held>,
    step: MirroringStep,
    attempt: i16,
    event: SourceEvent,
    now: TimestampMs,
) -> Outcome {
    let MirroringStep::Fetching { unreachable_since, bump_asked } = step else {
        return stay(held, step, attempt);
    };
    match event {
        // The fetcher follows a leader that moved; the state is not touched.
        SourceEvent::Failed(SourceError::NotLeader) => stay(held, step, attempt),
        SourceEvent::Failed(SourceError::Unreachable { since })
            if now.0 - since.0 < UNREACHABLE_LIMIT_MS =>
        {
            let step = MirroringStep::Fetching { unreachable_since: Some(since), bump_asked };
            let at = TimestampMs(since.0 + UNREACHABLE_LIMIT_MS);
            (
                PartitionMirror::Mirroring { held, step, attempt },
                vec![MirrorEffect::SetTimer { at }],
            )
        }
        SourceEvent::Failed(error) => match failed::judge(&held, attempt, &error, now) {
            failed::Judgement::Wait { .. } => stay(held, step, attempt),
            failed::Judgement::Fail { failure, row } => failed::begin(held, row, failure),
        },
        SourceEvent::Reached => {
            let step = MirroringStep::Fetching { unreachable_since: None, bump_asked };
            (PartitionMirror::Mirroring { held, step, attempt }, cancelled(unreachable_since))
        }
        SourceEvent::Facts(_) | SourceEvent::EpochEnd(_) => stay(held, step, attempt),
    }
}

pub(super) fn on_woke(
    held: Box<Held>,
    step: MirroringStep,
    attempt: i16,
    now: TimestampMs,
) -> Outcome {
    match step {
        MirroringStep::Fetching { unreachable_since: Some(since), .. } => {
            let error = SourceEvent::Failed(SourceError::Unreachable { since });
            on_source(held, step, attempt, error, now)
        }
        MirroringStep::Fetching { unreachable_since: None, .. } => stay(held, step, attempt),
        MirroringStep::ReadingLog { .. }
        | MirroringStep::FindingEnd { .. }
        | MirroringStep::Truncating { .. }
        | MirroringStep::Resetting { .. } => go(held, step, attempt),
    }
}

/// While fetching only a bump can fail, and the next near epoch asks again.
pub(super) fn on_step_failed(
    held: Box<Held>,
    step: MirroringStep,
    attempt: i16,
    reason: &str,
) -> Outcome {
    match step {
        MirroringStep::Fetching { unreachable_since, .. } => {
            let step = MirroringStep::Fetching { unreachable_since, bump_asked: None };
            stay(held, step, attempt)
        }
        MirroringStep::ReadingLog { .. }
        | MirroringStep::FindingEnd { .. }
        | MirroringStep::Truncating { .. }
        | MirroringStep::Resetting { .. } => failed::on_error(held, attempt, reason),
    }
}
