//! Becoming and ceasing to be the leader, and the way of a row to the coordinator. Owns the moves
//! between states; what a state does is in its own file.

use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use super::{
    Error, Failure, Held, Lead, LeadershipEvent, MirrorEffect, Outcome, PartitionMirror,
    StoppedStep, StoppingStep, StoreEvent, Then, Writing, failed, fencing, keep, mirroring,
    pausing, preparing, stopping,
};
use crate::retry::Backoff;
use crate::states::{DesiredState, MirrorState};
use crate::stored::StoredState;

pub(super) fn on_leadership(
    state: PartitionMirror,
    event: LeadershipEvent,
    now: TimestampMs,
) -> Result<Outcome, Error> {
    match event {
        LeadershipEvent::BecameLeader { leader_epoch, desired, record, jitter_seed, retries } => {
            check_epoch(&state, leader_epoch)?;
            let lead = Lead { leader_epoch, desired, record, jitter_seed, retries };
            Ok(become_leader(lead))
        }
        LeadershipEvent::LostLeadership => Ok((
            PartitionMirror::Following,
            vec![MirrorEffect::DenyWrites, MirrorEffect::StopFetching, MirrorEffect::CancelTimer],
        )),
        LeadershipEvent::LeaderEpochRaised { leader_epoch } => {
            if let PartitionMirror::Following = state {
                return Err(state.refuse("LeaderEpochRaised"));
            }
            check_epoch(&state, leader_epoch)?;
            Ok(on_raised(state, leader_epoch, now))
        }
        LeadershipEvent::ControllerChanged { desired, record } => {
            Ok(on_controller_changed(state, desired, record))
        }
    }
}

fn check_epoch(state: &PartitionMirror, offered: LeaderEpoch) -> Result<(), Error> {
    match state.lead() {
        Some(lead) if offered < lead.leader_epoch => {
            Err(Error::LeaderEpochBehind { current: lead.leader_epoch, offered })
        }
        Some(_) | None => Ok(()),
    }
}

/// A recorded stop needs no coordinator: a failed-over partition takes writes at once (D3).
fn become_leader(lead: Lead) -> Outcome {
    if lead.desired == DesiredState::Stopped && lead.record.stopped {
        return (
            PartitionMirror::Stopped { lead, step: StoppedStep::Writable },
            vec![MirrorEffect::CancelTimer, MirrorEffect::AllowWrites],
        );
    }
    (
        PartitionMirror::Loading { lead, attempt: 0 },
        vec![MirrorEffect::DenyWrites, MirrorEffect::CancelTimer, MirrorEffect::ReadState],
    )
}

/// A step that was under way is asked again: a raised epoch may have dropped its answer.
fn on_raised(mut state: PartitionMirror, leader_epoch: LeaderEpoch, now: TimestampMs) -> Outcome {
    if let Some(lead) = lead_mut(&mut state) {
        lead.leader_epoch = leader_epoch;
    }
    match state {
        PartitionMirror::EpochFencing { held, step } => fencing::on_raised(held, step),
        PartitionMirror::Mirroring { held, step, attempt } => {
            mirroring::on_raised(held, step, attempt)
        }
        PartitionMirror::Preparing { held, step } => {
            let effects = step.effects();
            (PartitionMirror::Preparing { held, step }, effects)
        }
        PartitionMirror::Stopping { held, step, .. } => {
            stopping::run(held, step.after_raise(), 0, now)
        }
        PartitionMirror::Pausing { held } => pausing::enter(held),
        PartitionMirror::Stopped { lead, step } => stopping::on_record_woke(lead, step, now),
        // The row in flight keeps the epoch it was sent with: a resend must be the same row.
        PartitionMirror::Following
        | PartitionMirror::Loading { .. }
        | PartitionMirror::Writing(_)
        | PartitionMirror::Paused { .. }
        | PartitionMirror::Failed { .. } => keep(state),
    }
}

