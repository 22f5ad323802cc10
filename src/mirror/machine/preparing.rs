//! PREPARING: find the last point shared with the source, cut to it, and wait for the followers
//! (D7). Owns the steps; the choice of the point is `truncation`'s.

use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use super::leading::{own_last_mirror_epoch, stop, write};
use super::{
    Held, LogEvent, MirrorEffect, Outcome, PartitionMirror, SourceEvent, SourceFacts, Then,
    failed, keep,
};
use crate::epochs;
use crate::states::{DesiredState, MirrorState};
use crate::stored::StoredState;
use crate::truncation::{self, Comparison, LogFacts, Plan};

/// What PREPARING waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreparingStep {
    /// The log's bounds and newest epoch.
    ReadingLog,
    /// The source's epochs and last mirror epoch.
    AskingSource {
        /// Our log.
        log: LogFacts,
    },
    /// The end of the last mirror epoch in our log.
    FindingEnd {
        /// Our log.
        log: LogFacts,
        /// The source's leader epoch.
        source_epoch: LeaderEpoch,
        /// The last mirror epoch.
        epoch: LeaderEpoch,
    },
    /// The source's end of one of our epochs, on the way to the common prefix.
    ComparingAtSource {
        /// Our log.
        log: LogFacts,
        /// The source's leader epoch.
        source_epoch: LeaderEpoch,
        /// Our epoch that was asked for.
        epoch: LeaderEpoch,
        /// The common prefix is not longer than this.
        bound: Offset,
    },
    /// Our end of the epoch that the source answered.
    ComparingHere {
        /// Our log.
        log: LogFacts,
        /// The source's leader epoch.
        source_epoch: LeaderEpoch,
        /// What the source answered.
        answer: epochs::EpochEnd,
        /// The common prefix is not longer than this.
        bound: Offset,
    },
    /// The cut.
    Truncating {
        /// Where to.
        to: Offset,
        /// The source's leader epoch.
        source_epoch: LeaderEpoch,
    },
    /// Followers that still hold more.
    AwaitingFollowers {
        /// Our log end.
        end: Offset,
        /// How many offsets were cut.
        cut: i64,
        /// The source's leader epoch.
        source_epoch: LeaderEpoch,
    },
}

impl PreparingStep {
    /// The effects that get the step's answer; they may be repeated.
    pub(super) fn effects(&self) -> Vec<MirrorEffect> {
        match self {
            PreparingStep::ReadingLog => vec![MirrorEffect::ReadLog],
            PreparingStep::AskingSource { .. } => vec![MirrorEffect::AskSource],
            PreparingStep::FindingEnd { epoch, .. } => {
                vec![MirrorEffect::FindEpochEnd { epoch: *epoch }]
            }
            PreparingStep::ComparingAtSource { epoch, .. } => {
                vec![MirrorEffect::AskSourceEpochEnd { epoch: *epoch }]
            }
            PreparingStep::ComparingHere { answer, .. } => {
                vec![MirrorEffect::FindEpochEnd { epoch: answer.epoch }]
            }
            PreparingStep::Truncating { to, .. } => vec![MirrorEffect::Truncate { to: *to }],
            PreparingStep::AwaitingFollowers { end, .. } => {
                vec![MirrorEffect::AwaitFollowers { end: *end }]
            }
        }
    }
}

pub(super) fn enter(held: Box<Held>) -> Outcome {
    go(held, PreparingStep::ReadingLog)
}

fn go(held: Box<Held>, step: PreparingStep) -> Outcome {
    let effects = step.effects();
    (PartitionMirror::Preparing { held, step }, effects)
}

fn stay(held: Box<Held>, step: PreparingStep) -> Outcome {
    keep(PartitionMirror::Preparing { held, step })
}

/// A stop is wanted. A cut that runs is waited for, so that what it takes is counted.
pub(super) fn on_stop_wanted(held: Box<Held>, step: PreparingStep) -> Outcome {
    match step {
        PreparingStep::Truncating { .. } => stay(held, step),
        PreparingStep::AwaitingFollowers { cut, .. } => stop_after_cut(held, cut),
        PreparingStep::ReadingLog
        | PreparingStep::AskingSource { .. }
        | PreparingStep::FindingEnd { .. }
        | PreparingStep::ComparingAtSource { .. }
        | PreparingStep::ComparingHere { .. } => stop(held),
    }
}

fn stop_after_cut(mut held: Box<Held>, cut: i64) -> Outcome {
    held.row.records_cut += cut;
    stop(held)
}

