//! The leader's ordered list of answers that wait for the high watermark. It never looks at time:
//! a caller whose deadline passed has closed its end, and its entry goes with the next visit.

use std::collections::VecDeque;

use protocol::error_code::ErrorCode;
use protocol::ids::Offset;
use ractor::RpcReplyPort;

use crate::admission::AppendPermit;
use crate::error::Error;
use crate::partition::{Acks, AppendResult};

/// One acks=all answer.
#[derive(Debug)]
struct Pending {
    /// The high watermark that commits it: one past its last offset.
    committed_at: Offset,
    acks: Acks,
    result: AppendResult,
    reply: RpcReplyPort<Result<AppendResult, Error>>,
    /// Held until the answer is given: what bounds this list.
    _permit: AppendPermit,
}

/// Answers in the order of their offsets.
#[derive(Debug, Default)]
pub struct PendingAcks {
    entries: VecDeque<Pending>,
}

impl PendingAcks {
    /// Adds the answer of an append that ends at `result.last_offset`.
    pub fn push(
        &mut self,
        acks: Acks,
        result: AppendResult,
        reply: RpcReplyPort<Result<AppendResult, Error>>,
        permit: AppendPermit,
    ) {
        let committed_at = Offset(result.last_offset.0 + 1);
        let entry = Pending { committed_at, acks, result, reply, _permit: permit };
        // A duplicate of an earlier batch is answered with that batch's offsets.
        let place = self.entries.partition_point(|other| other.committed_at <= committed_at);
        self.entries.insert(place, entry);
    }

    /// Answers everything the high watermark has passed. It may have passed because a member left
    /// the ISR: unless there are `enough` left for min.insync.replicas, what had to reach so many
    /// is in the log and not acknowledged.
    pub fn complete_up_to(&mut self, high_watermark: Offset, enough: bool) {
        while self.entries.front().is_some_and(|entry| entry.committed_at <= high_watermark) {
            if let Some(entry) = self.entries.pop_front() {
                let answer = if enough || entry.acks != Acks::All {
                    Ok(entry.result)
                } else {
                    Err(Error::refused(ErrorCode::NotEnoughReplicasAfterAppend))
                };
                send(entry.reply, answer);
            }
        }
    }

    /// Answers everything with one error: leadership is lost, or the log closed.
    pub fn fail_all(&mut self, error: &Error) {
        for entry in self.entries.drain(..) {
            send(entry.reply, Err(error.clone()));
        }
    }

    /// Answers everything that is not committed with an error and keeps nothing of it.
    pub fn drop_abandoned(&mut self) {
        self.entries.retain(|entry| !entry.reply.is_closed());
    }

    /// How many answers wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no answer waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Sends an answer; a caller that stopped waiting is no fault.
pub fn send<T: Send + 'static>(reply: RpcReplyPort<T>, answer: T) {
    if reply.send(answer).is_err() {
        tracing::trace!("the caller no longer waits for its answer");
    }
}
