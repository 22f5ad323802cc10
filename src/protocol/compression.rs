//! The compressions of record batches: gzip, snappy, lz4 and zstd, both ways. Owns what the
//! compressed bytes look like to other clients; never trusts a length it reads, and never yields
//! more than a given number of bytes.
//!
//! | id | name | form written | forms read |
//! |---|---|---|---|
//! | 0 | none | as is | as is |
//! | 1 | gzip | one member | any number of members |
//! | 2 | snappy | snappy-java's: a header, blocks of 32 KiB | the same; one raw block |
//! | 3 | lz4 | frame with independent blocks of 64 KiB | frames |
//! | 4 | zstd | one frame | frames |

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use self::snappy::SnappyReader;

mod snappy;

/// What the records of one batch may grow to when decompressed, unless a caller says otherwise.
pub const DECOMPRESSED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How the records of a batch are compressed: the low three bits of its attributes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy in snappy-java's framing.
    Snappy,
    /// The LZ4 frame format.
    Lz4,
    /// Zstandard (KIP-110); clients may produce it from Produce v7 on.
    Zstd,
}

/// Why bytes could not be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are not what the compression writes.
    #[error("the {compression} data is corrupt: {source}")]
    Corrupt {
        /// What the batch says it is.
        compression: Compression,
        /// What the decoder found.
        source: io::Error,
    },
    /// The data grows beyond the limit.
    #[error("the {compression} data decompresses to more than {limit} bytes")]
    TooLarge {
        /// What the batch says it is.
        compression: Compression,
        /// The limit in bytes.
        limit: usize,
    },
}

/// A compression id or name that Kafka does not define.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a compression (none, gzip, snappy, lz4, zstd)")]
pub struct UnknownCompression(pub String);

impl Compression {
    /// Every compression, in the order of the ids.
    pub const ALL: [Compression; 5] = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];

    /// The compression of `id`, the low three bits of a batch's attributes.
    pub fn from_id(id: i16) -> Result<Compression, UnknownCompression> {
        Compression::ALL
            .into_iter()
            .find(|compression| compression.id() == id)
            .ok_or_else(|| UnknownCompression(id.to_string()))
    }

    /// Kafka's number for it.
    #[must_use]
    pub fn id(self) -> i16 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Snappy => 2,
            Compression::Lz4 => 3,
            Compression::Zstd => 4,
        }
    }

    /// Kafka's name for it, as in `compression.type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Compresses `plain` at Kafka's default level.
    #[must_use]
    pub fn compress(self, plain: &[u8]) -> Vec<u8> {
        let written = match self {
            Compression::None => Ok(plain.to_vec()),
            Compression::Gzip => gzip(plain),
            Compression::Snappy => Ok(snappy::compress(plain)),
            Compression::Lz4 => lz4(plain),
            Compression::Zstd => zstd::stream::encode_all(plain, zstd::DEFAULT_COMPRESSION_LEVEL),
        };
        written.expect("compressing into memory cannot fail")
    }

    /// Decompresses all of `compressed`, or fails once it has grown beyond `limit` bytes.
    /// Without compression the bytes are shared, not copied.
    pub fn decompress(self, compressed: &Bytes, limit: usize) -> Result<Bytes, Error> {
        if self == Compression::None {
            return Ok(compressed.clone());
        }
        let mut plain = Vec::new();
        let limit_exceeded = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        self.reader(compressed)
            .and_then(|reader| reader.take(limit_exceeded).read_to_end(&mut plain))
            .map_err(|source| Error::Corrupt { compression: self, source })?;
        if plain.len() > limit {
            return Err(Error::TooLarge { compression: self, limit });
        }
        Ok(Bytes::from(plain))
    }

    /// Reads `compressed` piece by piece; nothing is held but the decoder's window.
    pub fn reader(self, compressed: &[u8]) -> io::Result<Reader<'_>> {
        Ok(match self {
            Compression::None => Reader::Plain(compressed),
            Compression::Gzip => {
                Reader::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(compressed)))
            }
            Compression::Snappy => Reader::Snappy(SnappyReader::new(compressed)),
            Compression::Lz4 => {
                Reader::Lz4(Box::new(lz4_flex::frame::FrameDecoder::new(compressed)))
            }
            Compression::Zstd => {
                Reader::Zstd(Box::new(zstd::stream::read::Decoder::with_buffer(compressed)?))
            }
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(name: &str) -> Result<Compression, UnknownCompression> {
        Compression::ALL
            .into_iter()
            .find(|compression| compression.name() == name)
            .ok_or_else(|| UnknownCompression(name.to_owned()))
    }
}

