//! One test per row of the supervision table.

use super::*;

const PARTS: [ChildKind; 11] = [
    ChildKind::Storage,
    ChildKind::Controller,
    ChildKind::ControllerLeader,
    ChildKind::MetadataPublisher,
    ChildKind::Lifecycle,
    ChildKind::Replicas,
    ChildKind::Coordinators,
    ChildKind::CoordinatorShard,
    ChildKind::Mirrors,
    ChildKind::Edge,
    ChildKind::Listener,
];

fn ends(kind: ChildKind, times: usize, spacing: Duration) -> Vec<Verdict> {
    let mut history = RestartHistory::default();
    (0..times)
        .map(|n| {
            let now = Duration::from_secs(1_000) + spacing * u32::try_from(n).expect("small");
            on_child_ended(kind, &Ending::Failed("bug".into()), &mut history, now)
        })
        .collect()
}

#[test]
fn cluster_escalates_at_once() {
    assert_eq!(ends(ChildKind::Cluster, 1, Duration::ZERO), [Verdict::Escalate]);
}

#[test]
fn node_stays_stopped() {
    assert_eq!(ends(ChildKind::Node, 1, Duration::ZERO), [Verdict::Stop]);
}

#[test]
fn partition_restarts_ten_times_and_then_goes_offline() {
    let verdicts = ends(ChildKind::Partition, 11, Duration::from_secs(1));
    assert!(verdicts[..10].iter().all(|v| matches!(v, Verdict::Restart(_))), "{verdicts:?}");
    assert_eq!(verdicts[10], Verdict::GiveUp);
}

#[test]
fn partition_restarts_for_ever_when_failures_are_rare() {
    let verdicts = ends(ChildKind::Partition, 50, Duration::from_secs(7));
    assert!(verdicts.iter().all(|v| matches!(v, Verdict::Restart(_))));
}

#[test]
fn fetchers_and_mirrors_never_give_up() {
    for kind in [ChildKind::ReplicaFetcher, ChildKind::MirrorFetcher, ChildKind::Mirror] {
        let verdicts = ends(kind, 100, Duration::from_millis(1));
        assert!(verdicts.iter().all(|v| matches!(v, Verdict::Restart(_))), "{kind:?}");
        assert_eq!(verdicts[99], Verdict::Restart(Duration::from_secs(1)));
    }
}

#[test]
fn other_parts_escalate_after_five_in_thirty_seconds() {
    for kind in PARTS {
        let verdicts = ends(kind, 6, Duration::from_secs(1));
        assert!(verdicts[..5].iter().all(|v| matches!(v, Verdict::Restart(_))), "{kind:?}");
        assert_eq!(verdicts[5], Verdict::Escalate, "{kind:?}");
        let rare = ends(kind, 20, Duration::from_secs(8));
        assert!(rare.iter().all(|v| matches!(v, Verdict::Restart(_))), "{kind:?}");
    }
}

#[test]
fn backoff_grows_from_zero_to_a_second() {
    let verdicts = ends(ChildKind::Mirror, 6, Duration::from_millis(1));
    let delays: Vec<_> = [0, 10, 50, 250, 1_000, 1_000]
        .map(|ms| Verdict::Restart(Duration::from_millis(ms)))
        .into_iter()
        .collect();
    assert_eq!(verdicts, delays);
}

#[test]
fn backoff_starts_over_after_a_quiet_minute() {
    let verdicts = ends(ChildKind::Mirror, 3, Duration::from_secs(61));
    assert!(verdicts.iter().all(|v| *v == Verdict::Restart(Duration::ZERO)));
}

#[test]
fn asked_endings_are_never_restarted() {
    for kind in PARTS.into_iter().chain([ChildKind::Partition, ChildKind::MirrorFetcher]) {
        let mut history = RestartHistory::default();
        let verdict = on_child_ended(kind, &Ending::Asked, &mut history, Duration::ZERO);
        assert_eq!(verdict, Verdict::Stop, "{kind:?}");
    }
}

#[test]
fn failed_starts_and_kills_follow_the_same_policy() {
    for ending in [Ending::StartFailed("disk".into()), Ending::Killed("chaos".into())] {
        let mut history = RestartHistory::default();
        let verdict =
            on_child_ended(ChildKind::Partition, &ending, &mut history, Duration::from_secs(1));
        assert_eq!(verdict, Verdict::Restart(Duration::ZERO));
    }
}
