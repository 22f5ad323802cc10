//! Request and response headers (header versions 1 and 2, 0 and 1). Owns which header version
//! goes with an API and version; KIP-482 made the newer ones, and an ApiVersions response
//! always carries the oldest, since its reader cannot know better yet (KIP-511).

use crate::api::ApiKey;
use crate::error::Error;
use crate::reader::Reader;
use crate::writer::{put_null_string, put_string};
use bytes::{BufMut, BytesMut};

/// What precedes a request's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API's number, which need not be one of ours.
    pub api_key: i16,
    /// The version of the body.
    pub api_version: i16,
    /// Comes back in the response.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<String>,
}

impl RequestHeader {
    /// Reads a header. For a key that is not ours the tagged fields are left unread: nobody
    /// can know whether there are any.
    ///
    /// # Errors
    ///
    /// Bytes that are no header.
    pub fn decode(input: &mut Reader) -> Result<RequestHeader, Error> {
        let header = RequestHeader {
            api_key: input.i16()?,
            api_version: input.i16()?,
            correlation_id: input.i32()?,
            client_id: input.nullable_string(false)?,
        };
        if header.is_flexible() {
            input.skip_tagged_fields()?;
        }
        Ok(header)
    }

    /// Appends the header in the form its key and version ask for.
    ///
    /// # Errors
    ///
    /// A client id above 32,767 bytes.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), Error> {
        out.put_i16(self.api_key);
        out.put_i16(self.api_version);
        out.put_i32(self.correlation_id);
        match &self.client_id {
            Some(client_id) => put_string(out, false, client_id)?,
            None => put_null_string(out, false),
        }
        if self.is_flexible() {
            out.put_u8(0);
        }
        Ok(())
    }

    fn is_flexible(&self) -> bool {
        ApiKey::from_i16(self.api_key)
            .is_some_and(|key| key.request_header_version(self.api_version) == 2)
    }
}

/// What precedes a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The request's.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// Reads the header of a response to a request with this key and version.
    ///
    /// # Errors
    ///
    /// Bytes that are no header.
    pub fn decode(key: ApiKey, version: i16, input: &mut Reader) -> Result<ResponseHeader, Error> {
        let header = ResponseHeader { correlation_id: input.i32()? };
        if key.response_header_version(version) == 1 {
            input.skip_tagged_fields()?;
        }
        Ok(header)
    }

    /// Appends the header of a response to a request with this key and version.
    pub fn encode(self, key: ApiKey, version: i16, out: &mut BytesMut) {
        out.put_i32(self.correlation_id);
        if key.response_header_version(version) == 1 {
            out.put_u8(0);
        }
    }
}
