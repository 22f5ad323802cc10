//! Where a member stands, for whoever wants to know. A copy of openraft's numbers in our types.

use std::collections::{BTreeMap, BTreeSet};

use protocol::ids::NodeId;

use super::proposer::LogIndex;
use super::raft_id::RaftId;
use super::type_config::TypeConfig;

/// Where a member stands. Indexes are none while there is no such entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// The term, from 1 once there was an election.
    pub term: u64,
    /// The leader's node, if known.
    pub leader: Option<NodeId>,
    /// The leader as a member, if known.
    pub leader_member: Option<RaftId>,
    /// The last entry in the log.
    pub last: Option<LogIndex>,
    /// The last entry known to be committed.
    pub committed: Option<LogIndex>,
    /// The last entry applied to the image.
    pub applied: Option<LogIndex>,
    /// The last entry in a snapshot.
    pub snapshot: Option<LogIndex>,
    /// The last entry purged from the log.
    pub purged: Option<LogIndex>,
    /// Members that vote.
    pub voters: BTreeSet<RaftId>,
    /// Every member and its node.
    pub members: BTreeMap<RaftId, NodeId>,
    /// On the leader: the last entry each member is known to hold. Empty elsewhere.
    pub matched: BTreeMap<RaftId, Option<LogIndex>>,
}

impl Metrics {
    pub(crate) fn from_raft(metrics: &openraft::RaftMetrics<TypeConfig>) -> Metrics {
        let membership = metrics.membership_config.membership();
        let replication = metrics.replication.iter().flatten();
        Metrics {
            term: metrics.current_term,
            leader: metrics.current_leader.and_then(|id| membership.get_node(&id).copied()),
            leader_member: metrics.current_leader,
            last: metrics.last_log_index.map(LogIndex),
            committed: metrics.local_committed.map(|id| LogIndex(id.index)),
            applied: metrics.last_applied.map(|id| LogIndex(id.index)),
            snapshot: metrics.snapshot.map(|id| LogIndex(id.index)),
            purged: metrics.purged.map(|id| LogIndex(id.index)),
            voters: membership.voter_ids().collect(),
            members: membership.nodes().map(|(id, node)| (*id, *node)).collect(),
            matched: replication
                .map(|(id, last)| (*id, last.map(|l| LogIndex(l.index))))
                .collect(),
        }
    }
}
