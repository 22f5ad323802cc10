//! The serving side of fetch sessions (KIP-227): what a fetcher asked for before, so that an
//! incremental request names only what changed. Pure but for a lock; it reads no log.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, NodeId, Offset, TimestampMs, TopicIdPartition};

/// An idle session may be evicted by a newcomer after this long.
const EVICT_AFTER_MS: i64 = 120_000;

/// What a fetcher wants of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// First offset.
    pub offset: Offset,
    /// The leader epoch the fetcher knows; −1 for no check.
    pub leader_epoch: LeaderEpoch,
    /// Epoch of the fetcher's last batch, −1 for no check.
    pub last_fetched_epoch: LeaderEpoch,
    /// Bytes of one answer, but for one larger batch.
    pub bytes_max: i32,
}

/// What the fetcher was told last of a partition; a change is worth an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// High watermark.
    pub high_watermark: Offset,
    /// First offset.
    pub log_start: Offset,
}

/// One partition of a session.
#[derive(Debug, Clone)]
pub struct SessionPartition {
    /// Which; a topic asked for by an unknown name has no id and cannot be kept.
    pub id: TopicIdPartition,
    /// The topic's name as the fetcher gave it (before v13).
    pub topic: String,
    /// What is wanted of it.
    pub wanted: Wanted,
    /// What was told.
    pub told: Option<Told>,
}

/// One session.
#[derive(Debug, Default)]
pub struct Session {
    /// In the order in which they are read: what was answered goes to the end.
    order: BTreeMap<u64, TopicIdPartition>,
    partitions: BTreeMap<TopicIdPartition, (u64, SessionPartition)>,
    next_turn: u64,
    /// The epoch the next request must carry.
    next_epoch: i32,
}

impl Session {
    /// Adds or changes a partition; a change keeps its turn and what was told.
    pub fn set(&mut self, partition: SessionPartition) {
        if let Some((_, known)) = self.partitions.get_mut(&partition.id) {
            known.wanted = partition.wanted;
            return;
        }
        let turn = self.take_turn();
        self.order.insert(turn, partition.id);
        self.partitions.insert(partition.id, (turn, partition));
    }

    /// Takes a partition out.
    pub fn remove(&mut self, id: TopicIdPartition) {
        if let Some((turn, _)) = self.partitions.remove(&id) {
            self.order.remove(&turn);
        }
    }

    /// Notes an answer: the partition goes to the end.
    pub fn on_answered(&mut self, id: TopicIdPartition, told: Told, had_records: bool) {
        let turn = had_records.then(|| self.take_turn());
        if let Some((old, partition)) = self.partitions.get_mut(&id) {
            partition.told = Some(told);
            if let Some(turn) = turn {
                self.order.remove(old);
                self.order.insert(turn, id);
                *old = turn;
            }
        }
    }

    /// Every partition, in the order they are read.
    pub fn partitions(&self) -> Vec<SessionPartition> {
        self.order
            .values()
            .filter_map(|id| self.partitions.get(id).map(|(_, partition)| partition.clone()))
            .collect()
    }

    fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }
}

/// A session and the place it has in the cache.
#[derive(Debug, Clone)]
pub struct SessionRef {
    /// Its id, never 0.
    pub id: i32,
    /// Its content.
    pub session: Arc<Mutex<Session>>,
}

/// All sessions of a node.
#[derive(Debug)]
pub struct FetchSessions {
    slots: usize,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    sessions: BTreeMap<i32, Cached>,
}

#[derive(Debug)]
struct Cached {
    session: Arc<Mutex<Session>>,
    used_at: TimestampMs,
    /// Followers are never evicted by clients.
    of_replica: bool,
}

impl FetchSessions {
    /// Room for `slots` sessions (`max.incremental.fetch.session.cache.slots`).
    pub fn new(slots: usize) -> FetchSessions {
        FetchSessions { slots, cache: Mutex::default() }
    }

    /// Opens a session, if there is room or one may be evicted. `random` chooses its id.
    pub fn open(
        &self,
        mut random: impl FnMut() -> u64,
        replica: Option<NodeId>,
        now: TimestampMs,
    ) -> Option<SessionRef> {
        let mut cache = self.cache.lock();
        if cache.sessions.len() >= self.slots && !cache.evict(now, replica.is_some()) {
            return None;
        }
        let id = loop {
            let id = i32::try_from(random() % u64::from(i32::MAX.unsigned_abs())).unwrap_or(0) + 1;
            if id > 0 && !cache.sessions.contains_key(&id) {
                break id;
            }
        };
        let session = Arc::new(Mutex::new(Session { next_epoch: 1, ..Session::default() }));
        let cached =
            Cached { session: Arc::clone(&session), used_at: now, of_replica: replica.is_some() };
        cache.sessions.insert(id, cached);
        Some(SessionRef { id, session })
    }

    /// Goes on with a session.
    ///
    /// # Errors
    /// FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH: the fetcher opens another.
    pub fn resume(&self, id: i32, epoch: i32, now: TimestampMs) -> Result<SessionRef, ErrorCode> {
        let mut cache = self.cache.lock();
        let cached = cache.sessions.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        cached.used_at = now;
        let session = Arc::clone(&cached.session);
        let mut content = session.lock();
        if content.next_epoch != epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        content.next_epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        drop(content);
        Ok(SessionRef { id, session })
    }

    /// Ends a session; an unknown one is no fault.
    pub fn close(&self, id: i32) {
        self.cache.lock().sessions.remove(&id);
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.cache.lock().sessions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Cache {
    /// Makes room: by the session that was idle longest, if it was idle long enough, or any
    /// client's for a replica.
    fn evict(&mut self, now: TimestampMs, for_replica: bool) -> bool {
        let oldest = self
            .sessions
            .iter()
            .filter(|(_, cached)| !cached.of_replica)
            .min_by_key(|(id, cached)| (cached.used_at, **id))
            .map(|(id, cached)| (*id, cached.used_at));
        match oldest {
            Some((id, used_at)) if for_replica || now.0 - used_at.0 > EVICT_AFTER_MS => {
                self.sessions.remove(&id);
                true
            }
            Some(_) | None => false,
        }
    }
}

#[cfg(test)]
#[path = "fetch_sessions_tests.rs"]
mod tests;
