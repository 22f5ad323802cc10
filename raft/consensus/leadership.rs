//! Who leads, as a value to watch. Derived from openraft's metrics alone; never grants anything.

use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant, ServerState};
use protocol::ids::NodeId;
use tokio::sync::watch;

use super::type_config::{Raft, TypeConfig};

type RaftMetrics = openraft::RaftMetrics<TypeConfig>;

/// Who leads the metadata quorum, as this node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The leader's node, if known.
    pub leader: Option<NodeId>,
    /// The Raft term, from 1 once there was an election.
    pub term: u64,
    /// Whether this node leads in `term` and hears from its quorum. A leader cut off from it does
    /// not learn of its successor; it gives up here after the longest election timeout, as Kafka's
    /// does.
    pub am_leader: bool,
    /// Whether this node leads and has applied the first entry of its own term, so that its image
    /// holds everything committed before: only then may it decide. After the quorum was lost and
    /// came back, it is true again when all of the log is applied.
    pub ready: bool,
    /// Set for good once consensus has stopped: shut down, crashed, or the store failed.
    pub stopped: Option<String>,
}

impl Leadership {
    pub(crate) fn from_metrics(metrics: &RaftMetrics) -> Leadership {
        let membership = metrics.membership_config.membership();
        let leader = metrics.current_leader;
        let running = metrics.running_state.is_ok();
        let am_leader =
            running && metrics.state == ServerState::Leader && leader == Some(metrics.id);
        let applied_own = metrics
            .last_applied
            .is_some_and(|applied| applied.leader_id.term == metrics.current_term);
        Leadership {
            leader: leader.and_then(|id| membership.get_node(&id).copied()),
            term: metrics.current_term,
            am_leader,
            ready: am_leader && applied_own,
            stopped: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }
}

/// Whether the leader's quorum has been silent for `patience`.
fn quorum_is_silent(metrics: &RaftMetrics, patience: Duration) -> bool {
    let alone = metrics.membership_config.membership().voter_ids().count() <= 1;
    let silent = metrics.last_quorum_acked.as_ref().is_some_and(|at| at.elapsed() > patience);
    metrics.state == ServerState::Leader && !alone && silent
}

/// What the quorum's silence makes of a leadership.
#[derive(Default)]
struct Quorum {
    /// It was lost, and entries proposed before are still to be applied.
    recovering: bool,
}

impl Quorum {
    fn judge(&mut self, metrics: &RaftMetrics, patience: Duration) -> Leadership {
        let mut leadership = Leadership::from_metrics(metrics);
        let silent = quorum_is_silent(metrics, patience);
        let applied = metrics.last_applied.map(|applied| applied.index);
        self.recovering = leadership.am_leader
            && (silent || self.recovering && applied < metrics.last_log_index);
        if silent {
            (leadership.am_leader, leadership.leader) = (false, None);
        }
        leadership.ready &= !self.recovering;
        leadership
    }
}

/// Keeps `sender` current until consensus stops. Watchers see only changes. Shuts openraft down
/// when `stop` changes or its sender is gone. `patience` is the longest election timeout.
pub(crate) async fn follow(
    raft: Raft,
    sender: watch::Sender<Leadership>,
    mut stop: watch::Receiver<bool>,
    patience: Duration,
) {
    let mut metrics = raft.metrics();
    let mut raft = Some(raft);
    let mut quorum = Quorum::default();
    loop {
        let leading = {
            let now = metrics.borrow_watched();
            publish(&sender, quorum.judge(&now, patience));
            now.state == ServerState::Leader
        };
        let changed = tokio::select! {
            biased;
            _ = stop.changed(), if raft.is_some() => {
                if let Some(raft) = raft.take()
                    && let Err(error) = raft.shutdown().await
                {
                    tracing::warn!(%error, "the Raft core ended abnormally");
                }
                true
            }
            changed = metrics.changed() => changed.is_ok(),
            () = tokio::time::sleep(patience / 2), if leading => true,
        };
        if !changed {
            // openraft dropped its end: its core is gone.
            let mut last = sender.borrow().clone();
            last.stopped.get_or_insert_with(|| String::from("the Raft core is gone"));
            (last.am_leader, last.ready) = (false, false);
            publish(&sender, last);
            return;
        }
    }
}

fn publish(sender: &watch::Sender<Leadership>, leadership: Leadership) {
    sender.send_if_modified(|present| {
        if *present == leadership {
            return false;
        }
        if (present.leader, present.term, present.am_leader)
            != (leadership.leader, leadership.term, leadership.am_leader)
        {
            tracing::info!(
                "leader {:?} in term {} → leader {:?} in term {}{}",
                present.leader,
                present.term,
                leadership.leader,
                leadership.term,
                if leadership.am_leader { ", this node" } else { "" }
            );
        }
        *present = leadership;
        true
    });
}
