//! The children a supervisor keeps: who they are, how often they ended, what to do about it.
//!
//! Supervisors hold one [`Children`] in their state and forward every supervision event to it; the
//! policy itself is [`crate::supervision`]. It never spawns: the supervisor does, and reports.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::time::Duration;

use ractor::{ActorCell, ActorId, SpawnErr, SupervisionEvent};
use tokio::time::Instant;

use crate::supervision::{self, ChildKind, Ending, RestartHistory, Verdict};

/// A child that ended, and what its supervisor has to do.
#[derive(Debug)]
pub struct Ended<K> {
    /// Which child.
    pub key: K,
    /// How it ended.
    pub ending: Ending,
    /// What to do.
    pub verdict: Verdict,
}

/// The children of one supervisor, by a key that outlives their restarts.
#[derive(Debug)]
pub struct Children<K> {
    entries: BTreeMap<K, Entry>,
    keys: HashMap<ActorId, K>,
    started: Instant,
}

#[derive(Debug)]
struct Entry {
    kind: ChildKind,
    cell: Option<ActorCell>,
    history: RestartHistory,
}

impl<K: Ord + Clone + Debug> Default for Children<K> {
    fn default() -> Self {
        Children { entries: BTreeMap::new(), keys: HashMap::new(), started: Instant::now() }
    }
}

impl<K: Ord + Clone + Debug> Children<K> {
    /// Notes that the child `key` runs as `cell`, whether for the first time or again.
    pub fn on_started(&mut self, key: K, kind: ChildKind, cell: ActorCell) {
        self.keys.insert(cell.get_id(), key.clone());
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            kind,
            cell: None,
            history: RestartHistory::default(),
        });
        entry.cell = Some(cell);
    }

    /// Decides about a child whose start failed. ractor sends no supervision event for that: the
    /// same policy through another door.
    pub fn on_start_failed(&mut self, key: K, kind: ChildKind, error: &SpawnErr) -> Ended<K> {
        let now = self.now();
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            kind,
            cell: None,
            history: RestartHistory::default(),
        });
        let ending = Ending::StartFailed(why_not_started(error));
        let verdict = supervision::on_child_ended(kind, &ending, &mut entry.history, now);
        log_ending(&key, &ending, &verdict);
        Ended { key, ending, verdict }
    }

    /// Takes a supervision event. Answers only for the ending of a child that is still current:
    /// one that was forgotten or replaced before is nobody's concern.
    pub fn on_event(&mut self, event: &SupervisionEvent) -> Option<Ended<K>> {
        let (cell, ending) = match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                (cell, Ending::Failed(error.to_string()))
            }
            SupervisionEvent::ActorTerminated(cell, _last_state, Some(reason)) => {
                (cell, Ending::Killed(reason.clone()))
            }
            SupervisionEvent::ActorTerminated(cell, _last_state, None) => (cell, Ending::Asked),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {
                return None;
            }
        };
        let key = self.keys.remove(&cell.get_id())?;
        let now = self.now();
        let entry = self.entries.get_mut(&key)?;
        if entry.cell.as_ref().is_none_or(|current| current.get_id() != cell.get_id()) {
            return None;
        }
        entry.cell = None;
        let verdict = supervision::on_child_ended(entry.kind, &ending, &mut entry.history, now);
        log_ending(&key, &ending, &verdict);
        Some(Ended { key, ending, verdict })
    }

    /// Stops a child and forgets it: its ending will not be answered.
    pub fn stop_and_forget(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key)
            && let Some(cell) = entry.cell
        {
            self.keys.remove(&cell.get_id());
            cell.stop(None);
        }
    }

    /// Forgets a child without stopping it: its ending will not be answered.
    pub fn forget(&mut self, key: &K) {
        if let Some(cell) = self.entries.remove(key).and_then(|entry| entry.cell) {
            self.keys.remove(&cell.get_id());
        }
    }

    /// Whether the child is known, running or about to be restarted.
    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// The keys of all known children, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    /// The cell of a running child.
    pub fn cell(&self, key: &K) -> Option<&ActorCell> {
        self.entries.get(key).and_then(|entry| entry.cell.as_ref())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The innermost text of a failed start: ractor wraps the part's own sentence in its own words,
/// which speak of a panic where there was none.
pub fn why_not_started(error: &SpawnErr) -> String {
    match error {
        SpawnErr::StartupFailed(inner) => match inner.downcast_ref::<SpawnErr>() {
            Some(inner) => why_not_started(inner),
            None => inner.to_string(),
        },
        other => other.to_string(),
    }
}

fn log_ending<K: Debug>(key: &K, ending: &Ending, verdict: &Verdict) {
    match ending {
        Ending::Asked => tracing::debug!(child = ?key, "child stopped as asked"),
        Ending::Failed(why) | Ending::Killed(why) | Ending::StartFailed(why) => {
            tracing::warn!(child = ?key, why, ?verdict, "child ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_start_is_told_in_the_parts_own_words() {
        let inner = SpawnErr::StartupFailed("port 9092 is in use".into());
        let outer = SpawnErr::StartupFailed(Box::new(inner));
        assert_eq!(why_not_started(&outer), "port 9092 is in use");
    }
}
