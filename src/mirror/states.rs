//! The states of a mirror partition and which may follow which. Owns the bytes and names that
//! users and the wire see; never decides a transition (see `machine`).

use std::fmt;

/// What a mirror partition is doing, as stored in `__mirror_state` and shown by describe.
///
/// The bytes are those of KIP-1279; the names are upper case with underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MirrorState {
    /// The log is brought to the last point it shares with the source.
    ///
    /// Writes: nobody. Fetches: nobody; followers follow the truncation. Left to EPOCH_FENCING or
    /// MIRRORING when the followers hold no more than the leader, to STOPPING on a stop, to
    /// FAILED.
    Preparing,
    /// The leader epoch here is too near the source's; the controller is asked to raise it.
    ///
    /// Writes: nobody. Fetches: nobody. Left to MIRRORING when the own leader epoch is high
    /// enough, to STOPPING on a stop, to FAILED.
    EpochFencing,
    /// The leader copies the source's batches byte for byte.
    ///
    /// Writes: the mirror fetcher. Fetches: the leader from the source, followers from the
    /// leader. Left to EPOCH_FENCING when a batch's epoch is above the leader's, to PAUSING,
    /// STOPPING, FAILED.
    Mirroring,
    /// The fetcher is being taken away for a pause.
    ///
    /// Writes: nobody new. Fetches: ending. Left to PAUSED when the fetcher is gone, to STOPPING.
    Pausing,
    /// Nothing is fetched; the topic stays read-only.
    ///
    /// Writes: nobody. Fetches: nobody. Left to MIRRORING on a resume, to STOPPING on a stop.
    Paused,
    /// The failover's steps are running; they never need the source.
    ///
    /// Writes: only ABORT markers and the producer-id reset. Fetches: nobody. Left to STOPPED
    /// only.
    Stopping,
    /// An ordinary writable partition that once was a mirror.
    ///
    /// Writes: clients, once the controller's log says STOPPED too. Left to PREPARING by a start.
    Stopped,
    /// Something is wrong; reason, attempt and the state to return to are stored beside it.
    ///
    /// Writes: nobody. Fetches: nobody. Left by itself to the previous state, to STOPPING on a
    /// stop.
    Failed,
    /// No state is recorded.
    ///
    /// Writes: nobody. Fetches: nobody. Left to PREPARING on a start, to STOPPING on a stop.
    Unknown,
}

/// What the operator wants of a mirror topic; the controller's log holds it (D1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DesiredState {
    /// Copy from the source.
    Active,
    /// Stay as it is, read-only.
    Paused,
    /// Become an ordinary writable topic.
    Stopped,
}

impl MirrorState {
    /// Every state, in the order of the bytes.
    pub const ALL: [MirrorState; 9] = [
        MirrorState::Preparing,
        MirrorState::EpochFencing,
        MirrorState::Mirroring,
        MirrorState::Pausing,
        MirrorState::Paused,
        MirrorState::Stopping,
        MirrorState::Stopped,
        MirrorState::Failed,
        MirrorState::Unknown,
    ];

    /// The byte on the wire and in `__mirror_state`.
    #[must_use]
    pub const fn as_i8(self) -> i8 {
        match self {
            MirrorState::Preparing => 0,
            MirrorState::EpochFencing => 1,
            MirrorState::Mirroring => 2,
            MirrorState::Pausing => 3,
            MirrorState::Paused => 4,
            MirrorState::Stopping => 5,
            MirrorState::Stopped => 6,
            MirrorState::Failed => 7,
            MirrorState::Unknown => 16,
        }
    }

    /// The state of a byte; −1 is read as UNKNOWN too. `None` for a byte no revision defines.
    #[must_use]
    pub fn from_i8(byte: i8) -> Option<MirrorState> {
        if byte == -1 {
            return Some(MirrorState::Unknown);
        }
        MirrorState::ALL.into_iter().find(|state| state.as_i8() == byte)
    }

    /// The upper-case name that DescribeMirrors and the command line show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MirrorState::Preparing => "PREPARING",
            MirrorState::EpochFencing => "EPOCH_FENCING",
            MirrorState::Mirroring => "MIRRORING",
            MirrorState::Pausing => "PAUSING",
            MirrorState::Paused => "PAUSED",
            MirrorState::Stopping => "STOPPING",
            MirrorState::Stopped => "STOPPED",
            MirrorState::Failed => "FAILED",
            MirrorState::Unknown => "UNKNOWN",
        }
    }

    /// The state of an upper-case name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<MirrorState> {
        MirrorState::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether a durable record of `self` may be followed by one of `next` (D3 and D4).
    ///
    /// A record of the same state is always allowed: a new leader claims a state with it, and a
    /// step of STOPPING notes its progress.
    #[must_use]
    pub const fn may_become(self, next: MirrorState) -> bool {
        use MirrorState::{
            EpochFencing, Failed, Mirroring, Paused, Pausing, Preparing, Stopped, Stopping,
            Unknown,
        };
        match self {
            Unknown => matches!(next, Unknown | Preparing | Stopping),
            Preparing => {
                matches!(next, Preparing | EpochFencing | Mirroring | Stopping | Failed)
            }
            EpochFencing => matches!(next, EpochFencing | Mirroring | Stopping | Failed),
            Mirroring => {
                matches!(next, Mirroring | EpochFencing | Pausing | Stopping | Failed)
            }
            Pausing => matches!(next, Pausing | Paused | Stopping),
            Paused => matches!(next, Paused | Mirroring | Stopping),
            Stopping => matches!(next, Stopping | Stopped),
            Stopped => matches!(next, Stopped | Preparing),
            Failed => {
                matches!(next, Failed | Preparing | EpochFencing | Mirroring | Stopping)
            }
        }
    }

    /// Whether Start accepts a partition in this state (D4).
    #[must_use]
    pub const fn accepts_start(self) -> bool {
        matches!(self, MirrorState::Unknown | MirrorState::Stopped | MirrorState::Failed)
    }
}

impl fmt::Display for MirrorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl DesiredState {
    /// The name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DesiredState::Active => "active",
            DesiredState::Paused => "paused",
            DesiredState::Stopped => "stopped",
        }
    }
}

impl fmt::Display for DesiredState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_name_comes_back() {
        for state in MirrorState::ALL {
            assert_eq!(MirrorState::from_i8(state.as_i8()), Some(state));
            assert_eq!(MirrorState::from_name(state.name()), Some(state));
            assert!(state.may_become(state), "{state} may be written again");
        }
        assert_eq!(MirrorState::from_i8(-1), Some(MirrorState::Unknown));
        assert_eq!(MirrorState::from_i8(8), None);
    }

    #[test]
    fn stop_is_allowed_from_every_state_but_the_ended_one() {
        for state in MirrorState::ALL {
            let expected = state != MirrorState::Stopped;
            assert_eq!(state.may_become(MirrorState::Stopping), expected, "{state}");
        }
    }

    #[test]
    fn stopping_never_fails() {
        assert!(!MirrorState::Stopping.may_become(MirrorState::Failed));
    }
}
