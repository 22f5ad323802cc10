//! Snappy in snappy-java's framing, which Kafka's clients write, and the raw form that others
//! write. Owns the framing only; never allocates more than a block's bytes can decompress to.
//!
//! ```text
//! 8 bytes  magic 82 'S' 'N' 'A' 'P' 'P' 'Y' 00
//! int32    version 1
//! int32    lowest compatible version 1
//! blocks:  int32 length, then that many bytes of raw snappy
//! ```

use std::io::{self, Read};

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const VERSION_LEN: usize = 4;
const HEADER_LEN: usize = MAGIC.len() + 2 * VERSION_LEN;
const BLOCK_LENGTH_LEN: usize = 4;
const BLOCK_PLAIN_BYTES: usize = 32 * 1024;

/// Three bytes of raw snappy can stand for 64 plain ones, and no bytes for more.
const EXPANSION_MAX: usize = 22;

/// Compresses `plain` into blocks of 32 KiB.
pub(super) fn compress(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + plain.len() / 2);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&1i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in plain.chunks(BLOCK_PLAIN_BYTES) {
        let compressed = encoder.compress_vec(block).expect("a block of 32 KiB is small enough");
        let length = i32::try_from(compressed.len()).expect("a block of 32 KiB stays small");
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&compressed);
    }
    out
}

/// The plain bytes of snappy data, one block in memory at a time.
pub struct SnappyReader<'a> {
    rest: &'a [u8],
    framed: bool,
    block: Vec<u8>,
    position: usize,
}

impl<'a> SnappyReader<'a> {
    pub(super) fn new(compressed: &'a [u8]) -> SnappyReader<'a> {
        let framed = compressed.starts_with(&MAGIC);
        SnappyReader { rest: compressed, framed, block: Vec::new(), position: 0 }
    }

    fn next_block(&mut self) -> io::Result<bool> {
        // Streams may have been put end to end, each with its own header.
        while self.framed && self.rest.starts_with(&MAGIC) {
            self.rest = self.rest.get(HEADER_LEN..).ok_or_else(|| corrupt("header cut off"))?;
        }
        if self.rest.is_empty() {
            return Ok(false);
        }
        let compressed = if self.framed {
            let (length, rest) = self
                .rest
                .split_first_chunk::<BLOCK_LENGTH_LEN>()
                .ok_or_else(|| corrupt("block length cut off"))?;
            let length = usize::try_from(i32::from_be_bytes(*length))
                .map_err(|_| corrupt("negative block length"))?;
            let (block, rest) =
                rest.split_at_checked(length).ok_or_else(|| corrupt("block cut off"))?;
            self.rest = rest;
            block
        } else {
            std::mem::take(&mut self.rest)
        };
        self.decompress_block(compressed)?;
        Ok(true)
    }

    fn decompress_block(&mut self, compressed: &[u8]) -> io::Result<()> {
        let plain_len = snap::raw::decompress_len(compressed).map_err(io::Error::from)?;
        if plain_len > compressed.len().saturating_mul(EXPANSION_MAX) {
            return Err(corrupt("block announces more than it can hold"));
        }
        self.block.clear();
        self.block.resize(plain_len, 0);
        self.position = 0;
        snap::raw::Decoder::new()
            .decompress(compressed, &mut self.block)
            .map_err(io::Error::from)
            .map(|_| ())
    }
}

impl Read for SnappyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position == self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let available = &self.block[self.position..];
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.position += count;
        Ok(count)
    }
}

fn corrupt(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(compressed: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        SnappyReader::new(compressed).read_to_end(&mut plain)?;
        Ok(plain)
    }

    #[test]
    fn raw_snappy_is_read_too() {
        let raw = snap::raw::Encoder::new().compress_vec(b"abcabcabcabc").unwrap();
        assert_eq!(read(&raw).unwrap(), b"abcabcabcabc");
    }

    #[test]
    fn streams_end_to_end_are_one() {
        let mut both = compress(b"one ");
        both.extend(compress(b"two"));
        assert_eq!(read(&both).unwrap(), b"one two");
    }

    #[test]
    fn a_block_that_announces_too_much_is_refused_before_allocation() {
        // A raw block whose length says 4 GiB - 1.
        let error = read(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]).unwrap_err();
        assert!(error.to_string().contains("announces more"), "{error}");
    }

    #[test]
    fn cut_off_frames_are_errors() {
        let whole = compress(b"some bytes that will be cut");
        for end in MAGIC.len() + 1..whole.len() {
            if end != HEADER_LEN {
                assert!(read(&whole[..end]).is_err(), "{end}");
            }
        }
    }
}
