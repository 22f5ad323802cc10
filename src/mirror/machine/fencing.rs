//! EPOCH_FENCING: raise the own leader epoch above the source's (D8). Owns the two questions; the
//! numbers are `epochs`'.

use protocol::ids::{LeaderEpoch, TimestampMs};

use super::leading::write;
use super::{Held, MirrorEffect, Outcome, PartitionMirror, SourceEvent, Then, failed, keep};
use crate::epochs;
use crate::retry::Backoff;
use crate::states::MirrorState;

/// What EPOCH_FENCING waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FencingStep {
    /// The source's leader epoch: this leader did not see it itself.
    AskingSource,
    /// A leader epoch above `min`, asked of the controller.
    Bumping {
        /// The source's leader epoch.
        source_epoch: LeaderEpoch,
        /// The MinLeaderEpoch asked for.
        min: LeaderEpoch,
        /// How often asking failed.
        attempt: u32,
    },
}

impl FencingStep {
    pub(super) fn effects(&self) -> Vec<MirrorEffect> {
        match self {
            FencingStep::AskingSource => vec![MirrorEffect::AskSource],
            FencingStep::Bumping { min, .. } => vec![MirrorEffect::BumpLeaderEpoch { min: *min }],
        }
    }
}

/// `source_epoch` of `NONE`: not known, so the source is asked.
pub(super) fn enter(held: Box<Held>, source_epoch: LeaderEpoch) -> Outcome {
    if source_epoch == LeaderEpoch::NONE {
        let step = FencingStep::AskingSource;
        let effects = step.effects();
        return (PartitionMirror::EpochFencing { held, step }, effects);
    }
    raise(held, source_epoch)
}

fn raise(held: Box<Held>, source_epoch: LeaderEpoch) -> Outcome {
    if !epochs::needs_bump(held.lead.leader_epoch, source_epoch) {
        let row = held.row.moved_to(MirrorState::Mirroring);
        return write(held, row, Then::Mirror);
    }
    let min = epochs::bump_target(source_epoch);
    let step = FencingStep::Bumping { source_epoch, min, attempt: 0 };
    let effects = step.effects();
    (PartitionMirror::EpochFencing { held, step }, effects)
}

pub(super) fn on_raised(held: Box<Held>, step: FencingStep) -> Outcome {
    match step {
        FencingStep::AskingSource => keep(PartitionMirror::EpochFencing { held, step }),
        FencingStep::Bumping { source_epoch, .. } => raise(held, source_epoch),
    }
}

pub(super) fn on_source(
    held: Box<Held>,
    step: FencingStep,
    event: SourceEvent,
    now: TimestampMs,
) -> Outcome {
    match (step, event) {
        (FencingStep::AskingSource, SourceEvent::Facts(facts)) => raise(held, facts.leader_epoch),
        (step @ FencingStep::AskingSource, SourceEvent::Failed(error)) => {
            let attempt = held.row.attempt;
            match failed::judge(&held, attempt, &error, now) {
                failed::Judgement::Wait { at } => (
                    PartitionMirror::EpochFencing { held, step },
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
        ) => keep(PartitionMirror::EpochFencing { held, step }),
    }
}

/// The controller did not answer: ask again, without leaving the state.
pub(super) fn on_step_failed(held: Box<Held>, step: FencingStep, now: TimestampMs) -> Outcome {
    match step {
        FencingStep::AskingSource => {
            let at = TimestampMs(now.0 + Backoff::LOCAL.delay_ms(1, held.lead.jitter_seed));
            (PartitionMirror::EpochFencing { held, step }, vec![MirrorEffect::SetTimer { at }])
        }
        FencingStep::Bumping { source_epoch, min, attempt } => {
            let attempt = attempt + 1;
            let delay = Backoff::LOCAL.delay_ms(attempt, held.lead.jitter_seed);
            let step = FencingStep::Bumping { source_epoch, min, attempt };
            let at = TimestampMs(now.0 + delay);
            (PartitionMirror::EpochFencing { held, step }, vec![MirrorEffect::SetTimer { at }])
        }
    }
}
