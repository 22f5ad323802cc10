//! When a leader epoch here is too near the source's, and what to ask for (D8). Owns the numbers;
//! never asks the controller.
//!
//! The invariant: the leader epoch here is at least every source epoch in the log.

use protocol::ids::{LeaderEpoch, Offset};

/// A bump is due when the own leader epoch is below the source's plus this.
pub const THRESHOLD: i32 = 3;

/// How far above the source's epoch the controller is asked to go.
pub const INCREMENT: i32 = 10;

/// The largest jump of a leader epoch that BumpLeaderEpochs accepts.
pub const JUMP_MAX: i32 = 1_000_000;

/// An epoch and the offset after its last record, as OffsetsForLeaderEpoch answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest epoch that is at most the one asked for.
    pub epoch: LeaderEpoch,
    /// The offset after the last record of `epoch`.
    pub end_offset: Offset,
}

/// Whether the own leader epoch is too near a source epoch (`NONE`: unknown, nothing to fear).
#[must_use]
pub fn needs_bump(own: LeaderEpoch, source: LeaderEpoch) -> bool {
    source != LeaderEpoch::NONE && own.0 < source.0.saturating_add(THRESHOLD)
}

/// The MinLeaderEpoch to ask for; the new leader epoch is one above it.
#[must_use]
pub fn bump_target(source: LeaderEpoch) -> LeaderEpoch {
    LeaderEpoch(source.0.saturating_add(INCREMENT))
}

/// Whether a batch of `batch` epoch may be appended under the own leader epoch.
#[must_use]
pub fn may_append(own: LeaderEpoch, batch: LeaderEpoch) -> bool {
    batch <= own
}

/// The answer to a lookup above the newest epoch of a leader's log.
///
/// Only batches feed the epoch cache until STOPPED, so the newest epoch in the log is a source's,
/// below the leader's own. A lookup between the two answers (newest epoch, log end), so that a
/// follower gets a diverging epoch and not an error, and keeps what it shares with the leader.
/// `None`: the log has no answer.
#[must_use]
pub fn mirrored_lookup(
    asked: LeaderEpoch,
    own: LeaderEpoch,
    newest: LeaderEpoch,
    log_end: Offset,
) -> Option<EpochEnd> {
    (newest != LeaderEpoch::NONE && asked > newest && asked <= own)
        .then_some(EpochEnd { epoch: newest, end_offset: log_end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bump_is_due_below_the_threshold_only() {
        assert!(needs_bump(LeaderEpoch(0), LeaderEpoch(5)));
        assert!(needs_bump(LeaderEpoch(7), LeaderEpoch(5)));
        assert!(!needs_bump(LeaderEpoch(8), LeaderEpoch(5)));
        assert!(!needs_bump(LeaderEpoch(0), LeaderEpoch::NONE));
        assert_eq!(bump_target(LeaderEpoch(5)), LeaderEpoch(15));
    }

    #[test]
    fn a_bump_once_done_is_not_due_again() {
        // The controller sets MinLeaderEpoch + 1.
        let after = LeaderEpoch(bump_target(LeaderEpoch(16)).0 + 1);
        assert_eq!(after, LeaderEpoch(27));
        assert!(!needs_bump(after, LeaderEpoch(16)));
    }

    #[test]
    fn a_lookup_between_the_newest_and_the_own_epoch_is_answered() {
        let end = Offset(40);
        let found = EpochEnd { epoch: LeaderEpoch(5), end_offset: end };
        assert_eq!(
            mirrored_lookup(LeaderEpoch(16), LeaderEpoch(27), LeaderEpoch(5), end),
            Some(found)
        );
        assert_eq!(mirrored_lookup(LeaderEpoch(5), LeaderEpoch(27), LeaderEpoch(5), end), None);
        assert_eq!(mirrored_lookup(LeaderEpoch(28), LeaderEpoch(27), LeaderEpoch(5), end), None);
    }
}
