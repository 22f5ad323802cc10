//! One partition's log as everyone may read it: bounds, epochs, producers and batches, without a
//! mailbox and without a lock held over I/O. The writer alone changes the log behind it; this file
//! owns the shared words (bounds, incarnation, who serves) and never touches a byte of a segment.
//!
//! The locks in here guard small state in memory and are never held over I/O.
//!
//! **Reads beside a truncation.** The writer lowers the bounds, then counts the truncation, then
//! touches files. A reader takes the counter, then the bounds, reads, and takes the counter again:
//! equal counters mean that no byte it got was replaced.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use protocol::ids::{LeaderEpoch, Offset, ProducerId};

use self::read::Hints;
use crate::epochs::Epochs;
use crate::lease::LogId;
use crate::open_files::Files;
use crate::producers::{OpenTransaction, ProducerEntry, ProducerStates};
use crate::segment::Segment;

pub(crate) use self::change::Opened;
pub use self::lookup::TimestampedOffset;

mod change;
mod lookup;
mod read;

/// What this node is to a partition, as connections see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Answers Produce and Fetch.
    Leader,
    /// Copies from the leader.
    Follower,
    /// Answers nothing: not assigned, restarting or failed.
    Offline,
}

/// The role of the newest lease's holder and the leader epoch it serves in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    /// The partition's leader epoch as the holder knows it.
    pub leader_epoch: LeaderEpoch,
    /// What the holder is in that epoch.
    pub role: Role,
}

impl Serving {
    /// What a log serves between leases.
    pub const OFFLINE: Self = Self { leader_epoch: LeaderEpoch::NONE, role: Role::Offline };

    fn to_word(self) -> u64 {
        let role = match self.role {
            Role::Leader => 0,
            Role::Follower => 1,
            Role::Offline => 2,
        };
        (role << 32) | u64::from(self.leader_epoch.0.cast_unsigned())
    }

    fn from_word(word: u64) -> Self {
        let low = u32::try_from(word & u64::from(u32::MAX)).expect("masked to 32 bits");
        let role = match word >> 32 {
            0 => Role::Leader,
            1 => Role::Follower,
            _ => Role::Offline,
        };
        Self { leader_epoch: LeaderEpoch(low.cast_signed()), role }
    }
}

/// Called after the log end or the high watermark moved; must be quick.
pub type Listener = Arc<dyn Fn() + Send + Sync>;

/// How far a read may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadUpTo {
    /// To the end: replicas.
    LogEnd,
    /// What every in-sync replica has: consumers.
    HighWatermark,
    /// Below the first open transaction: consumers that read committed records.
    LastStable,
}

/// What a read found, and the bounds it found it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadBatches {
    /// Whole record batches; the first holds the asked offset. Empty at the bound.
    pub bytes: Bytes,
    /// The offset behind the last batch read; the asked one if there is none.
    pub next_offset: Offset,
    /// Where the log starts.
    pub log_start: Offset,
    /// Where the log ends.
    pub log_end: Offset,
    /// The high watermark.
    pub high_watermark: Offset,
    /// The last stable offset.
    pub last_stable_offset: Offset,
    /// The lease in force: compare with [`ReadView::incarnation`] before answering.
    pub incarnation: u64,
}

/// The shared state of one log.
pub struct ReadView {
    id: LogId,
    log_start: AtomicI64,
    log_end: AtomicI64,
    high_watermark: AtomicI64,
    /// Where the first transaction begins that is open, or decided at or above the high watermark;
    /// the largest number without one.
    first_unstable: AtomicI64,
    truncations: AtomicU64,
    incarnation: AtomicU64,
    fenced: AtomicU64,
    serving: AtomicU64,
    deleted: AtomicBool,
    closed: AtomicBool,
    /// Held while bounds move, so that they stay in order; never over I/O.
    bounds: Mutex<()>,
    listener: RwLock<Option<Listener>>,
    files: Files,
    segments: ArcSwap<Vec<Arc<Segment>>>,
    epochs: RwLock<Epochs>,
    producers: Mutex<ProducerStates>,
    hints: Hints,
}

impl ReadView {
    /// The view of a log that is being opened: empty until it is [installed](Self::install).
    pub(crate) fn new(id: LogId, files: Files) -> Self {
        Self {
            id,
            log_start: AtomicI64::new(0),
            log_end: AtomicI64::new(0),
            high_watermark: AtomicI64::new(0),
            first_unstable: AtomicI64::new(i64::MAX),
            truncations: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            fenced: AtomicU64::new(0),
            serving: AtomicU64::new(Serving::OFFLINE.to_word()),
            deleted: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            bounds: Mutex::new(()),
            listener: RwLock::new(None),
            files,
            segments: ArcSwap::default(),
            epochs: RwLock::default(),
            producers: Mutex::new(ProducerStates::new(Offset::ZERO)),
            hints: Hints::default(),
        }
    }

    /// Which log this is.
    #[must_use]
    pub fn id(&self) -> &LogId {
        &self.id
    }

