//! Reading batches through a [`ReadView`]: bounds, position, bytes, whole batches only. Never
//! changes the log and holds no lock while it reads.

use std::cmp::min;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::ids::Offset;

use super::{ReadBatches, ReadUpTo, ReadView};
use crate::disk::ReadMode;
use crate::error::Error;
use crate::scan::{Found, Scan, parse_header, size_of_batch};
use crate::segment::Segment;

/// How often a read begins anew because the log was truncated meanwhile.
const ATTEMPTS: u32 = 8;
/// How many readers' last positions are remembered.
const HINTS: usize = 8;

/// Where recent reads ended, so that the next one needs no index.
#[derive(Default)]
pub(super) struct Hints {
    ring: Mutex<HintRing>,
}

#[derive(Default)]
struct HintRing {
    hints: [Hint; HINTS],
    oldest: usize,
}

#[derive(Clone, Copy)]
struct Hint {
    offset: Offset,
    segment: Offset,
    position: u64,
    truncations: u64,
}

impl Default for Hint {
    fn default() -> Self {
        Self { offset: Offset::NONE, segment: Offset::NONE, position: 0, truncations: 0 }
    }
}

impl Hints {
    fn find(&self, offset: Offset, segment: Offset, truncations: u64) -> Option<u64> {
        let ring = self.ring.try_lock()?;
        ring.hints
            .iter()
            .find(|hint| {
                hint.offset == offset && hint.segment == segment && hint.truncations == truncations
            })
            .map(|hint| hint.position)
    }

    /// Replaces the hint at `from`, which its reader has left, or the oldest one.
    fn note(&self, from: Offset, hint: Hint) {
        let Some(mut ring) = self.ring.try_lock() else { return };
        let at = ring.hints.iter().position(|known| known.offset == from).unwrap_or(ring.oldest);
        ring.hints[at] = hint;
        ring.oldest = (ring.oldest + 1) % HINTS;
    }
}

/// What one read asks for.
#[derive(Clone, Copy)]
struct Want {
    offset: Offset,
    bytes_max: usize,
    up_to: ReadUpTo,
    at_least_one: bool,
    mode: ReadMode,
}

impl ReadView {
    /// Reads whole batches from the one that holds `offset` on, out of one segment, at most
    /// `bytes_max` bytes; with `at_least_one` the first batch even if it is larger. Batches that
    /// reach above the bound of `up_to` are left out.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] below the log's start or above its end; [`Error::WouldBlock`]
    /// when nothing could be read from memory alone; [`Error::Io`] and [`Error::CorruptBatch`]
    /// when the disk fails.
    pub fn read(
        &self,
        offset: Offset,
        bytes_max: usize,
        up_to: ReadUpTo,
        at_least_one: bool,
        mode: ReadMode,
    ) -> Result<ReadBatches, Error> {
        let want = Want { offset, bytes_max, up_to, at_least_one, mode };
        self.undisturbed(|truncations| self.try_read(want, truncations))
    }

