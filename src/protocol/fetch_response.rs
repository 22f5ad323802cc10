//! The Fetch response on the hot path: the bytes of the generated encoding, written by hand as
//! a list of chunks in which record data is shared, never copied. Owns this one layout; what
//! the versions mean is in `schemas/fetch.schema`.

use crate::api::{ApiKey, ResponseHeader};
use crate::error::Error;
use crate::frame::PREFIX_BYTES;
use crate::messages::Message;
use crate::messages::fetch_response::{
    EpochEndOffset, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
    SnapshotId,
};
use crate::writer::{TaggedFields, put_array_len, put_null_array, put_null_bytes, put_string};
use bytes::{BufMut, Bytes, BytesMut};

/// A whole response frame, prefix and header included, as chunks to be written in order.
///
/// # Errors
///
/// As [`Message::encode`].
pub fn fetch_response_chunks(
    response: &FetchResponse,
    version: i16,
    correlation_id: i32,
) -> Result<Vec<Bytes>, Error> {
    let versions = FetchResponse::VERSIONS;
    if !versions.contains(&version) {
        return Err(Error::UnsupportedVersion {
            message: FetchResponse::NAME,
            version,
            first: *versions.start(),
            last: *versions.end(),
        });
    }
    let flexible = version >= FetchResponse::FLEXIBLE_FROM;
    let mut writer = ChunkWriter { version, flexible, chunks: Vec::new(), out: BytesMut::new() };
    writer.out.reserve(SMALL_CHUNK_BYTES);
    writer.out.put_i32(0);
    ResponseHeader { correlation_id }.encode(ApiKey::Fetch, version, &mut writer.out);
    writer.response(response)?;
    writer.finish()
}

/// What the fields around the records of a few partitions take.
const SMALL_CHUNK_BYTES: usize = 512;

struct ChunkWriter {
    version: i16,
    flexible: bool,
    chunks: Vec<Bytes>,
    out: BytesMut,
}

impl ChunkWriter {
    fn response(&mut self, response: &FetchResponse) -> Result<(), Error> {
        self.out.put_i32(response.throttle_time_ms);
        if self.version >= 7 {
            self.out.put_i16(response.error_code);
            self.out.put_i32(response.session_id);
        } else if response.session_id != 0 {
            return Err(self.not_in_version("FetchResponse", "SessionId"));
        }
        put_array_len(&mut self.out, self.flexible, response.responses.len())?;
        for topic in &response.responses {
            self.topic(topic)?;
        }
        if self.version < 16 && !response.node_endpoints.is_empty() {
            return Err(self.not_in_version("FetchResponse", "NodeEndpoints"));
        }
        if !self.flexible {
            return Ok(());
        }
        let mut tags = TaggedFields::new();
        if !response.node_endpoints.is_empty() {
            tags.put(0, |out| {
                put_array_len(out, true, response.node_endpoints.len())?;
                for endpoint in &response.node_endpoints {
                    out.put_i32(endpoint.node_id);
                    put_string(out, true, &endpoint.host)?;
                    out.put_i32(endpoint.port);
                    match &endpoint.rack {
                        Some(rack) => put_string(out, true, rack)?,
                        None => out.put_u8(0),
                    }
                    out.put_u8(0);
                }
                Ok(())
            })?;
        }
        tags.finish(&mut self.out);
        Ok(())
    }

    fn topic(&mut self, topic: &FetchableTopicResponse) -> Result<(), Error> {
        if self.version >= 13 {
            self.out.put_slice(topic.topic_id.as_bytes());
        } else {
            put_string(&mut self.out, self.flexible, &topic.topic)?;
        }
        put_array_len(&mut self.out, self.flexible, topic.partitions.len())?;
        for partition in &topic.partitions {
            self.partition(partition)?;
        }
        if self.flexible {
            self.out.put_u8(0);
        }
        Ok(())
    }

