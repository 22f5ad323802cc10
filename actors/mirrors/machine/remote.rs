//! Effects that ask somebody else: the mirror coordinator, the source by way of the mirror's
//! actor, the controller. Each is a task with a deadline and exactly one answer.

use std::sync::Arc;
use std::time::Duration;

use mirror::{
    MirrorEvent, MirrorState, SourceError, SourceEvent, StopEvent, StoreEvent, StoredState,
};
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, Offset, TopicIdPartition};
use protocol::messages::bump_leader_epochs_request::{BumpPartition, BumpTopic};
use protocol::messages::record_mirror_stops_request::{StoppedPartition, StoppedTopic};
use protocol::messages::{BumpLeaderEpochsRequest, RecordMirrorStopsRequest};

use super::MirrorRunner;
use crate::coordinators::mirror_states;
use crate::crash_point::crash_point;
use crate::directory::Directory;
use crate::error::Error;
use crate::mirrors::MirrorHandle;
use crate::runtimes::AbortOnDrop;

/// How long a coordinator may be looked for; the machine tries again after a failure.
const STORE_DEADLINE: Duration = Duration::from_secs(10);

/// How long the source may take for one question.
const SOURCE_DEADLINE: Duration = Duration::from_secs(15);

/// How long the controller may be looked for.
const CONTROLLER_DEADLINE: Duration = Duration::from_secs(10);

/// How long a fetcher may take to let go of a partition.
const STOP_FETCHING_DEADLINE: Duration = Duration::from_secs(30);

/// Pause before a mirror's actor that is not up is looked for again.
const MIRROR_RETRY: Duration = Duration::from_millis(50);

impl MirrorRunner {
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.directory.runtimes.spawn_data(work);
    }

    fn mirror_handle(&self) -> Result<MirrorHandle, SourceError> {
        self.directory.mirror(&self.mirror).ok_or_else(|| SourceError::Other {
            reason: format!("mirror {} is not running on this node yet", self.mirror),
        })
    }

    pub(super) fn read_state(&self) {
        let answer = self.answer();
        let directory = Arc::clone(&self.directory);
        let (mirror, id) = (self.mirror.clone(), self.shared.id());
        self.spawn(async move {
            let read = mirror_states::read(&directory, &mirror, [id], STORE_DEADLINE).await;
            answer(match read.into_values().next() {
                Some(Ok(row)) if is_no_row(&row) => StoreEvent::Read(None),
                Some(Ok(row)) => StoreEvent::Read(Some(row)),
                Some(Err(_)) | None => StoreEvent::ReadFailed,
            });
        });
    }

    pub(super) fn write_state(&self, row: StoredState) {
        if row.state == MirrorState::Stopping {
            crash_point("mirror-stop-write-stopping");
        }
        if row.state == MirrorState::Stopped {
            crash_point("mirror-stop-write-stopped");
        }
        let answer = self.answer();
        let directory = Arc::clone(&self.directory);
        let (mirror, id) = (self.mirror.clone(), self.shared.id());
        let transition = row.transition;
        self.spawn(async move {
            let rows = [(id, row)];
            let written = mirror_states::write(&directory, &mirror, rows, STORE_DEADLINE).await;
            answer(match written.into_values().next() {
                Some(Ok(())) => StoreEvent::Written { transition },
                Some(Err(ErrorCode::FencedLeaderEpoch)) => StoreEvent::Fenced { transition },
                Some(Err(_)) | None => StoreEvent::WriteFailed { transition },
            });
        });
    }

    pub(super) fn ask_source(&self) {
        let answer = self.answer();
        let (handle, partition) = (self.mirror_handle(), self.source_partition());
        self.spawn(async move {
            let facts = match handle {
                Ok(handle) => handle.ask_source(partition, SOURCE_DEADLINE).await,
                Err(error) => Err(error),
            };
            answer(facts.map_or_else(SourceEvent::Failed, SourceEvent::Facts));
        });
    }

    pub(super) fn ask_source_epoch_end(&self, epoch: LeaderEpoch) {
        let answer = self.answer();
        let (handle, partition) = (self.mirror_handle(), self.source_partition());
        self.spawn(async move {
            let end = match handle {
                Ok(handle) => handle.ask_source_epoch_end(partition, epoch, SOURCE_DEADLINE).await,
                Err(error) => Err(error),
            };
            answer(end.map_or_else(SourceEvent::Failed, SourceEvent::EpochEnd));
        });
    }

    pub(super) fn probe_source(&self) {
        let answer = self.answer();
        let handle = self.mirror_handle();
        self.spawn(async move {
            let reached = match handle {
                Ok(handle) => handle.probe(SOURCE_DEADLINE).await,
                Err(error) => Err(error),
            };
            answer(reached.map_or_else(SourceEvent::Failed, |()| SourceEvent::Reached));
        });
    }

    /// Hands the partition to the mirror's fetchers, as soon as the mirror's actor is there.
    pub(super) fn start_fetching(&mut self, leader_epoch: LeaderEpoch) {
        let directory = Arc::clone(&self.directory);
        let (mirror, partition) = (self.mirror.clone(), self.source_partition());
        let task = self.directory.runtimes.spawn_data(async move {
            loop {
                if let Some(handle) = directory.mirror(&mirror) {
                    return handle.start_fetching(partition, leader_epoch);
                }
                tokio::time::sleep(MIRROR_RETRY).await;
            }
        });
        self.fetching = Some(AbortOnDrop::new(task));
    }

    pub(super) fn stop_fetching(&mut self) {
        crash_point("mirror-stop-fetchers");
        self.fetching = None;
        let answer = self.answer();
        let (handle, partition) = (self.mirror_handle(), self.source_partition());
        self.spawn(async move {
            let stopped = match handle {
                Ok(handle) => handle.stop_fetching(partition, STOP_FETCHING_DEADLINE).await,
                // No actor, no fetcher.
                Err(_not_running) => Ok(()),
            };
            match stopped {
                Ok(()) => answer(MirrorEvent::from(StopEvent::FetchingStopped)),
                Err(error) => answer(MirrorEvent::StepFailed { reason: error.to_string() }),
            }
        });
    }

    pub(super) fn bump_leader_epoch(&self, min: LeaderEpoch) {
        if self.machine.state() == MirrorState::Stopping {
            crash_point("mirror-stop-bump");
        }
        let answer = self.answer();
        let directory = Arc::clone(&self.directory);
        let id = self.shared.id();
        self.spawn(async move {
            if let Err(error) = bump(&directory, id, min).await {
                answer(MirrorEvent::StepFailed { reason: error.to_string() });
            }
            // Success is seen as a raised leader epoch in the image.
        });
    }

    pub(super) fn record_stop(
        &self,
        leader_epoch: LeaderEpoch,
        last_mirror_epoch: LeaderEpoch,
        last_mirrored_offset: Offset,
    ) {
        crash_point("mirror-stop-record");
        let answer = self.answer();
        let directory = Arc::clone(&self.directory);
        let id = self.shared.id();
        let stopped = StoppedPartition {
            partition: id.partition.0,
            leader_epoch: leader_epoch.0,
            last_mirror_epoch: last_mirror_epoch.0,
            last_mirrored_offset: last_mirrored_offset.0,
        };
        let request = RecordMirrorStopsRequest {
            mirror: self.mirror.to_string(),
            topics: vec![StoppedTopic { topic_id: id.topic_id.0, partitions: vec![stopped] }],
        };
        self.spawn(async move {
            if let Err(error) = record(&directory, request).await {
                answer(MirrorEvent::StepFailed { reason: error.to_string() });
            }
            // Success is seen as a change of the controller's record.
        });
    }
}

