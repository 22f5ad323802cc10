//! The follower's part: appending what the leader sent and cutting where the logs part. Which
//! leader to ask is the replica fetcher's business.

use std::sync::Arc;

use log::{LogDir, Origin, ReadView};
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, Offset};
use ractor::RpcReplyPort;

use super::pending::send;
use super::{FollowerPosition, PartitionState, ReplicaAppend, Role};
use crate::error::Error;

type PositionReply = RpcReplyPort<Result<FollowerPosition, Error>>;

impl FollowerPosition {
    /// Where the log of `view` stands.
    pub fn of(view: &ReadView) -> FollowerPosition {
        FollowerPosition { log_end: view.log_end(), last_epoch: view.last_epoch() }
    }
}

impl PartitionState {
    /// Whether this replica still follows in the epoch a fetch was made under.
    fn check_following(&self, fetched_under: LeaderEpoch) -> Result<(), Error> {
        match &self.role {
            Role::Follower { leader_epoch } if *leader_epoch == fetched_under => Ok(()),
            Role::Follower { leader_epoch } => Err(Error::refused_with(
                ErrorCode::FencedLeaderEpoch,
                format!("fetched under leader epoch {fetched_under}, now {leader_epoch}"),
            )),
            Role::Leader(_) | Role::Idle => Err(Error::refused(ErrorCode::FencedLeaderEpoch)),
        }
    }

    pub(super) fn on_replica_append(&mut self, append: ReplicaAppend, reply: PositionReply) {
        let ready =
            self.check_following(append.leader_epoch).and_then(|()| self.directory.log_dir());
        let log_dir = match ready {
            Ok(log_dir) => log_dir,
            Err(error) => return send(reply, Err(error)),
        };
        let view = Arc::clone(&self.lease.view);
        let incarnation = self.lease.incarnation;
        let leader_high_watermark = append.high_watermark;
        let finish = move |view: &ReadView| {
            let end = view.log_end();
            view.advance_high_watermark(incarnation, leader_high_watermark.min(end));
            FollowerPosition::of(view)
        };
        if append.batches.is_empty() {
            send(reply, Ok(finish(&view)));
            return self.raise_log_start(&log_dir, append.log_start);
        }
        let command = log::Append {
            batches: append.batches,
            leader_epoch: append.leader_epoch,
            origin: Origin::Replica,
            now: self.directory.clock.now(),
            crc_verified: false,
        };
        log_dir.append(
            &self.lease,
            command,
            Box::new(move |result| {
                send(reply, result.map(|_| finish(&view)).map_err(Error::from));
            }),
        );
        self.raise_log_start(&log_dir, append.log_start);
    }

    /// Follows the leader's log start, once what came with it is in the log and has moved the high
    /// watermark. One that is above it all the same needs no other try: the leader tells its start
    /// again with the high watermark that allows it.
    fn raise_log_start(&self, log_dir: &LogDir, to: Offset) {
        if to <= self.lease.view.log_start() {
            return;
        }
        let id = self.shared.id();
        let raised = move |result: Result<Offset, log::Error>| {
            if let Err(error) = result {
                tracing::debug!(partition = %id, %to, %error, "the log start waits");
            }
        };
        log_dir.set_log_start(&self.lease, to, Box::new(raised));
    }

    pub(super) fn on_diverged(
        &mut self,
        leader_epoch: LeaderEpoch,
        diverging_epoch: LeaderEpoch,
        end_offset: Offset,
        reply: PositionReply,
    ) {
        if let Err(error) = self.check_following(leader_epoch) {
            return send(reply, Err(error));
        }
        let to = divergence_point(&self.lease.view, diverging_epoch, end_offset);
        self.truncate(to, "the leader's log parts here", reply);
    }

    pub(super) fn on_out_of_range(
        &mut self,
        leader_epoch: LeaderEpoch,
        leader_log_start: Offset,
        leader_log_end: Offset,
        reply: PositionReply,
    ) {
        if let Err(error) = self.check_following(leader_epoch) {
            return send(reply, Err(error));
        }
        let log_end = self.lease.view.log_end();
        if leader_log_end < log_end {
            return self.truncate(leader_log_end, "the leader's log is shorter", reply);
        }
        if leader_log_start <= log_end {
            return send(reply, Ok(FollowerPosition::of(&self.lease.view)));
        }
        tracing::info!(
            partition = %self.shared.id(), %log_end, %leader_log_start,
            "starting over: the leader's log begins above this one's end"
        );
        let view = Arc::clone(&self.lease.view);
        match self.directory.log_dir() {
            Ok(log_dir) => log_dir.reset(
                &self.lease,
                leader_log_start,
                Box::new(move |result| {
                    let position = result.map(|_| FollowerPosition::of(&view));
                    send(reply, position.map_err(Error::from));
                }),
            ),
            Err(error) => send(reply, Err(error)),
        }
    }

    /// Cuts the log at `to` and answers with where it stands then.
    pub(super) fn truncate(&mut self, to: Offset, why: &'static str, reply: PositionReply) {
        let view = Arc::clone(&self.lease.view);
        let log_dir = match self.directory.log_dir() {
            Ok(log_dir) => log_dir,
            Err(error) => return send(reply, Err(error)),
        };
        let (id, topic) = (self.shared.id(), self.shared.topic.clone());
        log_dir.truncate(
            &self.lease,
            to,
            Box::new(move |result| {
                if let Ok(cut) = &result {
                    let records = cut.records_cut;
                    tracing::info!(partition = %id, %topic, %to, records, why, "truncated");
                }
                let position = result.map(|_| FollowerPosition::of(&view));
                send(reply, position.map_err(Error::from));
            }),
        );
    }
}

/// Where a log has to be cut, given the other side's largest epoch not above ours and its end
/// there (KIP-595): the smaller of both ends if we know that epoch too, else the end of our
/// largest epoch below it, so that the next round compares further down.
pub fn divergence_point(view: &ReadView, epoch: LeaderEpoch, end_offset: Offset) -> Offset {
    let log_end = view.log_end();
    let log_start = view.log_start();
    let point = match view.end_offset_for_epoch(epoch) {
        Some((ours, end)) if ours == epoch => end.min(end_offset),
        Some((_smaller, end)) => end,
        None => end_offset,
    };
    point.min(log_end).max(log_start)
}
