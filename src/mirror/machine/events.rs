//! Everything that can happen to a mirror partition. Owns the events; never reacts to one.

use protocol::ids::{LeaderEpoch, Offset, TimestampMs, TopicId};

use crate::epochs::EpochEnd;
use crate::retry::FailureRetries;
use crate::states::DesiredState;
use crate::stored::StoredState;
use crate::truncation::LogFacts;

/// One event, sorted by where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorEvent {
    /// From the metadata image: who leads, and what the operator wants.
    Leadership(LeadershipEvent),
    /// From the mirror coordinator.
    Store(StoreEvent),
    /// From the partition's own log and followers.
    Log(LogEvent),
    /// From the source cluster.
    Source(SourceEvent),
    /// From the mirror fetcher.
    Fetch(FetchEvent),
    /// From the steps of pausing and stopping.
    Stop(StopEvent),
    /// The step that runs failed inside our own cluster.
    StepFailed {
        /// One line for the operator.
        reason: String,
    },
    /// The timer went off.
    Woke,
}

/// What the controller's log holds of one mirror partition (D1, D3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerRecord {
    /// Whether what the log holds was mirrored at some time, so that a common prefix may be
    /// looked for. False for a local topic that was given to a mirror and never copied anything.
    pub mirrored_before: bool,
    /// The newest recorded stop says that nothing of the log came from a source.
    pub nothing_mirrored: bool,
    /// Whether STOPPED is recorded: the partition is an ordinary one. A later start clears it.
    pub stopped: bool,
    /// The last mirror epoch of the newest recorded stop, kept by a later start; `NONE` without
    /// one.
    pub last_mirror_epoch: LeaderEpoch,
    /// The last mirrored offset of the newest recorded stop; `NONE` without one.
    pub last_mirrored_offset: Offset,
}

/// Who leads, and what the operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadershipEvent {
    /// This node leads from now on, or leads in a new epoch with a new lease.
    BecameLeader {
        /// The partition's leader epoch.
        leader_epoch: LeaderEpoch,
        /// What the operator wants.
        desired: DesiredState,
        /// What the controller's log holds of the partition.
        record: ControllerRecord,
        /// Spreads the retries of many partitions.
        jitter_seed: u64,
        /// How failures are tried again.
        retries: FailureRetries,
    },
    /// This node leads no more, or the topic is no mirror topic any more.
    LostLeadership,
    /// The leader epoch rose and this node still leads: a bump. The log takes it before this
    /// event.
    LeaderEpochRaised {
        /// The new leader epoch.
        leader_epoch: LeaderEpoch,
    },
    /// The controller's log changed for this partition: a command, or a recorded stop. Sent only
    /// for a record that touches the topic's mirror, as a start on a FAILED topic retries at
    /// once.
    ControllerChanged {
        /// What the operator wants now.
        desired: DesiredState,
        /// What the controller's log holds now.
        record: ControllerRecord,
    },
}

/// Answers of the mirror coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// The stored row; `None` when there is none.
    Read(Option<StoredState>),
    /// The row could not be read.
    ReadFailed,
    /// The row in flight is durable.
    Written {
        /// Its transition number.
        transition: i64,
    },
    /// The row in flight was refused: a newer leader, or another row with that number, is stored.
    Fenced {
        /// Its transition number.
        transition: i64,
    },
    /// The row in flight could not be written.
    WriteFailed {
        /// Its transition number.
        transition: i64,
    },
}

/// Answers of the partition's own log and followers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// Answer to `ReadLog`.
    Facts(LogFacts),
    /// Answer to `FindEpochEnd`: the largest epoch of our log that is at most the one asked for,
    /// and its end; `None` when our log begins above it.
    EpochEnd(Option<EpochEnd>),
    /// Answer to `Truncate` and `Reset`.
    Truncated {
        /// The log end now.
        log_end: Offset,
        /// How many offsets went.
        records_cut: i64,
    },
    /// Answer to `AwaitFollowers`: no follower that counts holds more than the leader.
    FollowersAligned,
}

/// What a source answered about one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFacts {
    /// The source's leader epoch; `NONE` when it does not say.
    pub leader_epoch: LeaderEpoch,
    /// The source's last mirror epoch for us, over all its mirrors of our cluster; `NONE` without
    /// one, and for a source that has no mirror RPCs.
    pub last_mirror_epoch: LeaderEpoch,
    /// The source's mirror that is copying this partition from us, if one is: a loop.
    pub mirroring_from_us: Option<String>,
}

/// What went wrong with the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// No broker of the source answers.
    Unreachable {
        /// Since when.
        since: TimestampMs,
    },
    /// The leader moved or its epoch is not the one we named; the fetcher follows it.
    NotLeader,
    /// A right is missing.
    NotAuthorized {
        /// The right, such as `READ on topic orders`.
        right: String,
    },
    /// The topic is gone, seen twice.
    TopicDeleted,
    /// The topic is there with another id.
    TopicRecreated {
        /// The id at the source.
        found: TopicId,
    },
    /// The cluster behind the mirror's addresses is another one.
    ClusterChanged {
        /// The id persisted in the mirror.
        expected: String,
        /// The id found.
        found: String,
    },
    /// The source holds batches of format v0 or v1.
    OldFormat,
    /// Anything else: an error code, a corrupt batch.
    Other {
        /// One line for the operator.
        reason: String,
    },
}