    fn partition(&mut self, partition: &PartitionData) -> Result<(), Error> {
        self.out.put_i32(partition.partition_index);
        self.out.put_i16(partition.error_code);
        self.out.put_i64(partition.high_watermark);
        self.out.put_i64(partition.last_stable_offset);
        if self.version >= 5 {
            self.out.put_i64(partition.log_start_offset);
        }
        match &partition.aborted_transactions {
            Some(aborted) => {
                put_array_len(&mut self.out, self.flexible, aborted.len())?;
                for transaction in aborted {
                    self.out.put_i64(transaction.producer_id);
                    self.out.put_i64(transaction.first_offset);
                    if self.flexible {
                        self.out.put_u8(0);
                    }
                }
            }
            None => put_null_array(&mut self.out, self.flexible),
        }
        if self.version >= 11 {
            self.out.put_i32(partition.preferred_read_replica);
        } else if partition.preferred_read_replica != -1 {
            return Err(self.not_in_version("PartitionData", "PreferredReadReplica"));
        }
        self.records(partition.records.as_ref())?;
        self.partition_tags(partition)
    }

    fn records(&mut self, records: Option<&Bytes>) -> Result<(), Error> {
        let Some(records) = records else {
            put_null_bytes(&mut self.out, self.flexible);
            return Ok(());
        };
        put_array_len(&mut self.out, self.flexible, records.len())?;
        if !records.is_empty() {
            self.chunks.push(self.out.split().freeze());
            self.chunks.push(records.clone());
        }
        Ok(())
    }

    fn partition_tags(&mut self, partition: &PartitionData) -> Result<(), Error> {
        let diverging = &partition.diverging_epoch;
        let leader = &partition.current_leader;
        let snapshot = &partition.snapshot_id;
        let has_diverging = *diverging != EpochEndOffset::default();
        let has_leader = *leader != LeaderIdAndEpoch::default();
        let has_snapshot = *snapshot != SnapshotId::default();
        if !self.flexible {
            return match (has_diverging, has_leader, has_snapshot) {
                (false, false, false) => Ok(()),
                (true, _, _) => Err(self.not_in_version("PartitionData", "DivergingEpoch")),
                (_, true, _) => Err(self.not_in_version("PartitionData", "CurrentLeader")),
                (_, _, true) => Err(self.not_in_version("PartitionData", "SnapshotId")),
            };
        }
        let mut tags = TaggedFields::new();
        if has_diverging {
            tags.put(0, |out| put_epoch_and_offset(out, diverging.epoch, diverging.end_offset))?;
        }
        if has_leader {
            tags.put(1, |out| {
                out.put_i32(leader.leader_id);
                out.put_i32(leader.leader_epoch);
                out.put_u8(0);
                Ok(())
            })?;
        }
        if has_snapshot {
            tags.put(2, |out| {
                out.put_i64(snapshot.end_offset);
                out.put_i32(snapshot.epoch);
                out.put_u8(0);
                Ok(())
            })?;
        }
        if self.version >= 19 && partition.mirror_leader_epoch != -1 {
            tags.put(3, |out| {
                out.put_i32(partition.mirror_leader_epoch);
                Ok(())
            })?;
        }
        tags.finish(&mut self.out);
        Ok(())
    }

    fn not_in_version(&self, message: &'static str, field: &'static str) -> Error {
        Error::FieldNotInVersion { message, field, version: self.version }
    }

    /// Closes the last chunk and fills in the frame's length.
    fn finish(mut self) -> Result<Vec<Bytes>, Error> {
        self.chunks.push(self.out.freeze());
        let total: usize = self.chunks.iter().map(Bytes::len).sum();
        let length = total - PREFIX_BYTES;
        let prefix = i32::try_from(length)
            .map_err(|_| Error::TooLong { length, length_max: LENGTH_MAX })?;
        let mut first = BytesMut::from(std::mem::take(&mut self.chunks[0]));
        first[..PREFIX_BYTES].copy_from_slice(&prefix.to_be_bytes());
        self.chunks[0] = first.freeze();
        Ok(self.chunks)
    }
}

