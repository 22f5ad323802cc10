//! Carrying out what the mirror machine asks for. What needs somebody else runs as a task and
//! comes back as an answer; what the partition itself knows is answered at once.

use std::time::Duration;

use mirror::epochs::EpochEnd;
use mirror::{LogEvent, MirrorEffect, MirrorEvent, MirrorState};
use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

use super::{MirrorInput, MirrorRunner};
use crate::crash_point::crash_point;
use crate::partition::{PartitionMsg, PartitionState};

impl MirrorRunner {
    /// Carries out one effect. What is known at once is returned as the next event.
    pub(super) fn execute(
        &mut self,
        partition: &mut PartitionState,
        effect: MirrorEffect,
    ) -> Option<MirrorEvent> {
        match effect {
            MirrorEffect::ReadState => self.read_state(),
            MirrorEffect::WriteState(row) => self.write_state(row),
            MirrorEffect::Announce { from, to, reason } => self.announce(from, to, reason),
            MirrorEffect::ReadLog => return Some(LogEvent::Facts(self.facts()).into()),
            MirrorEffect::AskSource => self.ask_source(),
            MirrorEffect::AskSourceEpochEnd { epoch } => self.ask_source_epoch_end(epoch),
            MirrorEffect::FindEpochEnd { epoch } => {
                return Some(LogEvent::EpochEnd(self.epoch_end(epoch)).into());
            }
            MirrorEffect::Truncate { to } => self.truncate(to),
            MirrorEffect::Reset { start } => self.reset(start),
            MirrorEffect::ReportGap { from, to } => self.report_gap(from, to),
            MirrorEffect::AwaitFollowers { end } => {
                self.awaited.followers = Some(end);
                self.poke(MirrorInput::FollowersMoved);
            }
            MirrorEffect::BumpLeaderEpoch { min } => self.bump_leader_epoch(min),
            MirrorEffect::StartFetching { leader_epoch } => self.start_fetching(leader_epoch),
            MirrorEffect::StopFetching => self.stop_fetching(),
            MirrorEffect::ProbeSource => self.probe_source(),
            MirrorEffect::AwaitHighWatermark => {
                crash_point("mirror-stop-await-high-watermark");
                self.awaited.high_watermark = true;
                self.poke(MirrorInput::HighWatermarkMoved);
            }
            MirrorEffect::ShrinkIsr => partition.on_tick(),
            MirrorEffect::AppendAborts => self.append_aborts(partition),
            MirrorEffect::FindReset { from } => self.find_reset(from),
            MirrorEffect::AppendReset => self.append_reset(partition),
            MirrorEffect::RecordStop { leader_epoch, last_mirror_epoch, last_mirrored_offset } => {
                self.record_stop(leader_epoch, last_mirror_epoch, last_mirrored_offset);
            }
            MirrorEffect::AllowWrites => partition.start_epoch(self.leader_epoch),
            // The machine's own state refuses them; nothing is cached anywhere else.
            MirrorEffect::DenyWrites => {}
            MirrorEffect::SetTimer { at } => self.set_timer(at),
            MirrorEffect::CancelTimer => self.timer += 1,
        }
        None
    }

    fn announce(&self, from: MirrorState, to: MirrorState, reason: Option<String>) {
        if to == MirrorState::Stopping {
            crash_point("mirror-stop-stopping-written");
        }
        if to == MirrorState::Stopped {
            crash_point("mirror-stop-stopped-written");
        }
        let (from, to) = (from.name(), to.name());
        let reason = reason.unwrap_or_default();
        tracing::info!(
            topic = %self.shared.topic, partition = %self.shared.partition,
            mirror = %self.mirror, leader_epoch = %self.leader_epoch, reason, "{from} → {to}"
        );
    }

    /// The largest epoch of our log at most `asked`, and its end.
    fn epoch_end(&self, asked: LeaderEpoch) -> Option<EpochEnd> {
        let view = &self.lease.view;
        let newest = view.last_epoch();
        let (epoch, end_offset) = if newest >= LeaderEpoch(0) && asked >= newest {
            (newest, view.log_end())
        } else {
            view.end_offset_for_epoch(asked)?
        };
        Some(EpochEnd { epoch, end_offset })
    }

