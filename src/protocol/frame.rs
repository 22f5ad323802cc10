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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{ApiVersionsRequest, ApiVersionsResponse};

    #[test]
    fn frames_come_out_whole_however_the_bytes_arrive() {
        let mut stream = BytesMut::new();
        for body in [&b"first"[..], b"", b"third"] {
            put_frame(&mut stream, |out| {
                out.put_slice(body);
                Ok(())
            })
            .unwrap();
        }
        let decoder = FrameDecoder::new(100);
        let mut buffer = BytesMut::new();
        let mut frames = Vec::new();
        for byte in stream {
            buffer.put_u8(byte);
            while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                frames.push(frame);
            }
        }
        assert_eq!(frames, [&b"first"[..], b"", b"third"]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn an_announced_frame_reserves_nothing() {
        let decoder = FrameDecoder::new(100 << 20);
        let mut buffer = BytesMut::from(&[0x06, 0x00, 0x00, 0x00, 1][..]);
        let before = buffer.capacity();
        assert_eq!(decoder.decode(&mut buffer), Ok(None));
        assert_eq!(buffer.capacity(), before);
        assert_eq!(decoder.missing(&buffer), Ok((96 << 20) - 1));
        assert_eq!(decoder.missing(&[0]), Ok(3));
    }

    #[test]
    fn frames_that_are_negative_or_too_long_are_refused_at_their_prefix() {
        let decoder = FrameDecoder::new(8);
        let mut negative = BytesMut::from(&[0xff, 0xff, 0xff, 0xff][..]);
        let refused = Err(Error::NegativeFrameLength { length: -1 });
        assert_eq!(decoder.decode(&mut negative), refused);
        let mut long = BytesMut::from(&[0, 0, 0, 9][..]);
        let refused = Err(Error::FrameTooLong { length: 9, length_max: 8 });
        assert_eq!(decoder.decode(&mut long), refused);
    }

    #[test]
    fn a_body_that_fails_leaves_the_buffer_as_it_was() {
        let mut out = BytesMut::from(&b"before"[..]);
        let failed = put_frame(&mut out, |out| {
            out.put_u8(1);
            Err(Error::UnregisterController)
        });
        assert_eq!(failed, Err(Error::UnregisterController));
        assert_eq!(out, &b"before"[..]);
    }

    #[test]
    fn requests_and_responses_read_back_from_their_frames() {
        let request = Request::from(ApiVersionsRequest {
            client_software_name: "heliograph".to_owned(),
            ..ApiVersionsRequest::default()
        });
        let frame = request_frame(&request, 3, 5, Some("me")).unwrap();
        let mut input = Reader::new(frame.slice(PREFIX_BYTES..));
        let header = RequestHeader::decode(&mut input).unwrap();
        assert_eq!((header.api_key, header.api_version, header.correlation_id), (18, 3, 5));
        assert_eq!(Request::decode(ApiKey::ApiVersions, 3, &mut input), Ok(request));
        let response = Response::from(ApiVersionsResponse::default());
        let frame = response_frame(&response, 3, 5).unwrap();
        let read = read_response(frame.slice(PREFIX_BYTES..), ApiKey::ApiVersions, 3).unwrap();
        assert_eq!(read, (ResponseHeader { correlation_id: 5 }, response));
    }
}
