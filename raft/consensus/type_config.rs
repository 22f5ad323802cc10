//! The one set of types openraft is used with. Nothing outside `consensus` names them.

use std::fmt;
use std::sync::Arc;

use openraft::impls::leader_id_std;
use openraft::rt::deterministic_rng::DeterministicRng;
use openraft::type_config::alias;
use protocol::ids::NodeId;
use serde::{Deserialize, Serialize};

use super::raft_id::RaftId;
use super::runtime::OrderedRuntime;
use super::state_machine::StateMachine;
use crate::MetadataRecord;

/// What one Raft entry carries: the records of one decision, applied together or not at all.
/// Shared, because the log, the replication and the state machine each hold it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordBatch {
    /// The records, in the order they are replayed.
    pub records: Arc<Vec<MetadataRecord>>,
}

impl RecordBatch {
    /// A batch of `records`.
    #[must_use]
    pub fn new(records: Vec<MetadataRecord>) -> RecordBatch {
        RecordBatch { records: Arc::new(records) }
    }
}

impl fmt::Debug for RecordBatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} records", self.records.len())
    }
}

impl fmt::Display for RecordBatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} records", self.records.len())
    }
}

openraft::declare_raft_types!(
    /// One leader per term; tasks on the caller's tokio runtime; randomness from a seed that every
    /// spawned task inherits, so that a simulation repeats.
    pub TypeConfig:
        D = RecordBatch,
        R = (),
        NodeId = RaftId,
        Node = NodeId,
        LeaderId = leader_id_std::LeaderId<Self::Term, Self::NodeId>,
        AsyncRuntime = DeterministicRng<OrderedRuntime>,
);

/// The runtime whose random numbers follow from a seed.
pub(crate) type Runtime = DeterministicRng<OrderedRuntime>;
/// openraft with everything fixed.
pub(crate) type Raft = openraft::Raft<TypeConfig, StateMachine>;
pub(crate) type Entry = alias::EntryOf<TypeConfig>;
pub(crate) type LogId = alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = alias::VoteOf<TypeConfig>;
pub(crate) type CommittedLeader = alias::CommittedLeaderIdOf<TypeConfig>;
pub(crate) type StoredMembership = alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = alias::SnapshotMetaOf<TypeConfig>;
/// A snapshot's file, whole: it is bounded by the image, which is in memory too.
pub(crate) type Snapshot = alias::SnapshotOf<TypeConfig, bytes::Bytes>;
