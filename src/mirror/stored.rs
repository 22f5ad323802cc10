//! What `__mirror_state` holds of one mirror partition. Owns the row and its wire form; never
//! writes it anywhere.

use protocol::ids::{LeaderEpoch, Offset, ProducerId};
use protocol::messages::read_mirror_states_response::ReadMirrorStatePartitionResult;
use protocol::messages::write_mirror_states_request::WriteMirrorStatePartition;

use crate::states::MirrorState;

/// The attempt number that means "never tried again by itself".
pub const NOT_RETRIED: i16 = -1;

/// The last mirrored offset of a stop that came before the log was ever compared with a source:
/// none of its records is known to be a copy. Shown as [`Offset::NONE`].
pub const NEVER_COMPARED: Offset = Offset(-2);

/// The durable row of one mirror partition, as its leader writes it and a new leader reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredState {
    /// The state.
    pub state: MirrorState,
    /// The state before; for FAILED the one to return to, and a stop takes that one over. A row
    /// STOPPING whose previous state is STOPPING too says that the last mirror epoch and offset in
    /// it are final.
    pub previous: MirrorState,
    /// How often the work failed in a row; 0 none, [`NOT_RETRIED`] for good.
    pub attempt: i16,
    /// Why the state is what it is: the failure, what STOPPING waits for, a reported gap.
    pub reason: Option<String>,
    /// The partition's leader epoch when this was written; it fences older leaders.
    pub leader_epoch: LeaderEpoch,
    /// Counts the rows of this partition upwards; 0 before the first.
    pub transition: i64,
    /// The newest epoch of the log when mirroring last stopped; `NONE` when it was empty.
    pub last_mirror_epoch: LeaderEpoch,
    /// The last offset copied when mirroring last stopped; `NONE` when the log was empty.
    pub last_mirrored_offset: Offset,
    /// How many offsets were ever cut from the log to agree with the source.
    pub records_cut: i64,
    /// Producers whose open transactions the last stop aborted, ascending.
    pub aborted_producers: Vec<ProducerId>,
}

impl StoredState {
    /// The row of a partition that has none.
    #[must_use]
    pub const fn unknown() -> StoredState {
        StoredState {
            state: MirrorState::Unknown,
            previous: MirrorState::Unknown,
            attempt: 0,
            reason: None,
            leader_epoch: LeaderEpoch::NONE,
            transition: 0,
            last_mirror_epoch: LeaderEpoch::NONE,
            last_mirrored_offset: Offset::NONE,
            records_cut: 0,
            aborted_producers: Vec::new(),
        }
    }

    /// The next row: this one in another state, without a reason.
    pub(crate) fn moved_to(&self, state: MirrorState) -> StoredState {
        StoredState { state, previous: self.state, reason: None, ..self.clone() }
    }

    /// Whether the row says that the stop's last mirror epoch and offset are final.
    pub(crate) fn stop_point_is_final(&self) -> bool {
        self.state == MirrorState::Stopping && self.previous == MirrorState::Stopping
    }

    /// Whether the stop began before the log was known to hold nothing but what the source has.
    pub(crate) fn stops_uncompared(&self) -> bool {
        self.state == MirrorState::Stopping
            && matches!(self.previous, MirrorState::Unknown | MirrorState::Preparing)
    }

    /// The row as WriteMirrorStates carries it.
    #[must_use]
    pub fn to_write(&self, partition: i32) -> WriteMirrorStatePartition {
        WriteMirrorStatePartition {
            partition_index: partition,
            last_mirror_epoch: self.last_mirror_epoch.0,
            state: self.state.as_i8(),
            previous_state: self.previous.as_i8(),
            attempt: self.attempt,
            reason: self.reason.clone(),
            leader_epoch: self.leader_epoch.0,
            transition: self.transition,
            last_mirrored_offset: self.last_mirrored_offset.0,
            records_cut: self.records_cut,
            aborted_producers: self.aborted_producers.iter().map(|id| id.0).collect(),
        }
    }

    /// The row that ReadMirrorStates answered. UNKNOWN, or a byte that no revision defines,
    /// gives a row UNKNOWN that still has its transition number and last mirror epoch.
    #[must_use]
    pub fn from_read(row: &ReadMirrorStatePartitionResult) -> StoredState {
        StoredState {
            state: MirrorState::from_i8(row.state).unwrap_or(MirrorState::Unknown),
            previous: MirrorState::from_i8(row.previous_state).unwrap_or(MirrorState::Unknown),
            attempt: row.attempt,
            reason: row.reason.clone(),
            leader_epoch: LeaderEpoch(row.leader_epoch),
            transition: row.transition,
            last_mirror_epoch: LeaderEpoch(row.last_mirror_epoch),
            last_mirrored_offset: Offset(row.last_mirrored_offset),
            records_cut: row.records_cut,
            aborted_producers: row.aborted_producers.iter().copied().map(ProducerId).collect(),
        }
    }
}
