//! Who waits for a partition to move: parked fetches. It never reads the log.
//!
//! A waiter is woken only when the offset it looks at has passed its position, so that a consumer
//! is not woken by appends that are not committed yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use log::{ReadUpTo, ReadView};
use parking_lot::Mutex;
use protocol::ids::Offset;
use tokio::sync::Notify;

/// The parked fetches of one partition.
#[derive(Debug, Default)]
pub struct FetchWaiters {
    parked: Mutex<Parked>,
}

#[derive(Debug, Default)]
struct Parked {
    next_ticket: u64,
    waiting: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    up_to: ReadUpTo,
    position: Offset,
    notify: Arc<Notify>,
}

impl FetchWaiters {
    /// Parks `notify` until the bound `up_to` lies above `position`. It leaves when dropped.
    pub fn park(
        self: &Arc<Self>,
        up_to: ReadUpTo,
        position: Offset,
        notify: Arc<Notify>,
    ) -> ParkedFetch {
        let mut parked = self.parked.lock();
        let ticket = parked.next_ticket;
        parked.next_ticket += 1;
        parked.waiting.insert(ticket, Waiter { up_to, position, notify });
        ParkedFetch { waiters: Arc::clone(self), ticket }
    }

    /// Wakes the fetches that can read something now. Called after the view moved.
    pub fn wake_ready(&self, view: &ReadView) {
        let parked = self.parked.lock();
        for waiter in parked.waiting.values() {
            if view.bound(waiter.up_to) > waiter.position {
                waiter.notify.notify_one();
            }
        }
    }

    /// Wakes everybody: the partition changed its role, or its actor is gone.
    pub fn wake_all(&self) {
        for waiter in self.parked.lock().waiting.values() {
            waiter.notify.notify_one();
        }
    }
}

/// A place among the waiters.
#[derive(Debug)]
pub struct ParkedFetch {
    waiters: Arc<FetchWaiters>,
    ticket: u64,
}

impl Drop for ParkedFetch {
    fn drop(&mut self) {
        self.waiters.parked.lock().waiting.remove(&self.ticket);
    }
}