    /// The first offset that can be read.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        Offset(self.log_start.load(Ordering::Acquire))
    }

    /// The offset the next record gets.
    #[must_use]
    pub fn log_end(&self) -> Offset {
        Offset(self.log_end.load(Ordering::Acquire))
    }

    /// What is below it is on every in-sync replica, as far as this one knows.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// What is below it is decided: at most the high watermark.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        let unstable = self.first_unstable.load(Ordering::Acquire);
        let unstable = unstable.max(self.log_start.load(Ordering::Acquire));
        Offset(unstable.min(self.high_watermark.load(Ordering::Acquire)))
    }

    /// Bytes of all batches the log holds.
    #[must_use]
    pub fn size_in_bytes(&self) -> u64 {
        self.segments.load().iter().map(|segment| segment.bytes()).sum()
    }

    /// How often the log was truncated or reset since it was opened.
    #[must_use]
    pub fn truncations(&self) -> u64 {
        self.truncations.load(Ordering::Acquire)
    }

    /// The newest lease; 0 before the first.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation.load(Ordering::Acquire)
    }

    /// Whether the log was deleted; then its lease is stale for good.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// Whether a write or sync failed: the log takes no change until a new lease opens it again.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Raises the high watermark to `offset`, at most to the log end; a lower one changes nothing.
    /// Returns whether it moved. A fenced or older incarnation moves nothing.
    pub fn advance_high_watermark(&self, incarnation: u64, offset: Offset) -> bool {
        let guard = self.bounds.lock();
        if !self.holds(incarnation) {
            return false;
        }
        let wanted = offset.min(self.log_end());
        if wanted <= self.high_watermark() {
            return false;
        }
        self.high_watermark.store(wanted.0, Ordering::Release);
        if self.first_unstable.load(Ordering::Acquire) < wanted.0 {
            self.refresh_unstable();
        }
        drop(guard);
        self.notify();
        true
    }

    /// Tells connections what the holder of `incarnation` is to this partition. Returns whether
    /// that is the newest lease and not fenced.
    pub fn set_serving(&self, incarnation: u64, serving: Serving) -> bool {
        let _guard = self.bounds.lock();
        let holds = self.holds(incarnation);
        if holds {
            self.serving.store(serving.to_word(), Ordering::Release);
        }
        holds
    }

    /// What this node is to the partition now.
    #[must_use]
    pub fn serving(&self) -> Serving {
        Serving::from_word(self.serving.load(Ordering::Acquire))
    }

    /// Takes the word from the holder of `incarnation`: it serves nothing and moves nothing any
    /// more. For its supervisor, before a successor takes a lease.
    pub fn fence(&self, incarnation: u64) {
        let _guard = self.bounds.lock();
        self.fenced.fetch_max(incarnation, Ordering::AcqRel);
        if self.incarnation() <= incarnation {
            self.serving.store(Serving::OFFLINE.to_word(), Ordering::Release);
        }
    }

    /// Sets who is called after the log end or the high watermark moved; replaces the last one.
    pub fn set_listener(&self, listener: Listener) {
        *self.listener.write() = Some(listener);
    }

    /// The log's newest leader epoch; [`LeaderEpoch::NONE`] in a log without one.
    #[must_use]
    pub fn last_epoch(&self) -> LeaderEpoch {
        self.epochs.read().latest()
    }

    /// Kafka's answer to OffsetsForLeaderEpoch: the largest epoch not above `asked`, and where it
    /// ends. Below all epochs: `asked` itself, and where the first begins. `None` above the newest
    /// one.
    #[must_use]
    pub fn end_offset_for_epoch(&self, asked: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let epochs = self.epochs.read();
        epochs.end_offset_for(asked, self.log_end())
    }

    /// The leader epoch of the batch at `offset`, if the log knows it.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.epochs.read().epoch_at(offset)
    }

    /// The transactions without a marker, by their first offset.
    #[must_use]
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.producers.lock().open_transactions().copied().collect()
    }

    /// What is known of every producer, by id.
    #[must_use]
    pub fn producers(&self) -> Vec<(ProducerId, ProducerEntry)> {
        self.producers.lock().iter().map(|(id, entry)| (id, entry.clone())).collect()
    }

    /// Finds where the first undecided transaction begins; with `bounds` held.
    fn refresh_unstable(&self) {
        let mut producers = self.producers.lock();
        producers.advance_high_watermark(self.high_watermark());
        let unstable = producers.first_unstable_offset().map_or(i64::MAX, |first| first.0);
        self.first_unstable.store(unstable, Ordering::Release);
    }

    fn holds(&self, incarnation: u64) -> bool {
        self.incarnation() == incarnation && self.fenced.load(Ordering::Acquire) < incarnation
    }

    fn notify(&self) {
        let listener = self.listener.read().clone();
        if let Some(listener) = listener {
            listener();
        }
    }
}

impl fmt::Debug for ReadView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReadView")
            .field("log", &self.id)
            .field("log_start", &self.log_start())
            .field("high_watermark", &self.high_watermark())
            .field("log_end", &self.log_end())
            .field("incarnation", &self.incarnation())
            .finish_non_exhaustive()
    }
}