    fn truncate(&mut self, to: Offset) {
        let (id, topic) = (self.shared.id(), self.shared.topic.clone());
        let mirror = self.mirror.clone();
        let answer = self.answer();
        let truncated = move |result: Result<log::Truncated, log::Error>| match result {
            Ok(cut) => {
                let records = cut.records_cut;
                if records > 0 {
                    tracing::warn!(
                        partition = %id, %topic, %mirror, %to, records,
                        "cut what the source does not have"
                    );
                }
                answer(MirrorEvent::from(LogEvent::Truncated {
                    log_end: cut.log_end,
                    records_cut: i64::try_from(records).unwrap_or(i64::MAX),
                }));
            }
            Err(error) => answer(MirrorEvent::StepFailed { reason: error.to_string() }),
        };
        match self.directory.log_dir() {
            Ok(log_dir) => log_dir.truncate(&self.lease, to, Box::new(truncated)),
            Err(error) => self.fail_step(&error.to_string()),
        }
    }

    fn reset(&mut self, start: Offset) {
        let answer = self.answer();
        let was = self.lease.view.log_end();
        let kept_from = self.lease.view.log_start();
        let reset = move |result: Result<log::Truncated, log::Error>| match result {
            Ok(cut) => {
                let span = (was.0 - kept_from.0).max(0);
                let cut_records = i64::try_from(cut.records_cut).unwrap_or(span);
                let log_end = cut.log_end;
                answer(LogEvent::Truncated { log_end, records_cut: cut_records }.into());
            }
            Err(error) => answer(MirrorEvent::StepFailed { reason: error.to_string() }),
        };
        match self.directory.log_dir() {
            Ok(log_dir) => log_dir.reset(&self.lease, start, Box::new(reset)),
            Err(error) => self.fail_step(&error.to_string()),
        }
    }

    fn report_gap(&self, from: Offset, to: Offset) {
        tracing::warn!(
            topic = %self.shared.topic, partition = %self.shared.partition,
            mirror = %self.mirror, %from, %to, offsets = to.0 - from.0,
            "a gap: the source deleted these offsets before they were copied"
        );
    }

    fn set_timer(&mut self, at: TimestampMs) {
        self.timer += 1;
        let (generation, timer) = (self.generation, self.timer);
        let wait = at.0.saturating_sub(self.directory.clock.now().0);
        let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(0));
        self.partition.send_after(wait, move || {
            PartitionMsg::Mirror(MirrorInput::Timer { generation, timer })
        });
    }

    /// Has something looked at after this turn.
    fn poke(&self, input: MirrorInput) {
        if self.partition.cast(PartitionMsg::Mirror(input)).is_err() {
            tracing::trace!("the partition's actor is gone");
        }
    }

    pub(super) fn fail_step(&self, reason: &str) {
        self.answer()(MirrorEvent::StepFailed { reason: reason.to_string() });
    }

    /// What a task calls with the answer to an effect.
    pub(super) fn answer<E: Into<MirrorEvent>>(&self) -> impl Fn(E) + Send + 'static + use<E> {
        let partition = self.partition.clone();
        let generation = self.generation;
        move |event: E| {
            let input = MirrorInput::Answer { generation, event: event.into() };
            if partition.cast(PartitionMsg::Mirror(input)).is_err() {
                tracing::trace!("the partition's actor is gone");
            }
        }
    }

    /// As [`MirrorRunner::answer`], for an answer that means that the whole log is committed.
    pub(super) fn answer_once_committed(&self) -> impl Fn(MirrorEvent) + Send + 'static + use<> {
        let partition = self.partition.clone();
        let generation = self.generation;
        move |event| {
            let input = MirrorInput::AnswerOnceCommitted { generation, event };
            if partition.cast(PartitionMsg::Mirror(input)).is_err() {
                tracing::trace!("the partition's actor is gone");
            }
        }
    }
}
