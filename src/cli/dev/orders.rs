//! Orders on standard input, in test builds only: one line each, answered by one line on standard
//! output. Owns their words; what they do is the actors'. Ends with the input.
//!
//! ```text
//! crash-node 2                     as a killed process ends
//! stop-node 2                      in order
//! start-node 2
//! kill-partition orders 0 2        the actor of the replica of orders-0 on node 2
//! ```

use actors::chaos;
use actors::cluster::ClusterHandle;
use actors::node::Left;
use anyhow::{Context, Result, anyhow, bail};
use protocol::ids::{NodeId, PartitionIndex};

use crate::cli::say;

/// Orders read and not carried out yet.
const ORDERS_WAITING_MAX: usize = 16;

/// Carries out orders, one after the other, until the input ends.
pub async fn obey(cluster: ClusterHandle) {
    let (sender, mut lines) = tokio::sync::mpsc::channel(ORDERS_WAITING_MAX);
    // A thread of its own, so that an end does not wait for a line that never comes.
    std::thread::spawn(move || {
        let lines = std::io::stdin().lines().map_while(Result::ok);
        lines.take_while(|line| sender.blocking_send(line.clone()).is_ok()).for_each(drop);
    });
    while let Some(line) = lines.recv().await {
        match carry_out(&cluster, &line).await {
            Ok(()) => say(&format!("done: {line}\n")),
            Err(error) => say(&format!("refused: {line}: {error:#}\n")),
        }
    }
}

async fn carry_out(cluster: &ClusterHandle, line: &str) -> Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["crash-node", node] => cluster.crash_node(self::node(node)?).await,
        ["stop-node", node] => cluster.stop_node(self::node(node)?, Left::Others).await,
        ["start-node", node] => {
            cluster.start_node(self::node(node)?).await?;
        }
        ["kill-partition", topic, partition, node] => {
            let partition = PartitionIndex(partition.parse().context("no partition")?);
            chaos::kill_partition(cluster, self::node(node)?, topic, partition)
                .map_err(|sentence| anyhow!(sentence))?;
        }
        _ => bail!("no such order"),
    }
    Ok(())
}

fn node(word: &str) -> Result<NodeId> {
    Ok(NodeId(word.parse().context("no node id")?))
}
