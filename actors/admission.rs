//! The budgets that admit work: ractor's mailboxes have no bound, so nothing enters one without a
//! permit from here. It never queues anything itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of one connection that may be in progress at a time.
pub const CONNECTION_REQUESTS_MAX: usize = 16;

/// Bytes of produced records that one node holds between socket and log at a time.
pub const NODE_APPEND_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of requests one node reads and works on at a time, where the settings name no bound.
pub const NODE_REQUEST_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of records that wait for clients to read them, of one node.
pub const NODE_RESPONSE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Permits count kibibytes: a semaphore holds at most 2^61, one acquisition at most 2^32.
const UNIT: usize = 1024;

/// The bytes a node admits into its partitions' mailboxes.
#[derive(Debug, Clone)]
pub struct AppendBudget {
    semaphore: Arc<Semaphore>,
    capacity: usize,
}

/// Held by an append from its admission to its answer.
#[derive(Debug)]
pub struct AppendPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl AppendPermit {
    /// For the node's own small writes (coordinators, markers), which their actors bound.
    pub fn internal() -> AppendPermit {
        AppendPermit { _permit: None }
    }
}

impl AppendBudget {
    /// A budget of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> AppendBudget {
        let capacity = (bytes_max / UNIT).max(1);
        AppendBudget { semaphore: Arc::new(Semaphore::new(capacity)), capacity }
    }

    /// Waits until `bytes` more bytes fit. More than the whole budget counts as the whole.
    pub async fn acquire(&self, bytes: usize) -> AppendPermit {
        let units = bytes.div_ceil(UNIT).clamp(1, self.capacity);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // The semaphore is never closed; if it were, admission without a permit is the lesser
        // harm.
        let permit = Arc::clone(&self.semaphore).acquire_many_owned(units).await.ok();
        AppendPermit { _permit: permit }
    }

    /// Bytes that are not admitted yet.
    pub fn available_bytes(&self) -> usize {
        self.semaphore.available_permits() * UNIT
    }
}

/// The bytes of records a node holds until clients have read them. It never makes anybody wait:
/// the shorter it is, the less a fetch gets. One batch each goes out all the same, since less than
/// a batch is nothing.
#[derive(Debug, Clone)]
pub struct ResponseBudget {
    lent: Arc<AtomicUsize>,
    total: usize,
}

/// Bytes lent to one answer; they go back when it is dropped.
#[derive(Debug)]
pub struct ResponseLoan {
    lent: Arc<AtomicUsize>,
    bytes: usize,
}

/// Records on their way to a client, with what they were lent.
struct LentRecords {
    records: Bytes,
    _loan: ResponseLoan,
}

impl AsRef<[u8]> for LentRecords {
    fn as_ref(&self) -> &[u8] {
        &self.records
    }
}

impl ResponseBudget {
    /// A budget of `total` bytes.
    pub fn new(total: usize) -> ResponseBudget {
        ResponseBudget { lent: Arc::default(), total }
    }

    /// Lends up to `wanted` bytes, and no more than a quarter of what is left: so there is always
    /// something left for the next one.
    pub fn lend(&self, wanted: usize) -> ResponseLoan {
        let mut granted = 0;
        let lend = |lent: usize| {
            granted = wanted.min(self.total.saturating_sub(lent) / 4);
            Some(lent + granted)
        };
        // It always lends, be it nothing.
        let _ = self.lent.fetch_update(Ordering::AcqRel, Ordering::Acquire, lend);
        ResponseLoan { lent: Arc::clone(&self.lent), bytes: granted }
    }

    /// Whether less than a quarter is left.
    pub fn is_short(&self) -> bool {
        self.lent.load(Ordering::Acquire) > self.total / 4 * 3
    }
}

impl ResponseLoan {
    /// How much was lent.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The records with their loan, which is raised or lowered to what they take.
    pub fn settle(mut self, records: Bytes) -> Bytes {
        if records.is_empty() {
            return records;
        }
        let taken = records.len();
        if taken > self.bytes {
            self.lent.fetch_add(taken - self.bytes, Ordering::AcqRel);
        } else {
            self.lent.fetch_sub(self.bytes - taken, Ordering::AcqRel);
        }
        self.bytes = taken;
        Bytes::from_owner(LentRecords { records, _loan: self })
    }
}

impl Drop for ResponseLoan {
    fn drop(&mut self) {
        self.lent.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_the_budget_the_less_is_lent() {
        let budget = ResponseBudget::new(1_600);
        let first = budget.lend(1_000);
        assert_eq!(first.bytes(), 400);
        let small = budget.lend(10);
        assert_eq!(small.bytes(), 10);
        drop(small);
        let others: Vec<ResponseLoan> = (0..20).map(|_| budget.lend(1_000)).collect();
        assert!(others.iter().map(ResponseLoan::bytes).sum::<usize>() <= 1_200);
        assert!(budget.is_short());
        drop((first, others));
        assert_eq!(budget.lend(1_000).bytes(), 400, "all came back");
    }

    #[test]
    fn records_carry_their_loan() {
        let budget = ResponseBudget::new(1_600);
        let records = budget.lend(300).settle(Bytes::from(vec![7; 100]));
        assert_eq!(budget.lent.load(Ordering::Acquire), 100);
        let half = records.slice(..50);
        drop(records);
        assert_eq!(budget.lent.load(Ordering::Acquire), 100, "a part keeps the whole");
        drop(half);
        let large = budget.lend(10).settle(Bytes::from(vec![7; 5_000]));
        assert_eq!(budget.lent.load(Ordering::Acquire), 5_000);
        assert_eq!(budget.lend(100).bytes(), 0);
        drop(large);
        assert_eq!(budget.lent.load(Ordering::Acquire), 0);
    }
}
