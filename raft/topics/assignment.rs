//! The replicas of new partitions: placed by us, or checked where the client assigned them.
//!
//! Owns Kafka's rules for both. Never records anything.

use std::collections::BTreeSet;

use protocol::ids::NodeId;
use protocol::messages::create_topics_request::CreatableTopic;

use super::{Assignment, CreationArgs};
use crate::error::Error;
use crate::image::MetadataImage;
use crate::placement::Placement;

/// Above this, one request would make a Raft entry of hundreds of megabytes.
const PARTITIONS_MAX: i32 = 100_000;

impl MetadataImage {
    pub(super) fn new_assignments(
        &self,
        topic: &CreatableTopic,
        args: CreationArgs<'_>,
    ) -> Result<Vec<Assignment>, Error> {
        if !topic.assignments.is_empty() {
            return self.manual_assignments(topic);
        }
        let replication_factor = match topic.replication_factor {
            -1 => args.defaults.replication_factor,
            given if given > 0 => given,
            _ => {
                return Err(Error::InvalidReplicationFactor {
                    reason: "Replication factor must be larger than 0, or -1 to use the default \
                             value."
                        .to_owned(),
                });
            }
        };
        let partitions = match topic.num_partitions {
            -1 => args.defaults.partitions,
            given if given > 0 => given,
            given => {
                let reason = format!(
                    "Number of partitions was set to an invalid non-positive value: {given}."
                );
                return Err(Error::InvalidPartitions { reason });
            }
        };
        self.placed(partitions, replication_factor, args.seed)
    }

    /// Places new partitions on the brokers.
    pub(crate) fn placed(
        &self,
        partitions: i32,
        replication_factor: i16,
        seed: u64,
    ) -> Result<Vec<Assignment>, Error> {
        if partitions > PARTITIONS_MAX {
            let reason = format!(
                "{partitions} partitions are more than the {PARTITIONS_MAX} one request may make."
            );
            return Err(Error::InvalidPartitions { reason });
        }
        let mut placement = Placement::new(&self.cluster, seed)?;
        let place = |_| {
            let replicas = placement.place(replication_factor)?;
            let isr = self.active(&replicas);
            if isr.is_empty() {
                let reason = format!(
                    "Unable to replicate the partition {replication_factor} time(s): All brokers \
                     are currently fenced or in controlled shutdown."
                );
                return Err(Error::InvalidReplicationFactor { reason });
            }
            Ok(Assignment { replicas, isr })
        };
        (0..partitions).map(place).collect()
    }

    fn manual_assignments(&self, topic: &CreatableTopic) -> Result<Vec<Assignment>, Error> {
        for (set, what) in [
            (topic.replication_factor != -1, "replication factor was not set to -1"),
            (topic.num_partitions != -1, "numPartitions was not set to -1"),
        ] {
            if set {
                let reason = format!("A manual partition assignment was specified, but {what}.");
                return Err(Error::InvalidRequest { reason });
            }
        }
        let mut by_index: Vec<_> = topic.assignments.iter().collect();
        by_index.sort_by_key(|assignment| assignment.partition_index);
        let mut assignments = Vec::with_capacity(by_index.len());
        for (index, assignment) in (0..).zip(by_index) {
            if assignment.partition_index != index {
                return Err(invalid(
                    "partitions should be a consecutive 0-based integer sequence without \
                     duplicates."
                        .to_owned(),
                ));
            }
            let wanted = assignments.first().map(|first: &Assignment| first.replicas.len());
            assignments.push(self.checked_assignment(index, &assignment.broker_ids, wanted)?);
        }
        Ok(assignments)
    }

    /// Checks the replicas a client chose for one partition, `wanted` of them if that is fixed.
    pub(super) fn checked_assignment(
        &self,
        partition: i32,
        broker_ids: &[i32],
        wanted: Option<usize>,
    ) -> Result<Assignment, Error> {
        let replicas: Vec<NodeId> = broker_ids.iter().copied().map(NodeId).collect();
        if replicas.is_empty() {
            return Err(invalid(
                "The manual partition assignment includes an empty replica list.".to_owned(),
            ));
        }
        let distinct: BTreeSet<NodeId> = replicas.iter().copied().collect();
        if distinct.len() != replicas.len() {
            return Err(invalid(format!(
                "The manual partition assignment includes the same broker twice: {broker_ids:?}."
            )));
        }
        if let Some(unknown) = replicas.iter().find(|id| self.cluster.broker(**id).is_none()) {
            return Err(invalid(format!(
                "The manual partition assignment includes broker {unknown}, but no such broker is \
                 registered."
            )));
        }
        if let Some(wanted) = wanted.filter(|wanted| *wanted != replicas.len()) {
            return Err(invalid(format!(
                "The manual partition assignment includes a partition with {} replica(s), but \
                 this is not consistent with previous partitions, which have {wanted} replica(s).",
                replicas.len()
            )));
        }
        let isr = self.active(&replicas);
        if isr.is_empty() {
            return Err(invalid(format!(
                "All brokers specified in the manual partition assignment for partition \
                 {partition} are fenced or in controlled shutdown."
            )));
        }
        Ok(Assignment { replicas, isr })
    }

    /// A topic under an id of another cluster may be known to a disk that is offline now, so none
    /// of its replicas may be (KAFKA-16234).
    pub(crate) fn check_all_active(
        &self,
        assignments: &[Assignment],
        manual: bool,
    ) -> Result<(), Error> {
        let away =
            assignments.iter().flat_map(|a| &a.replicas).find(|id| !self.cluster.is_active(**id));
        let Some(away) = away else { return Ok(()) };
        let reason = format!(
            "Every replica of a mirrored topic must be active when it is created, but broker \
             {away} is fenced or in controlled shutdown."
        );
        Err(if manual { invalid(reason) } else { Error::InvalidReplicationFactor { reason } })
    }

    fn active(&self, replicas: &[NodeId]) -> Vec<NodeId> {
        replicas.iter().copied().filter(|id| self.cluster.is_active(*id)).collect()
    }
}

fn invalid(reason: String) -> Error {
    Error::InvalidReplicaAssignment { reason }
}