fn on_controller_changed(
    mut state: PartitionMirror,
    desired: DesiredState,
    record: super::ControllerRecord,
) -> Outcome {
    if let Some(lead) = lead_mut(&mut state) {
        lead.desired = desired;
        lead.record = record;
    }
    match state {
        // What is in flight or running to its end looks at the wish when it arrives.
        PartitionMirror::Following
        | PartitionMirror::Loading { .. }
        | PartitionMirror::Writing(_)
        | PartitionMirror::Stopping { .. } => keep(state),
        PartitionMirror::Preparing { ref held, ref step } => match desired {
            DesiredState::Stopped => preparing::on_stop_wanted(held.clone(), step.clone()),
            DesiredState::Active | DesiredState::Paused => keep(state),
        },
        PartitionMirror::EpochFencing { ref held, .. } => match desired {
            DesiredState::Stopped => stop(held.clone()),
            DesiredState::Active | DesiredState::Paused => keep(state),
        },
        PartitionMirror::Mirroring { ref held, .. } => match desired {
            DesiredState::Stopped => stop(held.clone()),
            DesiredState::Paused => pause(held.clone()),
            DesiredState::Active => keep(state),
        },
        PartitionMirror::Pausing { ref held } => match desired {
            DesiredState::Stopped => stop(held.clone()),
            DesiredState::Active | DesiredState::Paused => keep(state),
        },
        PartitionMirror::Paused { held } => match desired {
            DesiredState::Stopped => stop(held),
            DesiredState::Active => {
                let row = held.row.moved_to(MirrorState::Mirroring);
                write(held, row, Then::Mirror)
            }
            DesiredState::Paused => keep(PartitionMirror::Paused { held }),
        },
        PartitionMirror::Failed { held, failure } => match desired {
            DesiredState::Stopped => stop(held),
            DesiredState::Active => failed::retry(held),
            DesiredState::Paused => keep(PartitionMirror::Failed { held, failure }),
        },
        PartitionMirror::Stopped { lead, step } => stopping::on_controller_changed(lead, step),
    }
}

fn lead_mut(state: &mut PartitionMirror) -> Option<&mut Lead> {
    match state {
        PartitionMirror::Following => None,
        PartitionMirror::Loading { lead, .. } | PartitionMirror::Stopped { lead, .. } => {
            Some(lead)
        }
        PartitionMirror::Writing(writing) => Some(&mut writing.held.lead),
        PartitionMirror::Preparing { held, .. }
        | PartitionMirror::EpochFencing { held, .. }
        | PartitionMirror::Mirroring { held, .. }
        | PartitionMirror::Pausing { held }
        | PartitionMirror::Paused { held }
        | PartitionMirror::Stopping { held, .. }
        | PartitionMirror::Failed { held, .. } => Some(&mut held.lead),
    }
}

pub(super) fn on_store(
    state: PartitionMirror,
    event: StoreEvent,
    now: TimestampMs,
) -> Result<Outcome, Error> {
    match event {
        StoreEvent::Read(row) => on_read(state, row, now),
        StoreEvent::ReadFailed => on_read_failed(state, now),
        StoreEvent::Written { transition } => on_written(state, transition, now),
        StoreEvent::Fenced { transition } => on_fenced(state, transition, now),
        StoreEvent::WriteFailed { transition } => on_write_failed(state, transition, now),
    }
}

fn on_read(
    state: PartitionMirror,
    row: Option<StoredState>,
    now: TimestampMs,
) -> Result<Outcome, Error> {
    match state {
        PartitionMirror::Following => Err(state.refuse("StateRead")),
        PartitionMirror::Loading { lead, attempt } => {
            let row = row.unwrap_or(StoredState::unknown());
            if row.leader_epoch > lead.leader_epoch {
                // A newer leader has written; the image will say so here too.
                return Ok(reload(lead, attempt + 1, now));
            }
            Ok(claim(Box::new(Held { lead, row }), now))
        }
        PartitionMirror::Writing(_)
        | PartitionMirror::Preparing { .. }
        | PartitionMirror::EpochFencing { .. }
        | PartitionMirror::Mirroring { .. }
        | PartitionMirror::Pausing { .. }
        | PartitionMirror::Paused { .. }
        | PartitionMirror::Stopping { .. }
        | PartitionMirror::Stopped { .. }
        | PartitionMirror::Failed { .. } => Ok(keep(state)),
    }
}

