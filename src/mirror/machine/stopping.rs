//! STOPPING and STOPPED: the failover's steps (D10). Owns their order; each may run twice and a
//! new leader may take over at any of them. None needs the source, and none can end in FAILED.

use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use super::leading::{after_mirrored, write};
use super::{Held, Lead, MirrorEffect, Outcome, PartitionMirror, StopEvent, Then, keep};
use crate::retry::Backoff;
use crate::states::{DesiredState, MirrorState};
use crate::stored::{NEVER_COMPARED, StoredState};
use crate::truncation::LogFacts;

/// How long the high watermark is waited for before followers that are gone are looked for again.
const SHRINK_INTERVAL_MS: i64 = 500;

/// Failures of one step after which the reason is stored for describe.
const REASON_AFTER: u32 = 3;

/// How long a recorded stop may take to come back in the image before it is sent again.
const RECORD_INTERVAL_MS: i64 = 2_000;

/// The step of the failover that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppingStep {
    /// No append of a fetcher may come any more.
    RemovingFetchers,
    /// Everything in the log must be committed; the last mirror epoch and offset are final then.
    AwaitingHighWatermark,
    /// Our leader epoch must be above the last mirror epoch.
    Bumping,
    /// Open transactions are aborted.
    Aborting,
    /// Is the producer-id reset in the log already?
    SearchingReset,
    /// The producer-id reset is appended.
    AppendingReset,
}

/// Whether the controller's log knows of the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedStep {
    /// Durable at the coordinator, on its way to the controller.
    Recording {
        /// The stop's last mirror epoch.
        last_mirror_epoch: LeaderEpoch,
        /// The stop's last mirrored offset.
        last_mirrored_offset: Offset,
        /// How often sending failed.
        attempt: u32,
    },
    /// Recorded: clients write.
    Writable,
}

impl StoppingStep {
    /// Where to go on after the leader epoch rose: appends of the old epoch may be lost.
    pub(super) const fn after_raise(self) -> StoppingStep {
        match self {
            StoppingStep::RemovingFetchers
            | StoppingStep::AwaitingHighWatermark
            | StoppingStep::Bumping => self,
            StoppingStep::Aborting
            | StoppingStep::SearchingReset
            | StoppingStep::AppendingReset => StoppingStep::Aborting,
        }
    }
}

/// Begins a step, or passes it where there is nothing to do.
pub(super) fn run(held: Box<Held>, step: StoppingStep, attempt: u32, now: TimestampMs) -> Outcome {
    let effects = match step {
        StoppingStep::RemovingFetchers => vec![MirrorEffect::StopFetching],
        StoppingStep::AwaitingHighWatermark => vec![
            MirrorEffect::AwaitHighWatermark,
            MirrorEffect::ShrinkIsr,
            MirrorEffect::SetTimer { at: TimestampMs(now.0 + SHRINK_INTERVAL_MS) },
        ],
        StoppingStep::Bumping if held.lead.leader_epoch > held.row.last_mirror_epoch => {
            return run(held, StoppingStep::Aborting, 0, now);
        }
        StoppingStep::Bumping => {
            vec![MirrorEffect::BumpLeaderEpoch { min: held.row.last_mirror_epoch }]
        }
        StoppingStep::Aborting => vec![MirrorEffect::AppendAborts],
        StoppingStep::SearchingReset => {
            vec![MirrorEffect::FindReset { from: after_mirrored(&held.row) }]
        }
        StoppingStep::AppendingReset => vec![MirrorEffect::AppendReset],
    };
    (PartitionMirror::Stopping { held, step, attempt }, effects)
}

