//! Faults that a test build causes on order: a partition's actor ends as a bug would end it. Owns
//! nothing and restarts nothing; that is the supervisors' part.

use protocol::ids::{NodeId, PartitionIndex};

use crate::cluster::ClusterHandle;

/// Kills the actor of one replica. The others of the partition are not touched.
///
/// # Errors
/// A sentence: the node does not run here, or hosts no such replica.
pub fn kill_partition(
    cluster: &ClusterHandle,
    node: NodeId,
    topic: &str,
    partition: PartitionIndex,
) -> Result<(), String> {
    let directory = cluster.neighbours().node(node).ok_or(format!("node {node} does not run"))?;
    let handle = directory
        .partitions()
        .into_iter()
        .find(|handle| {
            let shared = handle.shared();
            shared.topic.as_str() == topic && shared.partition == partition
        })
        .ok_or(format!("node {node} hosts no {topic}-{partition}"))?;
    handle.cell().kill();
    Ok(())
}