fn on_read_failed(state: PartitionMirror, now: TimestampMs) -> Result<Outcome, Error> {
    match state {
        PartitionMirror::Following => Err(state.refuse("StateReadFailed")),
        PartitionMirror::Loading { lead, attempt } => Ok(reload(lead, attempt + 1, now)),
        PartitionMirror::Writing(_)
        | PartitionMirror::Preparing { .. }
        | PartitionMirror::EpochFencing { .. }
        | PartitionMirror::Mirroring { .. }
        | PartitionMirror::Pausing { .. }
        | PartitionMirror::Paused { .. }
        | PartitionMirror::Stopping { .. }
        | PartitionMirror::Stopped { .. }
        | PartitionMirror::Failed { .. } => Ok(keep(state)),
    }
}

fn reload(lead: Lead, attempt: u32, now: TimestampMs) -> Outcome {
    let at = TimestampMs(now.0 + Backoff::LOCAL.delay_ms(attempt, lead.jitter_seed));
    (PartitionMirror::Loading { lead, attempt }, vec![MirrorEffect::SetTimer { at }])
}

/// Goes on where the row says, after writing it under the own leader epoch, so that a deposed
/// leader's next row is refused from here on.
fn claim(held: Box<Held>, now: TimestampMs) -> Outcome {
    let row = held.row.clone();
    let then = match row.state {
        MirrorState::Unknown => return begin(held),
        MirrorState::Stopped if held.lead.desired != DesiredState::Stopped => {
            return prepare(held);
        }
        MirrorState::Preparing => Then::Prepare,
        MirrorState::EpochFencing => Then::Fence { source_epoch: LeaderEpoch::NONE },
        MirrorState::Mirroring => Then::Mirror,
        MirrorState::Pausing => Then::Pause,
        MirrorState::Paused => Then::Rest,
        MirrorState::Stopping => Then::Stop(StoppingStep::RemovingFetchers),
        MirrorState::Stopped => Then::End,
        MirrorState::Failed => Then::Fail(Failure::of_row(&row)),
    };
    if row.leader_epoch == held.lead.leader_epoch {
        return enter(held, then, now);
    }
    write(held, row, then)
}

/// The first row of a partition that has none.
fn begin(held: Box<Held>) -> Outcome {
    match held.lead.desired {
        DesiredState::Stopped => stop(held),
        DesiredState::Active | DesiredState::Paused => prepare(held),
    }
}

/// Starts the move to PREPARING.
pub(super) fn prepare(held: Box<Held>) -> Outcome {
    let row = StoredState { attempt: 0, ..held.row.moved_to(MirrorState::Preparing) };
    write(held, row, Then::Prepare)
}

/// Starts the move to STOPPING.
pub(super) fn stop(held: Box<Held>) -> Outcome {
    let mut row = StoredState {
        attempt: 0,
        aborted_producers: Vec::new(),
        ..held.row.moved_to(MirrorState::Stopping)
    };
    if held.row.state == MirrorState::Failed {
        row.previous = held.row.previous;
    }
    write(held, row, Then::Stop(StoppingStep::RemovingFetchers))
}

fn pause(held: Box<Held>) -> Outcome {
    let row = StoredState { attempt: 0, ..held.row.moved_to(MirrorState::Pausing) };
    write(held, row, Then::Pause)
}

/// Sends a row to the coordinator. `then` begins when it is durable, and not before.
pub(super) fn write(held: Box<Held>, row: StoredState, then: Then) -> Outcome {
    assert!(
        held.row.state.may_become(row.state),
        "{} must not be followed by {}",
        held.row.state,
        row.state
    );
    let row = StoredState {
        leader_epoch: held.lead.leader_epoch,
        transition: held.row.transition + 1,
        ..row
    };
    let effects = vec![MirrorEffect::CancelTimer, MirrorEffect::WriteState(row.clone())];
    (PartitionMirror::Writing(Box::new(Writing { held, row, then, attempt: 0 })), effects)
}

fn on_written(
    state: PartitionMirror,
    transition: i64,
    now: TimestampMs,
) -> Result<Outcome, Error> {
    let writing = match in_flight(state, transition, "StateWritten")? {
        Ok(writing) => writing,
        Err(state) => return Ok(keep(state)),
    };
    let Writing { mut held, row, then, .. } = *writing;
    let from = held.row.state;
    held.row = row;
    let mut effects = vec![MirrorEffect::CancelTimer];
    if from != held.row.state {
        effects.push(MirrorEffect::Announce {
            from,
            to: held.row.state,
            reason: held.row.reason.clone(),
        });
    }
    let (state, more) = enter(held, then, now);
    effects.extend(more);
    Ok((state, effects))
}

