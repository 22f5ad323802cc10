//! Length-prefixed frames: out of a buffer that fills, and into one. Owns the limit on a
//! frame's length; never reserves memory for a frame that has only been announced.

use crate::api::{ApiKey, Request, RequestHeader, Response, ResponseHeader};
use crate::error::Error;
use crate::reader::Reader;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The length before every frame, in bytes.
pub const PREFIX_BYTES: usize = 4;

/// Takes frames out of a stream's buffer.
#[derive(Debug, Clone, Copy)]
pub struct FrameDecoder {
    frame_bytes_max: usize,
}

impl FrameDecoder {
    /// Refuses frames above `frame_bytes_max` bytes (the prefix not counted).
    pub fn new(frame_bytes_max: usize) -> FrameDecoder {
        FrameDecoder { frame_bytes_max }
    }

    /// The next whole frame, without its prefix; `None` = more bytes are needed.
    ///
    /// # Errors
    ///
    /// A negative length or one above the limit: the stream is of no use any more.
    pub fn decode(&self, buffer: &mut BytesMut) -> Result<Option<Bytes>, Error> {
        let Some(length) = self.length(buffer)? else { return Ok(None) };
        if buffer.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        buffer.advance(PREFIX_BYTES);
        Ok(Some(buffer.split_to(length).freeze()))
    }

    /// How many bytes the frame at the buffer's start still lacks, its prefix counted; 0 = it
    /// is whole. A reader must not reserve all of it at once: the peer has only said so.
    ///
    /// # Errors
    ///
    /// As [`FrameDecoder::decode`].
    pub fn missing(&self, buffer: &[u8]) -> Result<usize, Error> {
        Ok(match self.length(buffer)? {
            Some(length) => (PREFIX_BYTES + length).saturating_sub(buffer.len()),
            None => PREFIX_BYTES - buffer.len(),
        })
    }

    fn length(&self, buffer: &[u8]) -> Result<Option<usize>, Error> {
        let Some(prefix) = buffer.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let length = i32::from_be_bytes(*prefix);
        let length = usize::try_from(length).map_err(|_| Error::NegativeFrameLength { length })?;
        if length > self.frame_bytes_max {
            return Err(Error::FrameTooLong { length, length_max: self.frame_bytes_max });
        }
        Ok(Some(length))
    }
}

/// Appends one frame: the prefix, then what `body` writes.
///
/// # Errors
///
/// What `body` gives, and a frame beyond 31 bits; the buffer is then as it was.
pub fn put_frame(
    out: &mut BytesMut,
    body: impl FnOnce(&mut BytesMut) -> Result<(), Error>,
) -> Result<(), Error> {
    let start = out.len();
    out.put_i32(0);
    let written = body(out).and_then(|()| {
        let length = out.len() - start - PREFIX_BYTES;
        i32::try_from(length)
            .map_err(|_| Error::TooLong { length, length_max: i32::MAX.unsigned_abs() as usize })
    });
    match written {
        Ok(length) => {
            out[start..start + PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// A whole request frame.
///
/// # Errors
///
/// As [`Request::encode`].
pub fn request_frame(
    request: &Request,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<Bytes, Error> {
    let header = RequestHeader {
        api_key: request.api_key().as_i16(),
        api_version: version,
        correlation_id,
        client_id: client_id.map(str::to_owned),
    };
    let mut out = BytesMut::new();
    put_frame(&mut out, |out| {
        header.encode(out)?;
        request.encode(version, out)
    })?;
    Ok(out.freeze())
}

/// A whole response frame.
///
/// # Errors
///
/// As [`Response::encode`].
pub fn response_frame(
    response: &Response,
    version: i16,
    correlation_id: i32,
) -> Result<Bytes, Error> {
    let mut out = BytesMut::new();
    put_frame(&mut out, |out| {
        ResponseHeader { correlation_id }.encode(response.api_key(), version, out);
        response.encode(version, out)
    })?;
    Ok(out.freeze())
}

/// Reads a response frame (without its prefix) to a request of this key and version.
///
/// # Errors
///
/// Bytes that are not such a response.
pub fn read_response(
    frame: Bytes,
    key: ApiKey,
    version: i16,
) -> Result<(ResponseHeader, Response), Error> {
    let mut input = Reader::new(frame);
    let header = ResponseHeader::decode(key, version, &mut input)?;
    Ok((header, Response::decode(key, version, &mut input)?))
}
