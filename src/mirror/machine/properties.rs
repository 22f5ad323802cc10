//! Random events against the machine. Owns the promises that hold whatever comes: no panic, no
//! illegal move, no append outside a durable STOPPING, no way out of STOPPED but a start.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
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
    (any::<[bool; 3]>(), epoch(), offset()).prop_map(
        |(
            [mirrored_before, nothing_mirrored, stopped],
            last_mirror_epoch,
            last_mirrored_offset,
        )| {
            ControllerRecord {
                mirrored_before,
                nothing_mirrored,
                stopped,
                last_mirror_epoch,
                last_mirrored_offset,
            }
        },
    )
}

fn leadership() -> impl Strategy<Value = LeadershipEvent> {
    prop_oneof![
        2 => (epoch(), desired(), record(), any::<u64>()).prop_map(
            |(leader_epoch, desired, record, jitter_seed)| LeadershipEvent::BecameLeader {
                leader_epoch,
                desired,
                record,
                jitter_seed,
                retries: FailureRetries::default(),
            }
        ),
        1 => Just(LeadershipEvent::LostLeadership),
        1 => epoch().prop_map(|leader_epoch| LeadershipEvent::LeaderEpochRaised { leader_epoch }),
        5 => (desired(), record())
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
        3 => error().prop_map(SourceEvent::Failed),
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
    /// What the machine waits for.
    Fit(LeaderEpoch, LogFacts),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => leadership().prop_map(|event| Step::Event(event.into())),
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
        25 => (epoch(), log()).prop_map(|(epoch, log)| Step::Fit(epoch, log)),
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
        Step::Fit(epoch, log) => fit(machine, durable, epoch, log),
    }
}

/// The answer that the machine waits for.
fn fit(
    machine: &PartitionMirror,
    durable: &mut Option<StoredState>,
    epoch: LeaderEpoch,
    log: LogFacts,
) -> MirrorEvent {
    let end = Some(EpochEnd { epoch, end_offset: log.end });
    let facts = SourceFacts {
        leader_epoch: epoch,
        last_mirror_epoch: log.newest_epoch,
        mirroring_from_us: None,
    };
    let truncated = LogEvent::Truncated { log_end: log.end, records_cut: 1 };
    match machine {
        PartitionMirror::Following => LeadershipEvent::BecameLeader {
            leader_epoch: LeaderEpoch(12),
            desired: DesiredState::Active,
            record: ControllerRecord {
                mirrored_before: true,
                nothing_mirrored: false,
                stopped: false,
                last_mirror_epoch: epoch,
                last_mirrored_offset: log.end,
            },
            jitter_seed: 3,
            retries: FailureRetries::default(),
        }
        .into(),
        PartitionMirror::Loading { .. } => StoreEvent::Read(durable.clone()).into(),
        PartitionMirror::Writing(_) => event_of(Step::Written, machine, durable),
        PartitionMirror::Preparing { step, .. } => match step {
            PreparingStep::ReadingLog => LogEvent::Facts(log).into(),
            PreparingStep::AskingSource { .. } => SourceEvent::Facts(facts).into(),
            PreparingStep::FindingEnd { .. } | PreparingStep::ComparingHere { .. } => {
                LogEvent::EpochEnd(end).into()
            }
            PreparingStep::ComparingAtSource { .. } => SourceEvent::EpochEnd(end).into(),
            PreparingStep::Truncating { .. } => truncated.into(),
            PreparingStep::AwaitingFollowers { .. } => LogEvent::FollowersAligned.into(),
        },
        PartitionMirror::EpochFencing { step, .. } => match step {
            FencingStep::AskingSource if epoch.0 % 3 == 0 => {
                SourceEvent::Failed(SourceError::OldFormat).into()
            }
            FencingStep::AskingSource => SourceEvent::Facts(facts).into(),
            FencingStep::Bumping { min, .. } => raised(*min),
        },
        PartitionMirror::Mirroring { step, .. } => match step {
            MirroringStep::Fetching { .. } if epoch.0 % 3 == 0 => {
                FetchEvent::EpochTooHigh { epoch }.into()
            }
            MirroringStep::Fetching { .. } => FetchEvent::EpochSeen { epoch }.into(),
            MirroringStep::ReadingLog { .. } => LogEvent::Facts(log).into(),
            MirroringStep::FindingEnd { .. } => LogEvent::EpochEnd(end).into(),
            MirroringStep::Truncating { .. } | MirroringStep::Resetting { .. } => truncated.into(),
        },
        PartitionMirror::Pausing { .. } => StopEvent::FetchingStopped.into(),
        PartitionMirror::Paused { .. } => FetchEvent::Succeeded.into(),
        PartitionMirror::Stopping { held, step, .. } => match step {
            StoppingStep::RemovingFetchers => StopEvent::FetchingStopped.into(),
            StoppingStep::AwaitingHighWatermark => StopEvent::HighWatermarkReached(log).into(),
            StoppingStep::Bumping => raised(held.row.last_mirror_epoch),
            StoppingStep::Aborting => StopEvent::AbortsAppended.into(),
            StoppingStep::SearchingReset => StopEvent::ResetSearched { epoch }.into(),
            StoppingStep::AppendingReset => StopEvent::ResetAppended.into(),
        },
        PartitionMirror::Stopped { lead, .. } => LeadershipEvent::ControllerChanged {
            desired: lead.desired,
            record: ControllerRecord { stopped: true, ..lead.record },
        }
        .into(),
        PartitionMirror::Failed { .. } => MirrorEvent::Woke,
    }
}

