//! A log's aborted transactions, segment by segment, in memory and in `.txnindex` files. Never
//! decides that a transaction is aborted.

use std::path::Path;

use protocol::ids::Offset;

use super::PartitionLog;
use super::open::remove;
use crate::aborted::{AbortedTransactions, ENTRY_BYTES};
use crate::active_segment::set_len;
use crate::error::Error;
use crate::open_files::Files;
use crate::segment::{SegmentFile, read_file};

impl PartitionLog {
    /// Writes the transactions that staged markers aborted, and shows them to readers: before the
    /// log's end moves.
    pub(super) fn write_aborts(&mut self) -> Result<(), Error> {
        if self.staged_aborts.is_empty() {
            return Ok(());
        }
        let segment = &self.active.segment;
        let path = SegmentFile::TransactionIndex.path(&self.dir, segment.base);
        let file =
            self.files.disk.create(&path).map_err(|error| Error::io("open", &path, &error))?;
        let (position, bytes) = segment.change_aborted(|aborted| {
            let position = aborted.entries().len() * ENTRY_BYTES;
            let bytes: Vec<u8> =
                self.staged_aborts.drain(..).flat_map(|abort| aborted.append(abort)).collect();
            (position, bytes)
        });
        let position = u64::try_from(position).expect("a length fits");
        file.write_at(position, &bytes).map_err(|error| Error::io("write", &path, &error))
    }

    /// Forgets transactions whose marker was cut off.
    pub(super) fn cut_aborts(&self, log_end: Offset) -> Result<(), Error> {
        let segment = &self.active.segment;
        let (before, kept) = segment.change_aborted(|aborted| {
            (aborted.entries().len() * ENTRY_BYTES, aborted.truncate(log_end))
        });
        if before == kept {
            return Ok(());
        }
        let path = SegmentFile::TransactionIndex.path(&self.dir, segment.base);
        let file =
            self.files.disk.create(&path).map_err(|error| Error::io("open", &path, &error))?;
        set_len(&file, u64::try_from(kept).expect("a length fits"), &path)
    }
}

/// Reads a segment's aborted transactions; a file that cannot be used counts as `None`.
pub(super) fn read_aborted(
    files: &Files,
    dir: &Path,
    base: Offset,
    segment_end: Offset,
) -> Result<Option<AbortedTransactions>, Error> {
    let path = SegmentFile::TransactionIndex.path(dir, base);
    let Some(bytes) = read_file(files, &path)? else {
        return Ok(Some(AbortedTransactions::new()));
    };
    match AbortedTransactions::parse(&bytes, segment_end) {
        Ok(aborted) => Ok(Some(aborted)),
        Err(reason) => {
            tracing::warn!(path = %path.display(), reason, "transaction index cannot be used");
            Ok(None)
        }
    }
}

/// Replaces a segment's transaction index by one made anew.
pub(super) fn replace_aborted(
    files: &Files,
    dir: &Path,
    base: Offset,
    aborted: &AbortedTransactions,
) -> Result<(), Error> {
    let path = SegmentFile::TransactionIndex.path(dir, base);
    if aborted.entries().is_empty() {
        return remove(files, &path);
    }
    let written = files.disk.create(&path).and_then(|file| {
        file.set_len(0)?;
        file.write_at(0, &aborted.to_bytes())
    });
    written.map_err(|error| Error::io("write", &path, &error))
}
