//! Walks the batches of one segment's file from a position on, headers first. Owns the read-ahead
//! window; never judges what the batches mean.

use bytes::Bytes;
use protocol::batch::{self, BatchHeader};
use protocol::ids::Offset;

use crate::disk::ReadMode;
use crate::error::Error;
use crate::open_files::Files;
use crate::segment::Segment;

/// Bytes read ahead when headers are looked for: many small batches, or one large one's header.
const WINDOW_BYTES: usize = 4_096;
/// Bytes read ahead when whole batches are wanted.
const WIDE_WINDOW_BYTES: usize = 1 << 20;

/// A batch in a segment's file.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) position: u64,
    pub(crate) header: BatchHeader,
}

impl Found {
    /// Where the next batch begins.
    pub(crate) fn end(&self) -> u64 {
        self.position + size_of_batch(&self.header)
    }
}

/// A walk over a segment's batches.
pub(crate) struct Scan<'a> {
    segment: &'a Segment,
    files: &'a Files,
    mode: ReadMode,
    position: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
    window_bytes: usize,
}

impl<'a> Scan<'a> {
    /// A walk from `position` to `end`, reading little ahead.
    pub(crate) fn headers(
        segment: &'a Segment,
        files: &'a Files,
        position: u64,
        end: u64,
        mode: ReadMode,
    ) -> Self {
        let window_bytes = WINDOW_BYTES;
        let window = Vec::new();
        Self { segment, files, mode, position, end, window, window_at: 0, window_bytes }
    }

    /// A walk that reads every byte: for recovery.
    pub(crate) fn whole(segment: &'a Segment, files: &'a Files, position: u64, end: u64) -> Self {
        let mut scan = Self::headers(segment, files, position, end, ReadMode::MayBlock);
        scan.window_bytes = WIDE_WINDOW_BYTES;
        scan
    }

    /// The next batch, or `None` at the end.
    ///
    /// # Errors
    /// [`Error::CorruptBatch`] where no whole, well-formed batch follows.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, Error> {
        if self.position >= self.end {
            return Ok(None);
        }
        let position = self.position;
        self.fill(position, batch::HEADER_BYTES)?;
        let header = parse_header(self.at(position), position)?;
        let found = Found { position, header };
        if found.end() > self.end {
            return Err(corrupt(format!(
                "batch at position {position} ends at {}, behind the segment's end {}",
                found.end(),
                self.end
            )));
        }
        self.position = found.end();
        Ok(Some(found))
    }

    /// The bytes of a batch just found.
    pub(crate) fn bytes_of(&mut self, found: &Found) -> Result<Bytes, Error> {
        let size = usize::try_from(size_of_batch(&found.header)).expect("a batch fits memory");
        self.fill(found.position, size)?;
        Ok(Bytes::copy_from_slice(&self.at(found.position)[..size]))
    }

    /// The first batch whose last offset is at least `offset`.
    pub(crate) fn seek(&mut self, offset: Offset) -> Result<Option<Found>, Error> {
        while let Some(found) = self.next()? {
            if found.header.last_offset() >= offset {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn at(&self, position: u64) -> &[u8] {
        let start = usize::try_from(position - self.window_at).expect("the window fits memory");
        &self.window[start..]
    }

    /// Makes the window hold `wanted` bytes from `position` on.
    fn fill(&mut self, position: u64, wanted: usize) -> Result<(), Error> {
        let held_to = self.window_at + length(&self.window);
        let wanted_to = position + u64::try_from(wanted).expect("a length fits");
        if position >= self.window_at && wanted_to <= held_to {
            return Ok(());
        }
        let left = usize::try_from(self.end - position).unwrap_or(usize::MAX);
        let bytes = wanted.max(self.window_bytes).min(left);
        self.window.resize(bytes, 0);
        self.window_at = position;
        let filled = self.segment.read_at(self.files, position, &mut self.window, self.mode)?;
        self.window.truncate(filled);
        if filled >= wanted {
            return Ok(());
        }
        match self.mode {
            ReadMode::CachedOnly if wanted <= left => Err(Error::WouldBlock),
            ReadMode::CachedOnly | ReadMode::MayBlock => Err(corrupt(format!(
                "{filled} of {wanted} bytes at position {position}: the segment is cut off"
            ))),
        }
    }
}

/// The bytes a batch takes in the file.
pub(crate) fn size_of_batch(header: &BatchHeader) -> u64 {
    u64::try_from(header.size_in_bytes()).expect("a batch's size fits")
}

/// The header at the start of `bytes`.
pub(crate) fn parse_header(bytes: &[u8], position: u64) -> Result<BatchHeader, Error> {
    BatchHeader::parse(bytes).map_err(|error| corrupt(format!("at position {position}: {error}")))
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("a length fits")
}

fn corrupt(reason: String) -> Error {
    Error::CorruptBatch { reason }
}
