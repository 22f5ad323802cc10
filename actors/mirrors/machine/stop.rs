//! The steps of a failover that write to the log: ABORT markers, the search for an earlier reset,
//! and MIRROR_PID_RESET. Each waits until the whole ISR has it and is never refused for too few
//! in-sync replicas (D10).

use std::sync::Arc;
use std::time::Duration;

use log::{Origin, ReadMode, ReadUpTo, ReadView};
use mirror::{MirrorEvent, StopEvent};
use protocol::batch;
use protocol::control::{
    ControlRecord, EndTransactionMarker, TransactionEnd, end_transaction_marker, mirror_pid_reset,
};
use protocol::ids::{LeaderEpoch, Offset};
use ractor::RpcReplyPort;

use super::MirrorRunner;
use crate::admission::AppendPermit;
use crate::crash_point::crash_point;
use crate::error::Error;
use crate::partition::{Acks, Append, AppendResult, PartitionState};

/// How long the ISR may take to have a control batch; the machine tries again after that.
const COMMIT_DEADLINE: Duration = Duration::from_secs(30);

/// Bytes read at a time in the search for a reset.
const SEARCH_BYTES: usize = 1024 * 1024;

impl MirrorRunner {
    /// One ABORT marker for every transaction that is open at the end of what was mirrored.
    pub(super) fn append_aborts(&mut self, partition: &mut PartitionState) {
        crash_point("mirror-stop-aborts");
        let markers = self.abort_markers();
        if !markers.is_empty() {
            let producers: Vec<i64> = markers.iter().map(|m| m.producer_id.0).collect();
            tracing::warn!(
                topic = %self.shared.topic, partition = %self.shared.partition, ?producers,
                "aborting transactions that were open when mirroring ended"
            );
        }
        let appends: Vec<_> = markers
            .iter()
            .map(|marker| append_control(partition, end_transaction_marker(marker)))
            .collect();
        crash_point("mirror-stop-aborts-appended");
        let (answer, done) = (self.answer(), self.answer_once_committed());
        self.directory.runtimes.spawn_data(async move {
            for append in appends {
                if let Err(error) = committed(append).await {
                    return answer(MirrorEvent::StepFailed { reason: error.to_string() });
                }
            }
            done(StopEvent::AbortsAppended.into());
        });
    }

    fn abort_markers(&self) -> Vec<EndTransactionMarker> {
        let view = &self.lease.view;
        let producers = view.producers();
        let now = self.directory.clock.now();
        let mut open = view.open_transactions();
        open.sort_unstable_by_key(|open| open.first_offset);
        open.iter()
            .map(|open| {
                let entry = producers.iter().find(|(id, _)| *id == open.producer_id);
                EndTransactionMarker {
                    end: TransactionEnd::Abort,
                    producer_id: open.producer_id,
                    producer_epoch: entry.map_or(open.producer_epoch, |(_, entry)| entry.epoch),
                    coordinator_epoch: entry
                        .map_or(0, |(_, entry)| entry.coordinator_epoch.max(0)),
                    timestamp: now,
                }
            })
            .collect()
    }

    /// Looks for the newest reset from `from` on, away from the actor's turn.
    pub(super) fn find_reset(&self, from: Offset) {
        crash_point("mirror-stop-find-reset");
        let view = Arc::clone(&self.lease.view);
        let (answer, done) = (self.answer(), self.answer_once_committed());
        self.directory.runtimes.spawn_data(async move {
            let searched = tokio::task::spawn_blocking(move || newest_reset(&view, from)).await;
            match searched {
                Ok(Ok(epoch)) => done(StopEvent::ResetSearched { epoch }.into()),
                Ok(Err(error)) => answer(MirrorEvent::StepFailed { reason: error.to_string() }),
                Err(error) => answer(MirrorEvent::StepFailed { reason: error.to_string() }),
            }
        });
    }

    pub(super) fn append_reset(&mut self, partition: &mut PartitionState) {
        crash_point("mirror-stop-reset");
        let image = self.directory.image();
        let source = image.mirrors.source_cluster_id(&self.mirror).unwrap_or_default();
        let batch = mirror_pid_reset(source, self.directory.clock.now());
        let append = append_control(partition, batch);
        crash_point("mirror-stop-reset-appended");
        let (answer, done) = (self.answer(), self.answer_once_committed());
        self.directory.runtimes.spawn_data(async move {
            match committed(append).await {
                Ok(()) => done(StopEvent::ResetAppended.into()),
                Err(error) => answer(MirrorEvent::StepFailed { reason: error.to_string() }),
            }
        });
    }
}

type Answer = tokio::sync::oneshot::Receiver<Result<AppendResult, Error>>;

fn append_control(partition: &mut PartitionState, batches: bytes::Bytes) -> Answer {
    let (sender, answer) = tokio::sync::oneshot::channel();
    let append = Append {
        batches,
        origin: Origin::Coordinator,
        acks: Acks::IsrOnly,
        expected_epoch: None,
        permit: AppendPermit::internal(),
    };
    partition.on_append(append, RpcReplyPort::from(sender));
    answer
}

async fn committed(answer: Answer) -> Result<(), Error> {
    let no_answer = || Error::NoAnswer { what: "the in-sync replicas" };
    let answer = tokio::time::timeout(COMMIT_DEADLINE, answer).await.map_err(|_| no_answer())?;
    answer.map_err(|_| no_answer())?.map(|_| ())
}

fn newest_reset(view: &ReadView, from: Offset) -> Result<LeaderEpoch, log::Error> {
    let mut newest = LeaderEpoch::NONE;
    let mut at = from.max(view.log_start());
    while at < view.log_end() {
        let read = view.read(at, SEARCH_BYTES, ReadUpTo::LogEnd, true, ReadMode::MayBlock)?;
        if read.next_offset <= at {
            break;
        }
        at = read.next_offset;
        for found in batch::split(read.bytes).flatten().filter(|b| b.header.is_control()) {
            if let Ok(Some(ControlRecord::MirrorPidReset { .. })) = ControlRecord::of_batch(&found)
            {
                newest = found.header.leader_epoch;
            }
        }
    }
    Ok(newest)
}
