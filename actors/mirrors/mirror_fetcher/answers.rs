//! What a source's answer means for one partition: batches to append, a leader to follow, an error
//! to tell. Owns the handling of each result (spec 4.8, D9, D12); sends no request but the
//! question for a log's bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use mirror::{FetchEvent, SourceError, SourceEvent};
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, Offset, PartitionIndex, TopicId, TopicIdPartition};
use protocol::messages::fetch_response::PartitionData;
use ractor::RpcReplyPort;

use super::{Answer, FetcherReport, MirrorFetcherMsg, MirrorFetcherState};
use crate::error::Error;
use crate::mirrors::batches::{self, Halt};
use crate::mirrors::source::{self, Failure};
use crate::mirrors::survey::SourceLeader;
use crate::partition::FollowerPosition;
use crate::partition::pending::send;
use crate::runtimes::AbortOnDrop;

/// How long a partition may take to append.
const APPEND_DEADLINE: Duration = Duration::from_secs(30);

/// How long the question for a log's bounds may take.
const BOUNDS_DEADLINE: Duration = Duration::from_secs(10);

/// Appends that may fail in a row, for a position that was not the log's end, before it is told.
const FAILURES_MAX: u32 = 5;

/// First and longest wait after an append that failed.
const APPEND_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// An append under way.
#[derive(Debug)]
pub(super) struct Outstanding {
    /// Who waits until it is over.
    pub(super) waiters: Vec<RpcReplyPort<()>>,
    /// The request whose answer it is.
    number: u64,
    high_watermark: Offset,
    /// The highest epoch among the batches.
    epoch: LeaderEpoch,
    halt: Option<Halt>,
    _task: AbortOnDrop,
}

impl MirrorFetcherState {
    pub(super) fn take_partitions(&mut self, answer: Answer) {
        let ids: BTreeMap<String, TopicId> = if answer.by_id {
            BTreeMap::new()
        } else {
            let named = self.partitions.values().map(|assigned| &assigned.partition);
            named.map(|partition| (partition.topic.to_string(), partition.topic_id)).collect()
        };
        for topic in answer.response.responses {
            let topic_id = if answer.by_id {
                TopicId(topic.topic_id)
            } else if let Some(id) = ids.get(&topic.topic) {
                *id
            } else {
                continue;
            };
            for data in topic.partitions {
                let partition = PartitionIndex(data.partition_index);
                self.take_partition(TopicIdPartition { topic_id, partition }, data);
            }
        }
    }

    fn take_partition(&mut self, id: TopicIdPartition, data: PartitionData) {
        let number = self.number;
        let current = self.partitions.get(&id);
        if current.is_none_or(|assigned| assigned.parked || assigned.valid_from > number) {
            return;
        }
        let leader = Some(data.current_leader.leader_id).filter(|leader| *leader >= 0);
        let leader = leader.map(|broker| SourceLeader {
            broker: Some(broker),
            epoch: LeaderEpoch(data.current_leader.leader_epoch),
        });
        match ErrorCode::from_code(data.error_code) {
            ErrorCode::None if data.diverging_epoch.epoch >= 0 => {
                let epoch = LeaderEpoch(data.diverging_epoch.epoch);
                let end_offset = Offset(data.diverging_epoch.end_offset);
                self.end(id, FetchEvent::Diverged { epoch, end_offset });
            }
            ErrorCode::None => self.take_records(id, data),
            ErrorCode::OffsetOutOfRange => self.ask_bounds(id),
            ErrorCode::NotLeaderOrFollower
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownLeaderEpoch
            | ErrorCode::UnknownTopicId
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::InconsistentTopicId => self.follow(id, leader),
            ErrorCode::TopicAuthorizationFailed => self.lacks_right(id),
            ErrorCode::CorruptMessage => self.refused(id, ErrorCode::CorruptMessage),
            code if code.is_retriable() => self.hold_back(id),
            code => self.refused(id, code),
        }
    }

    /// Ends a partition's fetching with an event; its machine starts it again.
    fn end(&mut self, id: TopicIdPartition, event: impl Into<mirror::MirrorEvent>) {
        self.park(id);
        if let Some(assigned) = self.partitions.get(&id) {
            self.tell(id, assigned.leader_epoch, event);
        }
    }

    fn refused(&mut self, id: TopicIdPartition, code: ErrorCode) {
        let reason = format!("Fetch at the source: {} ({})", code.message(), code.code());
        self.end(id, SourceEvent::Failed(SourceError::Other { reason }));
    }

    fn lacks_right(&mut self, id: TopicIdPartition) {
        let Some(assigned) = self.partitions.get(&id) else {
            return;
        };
        let right = format!("READ on topic {}", assigned.partition.topic);
        self.end(id, SourceEvent::Failed(SourceError::NotAuthorized { right }));
    }