/// Answers of the source cluster outside fetches, and failures of fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// Answer to `AskSource`.
    Facts(SourceFacts),
    /// Answer to `AskSourceEpochEnd`; `None` when the source knows no epoch that old.
    EpochEnd(Option<EpochEnd>),
    /// A question or a fetch failed.
    Failed(SourceError),
    /// A broker of the source answered again. Answer to `ProbeSource`, or unasked.
    Reached,
}

/// What the mirror fetcher meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchEvent {
    /// A fetch was appended; sent once after each `StartFetching` is enough.
    Succeeded,
    /// The source's leader epoch as seen, in a batch that was appended or in its metadata.
    EpochSeen {
        /// The source's epoch.
        epoch: LeaderEpoch,
    },
    /// A batch was not appended: its epoch is above our leader epoch.
    EpochTooHigh {
        /// The batch's epoch.
        epoch: LeaderEpoch,
    },
    /// The source answered a diverging epoch; the fetcher waits for a new `StartFetching`.
    Diverged {
        /// The largest epoch of the source that is at most our last.
        epoch: LeaderEpoch,
        /// Its end at the source.
        end_offset: Offset,
    },
    /// Our log end is outside the source's log; the fetcher waits for a new `StartFetching`.
    OutOfRange {
        /// The source's log start.
        source_start: Offset,
        /// The source's log end.
        source_end: Offset,
        /// Our log start.
        log_start: Offset,
        /// Our log end, from which was fetched.
        log_end: Offset,
    },
}

/// Answers of the steps of pausing and stopping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopEvent {
    /// Answer to `StopFetching`: no append of a mirror fetcher is under way or will come.
    FetchingStopped,
    /// Answer to `AwaitHighWatermark`: everything in the log is committed.
    HighWatermarkReached(LogFacts),
    /// Answer to `AppendAborts`: no transaction is open and the markers are committed.
    AbortsAppended,
    /// Answer to `FindReset`, once everything in the log is committed.
    ResetSearched {
        /// The epoch of the newest MIRROR_PID_RESET found; `NONE` when there is none.
        epoch: LeaderEpoch,
    },
    /// Answer to `AppendReset`: the record is committed.
    ResetAppended,
}

impl MirrorEvent {
    /// The event's name, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            MirrorEvent::Leadership(event) => match event {
                LeadershipEvent::BecameLeader { .. } => "BecameLeader",
                LeadershipEvent::LostLeadership => "LostLeadership",
                LeadershipEvent::LeaderEpochRaised { .. } => "LeaderEpochRaised",
                LeadershipEvent::ControllerChanged { .. } => "ControllerChanged",
            },
            MirrorEvent::Store(event) => match event {
                StoreEvent::Read(_) => "StateRead",
                StoreEvent::ReadFailed => "StateReadFailed",
                StoreEvent::Written { .. } => "StateWritten",
                StoreEvent::Fenced { .. } => "StateWriteFenced",
                StoreEvent::WriteFailed { .. } => "StateWriteFailed",
            },
            MirrorEvent::Log(event) => match event {
                LogEvent::Facts(_) => "LogFacts",
                LogEvent::EpochEnd(_) => "LogEpochEnd",
                LogEvent::Truncated { .. } => "Truncated",
                LogEvent::FollowersAligned => "FollowersAligned",
            },
            MirrorEvent::Source(event) => match event {
                SourceEvent::Facts(_) => "SourceFacts",
                SourceEvent::EpochEnd(_) => "SourceEpochEnd",
                SourceEvent::Failed(_) => "SourceFailed",
                SourceEvent::Reached => "SourceReached",
            },
            MirrorEvent::Fetch(event) => match event {
                FetchEvent::Succeeded => "FetchSucceeded",
                FetchEvent::EpochSeen { .. } => "EpochSeen",
                FetchEvent::EpochTooHigh { .. } => "EpochTooHigh",
                FetchEvent::Diverged { .. } => "Diverged",
                FetchEvent::OutOfRange { .. } => "OutOfRange",
            },
            MirrorEvent::Stop(event) => match event {
                StopEvent::FetchingStopped => "FetchingStopped",
                StopEvent::HighWatermarkReached(_) => "HighWatermarkReached",
                StopEvent::AbortsAppended => "AbortsAppended",
                StopEvent::ResetSearched { .. } => "ResetSearched",
                StopEvent::ResetAppended => "ResetAppended",
            },
            MirrorEvent::StepFailed { .. } => "StepFailed",
            MirrorEvent::Woke => "Woke",
        }
    }
}

macro_rules! grouped {
    ($($group:ident($event:ty)),* $(,)?) => {
        $(impl From<$event> for MirrorEvent {
            fn from(event: $event) -> MirrorEvent {
                MirrorEvent::$group(event)
            }
        })*
    };
}

grouped!(
    Leadership(LeadershipEvent),
    Store(StoreEvent),
    Log(LogEvent),
    Source(SourceEvent),
    Fetch(FetchEvent),
    Stop(StopEvent),
);
