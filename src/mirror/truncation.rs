//! Where our log and the source's still agree (D7). Owns the choice of the point; never cuts a
//! log and never asks anyone: the answers are arguments.

use protocol::ids::{LeaderEpoch, Offset, ProducerId};

use crate::epochs::EpochEnd;
use crate::machine::ControllerRecord;

/// What the rules need to know of the partition's own log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFacts {
    /// The first offset kept.
    pub start: Offset,
    /// The offset after the last record.
    pub end: Offset,
    /// The newest epoch any batch of the log has; `NONE` when there is none.
    pub newest_epoch: LeaderEpoch,
    /// Producers with an open transaction, in ascending order.
    pub open_transactions: Vec<ProducerId>,
}

impl LogFacts {
    /// Whether the log holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// How many offsets the log spans.
    #[must_use]
    pub fn span(&self) -> i64 {
        self.end.0 - self.start.0
    }
}

/// How the truncation point of one partition is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing can differ: the log is empty.
    Keep,
    /// Everything up to the end of this epoch came from the source; look up its end in our log.
    EndOf {
        /// The larger of the source's last mirror epoch for us and our own.
        epoch: LeaderEpoch,
    },
    /// No last mirror epoch is known: find the common prefix with the source, from this epoch
    /// down.
    CommonPrefix {
        /// The newest epoch of our log.
        epoch: LeaderEpoch,
    },
    /// A stop found nothing that came from a source: all that is here now is local, and goes.
    CutLocal,
    /// The records are local, from a time before any mirror: cut nothing, fail for good.
    Refuse,
}

/// Chooses how to find the truncation point.
///
/// `own` and `source` are last mirror epochs (`NONE`: not known). `record` is what the
/// controller's log says of this partition.
#[must_use]
pub fn plan(
    log: &LogFacts,
    own: LeaderEpoch,
    source: LeaderEpoch,
    record: &ControllerRecord,
) -> Plan {
    let epoch = own.max(source);
    if log.is_empty() {
        Plan::Keep
    } else if epoch != LeaderEpoch::NONE {
        Plan::EndOf { epoch }
    } else if record.nothing_mirrored {
        Plan::CutLocal
    } else if record.mirrored_before && log.newest_epoch != LeaderEpoch::NONE {
        Plan::CommonPrefix { epoch: log.newest_epoch }
    } else {
        Plan::Refuse
    }
}

/// A cut that would go below what the log still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the last point shared with the source is offset {point}, below the local log start \
     {log_start}; delete the topic here and start it again"
)]
pub struct BelowLogStart {
    /// Where the cut would be.
    pub point: i64,
    /// The first offset kept.
    pub log_start: i64,
}

/// The truncation point for the end of an epoch as our log answers it.
///
/// No answer means that every record here is newer than that epoch: all of them are local.
///
/// # Errors
/// When the point is below the log start.
pub fn point(log: &LogFacts, found: Option<EpochEnd>) -> Result<Offset, BelowLogStart> {
    let wanted = found.map_or(Offset(0), |end| end.end_offset);
    let point = wanted.min(log.end);
    if point < log.start {
        return Err(BelowLogStart { point: point.0, log_start: log.start.0 });
    }
    Ok(point)
}

/// What follows from comparing one epoch's end at the source with ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Both logs hold the epoch: they agree up to the smaller end.
    Agree {
        /// The end of the common prefix.
        point: Offset,
    },
    /// The source's answer is an epoch we do not hold: ask again with the one below it.
    AskAgain {
        /// The epoch of ours to ask the source for next.
        epoch: LeaderEpoch,
        /// The common prefix is not longer than this.
        bound: Offset,
    },
    /// Our log holds nothing that old, or the source nothing at all.
    Nothing,
}

/// Compares the source's answer with what our log answers for the source's epoch.
#[must_use]
pub fn compare(source: EpochEnd, own: Option<EpochEnd>, bound: Offset) -> Comparison {
    let Some(own) = own else {
        return Comparison::Nothing;
    };
    let shorter = own.end_offset.min(source.end_offset).min(bound);
    if own.epoch == source.epoch {
        Comparison::Agree { point: shorter }
    } else {
        Comparison::AskAgain { epoch: own.epoch, bound: own.end_offset.min(bound) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(start: i64, end: i64, newest: i32) -> LogFacts {
        LogFacts {
            start: Offset(start),
            end: Offset(end),
            newest_epoch: LeaderEpoch(newest),
            open_transactions: Vec::new(),
        }
    }

    fn record(mirrored_before: bool, nothing_mirrored: bool) -> ControllerRecord {
        ControllerRecord {
            mirrored_before,
            nothing_mirrored,
            stopped: false,
            last_mirror_epoch: LeaderEpoch::NONE,
            last_mirrored_offset: Offset::NONE,
        }
    }

    fn end(epoch: i32, offset: i64) -> EpochEnd {
        EpochEnd { epoch: LeaderEpoch(epoch), end_offset: Offset(offset) }
    }

    #[test]
    fn the_larger_last_mirror_epoch_decides() {
        let plan = plan(&log(0, 30, 16), LeaderEpoch(5), LeaderEpoch(3), &record(true, false));
        assert_eq!(plan, Plan::EndOf { epoch: LeaderEpoch(5) });
    }

    #[test]
    fn an_empty_log_needs_no_cut() {
        assert_eq!(
            plan(&log(7, 7, 3), LeaderEpoch(5), LeaderEpoch::NONE, &record(false, false)),
            Plan::Keep
        );
    }

    #[test]
    fn local_records_are_never_cut_without_a_known_point() {
        let none = LeaderEpoch::NONE;
        assert_eq!(plan(&log(0, 3, 0), none, none, &record(false, false)), Plan::Refuse);
        assert_eq!(
            plan(&log(0, 3, 0), none, none, &record(true, false)),
            Plan::CommonPrefix { epoch: LeaderEpoch(0) }
        );
    }

    #[test]
    fn what_came_after_a_stop_of_nothing_is_local() {
        let none = LeaderEpoch::NONE;
        assert_eq!(plan(&log(0, 3, 0), none, none, &record(true, true)), Plan::CutLocal);
        // The source's last mirror epoch for us says more.
        let source = LeaderEpoch(4);
        let end_of = Plan::EndOf { epoch: source };
        assert_eq!(plan(&log(0, 3, 0), none, source, &record(true, true)), end_of);
    }

    #[test]
    fn a_point_below_the_log_start_is_refused() {
        assert_eq!(point(&log(0, 30, 16), Some(end(5, 20))), Ok(Offset(20)));
        assert_eq!(point(&log(0, 30, 16), None), Ok(Offset(0)));
        assert_eq!(point(&log(20, 30, 16), Some(end(5, 20))), Ok(Offset(20)));
        assert!(point(&log(25, 30, 16), Some(end(5, 20))).is_err());
        assert!(point(&log(25, 30, 16), None).is_err());
    }

    #[test]
    fn logs_agree_up_to_the_smaller_end_of_a_shared_epoch() {
        let agree = compare(end(5, 25), Some(end(5, 20)), Offset(100));
        assert_eq!(agree, Comparison::Agree { point: Offset(20) });
        let again = compare(end(4, 18), Some(end(2, 10)), Offset(100));
        assert_eq!(again, Comparison::AskAgain { epoch: LeaderEpoch(2), bound: Offset(10) });
        assert_eq!(compare(end(4, 18), None, Offset(100)), Comparison::Nothing);
    }
}
