//! Blocks of producer ids. Owns that no two brokers ever get the same id.

use protocol::ids::{BrokerEpoch, NodeId, ProducerId};
use protocol::messages::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};

use crate::decision::Decision;
use crate::error::Error;
use crate::image::MetadataImage;
use crate::records::{MetadataRecord, ProducerIds};

/// How many ids a broker gets at once, as in Kafka.
pub const PRODUCER_IDS_BLOCK: i32 = 1000;

impl MetadataImage {
    /// Gives a registered broker the next block of producer ids.
    ///
    /// # Errors
    /// The broker is not registered, or under another epoch; no ids are left.
    pub fn decide_allocate_producer_ids(
        &self,
        request: &AllocateProducerIdsRequest,
    ) -> Result<Decision<AllocateProducerIdsResponse>, Error> {
        let broker = NodeId(request.broker_id);
        let broker_epoch = BrokerEpoch(request.broker_epoch);
        self.check_broker_epoch(broker, broker_epoch)?;
        let first = self.next_producer_id.0.0;
        let next = first
            .checked_add(i64::from(PRODUCER_IDS_BLOCK))
            .ok_or(Error::ProducerIdsExhausted { last: first })?;
        let next_producer_id = ProducerId(next);
        let record = ProducerIds { broker, broker_epoch, next_producer_id };
        let response = AllocateProducerIdsResponse {
            producer_id_start: first,
            producer_id_len: PRODUCER_IDS_BLOCK,
            ..AllocateProducerIdsResponse::default()
        };
        Ok(Decision::new(vec![MetadataRecord::ProducerIds(record)], response))
    }
}
