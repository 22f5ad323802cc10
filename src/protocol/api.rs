//! The APIs: keys with the versions served, and a request or a response of any of them. Owns
//! what Kafka's key table says; serves nothing.
//!
//! Keys 94–96 and 98–105 are cluster mirroring (KIP-1279), 1000 and up are private to a
//! cluster's own nodes and never advertised.

pub use crate::header::{RequestHeader, ResponseHeader};

use crate::error::Error;
use crate::messages::{self, Message};
use crate::reader::Reader;
use bytes::BytesMut;
use std::ops::RangeInclusive;

include!(concat!(env!("OUT_DIR"), "/api.rs"));

/// The first private key.
const PRIVATE_KEY_FIRST: i16 = 1000;

impl ApiKey {
    /// The versions an ApiVersions response lists. Kafka lists Produce from 0, because older
    /// librdkafka gives up on compression where it starts higher; what is served starts at 3,
    /// and a request below that ends its connection as any unserved version does.
    pub fn advertised_versions(self) -> RangeInclusive<i16> {
        let served = self.versions();
        if self == ApiKey::Produce { 0..=*served.end() } else { served }
    }

    /// Whether this is one of cluster mirroring's own APIs.
    pub fn is_mirroring(self) -> bool {
        (94..=105).contains(&self.as_i16())
    }

    /// Whether only this cluster's own nodes speak it.
    pub fn is_private(self) -> bool {
        self.as_i16() >= PRIVATE_KEY_FIRST
    }

    /// The version of the header before a request: 2 where the body is flexible.
    pub fn request_header_version(self, version: i16) -> i16 {
        if version >= self.flexible_from() { 2 } else { 1 }
    }

    /// The version of the header before a response: 1 where the body is flexible, and always
    /// 0 for ApiVersions.
    pub fn response_header_version(self, version: i16) -> i16 {
        i16::from(self != ApiKey::ApiVersions && version >= self.flexible_from())
    }
}

impl Request {
    /// Reads a body that is all of what remains.
    ///
    /// # Errors
    ///
    /// A version out of range, bytes that are not this request or go on after it, and
    /// [`Error::UnregisterController`] where key 94 carries Kafka's own request.
    pub fn decode(key: ApiKey, version: i16, input: &mut Reader) -> Result<Request, Error> {
        // A mirror's name is never null, which is what this byte would say; Kafka's
        // UnregisterController begins with a controller id, whose first byte is 0.
        if key == ApiKey::CreateMirror && input.peek() == Some(0) {
            return Err(Error::UnregisterController);
        }
        let request = Request::decode_body(key, version, input)?;
        input.finish()?;
        Ok(request)
    }
}

impl Response {
    /// Reads a body that is all of what remains.
    ///
    /// # Errors
    ///
    /// A version out of range, or bytes that are not this response or go on after it.
    pub fn decode(key: ApiKey, version: i16, input: &mut Reader) -> Result<Response, Error> {
        let response = Response::decode_body(key, version, input)?;
        input.finish()?;
        Ok(response)
    }
}
