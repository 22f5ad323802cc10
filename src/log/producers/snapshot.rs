//! Snapshots of a log's producers, so that recovery need not read the whole log. Owns the files
//! `<offset, 20 digits>.snapshot` of a partition's directory: the producers as they were before
//! the batch at that offset. Never decides when one is taken.
//!
//! All numbers are big-endian.
//!
//! | width | field |
//! |---|---|
//! | 2 | version 1 |
//! | 4 | CRC-32C of everything after this field |
//! | 4 | number of entries |
//! | 46 each | the entries, by producer id |
//!
//! An entry: producer id 8, epoch 2; of its last batch the last sequence 4, the last offset 8,
//! last − first sequence 4; timestamp 8, coordinator epoch 4, first offset of the open
//! transaction 8 (−1 if there is none).
//!
//! Only the last batch of each producer is kept, as in Kafka: after recovery a resend of an
//! earlier one is out of order. Nothing is assumed of a file that was not synced: the CRC tells.

use std::path::{Path, PathBuf};

use protocol::batch::crc32c;
use protocol::ids::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use smallvec::SmallVec;

use super::{OpenTransaction, ProducerEntry, ProducerStates, SequencedBatch, expired};
use crate::disk::Disk;
use crate::error::Error;

const VERSION: i16 = 1;
const CRC_AT: usize = size_of::<i16>();
const ENTRIES_AT: usize = CRC_AT + size_of::<u32>();
const ENTRY_BYTES: usize = 46;
const SUFFIX: &str = ".snapshot";

/// Why the bytes of a snapshot cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes end early or late.
    #[error("a snapshot of {bytes} bytes does not hold its entries")]
    Length {
        /// How many bytes there are.
        bytes: usize,
    },
    /// Another version.
    #[error("a snapshot of version {version}, not {VERSION}")]
    Version {
        /// What it says.
        version: i16,
    },
    /// Damaged bytes.
    #[error("a snapshot with checksum {stored:08x}, its bytes {computed:08x}")]
    Checksum {
        /// What it says.
        stored: u32,
        /// What its bytes come to.
        computed: u32,
    },
}

impl ProducerStates {
    /// The bytes of a snapshot.
    #[must_use]
    pub fn to_snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENTRIES_AT + 4 + self.entries.len() * ENTRY_BYTES);
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&0u32.to_be_bytes());
        let count = i32::try_from(self.entries.len()).expect("producers are fewer than 2^31");
        bytes.extend_from_slice(&count.to_be_bytes());
        for (producer_id, entry) in &self.entries {
            write_entry(&mut bytes, *producer_id, entry);
        }
        let crc = crc32c(&bytes[ENTRIES_AT..]);
        bytes[CRC_AT..ENTRIES_AT].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// The producers of a snapshot taken at `end`.
    ///
    /// # Errors
    /// What makes the bytes unusable.
    pub fn from_snapshot(bytes: &[u8], end: Offset) -> Result<ProducerStates, SnapshotError> {
        let length = || SnapshotError::Length { bytes: bytes.len() };
        let mut rest = bytes;
        let version = take(&mut rest).map(i16::from_be_bytes).ok_or_else(length)?;
        if version != VERSION {
            return Err(SnapshotError::Version { version });
        }
        let stored = take(&mut rest).map(u32::from_be_bytes).ok_or_else(length)?;
        let computed = crc32c(rest);
        if stored != computed {
            return Err(SnapshotError::Checksum { stored, computed });
        }
        let count = take(&mut rest).map(i32::from_be_bytes).ok_or_else(length)?;
        if usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY_BYTES))
            != Some(rest.len())
        {
            return Err(length());
        }
        let mut states = ProducerStates::new(end);
        while let Some((producer_id, entry)) = read_entry(&mut rest) {
            if let Some(first_offset) = entry.transaction_start {
                let producer_epoch = entry.epoch;
                let open = OpenTransaction { producer_id, producer_epoch, first_offset };
                states.open.insert(first_offset, open);
            }
            states.entries.insert(producer_id, entry);
        }
        Ok(states)
    }
}

fn write_entry(bytes: &mut Vec<u8>, producer_id: ProducerId, entry: &ProducerEntry) {
    let last = entry.batches.last();
    let last_offset = last.map_or(Offset::NONE, |batch| batch.last_offset);
    let start = entry.transaction_start.unwrap_or(Offset::NONE);
    bytes.extend_from_slice(&producer_id.0.to_be_bytes());
    bytes.extend_from_slice(&entry.epoch.0.to_be_bytes());
    bytes.extend_from_slice(&entry.last_sequence().0.to_be_bytes());
    bytes.extend_from_slice(&last_offset.0.to_be_bytes());
    bytes.extend_from_slice(&last.map_or(0, |batch| batch.offset_delta).to_be_bytes());
    bytes.extend_from_slice(&entry.last_timestamp.0.to_be_bytes());
    bytes.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
    bytes.extend_from_slice(&start.0.to_be_bytes());
}

