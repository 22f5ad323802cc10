//! The cluster's id and its brokers. Owns no liveness: sessions are the controller's soft state.

use std::sync::Arc;

use imbl::OrdMap;
use protocol::ids::NodeId;

use super::{MetadataImage, edit};
use crate::error::ReplayError;
use crate::records::{
    BrokerChanged, BrokerRegistration, ClusterCreated, FeatureLevel, ProducerIds, UnregisterBroker,
};

/// The cluster's id and its registered brokers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterImage {
    /// The cluster's id; `None` before the first record.
    pub cluster_id: Option<Arc<str>>,
    /// Every registered broker, fenced ones too.
    pub brokers: OrdMap<NodeId, Arc<BrokerRegistration>>,
}

impl ClusterImage {
    /// The cluster's id, or nothing while the cluster is not initialised.
    pub fn id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// A registered broker.
    pub fn broker(&self, id: NodeId) -> Option<&Arc<BrokerRegistration>> {
        self.brokers.get(&id)
    }

    /// Whether the broker is registered, unfenced and not shutting down.
    pub fn is_active(&self, id: NodeId) -> bool {
        self.broker(id).is_some_and(|broker| broker.is_active())
    }

    /// The brokers clients are told of: the unfenced ones, by id.
    pub fn unfenced(&self) -> impl Iterator<Item = &Arc<BrokerRegistration>> {
        self.brokers.values().filter(|broker| !broker.fenced)
    }
}

impl MetadataImage {
    pub(super) fn replay_cluster_created(&mut self, record: &ClusterCreated) {
        self.cluster.cluster_id = Some(Arc::from(record.cluster_id.as_str()));
    }

    pub(super) fn replay_feature_level(&mut self, record: &FeatureLevel) {
        if record.level == 0 {
            self.features.remove(record.name.as_str());
        } else {
            self.features.insert(Arc::from(record.name.as_str()), record.level);
        }
    }

    pub(super) fn replay_register_broker(&mut self, record: &BrokerRegistration) {
        self.cluster.brokers.insert(record.id, Arc::new(record.clone()));
    }

    pub(super) fn replay_broker_changed(
        &mut self,
        record: &BrokerChanged,
    ) -> Result<(), ReplayError> {
        let broker = self
            .cluster
            .brokers
            .get_mut(&record.id)
            .ok_or(ReplayError::UnknownBroker { broker: record.id })?;
        if broker.epoch != record.epoch {
            return Err(ReplayError::BrokerEpoch {
                broker: record.id,
                record: record.epoch,
                image: broker.epoch,
            });
        }
        edit(broker, |broker| {
            broker.fenced = record.fenced.unwrap_or(broker.fenced);
            broker.in_controlled_shutdown =
                record.in_controlled_shutdown.unwrap_or(broker.in_controlled_shutdown);
        });
        Ok(())
    }

    pub(super) fn replay_unregister_broker(
        &mut self,
        record: &UnregisterBroker,
    ) -> Result<(), ReplayError> {
        match self.cluster.brokers.remove(&record.id) {
            Some(_) => Ok(()),
            None => Err(ReplayError::UnknownBroker { broker: record.id }),
        }
    }

    pub(super) fn replay_producer_ids(&mut self, record: &ProducerIds) {
        self.next_producer_id = super::ProducerIdCursor(record.next_producer_id);
    }
}