pub(super) fn on_log(held: Box<Held>, step: PreparingStep, event: LogEvent) -> Outcome {
    match (step, event) {
        (PreparingStep::ReadingLog, LogEvent::Facts(log)) => {
            go(held, PreparingStep::AskingSource { log })
        }
        (PreparingStep::FindingEnd { log, source_epoch, .. }, LogEvent::EpochEnd(found)) => {
            cut(held, &log, source_epoch, truncation::point(&log, found))
        }
        (
            PreparingStep::ComparingHere { log, source_epoch, answer, bound },
            LogEvent::EpochEnd(found),
        ) => match truncation::compare(answer, found, bound) {
            Comparison::Agree { point } => {
                let found = Some(epochs::EpochEnd { epoch: answer.epoch, end_offset: point });
                cut(held, &log, source_epoch, truncation::point(&log, found))
            }
            Comparison::AskAgain { epoch, bound } => {
                go(held, PreparingStep::ComparingAtSource { log, source_epoch, epoch, bound })
            }
            Comparison::Nothing => cut(held, &log, source_epoch, truncation::point(&log, None)),
        },
        (
            PreparingStep::Truncating { source_epoch, .. },
            LogEvent::Truncated { log_end, records_cut },
        ) => {
            if held.lead.desired == DesiredState::Stopped {
                return stop_after_cut(held, records_cut);
            }
            let step =
                PreparingStep::AwaitingFollowers { end: log_end, cut: records_cut, source_epoch };
            go(held, step)
        }
        (
            PreparingStep::AwaitingFollowers { cut, source_epoch, .. },
            LogEvent::FollowersAligned,
        ) => finish(held, cut, source_epoch),
        (
            step,
            LogEvent::Facts(_)
            | LogEvent::EpochEnd(_)
            | LogEvent::Truncated { .. }
            | LogEvent::FollowersAligned,
        ) => stay(held, step),
    }
}

pub(super) fn on_source(
    held: Box<Held>,
    step: PreparingStep,
    event: SourceEvent,
    now: TimestampMs,
) -> Outcome {
    match (step, event) {
        (PreparingStep::AskingSource { log }, SourceEvent::Facts(facts)) => {
            on_facts(held, log, facts)
        }
        (
            PreparingStep::ComparingAtSource { log, source_epoch, bound, .. },
            SourceEvent::EpochEnd(answer),
        ) => match answer {
            Some(answer) => {
                go(held, PreparingStep::ComparingHere { log, source_epoch, answer, bound })
            }
            None => cut(held, &log, source_epoch, truncation::point(&log, None)),
        },
        (
            step @ (PreparingStep::AskingSource { .. } | PreparingStep::ComparingAtSource { .. }),
            SourceEvent::Failed(error),
        ) => {
            let attempt = held.row.attempt;
            match failed::judge(&held, attempt, &error, now) {
                failed::Judgement::Wait { at } => (
                    PartitionMirror::Preparing { held, step },
                    vec![MirrorEffect::SetTimer { at }],
                ),
                failed::Judgement::Fail { failure, row } => failed::begin(held, row, failure),
            }
        }
        (
            step,
            SourceEvent::Facts(_)
            | SourceEvent::EpochEnd(_)
            | SourceEvent::Failed(_)
            | SourceEvent::Reached,
        ) => stay(held, step),
    }
}

fn on_facts(held: Box<Held>, log: LogFacts, facts: SourceFacts) -> Outcome {
    if let Some(mirror) = facts.mirroring_from_us {
        let attempt = held.row.attempt;
        let reason = format!(
            "mirror loop: the source's mirror \"{mirror}\" is copying this topic from here; \
             stop it there first"
        );
        return failed::on_error(held, attempt, &reason);
    }
    let source_epoch = facts.leader_epoch;
    let own = own_last_mirror_epoch(&held);
    let record = held.lead.record;
    match truncation::plan(&log, own, facts.last_mirror_epoch, &record) {
        Plan::Keep => {
            go(held, PreparingStep::AwaitingFollowers { end: log.end, cut: 0, source_epoch })
        }
        Plan::EndOf { epoch } => go(held, PreparingStep::FindingEnd { log, source_epoch, epoch }),
        Plan::CommonPrefix { epoch } => {
            let bound = log.end;
            go(held, PreparingStep::ComparingAtSource { log, source_epoch, epoch, bound })
        }
        Plan::CutLocal => {
            let end_offset = Offset(record.last_mirrored_offset.0 + 1);
            let kept = epochs::EpochEnd { epoch: LeaderEpoch::NONE, end_offset };
            cut(held, &log, source_epoch, truncation::point(&log, Some(kept)))
        }
        Plan::Refuse => {
            let reason = format!(
                "the topic here holds {} records that never came from a mirror; \
                 delete it or mirror another topic",
                log.span()
            );
            failed::for_good(held, reason)
        }
    }
}

fn cut(
    held: Box<Held>,
    log: &LogFacts,
    source_epoch: LeaderEpoch,
    point: Result<Offset, truncation::BelowLogStart>,
) -> Outcome {
    match point {
        Ok(to) if to < log.end => go(held, PreparingStep::Truncating { to, source_epoch }),
        Ok(_) => go(held, PreparingStep::AwaitingFollowers { end: log.end, cut: 0, source_epoch }),
        Err(error) => failed::for_good(held, error.to_string()),
    }
}

fn finish(held: Box<Held>, cut: i64, source_epoch: LeaderEpoch) -> Outcome {
    let fence = epochs::needs_bump(held.lead.leader_epoch, source_epoch);
    let (state, then) = if fence {
        (MirrorState::EpochFencing, Then::Fence { source_epoch })
    } else {
        (MirrorState::Mirroring, Then::Mirror)
    };
    let reason = (cut > 0).then(|| format!("{cut} records cut to agree with the source"));
    let row = StoredState {
        records_cut: held.row.records_cut + cut,
        reason,
        ..held.row.moved_to(state)
    };
    write(held, row, then)
}
