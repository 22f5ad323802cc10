//! A store in memory that knows what it would lose in a crash. Never starts a thread and never
//! waits, so that a simulation with it repeats.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::{Error, Key, MetadataStore, Write};

/// A metadata directory in memory. Clones are the same directory: keep one to open it again.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    directory: Arc<Mutex<Directory>>,
}

#[derive(Debug, Default)]
struct Directory {
    live: Contents,
    durable: Contents,
    /// Counts the openings; an opening of an earlier number is dead.
    opening: u64,
    open: bool,
    /// The flush with this number from now fails, and the store closes. 0 fails the next.
    failing_flush: Option<u64>,
    flushes: u64,
    ignore_flushes: bool,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    values: BTreeMap<Key, Vec<u8>>,
    entries: BTreeMap<u64, Vec<u8>>,
    snapshots: BTreeMap<String, Bytes>,
}

impl MemoryStore {
    /// An empty directory.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Loses what was not flushed, and makes every later call of the present owner fail.
    pub fn crash(&self) {
        let mut directory = self.directory.lock();
        directory.live = directory.durable.clone();
        directory.opening += 1;
        directory.open = false;
    }

    /// Makes a later flush fail: 0 the next one, 1 the one after it.
    pub fn fail_flush_after(&self, flushes: u64) {
        self.directory.lock().failing_flush = Some(flushes);
    }

    /// With `true` every flush succeeds and makes nothing durable: a store that lies.
    pub fn ignore_flushes(&self, ignore: bool) {
        self.directory.lock().ignore_flushes = ignore;
    }

    /// How often the store was flushed since it was made.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.directory.lock().flushes
    }

    pub(crate) fn open(&self) -> Result<OpenMemoryStore, Error> {
        let mut directory = self.directory.lock();
        if directory.open {
            return Err(Error::InUse { dir: PathBuf::from("memory") });
        }
        directory.opening += 1;
        directory.open = true;
        let opening = directory.opening;
        Ok(OpenMemoryStore { directory: Arc::clone(&self.directory), opening })
    }
}

/// The owner of a [`MemoryStore`].
pub(crate) struct OpenMemoryStore {
    directory: Arc<Mutex<Directory>>,
    opening: u64,
}

impl OpenMemoryStore {
    fn with<T>(&self, act: impl FnOnce(&mut Directory) -> T) -> Result<T, Error> {
        let mut directory = self.directory.lock();
        if directory.opening == self.opening {
            Ok(act(&mut directory))
        } else {
            Err(Error::Closed { reason: String::from("the node crashed") })
        }
    }
}

impl Drop for OpenMemoryStore {
    fn drop(&mut self) {
        let mut directory = self.directory.lock();
        if directory.opening == self.opening {
            directory.open = false;
        }
    }
}

impl MetadataStore for OpenMemoryStore {
    fn get(&self, key: Key) -> Result<Option<Vec<u8>>, Error> {
        self.with(|directory| directory.live.values.get(&key).cloned())
    }

    fn entries(&self, from: u64, to: u64, bytes_max: usize) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        self.with(|directory| {
            let mut bytes = 0_usize;
            let fits = |(index, entry): &(&u64, &Vec<u8>)| {
                bytes = bytes.saturating_add(entry.len());
                **index == from || bytes <= bytes_max
            };
            let range = directory.live.entries.range(from..to.max(from));
            range.take_while(fits).map(|(index, entry)| (*index, entry.clone())).collect()
        })
    }

    fn write(&mut self, writes: Vec<Write>) -> Result<(), Error> {
        self.with(|directory| {
            for write in writes {
                directory.live.apply(write);
            }
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.with(|directory| {
            directory.flushes += 1;
            match directory.failing_flush {
                Some(0) => {
                    directory.failing_flush = None;
                    Err(Error::Io {
                        dir: PathBuf::from("memory"),
                        action: "a flush",
                        reason: String::from("it was told to fail"),
                    })
                }
                later => {
                    directory.failing_flush = later.map(|flushes| flushes - 1);
                    if !directory.ignore_flushes {
                        directory.durable = directory.live.clone();
                    }
                    Ok(())
                }
            }
        })?
    }

    fn write_snapshot(&mut self, name: &str, bytes: &Bytes) -> Result<(), Error> {
        self.with(|directory| {
            directory.live.snapshots.insert(name.to_owned(), bytes.clone());
            directory.durable.snapshots.insert(name.to_owned(), bytes.clone());
        })
    }

    fn read_snapshot(&self, name: &str) -> Result<Bytes, Error> {
        self.with(|directory| directory.live.snapshots.get(name).cloned())?.ok_or_else(|| {
            let reason = format!("the snapshot {name} is missing");
            Error::Corrupt { dir: PathBuf::from("memory"), reason }
        })
    }

    fn keep_only_snapshot(&mut self, name: &str) -> Result<(), Error> {
        self.with(|directory| {
            directory.live.snapshots.retain(|kept, _| kept == name);
            directory.durable.snapshots.retain(|kept, _| kept == name);
        })
    }
}

impl Contents {
    fn apply(&mut self, write: Write) {
        match write {
            Write::Put(key, value) => {
                self.values.insert(key, value);
            }
            Write::Entry(index, entry) => {
                self.entries.insert(index, entry);
            }
            Write::RemoveEntries(from, to) => {
                self.entries.retain(|index, _| *index < from || *index >= to);
            }
        }
    }
}
