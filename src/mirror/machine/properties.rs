//! Random events against the machine. Owns the promises that hold whatever comes: no panic, no
//! illegal move, no append outside a durable STOPPING, no way out of STOPPED but a start.

use proptest::prelude::*;
use protocol::ids::{LeaderEpoch, Offset, ProducerId, TimestampMs, TopicId};

use super::*;
use crate::epochs::EpochEnd;
use crate::truncation::LogFacts;

fn epoch() -> impl Strategy<Value = LeaderEpoch> {
    (-1..40_i32).prop_map(LeaderEpoch)
}

fn offset() -> impl Strategy<Value = Offset> {
    (0..60_i64).prop_map(Offset)
}

fn end() -> impl Strategy<Value = Option<EpochEnd>> {
    proptest::option::of(
        (epoch(), offset()).prop_map(|(epoch, end_offset)| EpochEnd { epoch, end_offset }),
    )
}

fn log() -> impl Strategy<Value = LogFacts> {
    (offset(), 0..40_i64, epoch(), proptest::collection::vec(0..9_i64, 0..3)).prop_map(
        |(start, length, newest_epoch, open)| LogFacts {
            start,
            end: Offset(start.0 + length),
            newest_epoch,
            open_transactions: open.into_iter().map(ProducerId).collect(),
        },
    )
}

fn desired() -> impl Strategy<Value = DesiredState> {
    prop_oneof![
        Just(DesiredState::Active),
        Just(DesiredState::Paused),
        Just(DesiredState::Stopped)
    ]
}

fn record() -> impl Strategy<Value = ControllerRecord> {
    (any::<bool>(), any::<bool>(), epoch(), offset()).prop_map(
        |(mirrored_before, stopped, last_mirror_epoch, last_mirrored_offset)| ControllerRecord {
            mirrored_before,
            stopped,
            last_mirror_epoch,
            last_mirrored_offset,
        },
    )
}

fn leadership() -> impl Strategy<Value = LeadershipEvent> {
    prop_oneof![
        (epoch(), desired(), record(), any::<u64>()).prop_map(
            |(leader_epoch, desired, record, jitter_seed)| LeadershipEvent::BecameLeader {
                leader_epoch,
                desired,
                record,
                jitter_seed
            }
        ),
        Just(LeadershipEvent::LostLeadership),
        epoch().prop_map(|leader_epoch| LeadershipEvent::LeaderEpochRaised { leader_epoch }),
        (desired(), record())
            .prop_map(|(desired, record)| LeadershipEvent::ControllerChanged { desired, record }),
    ]
}

fn error() -> impl Strategy<Value = SourceError> {
    prop_oneof![
        (0..90_000_i64).prop_map(|at| SourceError::Unreachable { since: TimestampMs(at) }),
        Just(SourceError::NotLeader),
        Just(SourceError::NotAuthorized { right: "READ".into() }),
        Just(SourceError::TopicDeleted),
        Just(SourceError::TopicRecreated { found: TopicId::ZERO }),
        Just(SourceError::OldFormat),
        Just(SourceError::Other { reason: "code 7".into() }),
    ]
}

fn source() -> impl Strategy<Value = SourceEvent> {
    prop_oneof![
        4 => (epoch(), epoch(), any::<bool>()).prop_map(|(leader, lme, looping)| {
            SourceEvent::Facts(SourceFacts {
                leader_epoch: leader,
                last_mirror_epoch: lme,
                mirroring_from_us: (looping && leader.0 % 4 == 0).then(|| "back".into()),
            })
        }),
        2 => end().prop_map(SourceEvent::EpochEnd),
        1 => error().prop_map(SourceEvent::Failed),
        1 => Just(SourceEvent::Reached),
    ]
}

fn logs() -> impl Strategy<Value = LogEvent> {
    prop_oneof![
        log().prop_map(LogEvent::Facts),
        end().prop_map(LogEvent::EpochEnd),
        (offset(), 0..9_i64)
            .prop_map(|(log_end, records_cut)| LogEvent::Truncated { log_end, records_cut }),
        Just(LogEvent::FollowersAligned),
    ]
}

fn fetch() -> impl Strategy<Value = FetchEvent> {
    prop_oneof![
        Just(FetchEvent::Succeeded),
        epoch().prop_map(|epoch| FetchEvent::EpochSeen { epoch }),
        epoch().prop_map(|epoch| FetchEvent::EpochTooHigh { epoch }),
        (epoch(), offset())
            .prop_map(|(epoch, end_offset)| FetchEvent::Diverged { epoch, end_offset }),
        (offset(), offset(), offset(), offset()).prop_map(|(a, b, c, d)| FetchEvent::OutOfRange {
            source_start: a,
            source_end: b,
            log_start: c,
            log_end: d
        }),
    ]
}

