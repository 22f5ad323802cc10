//! Everything a mirror partition can ask for. Owns the closed list of effects; never carries one
//! out.

use std::fmt;

use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use crate::states::MirrorState;
use crate::stored::StoredState;

/// One thing to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorEffect {
    /// Ask the coordinator for the stored row. Answer: `StoreEvent::Read` or `ReadFailed`.
    ReadState,
    /// Have the coordinator store this row, until answered: `Written`, `Fenced` or `WriteFailed`.
    WriteState(StoredState),
    /// A durable move happened: log one line and show it.
    Announce {
        /// The state before.
        from: MirrorState,
        /// The state now.
        to: MirrorState,
        /// Why, where there is more to say.
        reason: Option<String>,
    },
    /// Look at the log. Answer: `LogEvent::Facts`.
    ReadLog,
    /// Ask the source for its leader epoch, its last mirror epoch for us, and a loop. Answer:
    /// `SourceEvent::Facts` or `Failed`.
    AskSource,
    /// OffsetsForLeaderEpoch at the source's leader. Answer: `SourceEvent::EpochEnd` or `Failed`.
    AskSourceEpochEnd {
        /// The epoch to ask for.
        epoch: LeaderEpoch,
    },
    /// The same question to our own log. Answer: `LogEvent::EpochEnd`.
    FindEpochEnd {
        /// The epoch to ask for.
        epoch: LeaderEpoch,
    },
    /// Cut the log. Answer: `LogEvent::Truncated`.
    Truncate {
        /// The first offset to go.
        to: Offset,
    },
    /// Empty the log and let it start elsewhere. Answer: `LogEvent::Truncated`.
    Reset {
        /// The new log start and end.
        start: Offset,
    },
    /// Offsets were gone from the source before they were copied: log a warning and count them.
    ReportGap {
        /// The first missing offset.
        from: Offset,
        /// The offset after the last missing one.
        to: Offset,
    },
    /// Wait until no follower in or about to join the ISR holds more than the leader. Answer:
    /// `LogEvent::FollowersAligned`.
    AwaitFollowers {
        /// The leader's log end.
        end: Offset,
    },
    /// Ask the controller for a leader epoch above this one. Seen as `LeaderEpochRaised`.
    BumpLeaderEpoch {
        /// The MinLeaderEpoch of BumpLeaderEpochs.
        min: LeaderEpoch,
    },
    /// Fetch from the source at our log end, in this leader epoch; again from scratch if already
    /// so.
    StartFetching {
        /// Our leader epoch: the bound of every batch's epoch.
        leader_epoch: LeaderEpoch,
    },
    /// Fetch no more. Answer: `StopEvent::FetchingStopped`.
    StopFetching,
    /// Find out whether the source answers; one probe serves all partitions of a mirror. Answer:
    /// `SourceEvent::Reached` or `Failed`.
    ProbeSource,
    /// Wait until the high watermark is the log end. Answer: `StopEvent::HighWatermarkReached`.
    AwaitHighWatermark,
    /// Ask the controller to take followers that are gone out of the ISR. No answer.
    ShrinkIsr,
    /// Append an ABORT marker for every open transaction, and wait until the whole log is
    /// committed; not refused below min ISR. Answer: `StopEvent::AbortsAppended`.
    AppendAborts,
    /// Look for the newest MIRROR_PID_RESET from an offset on, and wait until the whole log is
    /// committed. Answer: `StopEvent::ResetSearched`.
    FindReset {
        /// The first offset after what was mirrored.
        from: Offset,
    },
    /// Append MIRROR_PID_RESET (an unknown source id is written empty) and wait until it is
    /// committed; not refused below min ISR. Answer: `StopEvent::ResetAppended`.
    AppendReset,
    /// Tell the controller's log that the partition is STOPPED. Seen as `ControllerChanged`.
    RecordStop {
        /// Our leader epoch.
        leader_epoch: LeaderEpoch,
        /// The stop's last mirror epoch.
        last_mirror_epoch: LeaderEpoch,
        /// The stop's last mirrored offset.
        last_mirrored_offset: Offset,
    },
    /// Clients may write; from now on the log notes our own leader epoch.
    AllowWrites,
    /// Clients may not write, from before anything else happens.
    DenyWrites,
    /// Set the one timer, in place of the one before.
    SetTimer {
        /// When it goes off.
        at: TimestampMs,
    },
    /// Forget the timer.
    CancelTimer,
}

impl fmt::Display for MirrorEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MirrorEffect::ReadState => f.write_str("read-state"),
            MirrorEffect::WriteState(row) => write_row(row, f),
            MirrorEffect::Announce { from, to, reason } => {
                write!(f, "announce {from} -> {to}")?;
                reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
            }
            MirrorEffect::ReadLog => f.write_str("read-log"),
            MirrorEffect::AskSource => f.write_str("ask-source"),
            MirrorEffect::AskSourceEpochEnd { epoch } => {
                write!(f, "ask-source-epoch-end epoch={epoch}")
            }
            MirrorEffect::FindEpochEnd { epoch } => write!(f, "find-epoch-end epoch={epoch}"),
            MirrorEffect::Truncate { to } => write!(f, "truncate to={to}"),
            MirrorEffect::Reset { start } => write!(f, "reset start={start}"),
            MirrorEffect::ReportGap { from, to } => write!(f, "report-gap from={from} to={to}"),
            MirrorEffect::AwaitFollowers { end } => write!(f, "await-followers end={end}"),
            MirrorEffect::BumpLeaderEpoch { min } => write!(f, "bump-leader-epoch min={min}"),
            MirrorEffect::StartFetching { leader_epoch } => {
                write!(f, "start-fetching leader-epoch={leader_epoch}")
            }
            MirrorEffect::StopFetching => f.write_str("stop-fetching"),
            MirrorEffect::ProbeSource => f.write_str("probe-source"),
            MirrorEffect::AwaitHighWatermark => f.write_str("await-high-watermark"),
            MirrorEffect::ShrinkIsr => f.write_str("shrink-isr"),
            MirrorEffect::AppendAborts => f.write_str("append-aborts"),
            MirrorEffect::FindReset { from } => write!(f, "find-reset from={from}"),
            MirrorEffect::AppendReset => f.write_str("append-reset"),
            MirrorEffect::RecordStop { leader_epoch, last_mirror_epoch, last_mirrored_offset } => {
                write!(
                    f,
                    "record-stop leader-epoch={leader_epoch} lme={last_mirror_epoch} \
                     last-offset={last_mirrored_offset}"
                )
            }
            MirrorEffect::AllowWrites => f.write_str("allow-writes"),
            MirrorEffect::DenyWrites => f.write_str("deny-writes"),
            MirrorEffect::SetTimer { at } => write!(f, "set-timer at={at}"),
            MirrorEffect::CancelTimer => f.write_str("cancel-timer"),
        }
    }
}

fn write_row(row: &StoredState, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "write-state #{} {} (was {}) leader-epoch={} lme={} last-offset={}",
        row.transition,
        row.state,
        row.previous,
        row.leader_epoch,
        row.last_mirror_epoch,
        row.last_mirrored_offset
    )?;
    if row.attempt != 0 {
        write!(f, " attempt={}", row.attempt)?;
    }
    if row.records_cut != 0 {
        write!(f, " cut={}", row.records_cut)?;
    }
    if !row.aborted_producers.is_empty() {
        let ids: Vec<String> = row.aborted_producers.iter().map(|id| id.0.to_string()).collect();
        write!(f, " aborted={}", ids.join(","))?;
    }
    row.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
}