    fn hold_back(&mut self, id: TopicIdPartition) {
        self.session.hold(id, true);
        let pause = self.directory.config.mirror_fetch.backoff;
        self.wait_out(id, pause);
    }

    /// Goes on under the leader that the broker named, here or elsewhere.
    fn follow(&mut self, id: TopicIdPartition, leader: Option<SourceLeader>) {
        let Some(assigned) = self.partitions.get_mut(&id) else {
            return;
        };
        let leader_epoch = assigned.leader_epoch;
        if let Some(SourceLeader { broker, epoch }) = leader
            && broker == Some(self.id.broker)
            && epoch > assigned.source_epoch
        {
            assigned.source_epoch = epoch;
            self.tell(id, leader_epoch, FetchEvent::EpochSeen { epoch });
            return self.restart_partition(id);
        }
        // A broker that names itself in the epoch it refused is behind.
        let elsewhere = leader.filter(|leader| leader.broker != Some(self.id.broker));
        self.park(id);
        let report = FetcherReport::Moved { partition: id, leader_epoch, leader: elsewhere };
        self.report(report);
    }

    fn take_records(&mut self, id: TopicIdPartition, data: PartitionData) {
        let (Some(assigned), Some(position)) =
            (self.partitions.get(&id), self.session.position(id).cloned())
        else {
            return;
        };
        let records = data.records.unwrap_or_default();
        let seen = batches::inspect(&records, position.offset, assigned.leader_epoch);
        let high_watermark = Offset(data.high_watermark);
        let source_start = Offset(data.log_start_offset);
        if let Some((offset, epoch)) = seen.next {
            let mut next = position;
            (next.offset, next.last_fetched_epoch) = (offset, epoch);
            self.session.set(id, next);
        }
        if seen.halt.is_some() {
            self.park(id);
        }
        let start_moved = self
            .directory
            .partition(id)
            .and_then(|partition| partition.shared().view())
            .is_some_and(|view| source_start > view.log_start());
        if seen.append.is_empty() && !start_moved {
            self.succeeded(id, high_watermark, None, LeaderEpoch::NONE);
            self.halt(id, seen.halt);
            return;
        }
        let task = self.append(id, seen.append, source_start);
        let outstanding = Outstanding {
            waiters: Vec::new(),
            number: self.number,
            high_watermark,
            epoch: seen.epoch,
            halt: seen.halt,
            _task: task,
        };
        self.outstanding.insert(id, outstanding);
    }

    fn append(&self, id: TopicIdPartition, batches: Bytes, source_start: Offset) -> AbortOnDrop {
        let partition = self.directory.partition(id);
        let myself = self.myself.clone();
        let task = self.directory.runtimes.spawn_data(async move {
            let result = match partition {
                Some(partition) => {
                    partition.mirror_append(batches, source_start, APPEND_DEADLINE).await
                }
                None => Err(Error::NoAnswer { what: "the partition" }),
            };
            if myself.cast(MirrorFetcherMsg::Appended(id, result)).is_err() {
                tracing::trace!("the fetcher is gone");
            }
        });
        AbortOnDrop::new(task)
    }

    pub(super) fn on_appended(
        &mut self,
        id: TopicIdPartition,
        result: Result<FollowerPosition, Error>,
    ) {
        let Some(outstanding) = self.outstanding.remove(&id) else {
            return;
        };
        let Outstanding { waiters, number, high_watermark, epoch, halt, _task } = outstanding;
        waiters.into_iter().for_each(|reply| send(reply, ()));
        match self.partitions.get(&id).map(|assigned| assigned.valid_from) {
            Some(valid_from) if valid_from <= number => match result {
                Ok(position) => {
                    self.succeeded(id, high_watermark, Some(position.log_end), epoch);
                    self.halt(id, halt);
                }
                Err(error) => self.on_append_failed(id, &error),
            },
            // It was assigned again meanwhile: only now is its log's end known.
            Some(_) => self.position(id),
            None => {}
        }
        if self.outstanding.is_empty() {
            self.on_appends_done();
        }
    }

    /// Notes what an answer said of a partition once what it brought is in the log.
    fn succeeded(
        &mut self,
        id: TopicIdPartition,
        high_watermark: Offset,
        log_end: Option<Offset>,
        epoch: LeaderEpoch,
    ) {
        let log_end = log_end.or_else(|| {
            let view = self.directory.partition(id)?.shared().view()?;
            Some(view.log_end())
        });
        if let Some(log_end) = log_end {
            let now = self.directory.clock.now();
            self.shared.offsets.observe(id, high_watermark, log_end, now, &self.last_answer);
        }
        let Some(assigned) = self.partitions.get_mut(&id) else {
            return;
        };
        assigned.failures = 0;
        let leader_epoch = assigned.leader_epoch;
        let first = !std::mem::replace(&mut assigned.told_success, true);
        let news = epoch > assigned.told_epoch;
        assigned.told_epoch = assigned.told_epoch.max(epoch);
        if first {
            self.tell(id, leader_epoch, FetchEvent::Succeeded);
        }
        if news {
            self.tell(id, leader_epoch, FetchEvent::EpochSeen { epoch });
        }
    }

