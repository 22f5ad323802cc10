//! Frames out of a stream that fills slowly, quickly, or with lies.
//!
//! Owns the read buffer and its growth: memory follows what has arrived, never what was
//! announced; a waiting connection keeps no buffer; bytes above a floor are lent by the node's
//! budget. It never looks into a frame.
//!
//! A frame is copied at most once beyond the read: the buffer grows eightfold, so what is moved
//! on growth is less than a seventh of the frame, and a peer that has sent large frames before
//! gets its buffer at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protocol::frame::{FrameDecoder, PREFIX_BYTES};
use tokio::io::AsyncRead;

use crate::budget::{ByteBudget, Grant};
use crate::error::Error;

/// A buffer up to this size needs no grant.
pub const FLOOR_BYTES: usize = 64 * 1024;
/// A peer that has sent frames of this size gets a buffer for one at its announcement.
pub const TRUST_BYTES_MAX: usize = 2 * 1024 * 1024;
/// A buffer grows by this factor once it is full.
const GROWTH: usize = 8;
/// Below this a buffer has too little room left to be worth a read.
const ROOM_BYTES_MIN: usize = FLOOR_BYTES / 8;
/// What has arrived up to this size is moved to a buffer of its own while the connection waits.
const KEPT_BYTES_MAX: usize = 4 * 1024;
/// A peer that stops for this long inside a frame is disconnected.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// One frame without its length, and the bytes it holds of the node's budget.
#[derive(Debug)]
pub struct Frame {
    /// The frame's bytes.
    pub bytes: Bytes,
    /// Keep it as long as the bytes are kept.
    pub grant: Grant,
}

/// Reads frames from a stream.
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    decoder: FrameDecoder,
    budget: ByteBudget,
    grant: Grant,
    /// The largest frame this peer has completed, up to [`TRUST_BYTES_MAX`].
    trusted: usize,
    /// The size of the frame at the buffer's start with its prefix, as far as it is known.
    whole: usize,
    stall_timeout: Duration,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Frames above `frame_bytes_max` end the stream; memory is lent by `budget`.
    pub fn new(stream: R, frame_bytes_max: usize, budget: ByteBudget) -> FrameReader<R> {
        FrameReader {
            stream,
            buffer: BytesMut::new(),
            decoder: FrameDecoder::new(frame_bytes_max),
            budget,
            grant: Grant::default(),
            trusted: 0,
            whole: PREFIX_BYTES,
            stall_timeout: STALL_TIMEOUT,
        }
    }

    /// Gives up on a peer that sends nothing for this long inside a frame.
    pub fn with_stall_timeout(mut self, timeout: Duration) -> FrameReader<R> {
        self.stall_timeout = timeout;
        self
    }

    /// The next frame, or `None` when the peer closed the stream between two frames. Safe to drop
    /// and call again.
    pub async fn next(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            if let Some(bytes) = self.decoder.decode(&mut self.buffer).map_err(Error::Frame)? {
                self.trusted = self.trusted.max(bytes.len().min(TRUST_BYTES_MAX));
                let grant = std::mem::take(&mut self.grant);
                // What was lent belongs to the frame: the next one starts in memory of its own.
                if !grant.is_none() {
                    self.buffer = BytesMut::from(self.buffer.as_ref());
                }
                return Ok(Some(Frame { bytes, grant }));
            }
            self.grow().await?;
            let read = if self.buffer.is_empty() {
                self.read().await?
            } else {
                match tokio::time::timeout(self.stall_timeout, self.read()).await {
                    Ok(read) => read?,
                    Err(_) => return Err(self.stalled()),
                }
            };
            if read == 0 && self.buffer.is_empty() {
                return Ok(None);
            }
            if read == 0 {
                return Err(Error::ClosedInsideFrame { received: self.buffer.len() });
            }
        }
    }

    /// Makes room for a frame above the floor, by as much as its arrived part justifies.
    async fn grow(&mut self) -> Result<(), Error> {
        let missing = self.decoder.missing(&self.buffer).map_err(Error::Frame)?;
        let arrived = self.buffer.len();
        self.whole = arrived + missing;
        let enough = self.whole <= FLOOR_BYTES || self.buffer.capacity() >= self.whole;
        let target = if enough {
            return Ok(());
        } else if self.whole <= self.trusted + PREFIX_BYTES {
            self.whole
        } else if arrived >= FLOOR_BYTES && arrived == self.buffer.capacity() {
            self.whole.min(arrived.saturating_mul(GROWTH))
        } else {
            return Ok(());
        };
        let lacking = target.saturating_sub(self.grant.bytes());
        self.budget.extend(&mut self.grant, lacking).await;
        let mut larger = BytesMut::with_capacity(target);
        larger.extend_from_slice(&self.buffer);
        self.buffer = larger;
        Ok(())
    }

    /// Reads once; while nothing comes, a buffer with little in it is given back.
    async fn read(&mut self) -> Result<usize, Error> {
        poll_fn(|context| self.poll_read(context)).await.map_err(Error::Io)
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        let arrived = self.buffer.len();
        let lent = !self.grant.is_none();
        let room = FLOOR_BYTES.saturating_sub(arrived).max(1);
        let wanted = if self.whole <= FLOOR_BYTES {
            (self.whole - arrived).max(ROOM_BYTES_MIN).min(room)
        } else if lent {
            1
        } else {
            room
        };
        if self.buffer.capacity() - arrived < wanted {
            self.buffer.reserve(room);
        }
        let stream = Pin::new(&mut self.stream);
        let polled = tokio_util::io::poll_read_buf(stream, context, &mut self.buffer);
        if polled.is_pending() && !lent && self.buffer.len() <= KEPT_BYTES_MAX {
            self.buffer = BytesMut::from(self.buffer.as_ref());
        }
        polled
    }

    fn stalled(&self) -> Error {
        Error::Stalled { received: self.buffer.len(), after: self.stall_timeout }
    }
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
