//! The command line: which subcommand was asked for, under which name. Owns the list of
//! subcommands; each has a file of its own that does the work.

mod demo;
mod dev;
mod mirrors;

mod folder;
mod interrupt;
mod logging;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// The names under which the binary is the mirrors tool alone.
const MIRRORS_NAMES: [&str; 2] = ["kafka-mirrors", "kafka-mirrors.sh"];

/// A Kafka-compatible broker cluster in one binary, made for cluster mirroring (KIP-1279).
#[derive(Parser)]
#[command(name = "heliograph", version)]
#[command(
    after_help = "Exit codes: 0 all went as asked; 1 something did not (see standard error)."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Dev(dev::Arguments),
    Demo(demo::Arguments),
    #[command(name = "kafka-mirrors", version)]
    KafkaMirrors(mirrors::Arguments),
}

/// Runs what the arguments ask for; the first one is the name of the binary.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    // Test builds crash where FAILPOINTS says.
    #[cfg(feature = "failpoints")]
    let _scenario = fail::FailScenario::setup();
    let started = Instant::now();
    match Arguments::try_parse_from(with_subcommand(arguments)) {
        Ok(Arguments { command: Command::Dev(arguments) }) => dev::run(&arguments, started),
        Ok(Arguments { command: Command::Demo(arguments) }) => demo::run(&arguments),
        Ok(Arguments { command: Command::KafkaMirrors(arguments) }) => mirrors::run(&arguments),
        Err(error) => {
            // Help and version are answers and go to standard output; the rest are refusals.
            let refused = error.use_stderr();
            let printed = error.print();
            if refused || printed.is_err() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
    }
}

/// The runtime of the process itself: what a node does runs on the node's own runtimes.
fn main_runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("heliograph")
        .enable_all()
        .build()
        .context("the runtime does not start")
}

/// Threads for data of each node, so that all nodes of the process share its processors.
fn data_threads(nodes: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.div_ceil(nodes.max(1))
}

/// Prints on standard output. A reader that has gone does not matter: the exit code is the answer.
fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    if let Err(error) = written {
        tracing::debug!(%error, "standard output does not take what is said");
    }
}

/// Under the mirrors tool's own names the subcommand is understood.
fn with_subcommand(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    if MIRRORS_NAMES.iter().any(|known| name == Some(known.as_ref())) {
        arguments[0] = "heliograph".into();
        arguments.insert(1, "kafka-mirrors".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(arguments: &[&str]) -> Vec<OsString> {
        with_subcommand(arguments.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_definition_holds_together() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_tools_own_names_are_understood() {
        assert_eq!(named(&["/a/kafka-mirrors.sh", "--list"])[1..], ["kafka-mirrors", "--list"]);
        assert_eq!(named(&["kafka-mirrors"])[1..], ["kafka-mirrors"]);
        assert_eq!(named(&["/a/heliograph", "--list"])[1..], ["--list"]);
    }
}
