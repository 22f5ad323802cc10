//! A store on disk: sled for the log and the small values, plain files for the snapshots. Blocks,
//! so it lives on a thread of its own.
//!
//! ```text
//! <dir>/raft/                              sled: tree "entries" (key: index, 8 bytes, and number
//!                                          of the piece, 4 bytes, big endian), default tree (key:
//!                                          name of the value)
//! <dir>/member                             exists once a member was made here: sled opens some
//!                                          damaged files as empty ones, and a member must not
//!                                          start anew
//! <dir>/snapshots/<index>-<term>.snapshot  one envelope each
//! <dir>/snapshots/*.tmp                    left by a crash, removed when the store opens
//! ```
//!
//! sled's own flush is a sync_file_range, which survives the process but not the power: a flush
//! here is that and an fdatasync of sled's file. Large pages sled puts into files ("blobs") it
//! never syncs, so entries are cut into small pieces. A snapshot file is written under another
//! name, synced, renamed, and its directory synced, before sled learns its name.

use std::any::Any;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{Error, Key, MetadataStore, Write};

/// sled's page cache. Entries are read from memory first, so a small one serves.
const CACHE_BYTES: u64 = 1 << 20;

const MARKER: &str = "member";

/// Bytes of an entry under one key. sled writes up to about 20 neighbouring keys as one page, and
/// a page above 128 KiB, a quarter of a segment, as a blob.
const PIECE_BYTES: usize = 4 << 10;

/// Bytes of an entry's key.
const KEY_BYTES: usize = 12;

/// The owner of a metadata directory on disk.
pub(crate) struct SledStore {
    dir: PathBuf,
    db: ::sled::Db,
    entries: ::sled::Tree,
    /// sled's file, to be synced; none where only the process may die.
    file: Option<File>,
    /// Whether `<dir>/member` exists.
    marked: bool,
}

impl SledStore {
    /// Opens or creates the store in `dir`.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Corrupt`] or [`Error::Io`]; sled's panics on damaged files
    /// become [`Error::Corrupt`] too.
    pub(crate) fn open(dir: &Path, sync: bool) -> Result<SledStore, Error> {
        let snapshots = dir.join("snapshots");
        fs::create_dir_all(&snapshots).map_err(|e| io_error(dir, "making the directory", &e))?;
        remove_matching(&snapshots, |name| name.ends_with(".tmp"))
            .map_err(|e| io_error(dir, "removing an unfinished snapshot", &e))?;
        let config = ::sled::Config::new()
            .path(dir.join("raft"))
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(None);
        let (db, entries) = guarded(dir, || {
            let db = config.open()?;
            let entries = db.open_tree("entries")?;
            Ok((db, entries))
        })?;
        let file = if sync { Some(File::open(dir.join("raft").join("db"))) } else { None };
        let file = file.transpose().map_err(|e| io_error(dir, "opening sled's file", &e))?;
        let marked = dir.join(MARKER).exists();
        let mut store = SledStore { dir: dir.to_owned(), db, entries, file, marked };
        if marked && store.get(Key::Identity)?.is_none() {
            return Err(Error::Corrupt {
                dir: dir.to_owned(),
                reason: String::from("sled finds nothing where a member was"),
            });
        }
        store.mark()?;
        Ok(store)
    }

    /// Writes the marker once the store knows whose it is.
    fn mark(&mut self) -> Result<(), Error> {
        if self.marked || self.get(Key::Identity)?.is_none() {
            return Ok(());
        }
        let write = || -> io::Result<()> {
            File::create(self.dir.join(MARKER))?;
            if self.file.is_some() {
                File::open(self.dir.join("raft"))?.sync_all()?;
                File::open(&self.dir)?.sync_all()?;
            }
            Ok(())
        };
        write().map_err(|error| io_error(&self.dir, "marking the directory", &error))?;
        self.marked = true;
        Ok(())
    }

    fn snapshots(&self) -> PathBuf {
        self.dir.join("snapshots")
    }

    fn guarded<T>(&self, act: impl FnOnce() -> ::sled::Result<T>) -> Result<T, Error> {
        guarded(&self.dir, act)
    }

    fn index_of(&self, key: &[u8]) -> Result<u64, Error> {
        let index = key.first_chunk::<8>().filter(|_| key.len() == KEY_BYTES);
        index.map(|bytes| u64::from_be_bytes(*bytes)).ok_or_else(|| Error::Corrupt {
            dir: self.dir.clone(),
            reason: format!("an entry's key has {} bytes, expected {KEY_BYTES}", key.len()),
        })
    }
}

/// The key of an entry's piece; with piece 0, also where a range of entries starts or ends.
fn entry_key(index: u64, piece: u32) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&index.to_be_bytes());
    key[8..].copy_from_slice(&piece.to_be_bytes());
    key
}