/// Another row is stored with that number: read it, and decide anew.
fn on_fenced(state: PartitionMirror, transition: i64, now: TimestampMs) -> Result<Outcome, Error> {
    match in_flight(state, transition, "StateWriteFenced")? {
        Ok(writing) => Ok(reload(writing.held.lead, 1, now)),
        Err(state) => Ok(keep(state)),
    }
}

fn on_write_failed(
    state: PartitionMirror,
    transition: i64,
    now: TimestampMs,
) -> Result<Outcome, Error> {
    match in_flight(state, transition, "StateWriteFailed")? {
        Ok(mut writing) => {
            writing.attempt += 1;
            let seed = writing.held.lead.jitter_seed;
            let at = TimestampMs(now.0 + Backoff::LOCAL.delay_ms(writing.attempt, seed));
            Ok((PartitionMirror::Writing(writing), vec![MirrorEffect::SetTimer { at }]))
        }
        Err(state) => Ok(keep(state)),
    }
}

/// The row in flight with this number; a late answer about an older one gives the state back.
fn in_flight(
    state: PartitionMirror,
    transition: i64,
    event: &'static str,
) -> Result<Result<Box<Writing>, PartitionMirror>, Error> {
    match state {
        PartitionMirror::Following => Err(state.refuse(event)),
        PartitionMirror::Writing(writing) if writing.row.transition == transition => {
            Ok(Ok(writing))
        }
        PartitionMirror::Writing(ref writing) if transition > writing.row.transition => {
            Err(Error::WrongTransition {
                in_flight: writing.row.transition,
                confirmed: transition,
            })
        }
        PartitionMirror::Writing(_)
        | PartitionMirror::Loading { .. }
        | PartitionMirror::Preparing { .. }
        | PartitionMirror::EpochFencing { .. }
        | PartitionMirror::Mirroring { .. }
        | PartitionMirror::Pausing { .. }
        | PartitionMirror::Paused { .. }
        | PartitionMirror::Stopping { .. }
        | PartitionMirror::Stopped { .. }
        | PartitionMirror::Failed { .. } => Ok(Err(state)),
    }
}

/// Begins the work of a durable state, unless the operator wants another by now.
fn enter(held: Box<Held>, then: Then, now: TimestampMs) -> Outcome {
    let desired = held.lead.desired;
    match then {
        Then::Prepare if desired == DesiredState::Stopped => stop(held),
        Then::Prepare => preparing::enter(held),
        Then::Fence { .. } if desired == DesiredState::Stopped => stop(held),
        Then::Fence { source_epoch } => fencing::enter(held, source_epoch),
        Then::Mirror => match desired {
            DesiredState::Active => mirroring::enter(held),
            DesiredState::Paused => pause(held),
            DesiredState::Stopped => stop(held),
        },
        Then::Pause if desired == DesiredState::Stopped => stop(held),
        Then::Pause => pausing::enter(held),
        Then::Rest => match desired {
            DesiredState::Paused => keep(PartitionMirror::Paused { held }),
            DesiredState::Active => {
                let row = held.row.moved_to(MirrorState::Mirroring);
                write(held, row, Then::Mirror)
            }
            DesiredState::Stopped => stop(held),
        },
        Then::Stop(step) => stopping::run(held, step, 0, now),
        Then::StopLater { step, attempt } => stopping::wait(held, step, attempt, now),
        Then::End if desired == DesiredState::Stopped => stopping::end(*held, now),
        Then::End => prepare(held),
        Then::Fail(_) if desired == DesiredState::Stopped => stop(held),
        Then::Fail(failure) => failed::enter(held, failure, now),
    }
}

/// The last mirror epoch we know ourselves, under any mirror's name.
pub(super) fn own_last_mirror_epoch(held: &Held) -> LeaderEpoch {
    held.lead.record.last_mirror_epoch.max(held.row.last_mirror_epoch)
}

/// The first offset after what a stop says was mirrored.
pub(super) fn after_mirrored(row: &StoredState) -> Offset {
    Offset((row.last_mirrored_offset.0 + 1).max(0))
}
