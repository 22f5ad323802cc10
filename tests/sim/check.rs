//! The end of a run: whether every replica holds what was acknowledged, once and in order, and
//! whether all replicas are the same. It answers with a sentence and asserts nothing, because a
//! test may want to see a loss.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actors::directory::Directory;
use log::{ReadMode, ReadUpTo};
use protocol::ids::{Offset, TopicIdPartition};
use tokio::time::Instant;

use crate::client::{isr, partition_id};
use crate::reader::{Seen, records_of};
use crate::simulation::{PATIENCE, Simulation};
use crate::writer::Acknowledged;

/// One replica's log, by offset.
type Log = BTreeMap<i64, String>;

/// What a run wrote and read in one partition.
#[derive(Debug, Default)]
pub struct Told {
    /// What was acknowledged, a list for each writer.
    pub acknowledged: Vec<Acknowledged>,
    /// What was read.
    pub seen: Vec<Seen>,
}

/// Waits until all replicas of a partition are in sync and equally long.
///
/// # Errors
/// They are not within [`PATIENCE`]; the text says where each stands.
pub async fn settle(simulation: &Simulation, topic: &str, partition: i32) -> Result<(), String> {
    let nodes: Vec<Arc<Directory>> =
        simulation.running.lock().unwrap().values().cloned().collect();
    let everybody: BTreeSet<_> = nodes.iter().map(|node| node.node_id()).collect();
    let until = Instant::now() + PATIENCE;
    loop {
        let id = partition_id(&nodes[0], topic, partition);
        let stands: Vec<_> = nodes.iter().map(|node| stand(node, id)).collect();
        let level = stands
            .iter()
            .all(|(end, watermark)| *end == stands[0].0 && end == watermark && *end != Offset(-1));
        if level && nodes.iter().all(|node| isr(node, id) == everybody) {
            return Ok(());
        }
        if Instant::now() > until {
            let isrs: Vec<_> = nodes.iter().map(|node| isr(node, id)).collect();
            return Err(format!("{topic}-{partition} does not settle: {stands:?} {isrs:?}"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn stand(node: &Directory, id: TopicIdPartition) -> (Offset, Offset) {
    let view = node.partition(id).and_then(|partition| partition.shared().view());
    view.map_or((Offset(-1), Offset(-1)), |view| (view.log_end(), view.high_watermark()))
}

/// Compares all replicas with each other and with what a run saw.
///
/// # Errors
/// What is lost, doubled, out of order, or different between replicas.
pub fn compare(
    simulation: &Simulation,
    topic: &str,
    partition: i32,
    told: &Told,
) -> Result<(), String> {
    let nodes: Vec<Arc<Directory>> =
        simulation.running.lock().unwrap().values().cloned().collect();
    let logs: Vec<Log> = nodes.iter().map(|node| read(node, topic, partition)).collect();
    for (node, log) in nodes.iter().zip(&logs) {
        if *log != logs[0] {
            let (one, other) = (nodes[0].node_id(), node.node_id());
            return Err(format!("{topic}-{partition}: nodes {one} and {other} differ"));
        }
        for acknowledged in &told.acknowledged {
            holds(log, acknowledged)
                .map_err(|why| format!("{topic}-{partition} on node {}: {why}", node.node_id()))?;
        }
        for (offset, value) in told.seen.iter().flatten() {
            if log.get(offset) != Some(value) {
                let now = log.get(offset);
                return Err(format!("offset {offset} was read as {value:?} and is {now:?} now"));
            }
        }
    }
    Ok(())
}

/// Whether a log has all values, each once, in their order.
fn holds(log: &Log, acknowledged: &Acknowledged) -> Result<(), String> {
    let mut last = -1;
    let mut places: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for (offset, value) in log {
        places.entry(value).or_default().push(*offset);
    }
    for value in &acknowledged.values {
        match places.get(value.as_str()).map(Vec::as_slice) {
            None => return Err(format!("the acknowledged record {value:?} is lost")),
            Some([offset]) if *offset > last => last = *offset,
            Some([offset]) => {
                return Err(format!(
                    "{value:?} at {offset} lies before its predecessor at {last}"
                ));
            }
            Some(offsets) => return Err(format!("{value:?} is there twice, at {offsets:?}")),
        }
    }
    Ok(())
}

/// The whole log of one replica.
fn read(node: &Directory, topic: &str, partition: i32) -> Log {
    let id = partition_id(node, topic, partition);
    let view = node.partition(id).and_then(|partition| partition.shared().view());
    let view = view.expect("a settled partition has a view");
    let mut log = Log::new();
    let mut next = view.log_start();
    while next < view.log_end() {
        let read = view.read(next, 1 << 20, ReadUpTo::LogEnd, true, ReadMode::MayBlock).unwrap();
        log.extend(records_of(read.bytes));
        assert!(read.next_offset > next, "a read goes on");
        next = read.next_offset;
    }
    log
}
