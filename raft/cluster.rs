//! Brokers: registration, fencing, controlled shutdown.
//!
//! Owns who may lead. Never measures time: the controller says whose session is over.

use protocol::ids::{BrokerEpoch, DirectoryId, NodeId, TopicIdPartition};
use protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest,
    BrokerRegistrationResponse,
};

use crate::decision::Decision;
use crate::error::Error;
use crate::image::{MetadataImage, PartitionImage};
use crate::partitions::Standing;
use crate::records::{
    BrokerChanged, BrokerRegistration, Listener, MetadataRecord, SupportedFeature,
    UnregisterBroker,
};

/// The answer to a registration.
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    /// What the broker gets.
    pub response: BrokerRegistrationResponse,
    /// Partitions whose only ISR member it is although its last stop was not clean: they will
    /// lead with what its disk has, which is worth a log line.
    pub unclean_sole_member: Vec<TopicIdPartition>,
}

/// What the controller knows of a registering broker beyond its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationArgs {
    /// The metadata directory the broker runs on.
    pub directory_id: DirectoryId,
    /// The epoch of the new registration: the index its record will have, or one below it that is
    /// above every earlier registration's.
    pub broker_epoch: BrokerEpoch,
    /// Whether the session of an earlier registration under this id still runs.
    pub session_alive: bool,
}

impl MetadataImage {
    /// Registers a broker, new or again; it starts fenced.
    ///
    /// One that comes back with the same directory replaces its session at once. It leaves every
    /// ISR that has another member before it may lead: a clean stop left them anyway, and after
    /// any other it may have lost acknowledged records.
    ///
    /// # Errors
    /// Another cluster's id; another live broker under this id; no listener; an epoch that does
    /// not grow.
    pub fn decide_register_broker(
        &self,
        request: &BrokerRegistrationRequest,
        args: RegistrationArgs,
    ) -> Result<Decision<Registered>, Error> {
        self.check_registration(request, args)?;
        let id = NodeId(request.broker_id);
        let known = self.cluster.broker(id);
        if let Some(known) = known
            && known.incarnation_id == request.incarnation_id
            && known.directory_id == args.directory_id
        {
            // The answer got lost: the same process asks again and keeps its registration.
            return Ok(Decision::unchanged(registered_at(known.epoch)));
        }
        let clean = known.is_some_and(|known| {
            request.previous_broker_epoch == known.epoch.0
                && known.directory_id == args.directory_id
        });
        let mut records = vec![MetadataRecord::RegisterBroker(new_registration(request, args))];
        records.extend(self.updates_for(Standing::Away(id)));
        let unclean_sole_member =
            if clean { Vec::new() } else { self.sole_member_of(id).collect() };
        let response = registered_at(args.broker_epoch).response;
        Ok(Decision::new(records, Registered { response, unclean_sole_member }))
    }

    fn sole_member_of(&self, broker: NodeId) -> impl Iterator<Item = TopicIdPartition> {
        let alone = move |image: &PartitionImage| image.isr == [broker];
        self.topics.partitions().filter(move |(_, image)| alone(image)).map(|(at, _)| at)
    }

    fn check_registration(
        &self,
        request: &BrokerRegistrationRequest,
        args: RegistrationArgs,
    ) -> Result<(), Error> {
        let broker = NodeId(request.broker_id);
        let own = self.cluster.id().unwrap_or_default();
        if request.cluster_id != own {
            let (expected, actual) = (own.to_owned(), request.cluster_id.clone());
            return Err(Error::InconsistentClusterId { expected, actual });
        }
        if request.listeners.is_empty() {
            let reason = format!("broker {broker} registers without a listener");
            return Err(Error::InvalidRegistration { reason });
        }
        let Some(known) = self.cluster.broker(broker) else { return Ok(()) };
        if args.session_alive && known.directory_id != args.directory_id {
            return Err(Error::DuplicateBroker {
                broker,
                registered: known.directory_id,
                request: args.directory_id,
            });
        }
        if known.incarnation_id != request.incarnation_id && args.broker_epoch <= known.epoch {
            return Err(Error::StaleBrokerEpoch {
                broker,
                request: args.broker_epoch,
                current: known.epoch,
            });
        }
        Ok(())
    }

    /// Whether `epoch` is the broker's present registration.
    ///
    /// # Errors
    /// It is not registered, or under another epoch.
    pub fn check_broker_epoch(&self, broker: NodeId, epoch: BrokerEpoch) -> Result<(), Error> {
        let known = self.cluster.broker(broker).ok_or(Error::UnknownBroker { broker })?;
        if known.epoch != epoch {
            let current = known.epoch;
            return Err(Error::StaleBrokerEpoch { broker, request: epoch, current });
        }
        Ok(())
    }