impl MetadataStore for SledStore {
    fn get(&self, key: Key) -> Result<Option<Vec<u8>>, Error> {
        let value = self.guarded(|| self.db.get(key.name()))?;
        Ok(value.map(|bytes| bytes.to_vec()))
    }

    fn entries(&self, from: u64, to: u64, bytes_max: usize) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        let mut entries: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut bytes = 0_usize;
        let range = entry_key(from, 0)..entry_key(to.max(from), 0);
        let mut pieces = self.guarded(|| Ok(self.entries.range(range)))?;
        while let Some((key, piece)) = self.guarded(|| pieces.next().transpose())? {
            let index = self.index_of(&key)?;
            bytes = bytes.saturating_add(piece.len());
            match entries.last_mut() {
                Some((last, entry)) if *last == index => entry.extend_from_slice(&piece),
                Some(_) if bytes > bytes_max => break,
                None | Some(_) => entries.push((index, piece.to_vec())),
            }
        }
        Ok(entries)
    }

    /// The small values first, then all entries in one atomic batch: a purge's new start of the
    /// log is in sled's log before the entries go.
    fn write(&mut self, writes: Vec<Write>) -> Result<(), Error> {
        self.guarded(|| {
            let mut batch = ::sled::Batch::default();
            for write in writes {
                match write {
                    Write::Put(key, value) => {
                        self.db.insert(key.name(), value)?;
                    }
                    Write::Entry(index, entry) => {
                        for (number, piece) in (0_u32..).zip(entry.chunks(PIECE_BYTES)) {
                            batch.insert(&entry_key(index, number), piece);
                        }
                    }
                    Write::RemoveEntries(from, to) => {
                        let range = entry_key(from, 0)..entry_key(to.max(from), 0);
                        for key in self.entries.range(range).keys() {
                            batch.remove(key?);
                        }
                    }
                }
            }
            self.entries.apply_batch(batch)
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.guarded(|| self.db.flush())?;
        if let Some(file) = &self.file {
            file.sync_data().map_err(|error| io_error(&self.dir, "a flush", &error))?;
        }
        self.mark()
    }

    fn write_snapshot(&mut self, name: &str, bytes: &Bytes) -> Result<(), Error> {
        let write = || -> io::Result<()> {
            let (temporary, path) =
                (self.snapshots().join(format!("{name}.tmp")), self.snapshots().join(name));
            let mut file = File::create(&temporary)?;
            file.write_all(bytes)?;
            if self.file.is_some() {
                file.sync_all()?;
            }
            drop(file);
            fs::rename(&temporary, &path)?;
            if self.file.is_some() {
                File::open(self.snapshots())?.sync_all()?;
            }
            Ok(())
        };
        write().map_err(|error| io_error(&self.dir, "writing a snapshot", &error))
    }

    fn read_snapshot(&self, name: &str) -> Result<Bytes, Error> {
        match fs::read(self.snapshots().join(name)) {
            Ok(bytes) => Ok(Bytes::from(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Corrupt {
                dir: self.dir.clone(),
                reason: format!("the snapshot {name} is missing"),
            }),
            Err(error) => Err(io_error(&self.dir, "reading a snapshot", &error)),
        }
    }

    fn keep_only_snapshot(&mut self, name: &str) -> Result<(), Error> {
        remove_matching(&self.snapshots(), |other| other != name)
            .map_err(|error| io_error(&self.dir, "removing an old snapshot", &error))
    }
}

fn remove_matching(dir: &Path, matches: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&matches) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn io_error(dir: &Path, action: &'static str, error: &io::Error) -> Error {
    Error::Io { dir: dir.to_owned(), action, reason: error.to_string() }
}

/// Runs a call into sled; what it panics about is damage it did not expect.
fn guarded<T>(dir: &Path, act: impl FnOnce() -> ::sled::Result<T>) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(sled_error(dir, error)),
        Err(panic) => {
            Err(Error::Corrupt { dir: dir.to_owned(), reason: panic_message(panic.as_ref()) })
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        String::from("sled panicked")
    }
}

fn sled_error(dir: &Path, error: ::sled::Error) -> Error {
    let dir = dir.to_owned();
    match error {
        // sled reports its lock only in words.
        ::sled::Error::Io(error) if error.to_string().contains("could not acquire lock") => {
            Error::InUse { dir }
        }
        ::sled::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            Error::Corrupt { dir, reason: error.to_string() }
        }
        ::sled::Error::Io(error) => {
            Error::Io { dir, action: "a call of sled", reason: error.to_string() }
        }
        ::sled::Error::CollectionNotFound(_)
        | ::sled::Error::Unsupported(_)
        | ::sled::Error::ReportableBug(_)
        | ::sled::Error::Corruption { .. } => Error::Corrupt { dir, reason: error.to_string() },
    }
}