/// The plain bytes of compressed ones, as a stream. Made by [`Compression::reader`].
pub enum Reader<'a> {
    /// Nothing to do.
    Plain(&'a [u8]),
    /// See [`Compression::Gzip`].
    Gzip(Box<flate2::bufread::MultiGzDecoder<&'a [u8]>>),
    /// See [`Compression::Snappy`].
    Snappy(SnappyReader<'a>),
    /// See [`Compression::Lz4`].
    Lz4(Box<lz4_flex::frame::FrameDecoder<&'a [u8]>>),
    /// See [`Compression::Zstd`].
    Zstd(Box<zstd::stream::read::Decoder<'static, &'a [u8]>>),
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Reader::Plain(reader) => reader.read(buffer),
            Reader::Gzip(reader) => reader.read(buffer),
            Reader::Snappy(reader) => reader.read(buffer),
            Reader::Lz4(reader) => reader.read(buffer),
            Reader::Zstd(reader) => reader.read(buffer),
        }
    }
}

fn gzip(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(plain)?;
    encoder.finish()
}

fn lz4(plain: &[u8]) -> io::Result<Vec<u8>> {
    // Kafka's own reader refuses blocks that depend on the one before.
    let frame = lz4_flex::frame::FrameInfo::new()
        .block_mode(lz4_flex::frame::BlockMode::Independent)
        .block_size(lz4_flex::frame::BlockSize::Max64KB);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(frame, Vec::new());
    encoder.write_all(plain)?;
    encoder.finish().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_ids_read_back() {
        for compression in Compression::ALL {
            assert_eq!(Compression::from_id(compression.id()), Ok(compression));
            assert_eq!(compression.to_string().parse(), Ok(compression));
        }
        assert!(Compression::from_id(5).is_err());
        assert!("brotli".parse::<Compression>().is_err());
    }

    #[test]
    fn growth_beyond_the_limit_is_an_error() {
        let plain = vec![7u8; 100_000];
        for compression in Compression::ALL.into_iter().skip(1) {
            let compressed = Bytes::from(compression.compress(&plain));
            let error = compression.decompress(&compressed, 99_999).unwrap_err();
            assert!(matches!(error, Error::TooLarge { limit: 99_999, .. }), "{error}");
            assert_eq!(compression.decompress(&compressed, 100_000).unwrap(), plain);
        }
    }

    proptest! {
        #[test]
        fn every_compression_reads_back(
            seed in proptest::collection::vec(any::<u8>(), 0..2_000),
            repeats in 1usize..60,
        ) {
            let plain = seed.repeat(repeats);
            for compression in Compression::ALL {
                let compressed = Bytes::from(compression.compress(&plain));
                let read = compression.decompress(&compressed, plain.len()).unwrap();
                prop_assert_eq!(&read, &plain);
            }
        }

        #[test]
        fn hostile_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            plain in proptest::collection::vec(any::<u8>(), 0..300),
            at in 0usize..300,
            bit in 0u8..8,
        ) {
            for compression in Compression::ALL {
                let _ = compression.decompress(&Bytes::from(bytes.clone()), 10_000);
                let mut damaged = compression.compress(&plain);
                if let Some(byte) = damaged.get_mut(at) {
                    *byte ^= 1 << bit;
                }
                let _ = compression.decompress(&Bytes::from(damaged), 10_000);
            }
        }
    }
}
