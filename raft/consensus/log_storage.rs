//! openraft's log and vote on a metadata store. Owns the entries' form on disk and the tail of the
//! log kept in memory; never decides what is committed.
//!
//! An append returns at once: the entries are readable from the tail, and openraft is called back
//! when they are flushed. A vote, a truncation and a purge return when they are flushed. Reads
//! come from the tail if it goes back far enough, otherwise from the store, behind every write
//! queued before.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Error;
use super::options::{APPEND_BYTES_MAX, ENTRY_BYTES_MAX};
use super::raft_id::RaftId;
use super::store::handle::StoreHandle;
use super::store::{Key, MetadataStore, Write};
use super::type_config::{Entry, LogId, TypeConfig, Vote};
use crate::envelope::{self, Kind};

/// Bytes of entries kept in memory. Followers that keep up, and the state machine, read only
/// these.
const TAIL_BYTES_MAX: usize = 2 << 20;

/// Bytes of a small value.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// The layout of entries and small values.
const VERSION: u16 = 1;

/// The log and the vote; clones share them.
#[derive(Clone)]
pub(crate) struct LogStorage {
    store: StoreHandle,
    state: Arc<Mutex<State>>,
}

/// What is known without asking the store.
#[derive(Default)]
struct State {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    /// The last entry, or `purged` if there is none.
    last: Option<LogId>,
    tail: VecDeque<Tailed>,
    tail_bytes: usize,
}

struct Tailed {
    entry: Entry,
    bytes: usize,
}

impl LogStorage {
    /// Reads the log's bounds and the vote, and claims an empty store for `raft_id`.
    ///
    /// # Errors
    /// [`Error::ForeignStore`] if the store belongs to another member, [`Error::Corrupt`] if a
    /// value does not decode or the log has a hole, and the store's own errors.
    pub(crate) async fn open(
        store: StoreHandle,
        raft_id: RaftId,
        dir: std::path::PathBuf,
    ) -> Result<LogStorage, Error> {
        let corrupt = |reason: String| Error::Corrupt { dir: dir.clone(), reason };
        let (identity, state) = store
            .call(|store| {
                let identity = decode_value::<RaftId>(store, Key::Identity, Kind::Identity)?;
                Ok((identity, State::restore(store)?))
            })
            .await
            .map_err(|error| {
                if let Error::Envelope(damage) = &error {
                    corrupt(damage.to_string())
                } else {
                    error
                }
            })?;
        match identity {
            Some(stored) if stored != raft_id => {
                return Err(Error::ForeignStore { dir, stored, asked: raft_id });
            }
            Some(_) => {}
            None => {
                let identity = encode_value(Kind::Identity, &raft_id)?;
                store.write_durably(vec![Write::Put(Key::Identity, identity)]).await?;
            }
        }
        let state = state.map_err(corrupt)?;
        Ok(LogStorage { store, state: Arc::new(Mutex::new(state)) })
    }

    /// The entries in `from..to` that exist, as many as fit `bytes_max`, but at least one.
    async fn read(&self, from: u64, to: u64, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let (from, to) = {
            let state = self.state.lock();
            let (from, to) = (from.max(next_index(state.purged)), to.min(next_index(state.last)));
            if from >= to {
                return Ok(Vec::new());
            }
            if let Some(entries) = state.tailed(from, to, bytes_max) {
                return Ok(entries);
            }
            (from, to)
        };
        let entries = self
            .store
            .call(move |store| {
                let pairs = store.entries(from, to, bytes_max)?;
                pairs.iter().map(|(_, bytes)| decode_entry(bytes)).collect::<Result<Vec<_>, _>>()
            })
            .await
            .map_err(io::Error::other)?;
        check_consecutive(&entries, to.checked_sub(1).filter(|_| bytes_max == usize::MAX))?;
        Ok(entries)
    }
}

