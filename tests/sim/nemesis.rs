//! Who breaks things, by the seed: crashes nodes, cuts power, cuts and slows links, and mends all
//! of it again. It never looks at what is written.

use std::time::Duration;

use protocol::ids::NodeId;

use crate::simulation::{Crash, Simulation};

/// What may be done to a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Means {
    /// How many blows.
    pub blows: usize,
    /// Whether power may be cut: only what is synced is promised then.
    pub power_cuts: bool,
}

/// Deals the blows, one after the other, and heals the cluster at the end.
pub async fn torment(simulation: &mut Simulation, means: Means) {
    for _ in 0..means.blows {
        pause(simulation, 100, 1_500).await;
        blow(simulation, means).await;
    }
    simulation.heal().await;
}

async fn blow(simulation: &mut Simulation, means: Means) {
    match pick(simulation, 8) {
        0 | 1 => {
            let victim = one_of(simulation);
            crash(simulation, &[victim], means).await;
        }
        2 => {
            let spared = one_of(simulation);
            let nodes = simulation.nodes();
            let victims: Vec<_> = nodes.into_iter().filter(|node| *node != spared).collect();
            crash(simulation, &victims, means).await;
        }
        3 => {
            let everybody = simulation.nodes();
            crash(simulation, &everybody, means).await;
        }
        4 => {
            let victim = one_of(simulation);
            simulation.stop(victim).await;
            pause(simulation, 0, 800).await;
            simulation.restart(victim).await;
        }
        5 => {
            let victim = one_of(simulation);
            isolate(simulation, victim).await;
        }
        6 => fail_a_write(simulation).await,
        _ => slow_down(simulation).await,
    }
}

async fn crash(simulation: &mut Simulation, victims: &[NodeId], means: Means) {
    let how = match means.power_cuts && pick(simulation, 2) == 0 {
        true => Crash::PowerCut,
        false => Crash::Kill,
    };
    simulation.crash(victims, how).await;
    for victim in victims {
        pause(simulation, 0, 1_500).await;
        simulation.restart(*victim).await;
    }
}

/// Cuts a node off, to both sides or to one.
async fn isolate(simulation: &mut Simulation, victim: NodeId) {
    let ways = pick(simulation, 3);
    let cut: Vec<_> = simulation
        .pairs()
        .into_iter()
        .filter(|(from, to)| match ways {
            0 => *from == victim,
            1 => *to == victim,
            _ => *from == victim || *to == victim,
        })
        .collect();
    simulation.trace.note(&format!("cut {cut:?}"));
    cut.iter().for_each(|(from, to)| simulation.faults(*from, *to).cut());
    pause(simulation, 200, 2_500).await;
    simulation.trace.note("mend");
    cut.iter().for_each(|(from, to)| simulation.faults(*from, *to).mend());
}

/// Has one write of a node fail, as on a full disk: the log that it hits closes itself.
async fn fail_a_write(simulation: &mut Simulation) {
    let victim = one_of(simulation);
    let nth = 1 + simulation.random.next_u64() % 20;
    simulation.trace.note(&format!("write {nth} of node {victim} is to fail"));
    simulation.disk(victim).fail_write(nth);
    pause(simulation, 500, 2_500).await;
    simulation.disk(victim).mend();
}

/// Delays, loses and repeats messages on all links for a while.
async fn slow_down(simulation: &mut Simulation) {
    simulation.trace.note("bad links");
    for (from, to) in simulation.pairs() {
        let faults = simulation.faults(from, to);
        let delay = 1 + simulation.random.next_u64() % 60;
        faults.delay(Duration::ZERO, Duration::from_millis(delay));
        faults.drop_share(0.02);
        faults.duplicate_share(0.05);
    }
    pause(simulation, 500, 2_500).await;
    simulation.trace.note("good links");
    for (from, to) in simulation.pairs() {
        simulation.faults(from, to).clear();
    }
}

fn one_of(simulation: &Simulation) -> NodeId {
    let nodes = simulation.nodes();
    nodes[pick(simulation, nodes.len())]
}

fn pick(simulation: &Simulation, count: usize) -> usize {
    let count = u64::try_from(count).unwrap();
    usize::try_from(simulation.random.next_u64() % count).unwrap()
}

async fn pause(simulation: &Simulation, min_ms: u64, max_ms: u64) {
    let millis = min_ms + simulation.random.next_u64() % (max_ms - min_ms);
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