    /// What a heartbeat changes: unfences a broker that caught up, fences one that asks, moves
    /// the leaderships of one that wants to stop, and lets it stop when none is left.
    ///
    /// # Errors
    /// It is not registered, or under another epoch: it must register again.
    pub fn decide_heartbeat(
        &self,
        request: &BrokerHeartbeatRequest,
    ) -> Result<Decision<BrokerHeartbeatResponse>, Error> {
        let id = NodeId(request.broker_id);
        let epoch = BrokerEpoch(request.broker_epoch);
        self.check_broker_epoch(id, epoch)?;
        let broker = self.cluster.broker(id).expect("its epoch was just checked");
        let caught_up = request.current_metadata_offset >= broker.epoch.0;
        let mut records = Vec::new();
        let answer = |fenced: bool, should_shut_down: bool| BrokerHeartbeatResponse {
            is_caught_up: caught_up,
            is_fenced: fenced,
            should_shut_down,
            ..BrokerHeartbeatResponse::default()
        };
        let response = if request.want_shut_down {
            if broker.fenced || !self.leads_anything(id) {
                records.extend(self.fence_records(broker));
                answer(true, true)
            } else {
                records.extend(self.shutdown_records(broker));
                answer(false, false)
            }
        } else if request.want_fence {
            records.extend(self.fence_records(broker));
            answer(true, false)
        } else if broker.fenced && caught_up {
            records.extend(self.unfence_records(broker));
            answer(false, false)
        } else {
            answer(broker.fenced, false)
        };
        Ok(Decision::new(records, response))
    }

    /// Fences a broker whose session is over. Nothing changes for one that is fenced.
    ///
    /// # Errors
    /// It is not registered, or registered again since.
    pub fn decide_fence_broker(
        &self,
        broker: NodeId,
        epoch: BrokerEpoch,
    ) -> Result<Decision<()>, Error> {
        self.check_broker_epoch(broker, epoch)?;
        let known = self.cluster.broker(broker).expect("its epoch was just checked");
        Ok(Decision::new(self.fence_records(known), ()))
    }

    /// Takes a broker out of the cluster; its replicas stay assigned, without it.
    ///
    /// # Errors
    /// It is not registered.
    pub fn decide_unregister_broker(&self, broker: NodeId) -> Result<Decision<()>, Error> {
        let known = self.cluster.broker(broker).ok_or(Error::UnknownBroker { broker })?;
        let mut records = self.fence_records(known);
        let epoch = known.epoch;
        records.push(MetadataRecord::UnregisterBroker(UnregisterBroker { id: broker, epoch }));
        Ok(Decision::new(records, ()))
    }

    /// Whether the broker leads a partition.
    pub fn leads_anything(&self, broker: NodeId) -> bool {
        self.topics.partitions().any(|(_, partition)| partition.leader == Some(broker))
    }

    fn fence_records(&self, broker: &BrokerRegistration) -> Vec<MetadataRecord> {
        if broker.fenced {
            return Vec::new();
        }
        let mut records = vec![changed(broker, Some(true), None)];
        records.extend(self.updates_for(Standing::Away(broker.id)));
        records
    }

    fn unfence_records(&self, broker: &BrokerRegistration) -> Vec<MetadataRecord> {
        let mut records = vec![changed(broker, Some(false), Some(false))];
        records.extend(self.updates_for(Standing::Active(broker.id)));
        records
    }

    fn shutdown_records(&self, broker: &BrokerRegistration) -> Vec<MetadataRecord> {
        if broker.in_controlled_shutdown {
            return Vec::new();
        }
        let mut records = vec![changed(broker, None, Some(true))];
        records.extend(self.updates_for(Standing::Away(broker.id)));
        records
    }
}

fn changed(
    broker: &BrokerRegistration,
    fenced: Option<bool>,
    in_controlled_shutdown: Option<bool>,
) -> MetadataRecord {
    MetadataRecord::BrokerChanged(BrokerChanged {
        id: broker.id,
        epoch: broker.epoch,
        fenced,
        in_controlled_shutdown,
    })
}

fn registered_at(epoch: BrokerEpoch) -> Registered {
    let response = BrokerRegistrationResponse {
        broker_epoch: epoch.0,
        ..BrokerRegistrationResponse::default()
    };
    Registered { response, unclean_sole_member: Vec::new() }
}

fn new_registration(
    request: &BrokerRegistrationRequest,
    args: RegistrationArgs,
) -> BrokerRegistration {
    let listeners = request.listeners.iter().map(|listener| Listener {
        name: listener.name.clone(),
        host: listener.host.clone(),
        port: listener.port,
        security_protocol: listener.security_protocol,
    });
    let features = request.features.iter().map(|feature| SupportedFeature {
        name: feature.name.clone(),
        min_level: feature.min_supported_version,
        max_level: feature.max_supported_version,
    });
    BrokerRegistration {
        id: NodeId(request.broker_id),
        directory_id: args.directory_id,
        incarnation_id: request.incarnation_id,
        epoch: args.broker_epoch,
        listeners: listeners.collect(),
        rack: request.rack.clone(),
        log_dirs: request.log_dirs.iter().copied().map(DirectoryId).collect(),
        features: features.collect(),
        fenced: true,
        in_controlled_shutdown: false,
    }
}