impl RaftLogReader<TypeConfig> for LogStorage {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let from = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(index) => index.saturating_add(1),
            Bound::Excluded(index) => *index,
            Bound::Unbounded => u64::MAX,
        };
        self.read(from, to, usize::MAX).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.state.lock().vote)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        self.read(start, end, APPEND_BYTES_MAX).await
    }
}

impl RaftLogStorage<TypeConfig> for LogStorage {
    type LogReader = LogStorage;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let state = self.state.lock();
        Ok(LogState { last_purged_log_id: state.purged, last_log_id: state.last })
    }

    async fn get_log_reader(&mut self) -> LogStorage {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let value = encode_value(Kind::Vote, vote).map_err(io::Error::other)?;
        self.state.lock().vote = Some(*vote);
        let writes = vec![Write::Put(Key::Vote, value)];
        self.store.write_durably(writes).await.map_err(io::Error::other)
    }

    /// Not flushed: an older committed id only makes a restart re-learn what is committed.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        let Some(log_id) = committed else { return Ok(()) };
        let value = encode_value(Kind::LogId, &log_id).map_err(io::Error::other)?;
        self.state.lock().committed = committed;
        self.store.write_lazily(vec![Write::Put(Key::Committed, value)]);
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.state.lock().committed)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: IOFlushed<TypeConfig>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut writes = Vec::new();
        let mut tailed = Vec::new();
        for entry in entries {
            let bytes = envelope::encode(Kind::Entry, VERSION, &entry, ENTRY_BYTES_MAX)
                .map_err(io::Error::other)?;
            tailed.push(Tailed { bytes: bytes.len(), entry });
            writes.push((tailed.len(), bytes));
        }
        let writes = writes
            .into_iter()
            .map(|(count, bytes)| Write::Entry(tailed[count - 1].entry.log_id.index, bytes))
            .collect();
        {
            let mut state = self.state.lock();
            for item in tailed {
                state.push(item);
            }
        }
        let done = move |result: Result<(), Error>| {
            callback.io_completed(result.map_err(io::Error::other));
        };
        self.store.write(writes, Box::new(done));
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let (from, to) = {
            let mut state = self.state.lock();
            let range = (next_index(last_log_id), next_index(state.last));
            if range.0 >= range.1 {
                return Ok(());
            }
            state.truncate(range.0);
            state.last = last_log_id.max(state.purged);
            range
        };
        let writes = vec![Write::RemoveEntries(from, to)];
        self.store.write_durably(writes).await.map_err(io::Error::other)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let value = encode_value(Kind::LogId, &log_id).map_err(io::Error::other)?;
        let from = {
            let mut state = self.state.lock();
            let from = next_index(state.purged);
            state.purge(log_id);
            from
        };
        let writes = vec![
            Write::Put(Key::Purged, value),
            Write::RemoveEntries(from, log_id.index.saturating_add(1)),
        ];
        self.store.write_durably(writes).await.map_err(io::Error::other)
    }
}

impl State {
    /// Reads the vote and the bounds of the log, and every entry, so that damage shows at the
    /// start. The inner error is a hole in the log.
    fn restore(store: &dyn MetadataStore) -> Result<Result<State, String>, Error> {
        let purged: Option<LogId> = decode_value(store, Key::Purged, Kind::LogId)?;
        let mut state = State {
            vote: decode_value(store, Key::Vote, Kind::Vote)?,
            committed: decode_value(store, Key::Committed, Kind::LogId)?,
            purged,
            last: purged,
            ..State::default()
        };
        loop {
            let expected = next_index(state.last);
            let pairs = store.entries(expected, u64::MAX, APPEND_BYTES_MAX)?;
            if pairs.is_empty() {
                return Ok(Ok(state));
            }
            for (index, bytes) in pairs {
                let entry = decode_entry(&bytes)?;
                let expected = next_index(state.last);
                if index != expected || entry.log_id.index != expected {
                    return Ok(Err(format!(
                        "the log has entry {} at {index}, expected {expected}",
                        entry.log_id.index
                    )));
                }
                state.push(Tailed { entry, bytes: bytes.len() });
            }
        }
    }