fn raised(min: LeaderEpoch) -> MirrorEvent {
    LeadershipEvent::LeaderEpochRaised { leader_epoch: LeaderEpoch(min.0 + 1) }.into()
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

/// A row that some leader may have left.
fn row() -> impl Strategy<Value = Option<StoredState>> {
    let state = proptest::sample::select(MirrorState::ALL.to_vec());
    let parts = (state.clone(), state, -1..3_i16, -1..20_i32, epoch(), offset());
    proptest::option::of(parts.prop_map(
        |(state, previous, attempt, leader, last_mirror_epoch, last_mirrored_offset)| {
            StoredState {
                state,
                previous,
                attempt,
                leader_epoch: LeaderEpoch(leader),
                transition: 5,
                last_mirror_epoch,
                last_mirrored_offset,
                ..StoredState::unknown()
            }
        },
    ))
}

fn run() -> impl Strategy<Value = (Option<StoredState>, Vec<Step>)> {
    (row(), proptest::collection::vec(step(), 1..80))
}

/// Plays a run, checks every step, and gives back the durable moves that were announced.
fn play(
    mut durable: Option<StoredState>,
    steps: Vec<Step>,
) -> BTreeSet<(MirrorState, MirrorState)> {
    let mut machine = PartitionMirror::Following;
    let mut now = TimestampMs(100_000);
    let mut moves = BTreeSet::new();
    for step in steps {
        if let Step::Wait(ms) = step {
            now = TimestampMs(now.0 + ms);
        }
        let event = event_of(step, &machine, &mut durable);
        let is_leadership = matches!(event, MirrorEvent::Leadership(_));
        let Ok((after, effects)) = next(&machine, event, now) else { continue };
        check(&machine, &after, &effects);
        if machine.write_access() == WriteAccess::Allowed && !is_leadership {
            assert_eq!(after, machine, "STOPPED is left by a command only");
        }
        for effect in effects {
            if let MirrorEffect::Announce { from, to, .. } = effect {
                moves.insert((from, to));
            }
        }
        machine = after;
    }
    moves
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_comes_the_promises_hold((durable, steps) in run()) {
        play(durable, steps);
    }
}

#[test]
fn every_documented_move_happens_and_no_other() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..1_000 {
        let (durable, steps) = run().new_tree(&mut runner).unwrap().current();
        seen.extend(play(durable, steps));
    }
    let documented: BTreeSet<_> = MirrorState::ALL
        .into_iter()
        .flat_map(|from| MirrorState::ALL.map(|to| (from, to)))
        .filter(|(from, to)| from != to && from.may_become(*to))
        .collect();
    assert_eq!(seen, documented);
}
