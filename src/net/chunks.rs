//! Writing lists of chunks: record bytes go from the log or a peer to the socket without a copy.
//!
//! Owns vectored writes. It never decides what is written.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// Chunks of one vectored write; the system takes up to 1,024, few need more than these.
const SLICES_MAX: usize = 64;

/// Writes all chunks in order, as many at a time as the stream takes, and leaves the list empty.
///
/// After an error, or when dropped half-way, the stream is of no further use.
pub async fn write_chunks<W: AsyncWrite + Unpin>(
    stream: &mut W,
    chunks: &mut Vec<Bytes>,
) -> io::Result<()> {
    let mut next = 0;
    while next < chunks.len() {
        if chunks[next].is_empty() {
            next += 1;
            continue;
        }
        let mut written = poll_fn(|context| {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut used = 0;
            for (slice, chunk) in slices.iter_mut().zip(&chunks[next..]) {
                *slice = IoSlice::new(chunk);
                used += 1;
            }
            let stream = Pin::new(&mut *stream);
            let written = ready!(stream.poll_write_vectored(context, &slices[..used]))?;
            Poll::Ready(if written == 0 {
                Err(io::Error::from(io::ErrorKind::WriteZero))
            } else {
                Ok(written)
            })
        })
        .await?;
        while written > 0 {
            let step = written.min(chunks[next].len());
            chunks[next].advance(step);
            written -= step;
            if chunks[next].is_empty() {
                next += 1;
            }
        }
    }
    chunks.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn every_byte_arrives_in_order_through_a_narrow_pipe() {
        let (mut near, mut far) = tokio::io::duplex(7);
        let mut expected = Vec::new();
        let mut chunks: Vec<Bytes> = Vec::new();
        for size in (0..200usize).map(|n| n * 7 % 23) {
            let chunk: Vec<u8> =
                (0..size).map(|n| u8::try_from((n * size) % 251).unwrap()).collect();
            expected.extend_from_slice(&chunk);
            chunks.push(chunk.into());
        }
        let writer = tokio::spawn(async move {
            write_chunks(&mut near, &mut chunks).await.unwrap();
            assert!(chunks.is_empty());
        });
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        writer.await.unwrap();
        assert_eq!(got, expected);
    }
}