    /// The entries if the tail goes back to `from`.
    fn tailed(&self, from: u64, to: u64, bytes_max: usize) -> Option<Vec<Entry>> {
        let first = self.tail.front()?.entry.log_id.index;
        let skip = usize::try_from(from.checked_sub(first)?).ok()?;
        let count = usize::try_from(to - from).ok()?;
        let mut bytes = 0_usize;
        let mut entries = Vec::with_capacity(count);
        for tailed in self.tail.iter().skip(skip).take(count) {
            bytes = bytes.saturating_add(tailed.bytes);
            if !entries.is_empty() && bytes > bytes_max {
                break;
            }
            entries.push(tailed.entry.clone());
        }
        assert_eq!(entries.first().map(|entry| entry.log_id.index), Some(from), "no hole");
        Some(entries)
    }

    fn push(&mut self, tailed: Tailed) {
        let index = tailed.entry.log_id.index;
        let continues = self.tail.back().is_none_or(|last| last.entry.log_id.index + 1 == index);
        if !continues {
            self.truncate(0);
        }
        self.last = Some(tailed.entry.log_id);
        self.tail_bytes += tailed.bytes;
        self.tail.push_back(tailed);
        while self.tail_bytes > TAIL_BYTES_MAX && self.tail.len() > 1 {
            let dropped = self.tail.pop_front().map_or(0, |tailed| tailed.bytes);
            self.tail_bytes -= dropped;
        }
    }

    /// Drops the tail from `index` on.
    fn truncate(&mut self, index: u64) {
        while self.tail.back().is_some_and(|last| last.entry.log_id.index >= index) {
            let dropped = self.tail.pop_back().map_or(0, |tailed| tailed.bytes);
            self.tail_bytes -= dropped;
        }
    }

    /// Drops the tail up to and including `log_id`.
    fn purge(&mut self, log_id: LogId) {
        while self.tail.front().is_some_and(|first| first.entry.log_id.index <= log_id.index) {
            let dropped = self.tail.pop_front().map_or(0, |tailed| tailed.bytes);
            self.tail_bytes -= dropped;
        }
        self.purged = self.purged.max(Some(log_id));
        self.last = self.last.max(self.purged);
    }
}

/// The index behind a log id; 0 behind none.
fn next_index(log_id: Option<LogId>) -> u64 {
    log_id.map_or(0, |log_id| log_id.index.saturating_add(1))
}

/// A hole in the log, or an end short of `last`, is damage.
fn check_consecutive(entries: &[Entry], last: Option<u64>) -> io::Result<()> {
    let hole = entries.windows(2).find(|pair| pair[0].index() + 1 != pair[1].index());
    if let Some([before, after]) = hole {
        return Err(io::Error::other(format!(
            "the Raft log has a hole: entry {} follows entry {}",
            after.index(),
            before.index()
        )));
    }
    match (entries.last(), last) {
        (Some(entry), Some(last)) if entry.index() != last => Err(io::Error::other(format!(
            "the Raft log ends at {}, expected {last}",
            entry.index()
        ))),
        (None | Some(_), None | Some(_)) => Ok(()),
    }
}

pub(crate) fn encode_value<T: Serialize>(kind: Kind, value: &T) -> Result<Vec<u8>, Error> {
    Ok(envelope::encode(kind, VERSION, value, VALUE_BYTES_MAX)?)
}

pub(crate) fn decode_value<T: DeserializeOwned>(
    store: &dyn MetadataStore,
    key: Key,
    kind: Kind,
) -> Result<Option<T>, Error> {
    match store.get(key)? {
        Some(bytes) => Ok(Some(envelope::decode(kind, VERSION, &bytes, VALUE_BYTES_MAX)?)),
        None => Ok(None),
    }
}

fn decode_entry(bytes: &[u8]) -> Result<Entry, Error> {
    Ok(envelope::decode(Kind::Entry, VERSION, bytes, ENTRY_BYTES_MAX)?)
}
