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
        let request = Request::decode_first(key, version, input)?;
        input.finish()?;
        Ok(request)
    }

    /// Reads a body and leaves what follows it unread, as Kafka's brokers do: librdkafka 2.16
    /// leaves three bytes behind a Metadata request for all topics.
    ///
    /// # Errors
    ///
    /// As [`Request::decode`], but for bytes that go on.
    pub fn decode_first(key: ApiKey, version: i16, input: &mut Reader) -> Result<Request, Error> {
        // A mirror's name is never null, which is what this byte would say; Kafka's
        // UnregisterController begins with a controller id, whose first byte is 0.
        if key == ApiKey::CreateMirror && input.peek() == Some(0) {
            return Err(Error::UnregisterController);
        }
        Request::decode_body(key, version, input)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{CreateMirrorRequest, FetchResponse};

    #[test]
    fn keys_are_their_numbers() {
        for key in ApiKey::ALL {
            assert_eq!(ApiKey::from_i16(key.as_i16()), Some(*key));
            assert!(!key.versions().is_empty(), "{}", key.name());
        }
        assert_eq!(ApiKey::from_i16(97), None);
        assert_eq!(ApiKey::from_i16(-1), None);
    }

    #[test]
    fn versions_served_are_kafkas_and_ours() {
        assert_eq!(ApiKey::Produce.versions(), 3..=13);
        assert_eq!(ApiKey::Produce.advertised_versions(), 0..=13);
        assert_eq!(ApiKey::Fetch.versions(), 4..=19);
        assert_eq!(ApiKey::CreateTopics.versions(), 2..=8);
        assert_eq!(ApiKey::FindCoordinator.versions(), 0..=7);
        assert_eq!(ApiKey::ListOffsets.versions(), 1..=11);
        assert_eq!(ApiKey::InitProducerId.versions(), 0..=5);
        assert_eq!(ApiKey::Fetch.advertised_versions(), 4..=19);
    }

    #[test]
    fn kinds_of_keys_are_told_apart() {
        let mirroring: Vec<i16> =
            ApiKey::ALL.iter().filter(|key| key.is_mirroring()).map(|key| key.as_i16()).collect();
        assert_eq!(mirroring, [94, 95, 96, 98, 99, 100, 101, 102, 103, 104, 105]);
        let private = ApiKey::ALL.iter().filter(|key| key.is_private()).count();
        assert_eq!(private, 5);
    }

    #[test]
    fn headers_follow_the_body_except_for_api_versions() {
        assert_eq!(ApiKey::Fetch.request_header_version(11), 1);
        assert_eq!(ApiKey::Fetch.request_header_version(12), 2);
        assert_eq!(ApiKey::Fetch.response_header_version(11), 0);
        assert_eq!(ApiKey::Fetch.response_header_version(12), 1);
        assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
        assert_eq!(ApiKey::ApiVersions.request_header_version(99), 2);
        assert_eq!(ApiKey::ApiVersions.response_header_version(3), 0);
    }

    #[test]
    fn key_94_with_kafkas_own_request_is_told_apart() {
        // Controller id 3001 and no tagged fields, as Kafka 4.4 sends it.
        let mut kafkas = Reader::new(vec![0x00, 0x00, 0x0b, 0xb9, 0x00]);
        let refused = Request::decode(ApiKey::CreateMirror, 0, &mut kafkas);
        assert_eq!(refused, Err(Error::UnregisterController));
        let ours = CreateMirrorRequest {
            mirror_name: "east".to_owned(),
            ..CreateMirrorRequest::default()
        };
        let mut bytes = Reader::new(ours.to_bytes(0).unwrap());
        let read = Request::decode(ApiKey::CreateMirror, 0, &mut bytes);
        assert_eq!(read, Ok(ours.into()));
        let unnamed = CreateMirrorRequest::default();
        let mut bytes = Reader::new(unnamed.to_bytes(0).unwrap());
        let read = Request::decode(ApiKey::CreateMirror, 0, &mut bytes);
        assert_eq!(read, Ok(unnamed.into()));
    }

    #[test]
    fn bytes_behind_a_request_are_left_where_brokers_leave_them() {
        // All topics, as librdkafka 2.16 asks for them in version 13.
        let frame = [0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00];
        let strict = Request::decode(ApiKey::Metadata, 13, &mut Reader::new(frame.to_vec()));
        assert!(strict.is_err());
        let read = Request::decode_first(ApiKey::Metadata, 13, &mut Reader::new(frame.to_vec()));
        let Ok(Request::Metadata(request)) = read else { panic!("{read:?}") };
        assert_eq!(request.topics, None);
    }

    #[test]
    fn a_response_of_another_api_is_an_error() {
        let response = Response::from(FetchResponse::default());
        let other = messages::ProduceResponse::try_from(response.clone());
        let expected = Error::OtherApi { expected: ApiKey::Produce, found: ApiKey::Fetch };
        assert_eq!(other, Err(expected));
        assert_eq!(FetchResponse::try_from(response), Ok(FetchResponse::default()));
    }
}