    /// Tells why the rest of an answer was not appended.
    fn halt(&mut self, id: TopicIdPartition, halt: Option<Halt>) {
        match halt {
            None => {}
            Some(Halt::EpochTooHigh(epoch)) => self.end(id, FetchEvent::EpochTooHigh { epoch }),
            Some(Halt::OldFormat) => self.end(id, SourceEvent::Failed(SourceError::OldFormat)),
            Some(Halt::Corrupt(reason)) => {
                self.end(id, SourceEvent::Failed(SourceError::Other { reason }));
            }
        }
    }

    fn on_append_failed(&mut self, id: TopicIdPartition, error: &Error) {
        tracing::debug!(mirror = %self.shared.name, partition = %id, %error, "append failed");
        match error {
            Error::Log(fault) => match &**fault {
                log::Error::EpochAboveLeader { epoch, .. } => {
                    self.end(id, FetchEvent::EpochTooHigh { epoch: *epoch });
                }
                log::Error::UnsupportedMagic { .. } => {
                    self.end(id, SourceEvent::Failed(SourceError::OldFormat));
                }
                fault => {
                    // A log that was cut or taken by a successor has another end than it had.
                    let moved = fault.error_code() == ErrorCode::NotLeaderOrFollower
                        || matches!(fault, log::Error::NotContiguous { .. });
                    self.on_log_refused(id, moved, fault.to_string());
                }
            },
            // The machine is not MIRRORING: it starts the fetching again when it is.
            Error::Refused { code: ErrorCode::PolicyViolation, .. } => self.park(id),
            Error::Refused { .. } | Error::NoAnswer { .. } | Error::Unreachable { .. } => {
                self.try_again(id);
            }
        }
    }

    fn on_log_refused(&mut self, id: TopicIdPartition, moved: bool, reason: String) {
        let failures = self.partitions.get(&id).map_or(0, |assigned| assigned.failures);
        if moved && failures < FAILURES_MAX {
            return self.try_again(id);
        }
        self.end(id, SourceEvent::Failed(SourceError::Other { reason }));
    }

    /// Goes on from where the log is found to end, after a while that grows.
    fn try_again(&mut self, id: TopicIdPartition) {
        let Some(assigned) = self.partitions.get_mut(&id) else {
            return;
        };
        let doubled = APPEND_BACKOFF.0.saturating_mul(1 << assigned.failures.min(10));
        assigned.failures = assigned.failures.saturating_add(1);
        // Whatever is in flight was asked for a position that the log did not reach.
        assigned.valid_from = self.number + 1;
        self.session.hold(id, true);
        self.wait_out(id, doubled.min(APPEND_BACKOFF.1));
    }

    /// Our log end is outside of the source's log: asks where that begins and ends.
    fn ask_bounds(&mut self, id: TopicIdPartition) {
        let Some(assigned) = self.partitions.get_mut(&id) else {
            return;
        };
        assigned.valid_from = self.number + 1;
        let (partition, valid_from) = (assigned.partition.clone(), assigned.valid_from);
        self.session.hold(id, true);
        let (client, broker, myself) = (self.client.clone(), self.id.broker, self.myself.clone());
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(async move {
            let bounds = source::log_bounds(client, partition, broker, BOUNDS_DEADLINE).await;
            let message = MirrorFetcherMsg::BoundsFound { partition: id, valid_from, bounds };
            if myself.cast(message).is_err() {
                tracing::trace!("the fetcher is gone");
            }
        });
    }

    pub(super) fn on_bounds_found(
        &mut self,
        id: TopicIdPartition,
        valid_from: u64,
        bounds: Result<(Offset, Offset), Failure>,
    ) {
        if self.partitions.get(&id).is_none_or(|assigned| assigned.valid_from != valid_from) {
            return;
        }
        let view = self.directory.partition(id).and_then(|partition| partition.shared().view());
        match (bounds, view) {
            (Ok((source_start, source_end)), Some(view)) => {
                let (log_start, log_end) = (view.log_start(), view.log_end());
                let event =
                    FetchEvent::OutOfRange { source_start, source_end, log_start, log_end };
                self.end(id, event);
            }
            (Err(Failure::Source(SourceError::NotLeader)), _) => self.follow(id, None),
            (Err(Failure::Source(error)), _) => self.end(id, SourceEvent::Failed(error)),
            (Err(Failure::Link(_)), _) | (Ok(_), None) => self.hold_back(id),
        }
    }
}