pub(super) fn on_stop(
    held: Box<Held>,
    step: StoppingStep,
    attempt: u32,
    event: StopEvent,
    now: TimestampMs,
) -> Outcome {
    match (step, event) {
        (StoppingStep::RemovingFetchers, StopEvent::FetchingStopped) => {
            run(held, StoppingStep::AwaitingHighWatermark, 0, now)
        }
        (StoppingStep::AwaitingHighWatermark, StopEvent::HighWatermarkReached(log)) => {
            note_stop_point(held, log, now)
        }
        (StoppingStep::Aborting, StopEvent::AbortsAppended) => {
            run(held, StoppingStep::SearchingReset, 0, now)
        }
        (StoppingStep::SearchingReset, StopEvent::ResetSearched { epoch }) => {
            if epoch > held.row.last_mirror_epoch {
                finish(held)
            } else {
                run(held, StoppingStep::AppendingReset, 0, now)
            }
        }
        (StoppingStep::AppendingReset, StopEvent::ResetAppended) => finish(held),
        (
            step,
            StopEvent::FetchingStopped
            | StopEvent::HighWatermarkReached(_)
            | StopEvent::AbortsAppended
            | StopEvent::ResetSearched { .. }
            | StopEvent::ResetAppended,
        ) => keep(PartitionMirror::Stopping { held, step, attempt }),
    }
}

/// Makes the last mirror epoch and offset durable.
///
/// A stored pair is kept only if this log holds a later epoch's batch, one of the stop itself; a
/// log without one ends with what was mirrored, and both are computed from it.
fn note_stop_point(held: Box<Held>, log: LogFacts, now: TimestampMs) -> Outcome {
    let (last_mirror_epoch, last_mirrored_offset) = stop_point(&held, &log);
    let row = StoredState {
        previous: MirrorState::Stopping,
        reason: None,
        last_mirror_epoch,
        last_mirrored_offset,
        aborted_producers: log.open_transactions,
        ..held.row.clone()
    };
    let is_kept = held.row.stop_point_is_final() && log.newest_epoch > held.row.last_mirror_epoch;
    if is_kept || row == held.row {
        let (state, mut effects) = run(held, StoppingStep::Bumping, 0, now);
        effects.insert(0, MirrorEffect::CancelTimer);
        return (state, effects);
    }
    write(held, row, Then::Stop(StoppingStep::Bumping))
}

/// The last mirror epoch and offset of a stop.
///
/// A log that was compared ends with what was mirrored. One that was not may end with local
/// records, of epochs above the last stop's: then that stop's point still holds, and without one
/// nothing is known to be a copy, unless the mirror itself made the topic.
fn stop_point(held: &Held, log: &LogFacts) -> (LeaderEpoch, Offset) {
    let record = held.lead.record;
    let stopped_before = record.nothing_mirrored || record.last_mirror_epoch != LeaderEpoch::NONE;
    let is_local = held.row.stops_uncompared() && log.newest_epoch > record.last_mirror_epoch;
    if is_local && stopped_before {
        (record.last_mirror_epoch, record.last_mirrored_offset)
    } else if is_local && !record.mirrored_before {
        (LeaderEpoch::NONE, NEVER_COMPARED)
    } else {
        (log.newest_epoch, Offset(log.end.0 - 1))
    }
}

fn finish(held: Box<Held>) -> Outcome {
    let row = StoredState { attempt: 0, ..held.row.moved_to(MirrorState::Stopped) };
    write(held, row, Then::End)
}

/// A step is tried again until it succeeds; a reason that stays is stored.
pub(super) fn on_step_failed(
    held: Box<Held>,
    step: StoppingStep,
    attempt: u32,
    reason: &str,
    now: TimestampMs,
) -> Outcome {
    let attempt = attempt.saturating_add(1);
    if attempt == REASON_AFTER && held.row.reason.as_deref() != Some(reason) {
        let row = StoredState { reason: Some(reason.to_owned()), ..held.row.clone() };
        return write(held, row, Then::StopLater { step, attempt });
    }
    wait(held, step, attempt, now)
}

/// Waits before a step is tried again.
pub(super) fn wait(
    held: Box<Held>,
    step: StoppingStep,
    attempt: u32,
    now: TimestampMs,
) -> Outcome {
    let at = TimestampMs(now.0 + Backoff::LOCAL.delay_ms(attempt, held.lead.jitter_seed));
    (PartitionMirror::Stopping { held, step, attempt }, vec![MirrorEffect::SetTimer { at }])
}

