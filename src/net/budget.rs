//! The bytes a node lends to requests that are being read or in work.
//!
//! Owns admission: a frame above the floor takes its bytes here before memory grows, and gives
//! them back when it is dropped. It never allocates. A reader that holds a part of its bytes and
//! cannot get the rest would wait for others that wait for it; one reader at a time may therefore
//! overdraw the budget, so that its frame always completes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes to lend, shared by all connections of a node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ByteBudget {
    bytes: Arc<Semaphore>,
    overdraft: Arc<Semaphore>,
    total: usize,
}

/// Bytes lent; they go back when it is dropped.
#[derive(Debug, Default)]
pub struct Grant {
    bytes: Option<OwnedSemaphorePermit>,
    overdraft: Option<OwnedSemaphorePermit>,
}

impl ByteBudget {
    /// Lends up to `total` bytes, and once more what the one overdrawing reader needs.
    pub fn new(total: usize) -> ByteBudget {
        let total = total.min(Semaphore::MAX_PERMITS);
        ByteBudget {
            bytes: Arc::new(Semaphore::new(total)),
            overdraft: Arc::new(Semaphore::new(1)),
            total,
        }
    }

    /// Never refuses: for answers, whose size the asker has bounded.
    pub fn unlimited() -> ByteBudget {
        ByteBudget::new(usize::MAX)
    }

    /// Bytes not lent.
    pub fn available(&self) -> usize {
        self.bytes.available_permits()
    }

    /// All bytes there are to lend.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Raises `grant` by `bytes`; waits until others gave back enough. Safe to drop.
    pub async fn extend(&self, grant: &mut Grant, bytes: usize) {
        if bytes == 0 || grant.overdraft.is_some() {
            return;
        }
        // A frame is below 2^31 bytes by its prefix, so the count always fits.
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        tokio::select! {
            biased;
            more = self.bytes.clone().acquire_many_owned(count) => {
                let more = more.expect("the semaphore is never closed");
                match &mut grant.bytes {
                    Some(held) => held.merge(more),
                    None => grant.bytes = Some(more),
                }
            }
            turn = self.overdraft.clone().acquire_owned() => {
                grant.overdraft = Some(turn.expect("the semaphore is never closed"));
            }
        }
    }
}

impl Grant {
    /// Bytes lent; a reader that overdraws may hold more.
    pub fn bytes(&self) -> usize {
        self.bytes.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// True if nothing was lent.
    pub fn is_none(&self) -> bool {
        self.bytes.is_none() && self.overdraft.is_none()
    }

    /// True if the holder is the one that may overdraw.
    pub fn overdraws(&self) -> bool {
        self.overdraft.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_reader_overdraws_and_the_next_waits() {
        let budget = ByteBudget::new(100);
        let (mut first, mut second, mut third) =
            (Grant::default(), Grant::default(), Grant::default());
        budget.extend(&mut first, 80).await;
        budget.extend(&mut second, 80).await;
        assert!(second.overdraws() && !first.overdraws());
        let moment = std::time::Duration::from_millis(10);
        assert!(tokio::time::timeout(moment, budget.extend(&mut third, 80)).await.is_err());
        drop(first);
        budget.extend(&mut third, 80).await;
        assert_eq!((third.bytes(), third.overdraws()), (80, false));
        drop((second, third));
        assert_eq!(budget.available(), 100);
    }
}
