//! The supervision policy: one table, child by ending, and a limit on restarts. Pure: it keeps no
//! timer and starts nothing; supervisors ask it and act.
//!
//! | child | ends by itself or is killed | limit |
//! |---|---|---|
//! | Cluster | escalate | – |
//! | Node | stay stopped (a crash is final until it is started again) | – |
//! | Partition | restart | offline after 10 in 60 s |
//! | ReplicaFetcher, MirrorFetcher, Mirror | restart | none |
//! | every other part of a node | restart | escalate after 5 in 30 s |
//!
//! An ending that was asked for (stopped without a reason) is never answered by a restart.

use std::collections::VecDeque;
use std::time::Duration;

/// The kinds of children a supervisor can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChildKind {
    /// A cluster's actor under the process.
    Cluster,
    /// A node under its cluster.
    Node,
    /// The log directory's owner.
    Storage,
    /// The Raft handle's owner.
    Controller,
    /// Decides while this node leads the quorum.
    ControllerLeader,
    /// Hands images and deltas to the node.
    MetadataPublisher,
    /// Registration and heartbeats.
    Lifecycle,
    /// Supervisor of partitions and replica fetchers.
    Replicas,
    /// One replica of one partition.
    Partition,
    /// Fetches from one leader broker.
    ReplicaFetcher,
    /// Supervisor of coordinator shards.
    Coordinators,
    /// One coordinator over one partition of an internal topic.
    CoordinatorShard,
    /// Supervisor of mirrors.
    Mirrors,
    /// One mirror: its source connections.
    Mirror,
    /// Fetches from one broker of a source cluster.
    MirrorFetcher,
    /// Supervisor of listeners.
    Edge,
    /// One accept loop.
    Listener,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// A panic or an error of its own.
    Failed(String),
    /// Terminated with a reason: a kill or a cancelled task.
    Killed(String),
    /// Stopped because somebody asked for it.
    Asked,
    /// It never started: the spawner got an error.
    StartFailed(String),
}

impl Ending {
    /// The reason, in words.
    pub fn why(&self) -> &str {
        match self {
            Ending::Failed(why) | Ending::Killed(why) | Ending::StartFailed(why) => why,
            Ending::Asked => "it was asked to",
        }
    }
}

/// What the supervisor does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Start it again after this long.
    Restart(Duration),
    /// Leave it stopped.
    Stop,
    /// It ended too often: leave it stopped and report it offline.
    GiveUp,
    /// It ended too often: the supervisor fails too.
    Escalate,
}

/// The restarts of one child that still count.
#[derive(Debug, Clone, Default)]
pub struct RestartHistory {
    restarts: VecDeque<Duration>,
}

/// What happens at the limit.
enum Limit {
    None,
    GiveUp { restarts: usize, window: Duration },
    Escalate { restarts: usize, window: Duration },
}

/// Longest window of any limit; restarts older than this are forgotten, and so is the backoff.
const WINDOW_MAX: Duration = Duration::from_secs(60);

/// Delays before the first, second, … restart within the window; the last one repeats.
const BACKOFF_MS: [u64; 5] = [0, 10, 50, 250, 1_000];

/// Decides what to do about a child that ended `now` (a monotonic time).
pub fn on_child_ended(
    kind: ChildKind,
    ending: &Ending,
    history: &mut RestartHistory,
    now: Duration,
) -> Verdict {
    if *ending == Ending::Asked {
        return Verdict::Stop;
    }
    let limit = match kind {
        ChildKind::Cluster => return Verdict::Escalate,
        ChildKind::Node => return Verdict::Stop,
        ChildKind::Partition => Limit::GiveUp { restarts: 10, window: Duration::from_secs(60) },
        ChildKind::ReplicaFetcher | ChildKind::MirrorFetcher | ChildKind::Mirror => Limit::None,
        ChildKind::Storage
        | ChildKind::Controller
        | ChildKind::ControllerLeader
        | ChildKind::MetadataPublisher
        | ChildKind::Lifecycle
        | ChildKind::Replicas
        | ChildKind::Coordinators
        | ChildKind::CoordinatorShard
        | ChildKind::Mirrors
        | ChildKind::Edge
        | ChildKind::Listener => Limit::Escalate { restarts: 5, window: Duration::from_secs(30) },
    };
    history.forget_before(now.saturating_sub(WINDOW_MAX));
    match limit {
        Limit::GiveUp { restarts, window } if history.within(now, window) >= restarts => {
            Verdict::GiveUp
        }
        Limit::Escalate { restarts, window } if history.within(now, window) >= restarts => {
            Verdict::Escalate
        }
        Limit::None | Limit::GiveUp { .. } | Limit::Escalate { .. } => {
            Verdict::Restart(history.record(now))
        }
    }
}

impl RestartHistory {
    fn forget_before(&mut self, oldest: Duration) {
        while self.restarts.front().is_some_and(|at| *at < oldest) {
            self.restarts.pop_front();
        }
    }

    fn within(&self, now: Duration, window: Duration) -> usize {
        let oldest = now.saturating_sub(window);
        self.restarts.iter().filter(|at| **at >= oldest).count()
    }

    fn record(&mut self, now: Duration) -> Duration {
        let step = self.restarts.len().min(BACKOFF_MS.len() - 1);
        self.restarts.push_back(now);
        // A child without a limit may be restarted for ever; only the backoff needs its past.
        while self.restarts.len() > 16 {
            self.restarts.pop_front();
        }
        Duration::from_millis(BACKOFF_MS[step])
    }
}

#[cfg(test)]
#[path = "supervision_tests.rs"]
mod tests;