/// The timer: a step is tried again; a high watermark that does not come is a failure to report.
pub(super) fn on_woke(
    held: Box<Held>,
    step: StoppingStep,
    attempt: u32,
    now: TimestampMs,
) -> Outcome {
    match step {
        StoppingStep::AwaitingHighWatermark => {
            let attempt = attempt.saturating_add(1);
            if attempt == REASON_AFTER {
                let reason = "the in-sync replicas do not catch up with the log end".to_owned();
                let row = StoredState { reason: Some(reason), ..held.row.clone() };
                return write(held, row, Then::StopLater { step, attempt });
            }
            run(held, step, attempt, now)
        }
        StoppingStep::RemovingFetchers
        | StoppingStep::Bumping
        | StoppingStep::Aborting
        | StoppingStep::SearchingReset
        | StoppingStep::AppendingReset => run(held, step, attempt, now),
    }
}

/// STOPPED is durable at the coordinator; the controller's log comes next, then writes.
pub(super) fn end(held: Held, now: TimestampMs) -> Outcome {
    let Held { lead, row } = held;
    if lead.record.stopped {
        return writable(lead);
    }
    let step = StoppedStep::Recording {
        last_mirror_epoch: row.last_mirror_epoch,
        last_mirrored_offset: row.last_mirrored_offset,
        attempt: 0,
    };
    on_record_woke(lead, step, now)
}

fn writable(lead: Lead) -> Outcome {
    (
        PartitionMirror::Stopped { lead, step: StoppedStep::Writable },
        vec![MirrorEffect::CancelTimer, MirrorEffect::AllowWrites],
    )
}

pub(super) fn on_record_woke(lead: Lead, step: StoppedStep, now: TimestampMs) -> Outcome {
    match step {
        StoppedStep::Recording { last_mirror_epoch, last_mirrored_offset, .. } => {
            let leader_epoch = lead.leader_epoch;
            let effects = vec![
                MirrorEffect::RecordStop { leader_epoch, last_mirror_epoch, last_mirrored_offset },
                MirrorEffect::SetTimer { at: TimestampMs(now.0 + RECORD_INTERVAL_MS) },
            ];
            (PartitionMirror::Stopped { lead, step }, effects)
        }
        StoppedStep::Writable => keep(PartitionMirror::Stopped { lead, step }),
    }
}

pub(super) fn on_record_failed(lead: Lead, step: StoppedStep, now: TimestampMs) -> Outcome {
    match step {
        StoppedStep::Recording { last_mirror_epoch, last_mirrored_offset, attempt } => {
            let attempt = attempt.saturating_add(1);
            let at = TimestampMs(now.0 + Backoff::LOCAL.delay_ms(attempt, lead.jitter_seed));
            let step = StoppedStep::Recording { last_mirror_epoch, last_mirrored_offset, attempt };
            (PartitionMirror::Stopped { lead, step }, vec![MirrorEffect::SetTimer { at }])
        }
        StoppedStep::Writable => keep(PartitionMirror::Stopped { lead, step }),
    }
}

/// The record came back, or a start did: then the stored row is needed again.
pub(super) fn on_controller_changed(lead: Lead, step: StoppedStep) -> Outcome {
    match lead.desired {
        DesiredState::Active | DesiredState::Paused => (
            PartitionMirror::Loading { lead, attempt: 0 },
            vec![MirrorEffect::DenyWrites, MirrorEffect::CancelTimer, MirrorEffect::ReadState],
        ),
        DesiredState::Stopped => match step {
            StoppedStep::Recording { .. } if lead.record.stopped => writable(lead),
            StoppedStep::Recording { .. } | StoppedStep::Writable => {
                keep(PartitionMirror::Stopped { lead, step })
            }
        },
    }
}