/// The longest frame a length prefix can announce.
const LENGTH_MAX: usize = 0x7fff_ffff;

fn put_epoch_and_offset(out: &mut BytesMut, epoch: i32, end_offset: i64) -> Result<(), Error> {
    out.put_i32(epoch);
    out.put_i64(end_offset);
    out.put_u8(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::response_frame;
    use crate::messages::fetch_response::{AbortedTransaction, NodeEndpoint};

    fn full(version: i16) -> FetchResponse {
        let mut partition = PartitionData {
            partition_index: 3,
            error_code: 6,
            high_watermark: 40,
            last_stable_offset: 30,
            log_start_offset: if version >= 5 { 2 } else { -1 },
            aborted_transactions: Some(vec![AbortedTransaction {
                producer_id: 4001,
                first_offset: 12,
            }]),
            preferred_read_replica: if version >= 11 { 2 } else { -1 },
            records: Some(Bytes::from(vec![7; 700])),
            ..PartitionData::default()
        };
        let mut empty = partition.clone();
        empty.records = Some(Bytes::new());
        empty.aborted_transactions = None;
        let null = PartitionData { records: None, ..PartitionData::default() };
        let mut node_endpoints = Vec::new();
        if version >= 12 {
            partition.diverging_epoch = EpochEndOffset { epoch: 4, end_offset: 20 };
            partition.current_leader = LeaderIdAndEpoch { leader_id: 1, leader_epoch: 9 };
            partition.snapshot_id = SnapshotId { end_offset: 5, epoch: 1 };
        }
        if version >= 16 {
            for rack in [Some("a".to_owned()), None] {
                let host = "localhost".to_owned();
                node_endpoints.push(NodeEndpoint { node_id: 1, host, port: 9092, rack });
            }
        }
        partition.mirror_leader_epoch = 8;
        FetchResponse {
            throttle_time_ms: 10,
            error_code: if version >= 7 { 1 } else { 0 },
            session_id: if version >= 7 { 77 } else { 0 },
            responses: vec![FetchableTopicResponse {
                topic: "orders".to_owned(),
                topic_id: uuid::Uuid::from_u128(0x0102_0304_0506),
                partitions: vec![partition.clone(), empty, null, partition],
            }],
            node_endpoints,
        }
    }

    #[test]
    fn chunks_equal_the_generated_encoding_in_every_version() {
        for version in FetchResponse::VERSIONS {
            for response in [full(version), FetchResponse::default()] {
                let chunks = fetch_response_chunks(&response, version, 42).unwrap();
                let whole = response_frame(&response.into(), version, 42).unwrap();
                assert_eq!(chunks.concat(), whole, "version {version}");
            }
        }
    }

    #[test]
    fn record_bytes_are_shared_not_copied() {
        let response = full(19);
        let chunks = fetch_response_chunks(&response, 19, 1).unwrap();
        let records = response.responses[0].partitions[0].records.as_ref().unwrap();
        assert_eq!(chunks.len(), 5);
        assert_eq!(chunks[1].as_ptr(), records.as_ptr());
    }

    #[test]
    fn what_a_version_cannot_say_fails_as_in_the_generated_encoding() {
        let newest = full(19);
        for version in FetchResponse::VERSIONS.filter(|version| *version < 16) {
            let chunks = fetch_response_chunks(&newest, version, 1).unwrap_err();
            let whole = response_frame(&newest.clone().into(), version, 1).unwrap_err();
            assert!(matches!(chunks, Error::FieldNotInVersion { .. }), "{chunks}");
            assert!(matches!(whole, Error::FieldNotInVersion { .. }), "{whole}");
        }
        assert!(fetch_response_chunks(&newest, 20, 1).is_err());
    }
}
