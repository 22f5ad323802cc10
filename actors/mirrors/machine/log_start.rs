//! The log start of a mirror partition follows the source's until STOPPED (D21). Owns what the
//! source said and could not be followed yet; the followers learn of it as of any log start.

use mirror::MirrorState;
use protocol::ids::Offset;

use super::{MirrorInput, MirrorRunner};
use crate::partition::PartitionMsg;

/// The source's log start, until the log here begins there.
#[derive(Debug, Default)]
pub(super) struct SourceStart {
    /// Still to be followed: the high watermark has to reach it.
    wanted: Option<Offset>,
    /// The last one that was said to wait.
    told: Option<Offset>,
}

impl MirrorRunner {
    /// The source's log starts there.
    pub fn on_source_start(&mut self, start: Offset) {
        if start > self.lease.view.log_start() {
            self.source_start.wanted = self.source_start.wanted.max(Some(start));
        }
        self.follow_source_start();
    }

    /// Raises the log start to the source's once that is not above the high watermark.
    pub(super) fn follow_source_start(&mut self) {
        let Some(wanted) = self.source_start.wanted else {
            return;
        };
        // Whoever fetches next is told again, and a stopped topic keeps what it has.
        if self.machine.state() != MirrorState::Mirroring {
            self.source_start.wanted = None;
            return;
        }
        let high_watermark = self.lease.view.high_watermark();
        if wanted > high_watermark {
            return self.wait_for(wanted, high_watermark);
        }
        self.source_start.wanted = None;
        let Ok(log_dir) = self.directory.log_dir() else {
            return;
        };
        let (partition, generation) = (self.partition.clone(), self.generation);
        let (id, topic) = (self.shared.id(), self.shared.topic.clone());
        let raised = move |result: Result<Offset, log::Error>| match result {
            Ok(start) => tracing::debug!(partition = %id, %topic, %start, "the log start rose"),
            // The log was cut meanwhile.
            Err(log::Error::OffsetOutOfRange { end, .. }) => {
                let refused =
                    MirrorInput::LogStartRefused { generation, wanted, high_watermark: end };
                if partition.cast(PartitionMsg::Mirror(refused)).is_err() {
                    tracing::trace!("the partition's actor is gone");
                }
            }
            Err(error) => {
                tracing::warn!(
                    partition = %id, %topic, source_log_start = %wanted, %error,
                    "the log start does not follow the source's"
                );
            }
        };
        log_dir.set_log_start(&self.lease, wanted, Box::new(raised));
    }

    /// The writer refused a start that the source has: it is tried again when the high watermark
    /// moves.
    pub(super) fn on_log_start_refused(&mut self, wanted: Offset, high_watermark: Offset) {
        self.source_start.wanted = self.source_start.wanted.max(Some(wanted));
        self.wait_for(wanted, high_watermark);
    }

    fn wait_for(&mut self, wanted: Offset, high_watermark: Offset) {
        if self.source_start.told.replace(wanted) != Some(wanted) {
            tracing::info!(
                partition = %self.shared.id(), topic = %self.shared.topic,
                source_log_start = %wanted, %high_watermark,
                "the source's log start lies above the high watermark: followed when that rises"
            );
        }
    }
}
