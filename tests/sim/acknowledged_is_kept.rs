//! The promise of acks=all: what was acknowledged is in every replica, once and in order, and what
//! was read stays readable, whatever happens to nodes and links. And the promise of the simulation
//! itself: one seed, one run.

use actors::entropy::Entropy;

use crate::check::{self, Told};
use crate::client::Client;
use crate::nemesis::{self, Means};
use crate::reader::Reader;
use crate::simulation::{self, Simulation};
use crate::trace::Trace;
use crate::writer::Writer;

const TOPIC: &str = "kept";
const PARTITIONS: i32 = 2;
const WRITERS: i32 = 3;

/// Writers, a reader a partition, and blows; then the check.
async fn story(simulation: &mut Simulation, means: Means) {
    let client = |name: &str| {
        let random = Entropy::seeded(simulation.random.next_u64());
        Client::new(name, &simulation.running, random, &simulation.trace)
    };
    let admin = client("admin");
    let synced: &[_] = if means.power_cuts { &[("flush.messages", "1")] } else { &[] };
    admin.create_topic(TOPIC, PARTITIONS, synced).await;
    admin.wait_for_topic(TOPIC, PARTITIONS).await;
    let writers: Vec<Writer> = (0..WRITERS)
        .map(|n| Writer::start(client(&format!("writer {n}")), TOPIC, n % PARTITIONS))
        .collect();
    let readers: Vec<Reader> =
        (0..PARTITIONS).map(|n| Reader::start(client(&format!("reader {n}")), TOPIC, n)).collect();
    nemesis::torment(simulation, means).await;
    let mut told: Vec<Told> = (0..PARTITIONS).map(|_| Told::default()).collect();
    for writer in writers {
        let partition = usize::try_from(writer.partition).unwrap();
        told[partition].acknowledged.push(writer.finish().await);
    }
    for (partition, reader) in readers.into_iter().enumerate() {
        told[partition].seen.push(reader.finish().await);
    }
    for (partition, told) in told.iter().enumerate() {
        let partition = i32::try_from(partition).unwrap();
        check::settle(simulation, TOPIC, partition).await.unwrap();
        check::compare(simulation, TOPIC, partition, told).unwrap();
        let records: usize = told.acknowledged.iter().map(|writer| writer.values.len()).sum();
        simulation.trace.note(&format!("partition {partition}: {records} records kept"));
        assert!(records > 20, "only {records} records were written");
    }
}

fn run(seed: u64, means: Means) -> Trace {
    let (trace, ()) =
        simulation::run(seed, 3, async |simulation| Box::pin(story(simulation, means)).await);
    println!("seed {seed}: {} events, hash {:016x}", trace.len(), trace.hash());
    trace
}

/// The seeds to run: a few, or what `HELIOGRAPH_SIM_SEEDS` says.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let Ok(asked) = std::env::var("HELIOGRAPH_SIM_SEEDS") else {
        return 1..few + 1;
    };
    let number = |text: &str| text.parse().expect("HELIOGRAPH_SIM_SEEDS is a count or a range");
    match asked.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 1..number(&asked) + 1,
    }
}

#[test]
fn one_seed_gives_one_run() {
    let means = Means { blows: 4, power_cuts: true };
    for seed in seeds(1) {
        let (one, two) = (run(seed, means), run(seed, means));
        if let Some(difference) = one.difference(&two) {
            panic!("two runs of seed {seed} part at {difference}");
        }
        let other = run(seed + 1, means);
        assert_ne!(one.hash(), other.hash(), "two seeds gave one run");
    }
}

#[test]
fn kills_and_bad_links_lose_nothing() {
    for seed in seeds(5) {
        run(seed, Means { blows: 8, power_cuts: false });
    }
}

#[test]
fn power_cuts_lose_nothing_that_is_synced() {
    for seed in seeds(3) {
        run(1_000 + seed, Means { blows: 8, power_cuts: true });
    }
}
