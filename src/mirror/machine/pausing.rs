//! PAUSING: take the fetcher away. Owns one step; PAUSED has none.

use protocol::ids::TimestampMs;

use super::leading::write;
use super::{Held, MirrorEffect, Outcome, PartitionMirror, StopEvent, Then, keep};
use crate::retry::Backoff;
use crate::states::MirrorState;

pub(super) fn enter(held: Box<Held>) -> Outcome {
    (PartitionMirror::Pausing { held }, vec![MirrorEffect::StopFetching])
}

pub(super) fn on_stop(held: Box<Held>, event: &StopEvent) -> Outcome {
    match event {
        StopEvent::FetchingStopped => {
            let row = held.row.moved_to(MirrorState::Paused);
            write(held, row, Then::Rest)
        }
        StopEvent::HighWatermarkReached(_)
        | StopEvent::AbortsAppended
        | StopEvent::ResetSearched { .. }
        | StopEvent::ResetAppended => keep(PartitionMirror::Pausing { held }),
    }
}

pub(super) fn on_step_failed(held: Box<Held>, now: TimestampMs) -> Outcome {
    let at = TimestampMs(now.0 + Backoff::LOCAL.delay_ms(1, held.lead.jitter_seed));
    (PartitionMirror::Pausing { held }, vec![MirrorEffect::SetTimer { at }])
}
