//! The half of a connection that writes: answers in the order of the requests.
//!
//! Owns when a client that does not read is given up: its answer holds memory that others need.
//! It never looks into a request.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, mem};

use bytes::Bytes;
use protocol::api::Response;
use protocol::fetch_response::fetch_response_chunks;
use protocol::frame::response_frame;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;

use super::dispatch::Answer;
use super::{Error, InFlight};
use crate::directory::Directory;

/// How often a write under way is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Writes what was asked for, in that order.
///
/// # Errors
/// The socket; an answer that cannot be encoded; a client that does not read.
pub(super) async fn write_answers<W: AsyncWrite + Unpin>(
    writing: W,
    mut answers: mpsc::Receiver<InFlight>,
    directory: &Directory,
) -> Result<(), Error> {
    let mut writing = Counted { inner: writing, written: Arc::default() };
    while let Some(next) = answers.recv().await {
        let InFlight { key, version, correlation_id, begun, _grant, _busy } = next;
        let answer = begun.finish().await;
        let chunks = match answer {
            Answer::Response(response) => encode(&response, version, correlation_id)
                .map_err(|error| Error::Unanswerable { key, version, error })?,
            Answer::Nothing => continue,
            Answer::Close => return Ok(()),
        };
        write(&mut writing, chunks, directory).await?;
    }
    Ok(())
}

/// Writes one answer. A client that takes nothing is given up after the time a connection may be
/// idle, and at once where others wait for the memory its answer holds.
async fn write<W: AsyncWrite + Unpin>(
    writing: &mut Counted<W>,
    mut chunks: Vec<Bytes>,
    directory: &Directory,
) -> Result<(), Error> {
    let written = Arc::clone(&writing.written);
    let idle_max = directory.config.network.connections_max_idle.unwrap_or(Duration::MAX);
    let mut stalled = Duration::ZERO;
    let mut seen = written.load(Ordering::Relaxed);
    let mut write = pin!(net::write_chunks(writing, &mut chunks));
    loop {
        tokio::select! {
            biased;
            done = &mut write => return done.map_err(|error| net::Error::Io(error).into()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let now = written.load(Ordering::Relaxed);
        stalled = if now == mem::replace(&mut seen, now) {
            stalled + LOOK_EVERY
        } else {
            Duration::ZERO
        };
        let wanted = !stalled.is_zero() && directory.response_budget.is_short();
        if wanted || stalled >= idle_max {
            return Err(Error::NotRead { for_ms: stalled.as_millis() });
        }
    }
}

fn encode(
    response: &Response,
    version: i16,
    correlation_id: i32,
) -> Result<Vec<Bytes>, protocol::Error> {
    match response {
        Response::Fetch(fetch) => fetch_response_chunks(fetch, version, correlation_id),
        other => response_frame(other, version, correlation_id).map(|frame| vec![frame]),
    }
}

/// A stream that counts what it took.
struct Counted<W> {
    inner: W,
    written: Arc<AtomicU64>,
}

impl<W> Counted<W> {
    fn count(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &polled {
            self.written.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        polled
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Counted<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.count(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.count(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
