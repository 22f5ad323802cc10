//! Clusters inside the test's process: nodes start, elect, replicate, crash and come back.

use std::time::{Duration, Instant};

use actors::dev::{DevCluster, DevSpec, World};
use actors::peers::LinkMode;
use actors::process::ProcessHandle;

pub fn spec(name: &str, nodes: usize, links: LinkMode, dir: &std::path::Path) -> DevSpec {
    DevSpec {
        name: name.to_string(),
        nodes,
        port: 0,
        dir: dir.to_path_buf(),
        overrides: config::Properties::new(),
        links,
        world: World::Machine { data_threads: 1 },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_become_ready() {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let dir = tempfile::tempdir().unwrap();
    let process = ProcessHandle::start().await.unwrap();
    let started = Instant::now();
    let spec = spec("ready", 3, LinkMode::Local, dir.path());
    let mut cluster = DevCluster::start(&process, &spec).await.unwrap();
    println!("started {:?}", started.elapsed());
    cluster.wait_until_ready(Duration::from_secs(10)).await.unwrap();
    println!("ready {:?}", started.elapsed());
    cluster.stop().await;
}
