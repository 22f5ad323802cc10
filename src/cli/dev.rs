//! `heliograph dev`: a cluster in this process until Ctrl-C. Owns the command's arguments, the
//! order of start and end, and the exit code; the cluster is the actors', what is printed is in
//! [`banner`].

mod banner;
mod mirror;
#[cfg(feature = "failpoints")]
mod orders;
mod overrides;
mod ready_file;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use actors::crash_point::crash_point;
use actors::dev::{DevCluster, DevSpec, World};
use actors::peers::LinkMode;
use actors::process::ProcessHandle;
use anyhow::{Context, Result, anyhow, bail};

use super::folder::{self, Folder};
use super::interrupt::Interrupt;
use super::{logging, say};

const EXAMPLES: &str = "\
Examples:
  heliograph dev
  heliograph dev --nodes 1 --port 0 --ready-file ready.json
  heliograph dev --dir ./cluster --override num.partitions=6 \\
      --override log.segment.bytes=1048576
  heliograph dev --mirror-from kafka:9092 --topics 'orders|payments-.*'

Log lines go to standard error, warnings only unless RUST_LOG says otherwise (RUST_LOG=info).

Exit codes:
  0    ended by Ctrl-C or SIGTERM, in order; also --help
  1    wrong usage, or it could not start or go on (one sentence on standard error)
  130  ended at once by a second Ctrl-C";

/// How long the cluster may take until topics can be created.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// A start that takes longer than this is spoken of.
const QUIET_START: Duration = Duration::from_secs(1);
/// How long an orderly end may take.
const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// Run a cluster in this process until Ctrl-C.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// How many nodes; topics get min(3, nodes) replicas
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    nodes: u16,
    /// The first node's port on 127.0.0.1, the others follow; 0 takes free ones
    #[arg(long, value_name = "PORT", default_value_t = 9092)]
    port: u16,
    /// Keep the data here; without it a temporary folder is used and removed at the end
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// A Kafka broker setting for every node; may be given more than once
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Write bootstrap, cluster_id, nodes and ready_ms here as JSON once topics can be created
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Mirror topics of the cluster with these servers as soon as this one is ready. On a folder
    /// kept with --dir, what an earlier run started goes on, and what was stopped stays so
    #[arg(long, value_name = "BOOTSTRAP", requires = "topics")]
    mirror_from: Option<String>,
    /// Which topics to mirror: a regular expression that matches whole names
    #[arg(long, value_name = "REGEX", requires = "mirror_from")]
    topics: Option<String>,
    /// How the nodes talk to each other: inside the process, or over sockets as between machines
    #[arg(long, value_name = "KIND", default_value = "local")]
    links: Links,
}

/// The two kinds of link between nodes of one process.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Links {
    /// By message inside the process.
    Local,
    /// Over sockets.
    Tcp,
}

/// Runs the cluster to its end and returns the exit code.
pub fn run(arguments: &Arguments, started: Instant) -> ExitCode {
    logging::start("warn");
    let outcome = super::main_runtime().and_then(|runtime| {
        let outcome = runtime.block_on(run_until_asked(arguments, started));
        // What still runs here now was told to end: nothing is worth waiting for.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("heliograph dev: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run_until_asked(arguments: &Arguments, started: Instant) -> Result<()> {
    check_ports(arguments)?;
    ready_file::remove_stale(arguments.ready_file.as_deref())?;
    let folder = Folder::open(arguments.dir.as_deref(), "dev")?;
    let wanted = wanted(arguments)?;
    let spec = spec(arguments, &folder)?;
    folder.check_nodes(spec.nodes)?;
    let temporary = folder.temporary();
    let interrupt = Interrupt::listen(move || {
        temporary.as_deref().map(folder::remove_at_once);
    })
    .context("signals cannot be taken over")?;
    let process = ProcessHandle::start().await.context("the process's root did not start")?;
    let mut cluster = DevCluster::start(&process, &spec).await?;
    #[cfg(feature = "failpoints")]
    tokio::spawn(orders::obey(cluster.handle().clone()));
    let outcome = tokio::select! {
        outcome = serve(&cluster, arguments, wanted.as_ref(), &folder, started) => outcome,
        () = process.ended() => Err(anyhow!("the cluster ended; the log lines above say why")),
        () = interrupt.asked() => Ok(()),
    };
    crash_point("dev-end-in-order");
    if tokio::time::timeout(STOP_DEADLINE, cluster.stop()).await.is_err() {
        tracing::warn!("the nodes did not stop in order within {STOP_DEADLINE:?}");
    }
    outcome
}

/// Does everything that follows the start, and then nothing, until the future is dropped.
async fn serve(
    cluster: &DevCluster,
    arguments: &Arguments,
    wanted: Option<&mirror::Wanted>,
    folder: &Folder,
    started: Instant,
) -> Result<()> {
    wait_until_ready(cluster, arguments).await?;
    let facts = banner::Facts::of(cluster, folder, started.elapsed());
    if let Some(file) = &arguments.ready_file {
        ready_file::write(file, &facts)?;
    }
    say(&banner::text(&facts));
    if let Some(wanted) = wanted {
        say(&mirror::set_up(&facts.bootstrap, wanted).await?);
    }
    std::future::pending().await
}

/// What --mirror-from and --topics ask for.
fn wanted(arguments: &Arguments) -> Result<Option<mirror::Wanted>> {
    let (Some(source), Some(topics)) = (&arguments.mirror_from, &arguments.topics) else {
        return Ok(None);
    };
    mirror::Wanted::new(source, topics).map(Some)
}

async fn wait_until_ready(cluster: &DevCluster, arguments: &Arguments) -> Result<()> {
    let ready = cluster.wait_until_ready(READY_DEADLINE);
    tokio::pin!(ready);
    if let Ok(outcome) = tokio::time::timeout(QUIET_START, &mut ready).await {
        return Ok(outcome?);
    }
    eprintln!(
        "heliograph dev: starting {} node(s) takes longer than usual; RUST_LOG=info shows why",
        arguments.nodes
    );
    Ok(ready.await?)
}

fn check_ports(arguments: &Arguments) -> Result<()> {
    let last = u32::from(arguments.port) + u32::from(arguments.nodes) - 1;
    if arguments.port != 0 && last > u32::from(u16::MAX) {
        bail!(
            "--port {} leaves no room for {} nodes: the last would be {last}, above 65535",
            arguments.port,
            arguments.nodes
        );
    }
    Ok(())
}

fn spec(arguments: &Arguments, folder: &Folder) -> Result<DevSpec> {
    let nodes = usize::from(arguments.nodes);
    let overrides = overrides::parse(&arguments.overrides);
    let spec = DevSpec {
        name: "dev".to_owned(),
        nodes,
        port: arguments.port,
        dir: folder.path().to_owned(),
        overrides: overrides.settings,
        links: match arguments.links {
            Links::Local => LinkMode::Local,
            Links::Tcp => LinkMode::Tcp,
        },
        world: World::Machine { data_threads: super::data_threads(nodes) },
    };
    let mut faults = overrides.faults;
    if let Err(error) = spec.check() {
        faults.extend(error.faults().iter().map(ToString::to_string));
    }
    match faults.as_slice() {
        [] => Ok(spec),
        faults => bail!("{}", faults.join("\n")),
    }
}
