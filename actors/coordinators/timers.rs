//! The timers of one shard: names and deadlines, and which comes first. It never sleeps; the shard
//! has one wake-up under way, for the earliest deadline.

use std::collections::{BTreeMap, BTreeSet};

use protocol::ids::TimestampMs;

/// Deadlines by name.
#[derive(Debug)]
pub struct Timers<T> {
    by_name: BTreeMap<T, TimestampMs>,
    by_time: BTreeSet<(TimestampMs, T)>,
}

impl<T: Ord + Clone> Timers<T> {
    /// No timers.
    pub fn new() -> Timers<T> {
        Timers { by_name: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Sets a timer, in place of one of the same name.
    pub fn set(&mut self, timer: T, at: TimestampMs) {
        self.cancel(&timer);
        self.by_name.insert(timer.clone(), at);
        self.by_time.insert((at, timer));
    }

    /// Forgets a timer.
    pub fn cancel(&mut self, timer: &T) {
        if let Some(at) = self.by_name.remove(timer) {
            self.by_time.remove(&(at, timer.clone()));
        }
    }

    /// The earliest deadline.
    pub fn next_at(&self) -> Option<TimestampMs> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes one timer that is due, the earliest first.
    pub fn pop_due(&mut self, now: TimestampMs) -> Option<T> {
        if self.next_at()? > now {
            return None;
        }
        let (_, timer) = self.by_time.pop_first()?;
        self.by_name.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_go_off_in_the_order_of_their_deadlines() {
        let mut timers = Timers::new();
        timers.set("b", TimestampMs(20));
        timers.set("a", TimestampMs(10));
        timers.set("c", TimestampMs(30));
        assert_eq!(timers.next_at(), Some(TimestampMs(10)));
        assert_eq!(timers.pop_due(TimestampMs(9)), None);
        assert_eq!(timers.pop_due(TimestampMs(25)), Some("a"));
        assert_eq!(timers.pop_due(TimestampMs(25)), Some("b"));
        assert_eq!(timers.pop_due(TimestampMs(25)), None);
    }

    #[test]
    fn a_timer_set_again_has_only_its_new_deadline() {
        let mut timers = Timers::new();
        timers.set("a", TimestampMs(10));
        timers.set("a", TimestampMs(50));
        assert_eq!(timers.pop_due(TimestampMs(49)), None);
        assert_eq!(timers.pop_due(TimestampMs(50)), Some("a"));
        timers.set("a", TimestampMs(60));
        timers.cancel(&"a");
        assert_eq!(timers.next_at(), None);
    }
}
