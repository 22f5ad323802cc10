//! The errors of consensus. Each sentence says what to do; never holds a decision about retrying.

use std::path::PathBuf;

use protocol::ids::NodeId;

use super::raft_id::RaftId;
use crate::envelope;

/// Why consensus could not start, or stopped.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The same directory is open, most likely by an incarnation of this node that is not gone
    /// yet.
    #[error(
        "the metadata store in {dir} is open already; await the guard of its previous owner, or \
         stop the other process"
    )]
    InUse {
        /// The metadata directory.
        dir: PathBuf,
    },
    /// The store does not open, or holds what nobody wrote.
    #[error(
        "the metadata store in {dir} is damaged ({reason}); move the directory away and start \
         again, \
         the node then joins as a new member — but restore a backup if it was the only controller"
    )]
    Corrupt {
        /// The metadata directory.
        dir: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The directory belongs to another member.
    #[error(
        "the metadata store in {dir} belongs to member {stored}, this node is member {asked}; \
         point the node at its own directory"
    )]
    ForeignStore {
        /// The metadata directory.
        dir: PathBuf,
        /// The id in the store.
        stored: RaftId,
        /// The id in the options.
        asked: RaftId,
    },
    /// The disk refused.
    #[error(
        "{action} failed in {dir}: {reason}; free space or mend the disk, then restart the node"
    )]
    Io {
        /// The metadata directory.
        dir: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's words.
        reason: String,
    },
    /// An earlier write failed: nothing is written until the store is opened again.
    #[error("the metadata store is closed to writes since an earlier failure: {reason}")]
    Closed {
        /// The earlier failure.
        reason: String,
    },
    /// A value could not be put into, or read out of, an envelope.
    #[error(transparent)]
    Envelope(#[from] envelope::Error),
    /// The timing makes no sense, or another option is out of range.
    #[error("the consensus options are not usable: {reason}")]
    Options {
        /// openraft's words.
        reason: String,
    },
    /// The cluster has been initialised already, by this node or another.
    #[error("the cluster is initialised already, this node has seen log entries or votes")]
    AlreadyInitialised,
    /// The members to initialise with do not contain this node.
    #[error("member {own} is not among the members to initialise with")]
    NotAMember {
        /// This node's id.
        own: RaftId,
    },
    /// A change of membership was refused.
    #[error("the membership cannot change now: {reason}")]
    Membership {
        /// openraft's words.
        reason: String,
    },
    /// Only the leader changes the membership.
    #[error("this node is not the leader, {} is", named(*leader))]
    NotLeader {
        /// The leader, if known.
        leader: Option<NodeId>,
    },
    /// Consensus has stopped.
    #[error("consensus has stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
}

/// Why a proposal was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Nothing was appended: this node does not lead, or not in the term the proposal was meant
    /// for.
    #[error("this node is not the leader, {} is", named(*leader))]
    NotLeader {
        /// The leader, if known.
        leader: Option<NodeId>,
    },
    /// The leadership went while the entry was on its way: it may or may not be committed.
    #[error(
        "the leadership was lost before the entry was known to be committed; {} leads now",
        named(*leader)
    )]
    OutcomeUnknown {
        /// The leader, if known.
        leader: Option<NodeId>,
    },
    /// The batch is larger than one entry may be.
    #[error("the batch of {records} records does not fit into one entry of {limit} bytes")]
    TooLarge {
        /// Records in the batch.
        records: usize,
        /// The most bytes an entry may have.
        limit: usize,
    },
    /// Consensus has stopped; an entry on its way may or may not be committed.
    #[error("consensus has stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
}

fn named(leader: Option<NodeId>) -> String {
    match leader {
        Some(leader) => format!("node {leader}"),
        None => "a node not known yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_named_as_people_do() {
        let known = ProposeError::NotLeader { leader: Some(NodeId(2)) };
        assert_eq!(known.to_string(), "this node is not the leader, node 2 is");
        let unknown = ProposeError::NotLeader { leader: None };
        assert_eq!(unknown.to_string(), "this node is not the leader, a node not known yet is");
    }
}