    /// Runs `look` until no truncation came between: what it returns then was never replaced.
    pub(super) fn undisturbed<T>(
        &self,
        mut look: impl FnMut(u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut last = Error::Contended { truncations: self.truncations() };
        for _ in 0..ATTEMPTS {
            let truncations = self.truncations();
            let outcome = look(truncations);
            if self.is_deleted() {
                return Err(self.stale(self.incarnation()));
            }
            if self.truncations() != truncations {
                last = Error::Contended { truncations };
                continue;
            }
            match outcome {
                // The segment was deleted with a raised log start: look at the new bounds.
                Err(Error::Io { kind: std::io::ErrorKind::NotFound, .. }) => {
                    last = outcome.err().expect("matched as an error");
                }
                outcome => return outcome,
            }
        }
        Err(last)
    }

    /// The end of what `up_to` may see.
    pub fn bound(&self, up_to: ReadUpTo) -> Offset {
        match up_to {
            ReadUpTo::LogEnd => self.log_end(),
            ReadUpTo::HighWatermark => self.high_watermark(),
            ReadUpTo::LastStable => self.last_stable_offset(),
        }
    }

    fn try_read(&self, want: Want, truncations: u64) -> Result<ReadBatches, Error> {
        let mut answer = ReadBatches {
            bytes: Bytes::new(),
            next_offset: want.offset,
            log_start: self.log_start(),
            last_stable_offset: self.last_stable_offset(),
            high_watermark: self.high_watermark(),
            log_end: self.log_end(),
            incarnation: self.incarnation(),
        };
        if want.offset < answer.log_start || want.offset > answer.log_end {
            return Err(Error::OffsetOutOfRange {
                offset: want.offset,
                start: answer.log_start,
                end: answer.log_end,
            });
        }
        let bound = match want.up_to {
            ReadUpTo::LogEnd => answer.log_end,
            ReadUpTo::HighWatermark => answer.high_watermark,
            ReadUpTo::LastStable => answer.last_stable_offset,
        };
        if want.offset >= bound {
            return Ok(answer);
        }
        let segments = self.segments.load();
        let Some((segment, found)) =
            self.locate(&segments, want.offset, truncations, want.mode)?
        else {
            // The log was cut inside a gap that compaction had left, and ends there for now.
            return Ok(answer);
        };
        let (bytes, next_offset) = self.read_from(&segment, &found, want, bound)?;
        if let Some(next_offset) = next_offset {
            let read = u64::try_from(bytes.len()).expect("a length fits");
            let position = found.position + read;
            let hint = Hint { offset: next_offset, segment: segment.base, position, truncations };
            self.hints.note(want.offset, hint);
            answer.next_offset = next_offset;
            answer.bytes = bytes;
        }
        Ok(answer)
    }

    /// The first batch that ends at or above `offset`, and its segment.
    pub(super) fn locate(
        &self,
        segments: &[Arc<Segment>],
        offset: Offset,
        truncations: u64,
        mode: ReadMode,
    ) -> Result<Option<(Arc<Segment>, Found)>, Error> {
        let after = segments.partition_point(|segment| segment.base <= offset);
        let Some(first) = after.checked_sub(1) else { return Ok(None) };
        for segment in &segments[first..] {
            let position = match self.hints.find(offset, segment.base, truncations) {
                Some(position) => position,
                None => segment.with_indexes(&self.files, mode, |indexes| {
                    indexes.offsets.lookup(offset).map_or(0, |entry| u64::from(entry.position))
                })?,
            };
            let end = segment.bytes();
            let mut scan = Scan::headers(segment, &self.files, position, end, mode);
            if let Some(found) = scan.seek(offset)? {
                return Ok(Some((Arc::clone(segment), found)));
            }
        }
        Ok(None)
    }

    /// Reads from a batch on; the offset behind the last one read, or `None` if there is none.
    fn read_from(
        &self,
        segment: &Segment,
        first: &Found,
        want: Want,
        bound: Offset,
    ) -> Result<(Bytes, Option<Offset>), Error> {
        let first_bytes = usize::try_from(size_of_batch(&first.header)).unwrap_or(usize::MAX);
        let at_least = if want.at_least_one { first_bytes } else { 0 };
        let available = segment.bytes().saturating_sub(first.position);
        let available = usize::try_from(available).unwrap_or(usize::MAX);
        let bytes = min(want.bytes_max.max(at_least), available);
        if bytes < first_bytes || first.header.next_offset() > bound {
            return Ok((Bytes::new(), None));
        }
        let mut buffer = vec![0; bytes];
        let filled = segment.read_at(&self.files, first.position, &mut buffer, want.mode)?;
        buffer.truncate(filled);
        let (whole, next_offset) = whole_batches(&buffer, first.position, bound)?;
        if next_offset.is_none() {
            // Less than the first batch was in memory, or the file was cut meanwhile.
            return Err(match want.mode {
                ReadMode::CachedOnly => Error::WouldBlock,
                ReadMode::MayBlock => Error::CorruptBatch {
                    reason: format!("batch at position {} is cut off", first.position),
                },
            });
        }
        buffer.truncate(whole);
        Ok((Bytes::from(buffer), next_offset))
    }
}

/// How many bytes of `buffer` are whole batches below `bound`, and the offset behind them.
fn whole_batches(
    buffer: &[u8],
    position: u64,
    bound: Offset,
) -> Result<(usize, Option<Offset>), Error> {
    let mut whole = 0;
    let mut next_offset = None;
    while buffer.len() - whole >= protocol::batch::HEADER_BYTES {
        let header = parse_header(&buffer[whole..], position)?;
        let size = usize::try_from(size_of_batch(&header)).unwrap_or(usize::MAX);
        if size > buffer.len() - whole || header.next_offset() > bound {
            break;
        }
        whole += size;
        next_offset = Some(header.next_offset());
    }
    Ok((whole, next_offset))
}
