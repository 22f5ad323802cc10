//! What survives the loss of power on all nodes at once: with flush.messages=1 every acknowledged
//! record, and every acknowledged change of the metadata. Both checks are seen to notice a disk
//! that promises a sync and skips it.

use std::time::Duration;

use actors::entropy::Entropy;

use crate::check::{self, Told};
use crate::client::Client;
use crate::simulation::{self, Crash, Simulation};
use crate::writer::Writer;

/// A kept seed: with it, a skipped sync loses acknowledged records.
const SEED: u64 = 11;

const TOPIC: &str = "synced";

fn client(simulation: &Simulation, name: &str) -> Client {
    let random = Entropy::seeded(simulation.random.next_u64());
    Client::new(name, &simulation.running, random, &simulation.trace)
}

/// Writes, cuts the power of all nodes while writes are under way, starts them again, and looks.
async fn records_after_power_loss(
    simulation: &mut Simulation,
    skip_syncs: bool,
) -> Result<(), String> {
    let admin = client(simulation, "admin");
    admin.create_topic(TOPIC, 1, &[("flush.messages", "1")]).await;
    admin.wait_for_topic(TOPIC, 1).await;
    for node in simulation.nodes() {
        simulation.disk(node).ignore_syncs(skip_syncs);
    }
    let writers: Vec<Writer> = (0..3)
        .map(|n| Writer::start(client(simulation, &format!("writer {n}")), TOPIC, 0))
        .collect();
    tokio::time::sleep(Duration::from_millis(2_000)).await;
    let everybody = simulation.nodes();
    simulation.crash(&everybody, Crash::PowerCut).await;
    let mut told = Told::default();
    for writer in writers {
        let acknowledged = writer.abandon();
        assert!(acknowledged.values.len() > 10, "a writer was acknowledged nothing to speak of");
        told.acknowledged.push(acknowledged);
    }
    simulation.heal().await;
    check::settle(simulation, TOPIC, 0).await?;
    check::compare(simulation, TOPIC, 0, &told)
}

/// Creates topics, cuts the power of all nodes, starts them again, and looks for the topics.
async fn topics_after_power_loss(
    simulation: &mut Simulation,
    skip_flushes: bool,
) -> Result<(), String> {
    for node in simulation.nodes() {
        simulation.store(node).ignore_flushes(skip_flushes);
    }
    let admin = client(simulation, "admin");
    for topic in ["one", "two", "three"] {
        admin.create_topic(topic, 2, &[]).await;
    }
    let everybody = simulation.nodes();
    simulation.crash(&everybody, Crash::PowerCut).await;
    for node in everybody {
        simulation.restart(node).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let image = admin.any_node().await.image();
    for topic in ["one", "two", "three"] {
        if image.topics.by_name(topic).is_none() {
            return Err(format!("the acknowledged topic {topic} is lost"));
        }
    }
    Ok(())
}

#[test]
fn synced_records_survive_the_loss_of_all_power() {
    for seed in SEED..SEED + 3 {
        let (_, kept) = simulation::run(seed, 3, async |simulation| {
            Box::pin(records_after_power_loss(simulation, false)).await
        });
        kept.unwrap();
    }
}

#[test]
fn a_skipped_sync_of_a_log_is_noticed() {
    let (_, kept) = simulation::run(SEED, 3, async |simulation| {
        Box::pin(records_after_power_loss(simulation, true)).await
    });
    let why = kept.expect_err("records that were never synced survived");
    assert!(why.contains("lost"), "{why}");
}

#[test]
fn flushed_metadata_survives_the_loss_of_all_power() {
    let (_, kept) = simulation::run(SEED, 3, async |simulation| {
        Box::pin(topics_after_power_loss(simulation, false)).await
    });
    kept.unwrap();
}

#[test]
fn a_skipped_flush_of_the_metadata_is_noticed() {
    let (_, kept) = simulation::run(SEED, 3, async |simulation| {
        Box::pin(topics_after_power_loss(simulation, true)).await
    });
    let why = kept.expect_err("metadata that was never flushed survived");
    assert!(why.contains("lost"), "{why}");
}
