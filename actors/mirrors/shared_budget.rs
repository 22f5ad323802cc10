//! How much of a source's data may be in memory at once: a budget for a node and one for a mirror
//! (D9), each split evenly among the fetchers that live now. Owns the arithmetic; asks nobody and
//! holds nobody up: a fetcher takes its share when it makes its next request.

use std::sync::Arc;

/// Of all mirrors on one node, in bytes.
pub const NODE_BYTES_MAX: usize = 256 << 20;

/// Of one mirror on one node, in bytes.
pub const MIRROR_BYTES_MAX: usize = 128 << 20;

/// A fetcher asks on while it appends: so many answers of it are in memory at most.
const ANSWERS_PER_FETCHER: usize = 2;

/// The least that a request asks for, in bytes; a source sends a first batch whole in any case.
const SHARE_MIN: usize = 64 << 10;

/// A number of bytes that fetchers share.
#[derive(Debug)]
pub struct SharedBudget {
    bytes: usize,
    /// Counted by its owners: this budget, and one for each seat.
    seats: Arc<()>,
}

impl SharedBudget {
    /// A budget of so many bytes that nobody has a share of yet.
    pub fn new(bytes: usize) -> SharedBudget {
        SharedBudget { bytes, seats: Arc::new(()) }
    }

    /// Counts one more fetcher, for as long as it keeps the seat.
    pub fn take_seat(&self) -> Seat {
        Seat { bytes: self.bytes, seats: Arc::clone(&self.seats) }
    }
}

/// A fetcher's part of a budget.
#[derive(Debug)]
pub struct Seat {
    bytes: usize,
    seats: Arc<()>,
}

impl Seat {
    /// What one answer may have now, in bytes.
    pub fn share(&self) -> usize {
        let seats = Arc::strong_count(&self.seats).saturating_sub(1).max(1);
        (self.bytes / (seats * ANSWERS_PER_FETCHER)).max(SHARE_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_answers_together_fit_the_budget() {
        let budget = SharedBudget::new(1 << 20);
        let mut seats = Vec::new();
        for fetchers in 1..=8 {
            seats.push(budget.take_seat());
            let together: usize = seats.iter().map(|seat| 2 * seat.share()).sum();
            assert!(together <= 1 << 20, "{fetchers} fetchers hold {together} bytes");
            assert!(seats[0].share() >= (1 << 20) / 17, "{fetchers} fetchers waste the budget");
        }
        seats.truncate(1);
        assert_eq!(seats[0].share(), 1 << 19, "who leaves gives its part back");
    }

    #[test]
    fn a_share_is_never_too_small_to_get_on() {
        let budget = SharedBudget::new(1);
        assert_eq!(budget.take_seat().share(), SHARE_MIN);
    }
}
