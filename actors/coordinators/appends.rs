//! The appends of one shard that are under way: their batches, and the order in which they are
//! reported. It appends nothing itself.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use coordinator::{Record, Token};
use protocol::batch::BatchBuilder;
use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use tokio::sync::watch;

use crate::error::Error;

/// Bytes of records that one batch takes before the next is begun.
const BATCH_RECORD_BYTES_MAX: usize = 512 * 1024;

/// Writes records as batches: one, or more where they are too big for one.
pub fn batches(records: &[Record], now: TimestampMs) -> Bytes {
    let mut out = BytesMut::new();
    let mut batch = BatchBuilder::new();
    for record in records {
        let bytes = record.key.len() + record.value.as_ref().map_or(0, Bytes::len);
        if batch.count() > 0 && batch.records_len() + bytes > BATCH_RECORD_BYTES_MAX {
            out.extend_from_slice(&std::mem::take(&mut batch).build());
        }
        batch.append(now, Some(&record.key), record.value.as_deref(), &[]);
    }
    if out.is_empty() {
        return batch.build();
    }
    out.extend_from_slice(&batch.build());
    out.freeze()
}

/// How an append ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is below the high watermark.
    Committed,
    /// Nothing was written.
    Refused(ErrorCode),
    /// It may have been written, and then it stays: the shard has to read the log again.
    Unknown(ErrorCode),
}

impl Outcome {
    /// What an answer of the partition means.
    pub fn of<T>(result: &Result<T, Error>) -> Outcome {
        let error = match result {
            Ok(_) => return Outcome::Committed,
            Err(error) => error,
        };
        let code = error.code();
        // Only these are said before anything is written, and by nobody else.
        if matches!(
            code,
            ErrorCode::NotEnoughReplicas | ErrorCode::MessageTooLarge | ErrorCode::CorruptMessage
        ) {
            Outcome::Refused(code)
        } else {
            Outcome::Unknown(code)
        }
    }
}

/// Reports in the order of the appends, whatever order the answers arrive in.
#[derive(Debug, Default)]
pub struct Reports {
    waiting: VecDeque<(Token, Option<Outcome>)>,
}

impl Reports {
    /// An append was handed over.
    pub fn begin(&mut self, token: Token) {
        self.waiting.push_back((token, None));
    }

    /// An append ended.
    pub fn end(&mut self, token: Token, outcome: Outcome) {
        if let Some(place) = self.waiting.iter_mut().find(|(waiting, _)| *waiting == token) {
            place.1 = Some(outcome);
        }
    }

    /// The next report, if its append has ended.
    pub fn pop(&mut self) -> Option<(Token, Outcome)> {
        let (token, outcome) = *self.waiting.front()?;
        let outcome = outcome?;
        self.waiting.pop_front();
        Some((token, outcome))
    }

    /// Whether no append is under way.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Counts the appends of a shard's partition that were handed over and are not answered. It
/// outlives the shard's actor: a successor must not read the log before they have ended.
#[derive(Debug, Clone)]
pub struct InFlight {
    count: Arc<watch::Sender<usize>>,
}

impl Default for InFlight {
    fn default() -> InFlight {
        InFlight { count: Arc::new(watch::Sender::new(0)) }
    }
}

/// One append that is not answered.
#[derive(Debug)]
pub struct Begun {
    count: Arc<watch::Sender<usize>>,
}

impl InFlight {
    /// Counts one more append, until the guard goes.
    pub fn begin(&self) -> Begun {
        self.count.send_modify(|count| *count += 1);
        Begun { count: Arc::clone(&self.count) }
    }

    /// Waits until no append is under way.
    pub async fn drained(&self) {
        let mut count = self.count.subscribe();
        // The sender is held by self, so the wait ends by the count alone.
        if count.wait_for(|count| *count == 0).await.is_err() {
            tracing::trace!("nobody counts appends any more");
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_keep_the_order_of_the_appends() {
        let mut reports = Reports::default();
        reports.begin(Token(1));
        reports.begin(Token(2));
        reports.end(Token(2), Outcome::Committed);
        assert_eq!(reports.pop(), None);
        reports.end(Token(1), Outcome::Refused(ErrorCode::NotEnoughReplicas));
        let refused = Outcome::Refused(ErrorCode::NotEnoughReplicas);
        assert_eq!(reports.pop(), Some((Token(1), refused)));
        assert_eq!(reports.pop(), Some((Token(2), Outcome::Committed)));
        assert!(reports.is_empty());
    }

    #[test]
    fn records_too_big_for_one_batch_make_more() {
        let record = |fill: u8| Record {
            key: Bytes::from(vec![fill; 10]),
            value: Some(Bytes::from(vec![fill; 300 * 1024])),
        };
        let small = Record { key: Bytes::from_static(b"k"), value: None };
        let bytes = batches(&[record(1), record(2), small], TimestampMs(5));
        let batches: Vec<_> = protocol::batch::split(bytes).map(Result::unwrap).collect();
        assert_eq!(batches.len(), 2);
        assert_eq!(batches[0].header.record_count, 1);
        assert_eq!(batches[1].header.record_count, 2);
        let last = batches[1].records().unwrap().last().unwrap().unwrap();
        assert_eq!((last.key.as_deref(), last.value), (Some(&b"k"[..]), None));
    }

    #[tokio::test]
    async fn a_successor_waits_for_the_appends_before_it() {
        let in_flight = InFlight::default();
        in_flight.drained().await;
        let begun = in_flight.begin();
        let waiting = in_flight.clone();
        let waiter = tokio::spawn(async move { waiting.drained().await });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(begun);
        waiter.await.unwrap();
    }
}
