//! What a client on one listener sees of the cluster: the brokers that have this listener, and
//! partitions with leaders it can reach. It reads one image and changes nothing.

use std::collections::BTreeSet;

use protocol::error_code::ErrorCode;
use protocol::ids::{NodeId, PartitionIndex};
use raft::{BrokerRegistration, Listener, MetadataImage, PartitionImage};

/// Everything that may be done to a topic, as bits: what a client may do where nobody is refused
/// anything. Read, write, create, delete, alter, describe, describe and alter configs.
pub const TOPIC_OPERATIONS: i32 = operations(&[3, 4, 5, 6, 7, 8, 10, 11]);

/// Everything that may be done to the cluster: create, alter, describe, act as a broker, describe
/// and alter configs, write idempotently.
pub const CLUSTER_OPERATIONS: i32 = operations(&[5, 7, 8, 9, 10, 11, 12]);

const fn operations(numbers: &[u32]) -> i32 {
    let mut bits = 0;
    let mut at = 0;
    while at < numbers.len() {
        bits |= 1 << numbers[at];
        at += 1;
    }
    bits
}

/// One image seen through one listener.
#[derive(Debug, Clone, Copy)]
pub struct ListenerView<'a> {
    image: &'a MetadataImage,
    listener: &'a str,
}

/// A partition as clients are told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisiblePartition {
    /// Why there is no leader, if so.
    pub error: ErrorCode,
    /// Its index.
    pub index: i32,
    /// Its leader, −1 without one that this listener reaches.
    pub leader_id: i32,
    /// The leader's epoch.
    pub leader_epoch: i32,
    /// All replicas.
    pub replicas: Vec<i32>,
    /// Those in sync.
    pub isr: Vec<i32>,
    /// Those that are down.
    pub offline: Vec<i32>,
}

impl<'a> ListenerView<'a> {
    /// The image through the listener of this name.
    pub fn new(image: &'a MetadataImage, listener: &'a str) -> ListenerView<'a> {
        ListenerView { image, listener }
    }

    /// The brokers that are up and have this listener, by id.
    pub fn brokers(self) -> impl Iterator<Item = (&'a BrokerRegistration, &'a Listener)> {
        self.image.cluster.unfenced().filter_map(move |broker| {
            let listener = broker.listener(self.listener)?;
            Some((&**broker, listener))
        })
    }

    /// Where a broker is reached, if it is up and has this listener.
    pub fn reach(self, node: NodeId) -> Option<&'a Listener> {
        let broker = self.image.cluster.broker(node).filter(|broker| !broker.fenced)?;
        broker.listener(self.listener)
    }

    /// The broker to name as controller: any broker hands admin requests on, so the leader of the
    /// quorum where it is one, else the first; −1 while there is none.
    pub fn controller_id(self, quorum_leader: Option<NodeId>) -> i32 {
        let leader = quorum_leader.filter(|leader| self.reach(*leader).is_some());
        let first = || self.brokers().map(|(broker, _)| broker.id).next();
        leader.or_else(first).unwrap_or(NodeId::NONE).0
    }

    /// Those of some leaders that this listener reaches, each once: what a client that came to the
    /// wrong broker is told, so that it need not ask for metadata (KIP-951).
    pub fn endpoints(
        self,
        leaders: impl Iterator<Item = i32>,
    ) -> impl Iterator<Item = (&'a BrokerRegistration, &'a Listener)> {
        let leaders: BTreeSet<NodeId> = leaders.map(NodeId).collect();
        self.brokers().filter(move |(broker, _)| leaders.contains(&broker.id))
    }

    /// A partition.
    pub fn partition(self, index: PartitionIndex, partition: &PartitionImage) -> VisiblePartition {
        let leader = partition.leader.filter(|leader| self.reach(*leader).is_some());
        let error = match (partition.leader, leader) {
            (_, Some(_)) => ErrorCode::None,
            (Some(down), None) if self.is_up(down) => ErrorCode::ListenerNotFound,
            (_, None) => ErrorCode::LeaderNotAvailable,
        };
        let offline = partition.replicas.iter().filter(|replica| self.reach(**replica).is_none());
        VisiblePartition {
            error,
            index: index.0,
            leader_id: leader.unwrap_or(NodeId::NONE).0,
            leader_epoch: partition.leader_epoch.0,
            replicas: numbers(&partition.replicas),
            isr: numbers(&partition.isr),
            offline: offline.map(|replica| replica.0).collect(),
        }
    }

    fn is_up(self, node: NodeId) -> bool {
        self.image.cluster.broker(node).is_some_and(|broker| !broker.fenced)
    }
}

fn numbers(nodes: &[NodeId]) -> Vec<i32> {
    nodes.iter().map(|node| node.0).collect()
}

#[cfg(test)]
#[path = "listener_view_tests.rs"]
mod tests;