fn stop() -> impl Strategy<Value = StopEvent> {
    prop_oneof![
        Just(StopEvent::FetchingStopped),
        log().prop_map(StopEvent::HighWatermarkReached),
        Just(StopEvent::AbortsAppended),
        epoch().prop_map(|epoch| StopEvent::ResetSearched { epoch }),
        Just(StopEvent::ResetAppended),
    ]
}

/// An event, or an answer of the coordinator that fits what is in flight.
#[derive(Clone, Debug)]
enum Step {
    Event(MirrorEvent),
    Read,
    Written,
    Fenced,
    WriteFailed,
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => leadership().prop_map(|event| Step::Event(event.into())),
        4 => source().prop_map(|event| Step::Event(event.into())),
        5 => logs().prop_map(|event| Step::Event(event.into())),
        3 => fetch().prop_map(|event| Step::Event(event.into())),
        6 => stop().prop_map(|event| Step::Event(event.into())),
        1 => Just(Step::Event(MirrorEvent::StepFailed { reason: "no answer".into() })),
        2 => Just(Step::Event(MirrorEvent::Woke)),
        4 => Just(Step::Read),
        8 => Just(Step::Written),
        1 => Just(Step::Fenced),
        1 => Just(Step::WriteFailed),
        1 => (0..40_000_i64).prop_map(Step::Wait),
    ]
}

fn event_of(
    step: Step,
    machine: &PartitionMirror,
    durable: &mut Option<StoredState>,
) -> MirrorEvent {
    let transition = machine.in_flight().map_or(0, |row| row.transition);
    match step {
        Step::Event(event) => event,
        Step::Read => StoreEvent::Read(durable.clone()).into(),
        Step::Written => {
            if let Some(row) = machine.in_flight() {
                *durable = Some(row.clone());
            }
            StoreEvent::Written { transition }.into()
        }
        Step::Fenced => StoreEvent::Fenced { transition }.into(),
        Step::WriteFailed => StoreEvent::WriteFailed { transition }.into(),
        Step::Wait(_) => MirrorEvent::Woke,
    }
}

/// What must hold of one step.
fn check(before: &PartitionMirror, after: &PartitionMirror, effects: &[MirrorEffect]) {
    for effect in effects {
        if let MirrorEffect::WriteState(row) = effect {
            let stored = after.row().expect("a writer knows the durable row");
            assert!(stored.state.may_become(row.state), "{} -> {}", stored.state, row.state);
            assert!(row.transition > stored.transition, "numbers rise");
        } else if matches!(effect, MirrorEffect::AppendAborts | MirrorEffect::AppendReset) {
            let row = after.row().expect("STOPPING has a row");
            assert_eq!(row.state, MirrorState::Stopping, "appends are STOPPING's");
            let lead = after.lead().expect("only a leader appends");
            assert!(lead.leader_epoch > row.last_mirror_epoch, "above the last mirror epoch");
            assert!(row.previous == MirrorState::Stopping, "after the stop point is durable");
        } else if let MirrorEffect::StartFetching { .. } = effect {
            assert_eq!(after.state(), MirrorState::Mirroring);
            assert_eq!(after.row().map(|row| row.state), Some(MirrorState::Mirroring));
        } else if *effect == MirrorEffect::AllowWrites {
            assert_eq!(after.write_access(), WriteAccess::Allowed);
            let lead = after.lead().expect("only a leader allows writes");
            assert!(lead.record.stopped && lead.desired == DesiredState::Stopped);
        }
    }
    if before.write_access() == WriteAccess::Allowed
        && after.write_access() != WriteAccess::Allowed
    {
        assert!(effects.contains(&MirrorEffect::DenyWrites), "writes end with an effect");
    }
    if before.write_access() != WriteAccess::Allowed
        && after.write_access() == WriteAccess::Allowed
    {
        assert!(effects.contains(&MirrorEffect::AllowWrites), "writes begin with an effect");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_the_promises_hold(steps in proptest::collection::vec(step(), 1..120)) {
        let mut machine = PartitionMirror::Following;
        let mut durable: Option<StoredState> = None;
        let mut now = TimestampMs(100_000);
        for step in steps {
            if let Step::Wait(ms) = step {
                now = TimestampMs(now.0 + ms);
            }
            let stopped = matches!(
                machine,
                PartitionMirror::Stopped { step: StoppedStep::Writable, .. }
            );
            let event = event_of(step, &machine, &mut durable);
            let is_leadership = matches!(event, MirrorEvent::Leadership(_));
            let Ok((after, effects)) = next(&machine, event, now) else { continue };
            check(&machine, &after, &effects);
            if stopped && !is_leadership {
                prop_assert_eq!(&after, &machine, "STOPPED is left by a command only");
            }
            machine = after;
        }
    }
}