/// A row that nobody wrote reads as UNKNOWN at transition 0.
fn is_no_row(row: &StoredState) -> bool {
    row.state == MirrorState::Unknown && row.transition == 0
}

async fn bump(
    directory: &Arc<Directory>,
    id: TopicIdPartition,
    min: LeaderEpoch,
) -> Result<(), Error> {
    let partition = BumpPartition { partition_index: id.partition.0, min_leader_epoch: min.0 };
    let request = BumpLeaderEpochsRequest {
        topics: vec![BumpTopic { topic_id: id.topic_id.0, partitions: vec![partition] }],
    };
    match directory.call_controller(Request::from(request), CONTROLLER_DEADLINE).await? {
        Response::BumpLeaderEpochs(response) => {
            let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
            let codes = partitions.map(|partition| partition.error_code);
            first_error(std::iter::once(response.error_code).chain(codes), None)
        }
        other => Err(crate::peers::unexpected(&other)),
    }
}

async fn record(
    directory: &Arc<Directory>,
    request: RecordMirrorStopsRequest,
) -> Result<(), Error> {
    match directory.call_controller(Request::from(request), CONTROLLER_DEADLINE).await? {
        Response::RecordMirrorStops(response) => {
            let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
            let codes = partitions.map(|partition| partition.error_code);
            let codes = std::iter::once(response.error_code).chain(codes);
            first_error(codes, response.error_message.clone())
        }
        other => Err(crate::peers::unexpected(&other)),
    }
}

fn first_error(codes: impl Iterator<Item = i16>, message: Option<String>) -> Result<(), Error> {
    match codes.into_iter().find(|code| *code != 0) {
        None => Ok(()),
        Some(code) => {
            let code = ErrorCode::from_code(code);
            let message = message.unwrap_or_else(|| code.message().to_string());
            Err(Error::refused_with(code, format!("the controller refused: {message}")))
        }
    }
}
