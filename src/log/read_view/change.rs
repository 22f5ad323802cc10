//! How the writer changes a [`ReadView`]: the other side of everything its readers see. Only the
//! writer's thread calls these.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::ids::Offset;

use super::{ReadView, Serving};
use crate::epochs::Epochs;
use crate::error::Error;
use crate::producers::ProducerStates;
use crate::segment::Segment;

/// A log's whole state, as it was opened.
pub(crate) struct Opened {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) epochs: Epochs,
    pub(crate) producers: ProducerStates,
    pub(crate) log_start: Offset,
    pub(crate) high_watermark: Offset,
    pub(crate) log_end: Offset,
}

impl ReadView {
    /// Shows a log that was opened, or opened again.
    pub(crate) fn install(&self, opened: Opened) {
        self.closed.store(false, Ordering::Release);
        let guard = self.bounds.lock();
        self.log_start.store(opened.log_start.0, Ordering::Release);
        self.high_watermark.store(opened.high_watermark.0, Ordering::Release);
        self.log_end.store(opened.log_end.0, Ordering::Release);
        self.segments.store(Arc::new(opened.segments));
        *self.epochs.write() = opened.epochs;
        *self.producers.lock() = opened.producers;
        self.truncations.fetch_add(1, Ordering::AcqRel);
        self.refresh_unstable();
        drop(guard);
        self.notify();
    }

    /// Gives the log to a new lease; nothing is served until its holder says so.
    pub(crate) fn begin_incarnation(&self, incarnation: u64) {
        let _guard = self.bounds.lock();
        self.serving.store(Serving::OFFLINE.to_word(), Ordering::Release);
        self.incarnation.store(incarnation, Ordering::Release);
    }

    /// Shows what was appended.
    pub(crate) fn set_log_end(&self, log_end: Offset) {
        let guard = self.bounds.lock();
        debug_assert!(log_end >= self.log_end(), "an append moved the end back to {log_end}");
        self.log_end.store(log_end.0, Ordering::Release);
        self.refresh_unstable();
        drop(guard);
        self.notify();
    }

    /// Raises the log's start, to at most the high watermark.
    pub(crate) fn set_log_start(&self, start: Offset) {
        let _guard = self.bounds.lock();
        self.log_start.store(start.0, Ordering::Release);
    }

    /// Lowers the log's end, and the high watermark with it. Nothing counts as decided until the
    /// producers were made anew and [`Self::refresh_transactions`] says so.
    pub(crate) fn lower_end(&self, log_end: Offset) {
        let _guard = self.bounds.lock();
        self.first_unstable.store(self.log_start().0, Ordering::Release);
        self.high_watermark.fetch_min(log_end.0, Ordering::AcqRel);
        self.log_end.store(log_end.0, Ordering::Release);
    }

    /// Shows an empty log that starts and ends at `start`.
    pub(crate) fn set_emptied(&self, start: Offset) {
        let _guard = self.bounds.lock();
        self.high_watermark.store(start.0, Ordering::Release);
        self.log_end.store(start.0, Ordering::Release);
        self.log_start.store(start.0, Ordering::Release);
    }

    /// Says that bytes readers may be reading are about to be replaced: the bounds have been
    /// lowered, the files have not been touched.
    pub(crate) fn count_truncation(&self) {
        self.truncations.fetch_add(1, Ordering::AcqRel);
    }

    /// The segments, first to last.
    pub(crate) fn segments(&self) -> Arc<Vec<Arc<Segment>>> {
        self.segments.load_full()
    }

    /// Adds a new last segment.
    pub(crate) fn push_segment(&self, segment: Arc<Segment>) {
        let mut segments = Vec::clone(&self.segments.load());
        segments.push(segment);
        self.segments.store(Arc::new(segments));
    }

    /// Puts other segments in place of all.
    pub(crate) fn replace_segments(&self, segments: Vec<Arc<Segment>>) {
        self.segments.store(Arc::new(segments));
    }

    /// Changes the epochs.
    pub(crate) fn change_epochs<T>(&self, change: impl FnOnce(&mut Epochs) -> T) -> T {
        change(&mut self.epochs.write())
    }

    /// Looks at the epochs.
    pub(crate) fn with_epochs<T>(&self, look: impl FnOnce(&Epochs) -> T) -> T {
        look(&self.epochs.read())
    }

    /// Looks at the producers.
    pub(crate) fn with_producers<T>(&self, look: impl FnOnce(&ProducerStates) -> T) -> T {
        look(&self.producers.lock())
    }

    /// Changes the producers. Where the first undecided transaction begins follows when the log's
    /// end moves, or with [`Self::refresh_transactions`].
    pub(crate) fn change_producers<T>(&self, change: impl FnOnce(&mut ProducerStates) -> T) -> T {
        change(&mut self.producers.lock())
    }

    /// Finds anew where the first undecided transaction begins.
    pub(crate) fn refresh_transactions(&self) {
        let _guard = self.bounds.lock();
        self.refresh_unstable();
    }

    /// Ends the view: its log was deleted.
    pub(crate) fn set_deleted(&self) {
        let guard = self.bounds.lock();
        self.serving.store(Serving::OFFLINE.to_word(), Ordering::Release);
        self.deleted.store(true, Ordering::Release);
        self.truncations.fetch_add(1, Ordering::AcqRel);
        drop(guard);
        self.notify();
    }

    /// Tells the lease's holder that the log takes no change any more.
    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// What a command of `held` answers when another incarnation counts.
    pub(crate) fn stale(&self, held: u64) -> Error {
        let current = if self.is_deleted() { 0 } else { self.incarnation() };
        Error::StaleLease { log: self.id.to_string(), held, current }
    }
}
