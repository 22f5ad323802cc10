//! The budgets that admit work: ractor's mailboxes have no bound, so nothing enters one without a
//! permit from here. It never queues anything itself.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of one connection that may be in progress at a time.
pub const CONNECTION_REQUESTS_MAX: usize = 16;

/// Bytes of produced records that one node holds between socket and log at a time.
pub const NODE_APPEND_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of requests one node reads and works on at a time, where the settings name no bound.
pub const NODE_REQUEST_BYTES_MAX: usize = 256 * 1024 * 1024;

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