fn read_entry(rest: &mut &[u8]) -> Option<(ProducerId, ProducerEntry)> {
    let producer_id = ProducerId(take(rest).map(i64::from_be_bytes)?);
    let epoch = ProducerEpoch(take(rest).map(i16::from_be_bytes)?);
    let last_sequence = Sequence(take(rest).map(i32::from_be_bytes)?);
    let last_offset = Offset(take(rest).map(i64::from_be_bytes)?);
    let offset_delta = take(rest).map(i32::from_be_bytes)?;
    let last_timestamp = TimestampMs(take(rest).map(i64::from_be_bytes)?);
    let coordinator_epoch = take(rest).map(i32::from_be_bytes)?;
    let start = Offset(take(rest).map(i64::from_be_bytes)?);
    let mut batches = SmallVec::new();
    if last_offset >= Offset::ZERO {
        let timestamp = last_timestamp;
        batches.push(SequencedBatch { last_sequence, last_offset, offset_delta, timestamp });
    }
    let transaction_start = (start >= Offset::ZERO).then_some(start);
    let entry =
        ProducerEntry { epoch, coordinator_epoch, last_timestamp, transaction_start, batches };
    Some((producer_id, entry))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

/// The snapshots in one partition's directory.
#[derive(Clone, Debug)]
pub struct ProducerSnapshots {
    disk: Disk,
    dir: PathBuf,
}

impl ProducerSnapshots {
    /// The snapshots in `dir`.
    #[must_use]
    pub fn new(disk: Disk, dir: &Path) -> ProducerSnapshots {
        ProducerSnapshots { disk, dir: dir.to_owned() }
    }

    /// The path of the snapshot taken at `offset`.
    #[must_use]
    pub fn path(&self, offset: Offset) -> PathBuf {
        self.dir.join(format!("{:020}{SUFFIX}", offset.0))
    }

    /// At which offsets there are snapshots, in order.
    ///
    /// # Errors
    /// [`Error::Io`] where the disk fails.
    pub fn offsets(&self) -> Result<Vec<Offset>, Error> {
        let names =
            self.disk.list(&self.dir).map_err(|error| Error::io("list", &self.dir, &error))?;
        let offsets = names.iter().filter_map(|entry| {
            let digits = entry.name.strip_suffix(SUFFIX)?;
            let all_digits =
                digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
            all_digits.then(|| digits.parse().ok().map(Offset)).flatten()
        });
        let mut offsets: Vec<Offset> = offsets.collect();
        offsets.sort_unstable();
        Ok(offsets)
    }

    /// Writes a snapshot at [`ProducerStates::end`]. With `sync` its bytes are durable; its name
    /// is so once the directory is synced.
    ///
    /// # Errors
    /// [`Error::Io`] where the disk fails.
    pub fn take(&self, states: &ProducerStates, sync: bool) -> Result<(), Error> {
        let path = self.path(states.end());
        let bytes = states.to_snapshot();
        let written = self.disk.create(&path).and_then(|file| {
            file.set_len(0)?;
            file.write_at(0, &bytes)?;
            if sync { file.sync_data() } else { Ok(()) }
        });
        written.map_err(|error| Error::io("write", &path, &error))
    }

    /// Loads the newest snapshot above `log_start` and not above `end`, without the producers
    /// that have expired. Removes those out of these bounds and those that are damaged. The
    /// batches from the outcome's [`ProducerStates::end`] on are to be replayed.
    ///
    /// # Errors
    /// [`Error::Io`] where the disk fails.
    pub fn load(
        &self,
        log_start: Offset,
        end: Offset,
        now: TimestampMs,
        expiration_ms: i64,
    ) -> Result<ProducerStates, Error> {
        let mut usable = Vec::new();
        for offset in self.offsets()? {
            if offset > log_start && offset <= end {
                usable.push(offset);
            } else {
                self.remove(offset)?;
            }
        }
        for offset in usable.into_iter().rev() {
            let path = self.path(offset);
            let bytes = self.disk.read(&path).map_err(|error| Error::io("read", &path, &error))?;
            match ProducerStates::from_snapshot(&bytes, offset) {
                Ok(mut states) => {
                    states.entries.retain(|_, entry| !expired(entry, now, expiration_ms));
                    return Ok(states);
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "removing a producer snapshot");
                    self.remove(offset)?;
                }
            }
        }
        Ok(ProducerStates::new(log_start))
    }

    /// Removes the snapshots below `offset`, but keeps the newest of all.
    ///
    /// # Errors
    /// [`Error::Io`] where the disk fails.
    pub fn remove_below(&self, offset: Offset) -> Result<(), Error> {
        let offsets = self.offsets()?;
        let older = offsets.split_last().map_or(&[][..], |(_, older)| older);
        older.iter().filter(|older| **older < offset).try_for_each(|older| self.remove(*older))
    }

    /// Removes the snapshots above `offset`, where the log now ends.
    ///
    /// # Errors
    /// [`Error::Io`] where the disk fails.
    pub fn remove_above(&self, offset: Offset) -> Result<(), Error> {
        let later = self.offsets()?.into_iter().filter(|later| *later > offset);
        later.into_iter().try_for_each(|later| self.remove(later))
    }

    fn remove(&self, offset: Offset) -> Result<(), Error> {
        let path = self.path(offset);
        self.disk.remove(&path).map_err(|error| Error::io("remove", &path, &error))
    }
}
