//! `heliograph kafka-mirrors`: creates mirrors and manages what they mirror, with the options,
//! texts and columns of KIP-1279. Owns the command's arguments, their checks and its exit code;
//! speaks only the wire protocol, through [`admin`], and knows nothing of a broker's inside.

pub mod admin;
pub mod plan;
pub mod render;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::CommandFactory;
use mirror::MirrorState;

use admin::{MirrorAdmin, TopicOutcome, TopicRequest};
use plan::{Action, Plan, Refusal, TopicArguments};

const EXAMPLES: &str = "\
Examples:
  heliograph kafka-mirrors --bootstrap-server localhost:9092 --create --mirror standby \\
      --mirror-config source.properties
  heliograph kafka-mirrors --bootstrap-server localhost:9092 --start --mirror standby \\
      --topics 'orders,payments-.*'
  heliograph kafka-mirrors --bootstrap-server localhost:9092 --describe --mirror standby --json
  heliograph kafka-mirrors --bootstrap-server localhost:9092 --stop --mirror standby \\
      --topics orders

source.properties needs at least bootstrap.servers, the source cluster's addresses.

Exit codes:
  0  done, for every topic; also --help and --version
  1  wrong usage, a refusal, a topic that failed (one line each on standard error), no answer,
     a stop that is not done after 30 s (it goes on)";

/// Create cluster mirrors and manage mirrored topics.
#[derive(clap::Args, Default)]
#[command(after_help = EXAMPLES, override_usage = "heliograph kafka-mirrors [OPTIONS]")]
pub struct Arguments {
    /// The destination cluster's servers, HOST:PORT[,HOST:PORT…] (required)
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: Option<String>,
    /// Client properties for talking to the destination cluster
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// Create a mirror of the source cluster that --mirror-config names
    #[arg(long)]
    create: bool,
    /// Start mirroring topics
    #[arg(long)]
    start: bool,
    /// Stop mirroring topics and make them writable (failover; the source is not needed)
    #[arg(long)]
    stop: bool,
    /// Pause mirroring topics (heliograph does not serve it yet)
    #[arg(long)]
    pause: bool,
    /// Resume mirroring paused topics (heliograph does not serve it yet)
    #[arg(long)]
    resume: bool,
    /// Delete a mirror whose topics are all stopped (heliograph does not serve it yet)
    #[arg(long)]
    delete: bool,
    /// List all mirrors
    #[arg(long)]
    list: bool,
    /// Show state, offsets and lag of each mirrored partition
    #[arg(long)]
    describe: bool,
    /// The mirror; required except for --list and --describe
    #[arg(long, value_name = "NAME")]
    mirror: Option<String>,
    /// Properties of the connection to the source; required for --create
    #[arg(long, value_name = "FILE")]
    mirror_config: Option<PathBuf>,
    /// Topic names or regular expressions, comma-separated; for --start, --stop, --pause, --resume
    #[arg(long, visible_alias = "topic", value_name = "LIST")]
    topics: Option<String>,
    /// Topic names or regular expressions not to start, comma-separated
    #[arg(long, value_name = "LIST")]
    exclude: Option<String>,
    /// Describe as one line of JSON
    #[arg(long)]
    json: bool,
}

/// How long --stop waits for its topics to take writes.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// How long --start asks for the states before it, which it needs for a note only.
const NOTE_PATIENCE: Duration = Duration::from_secs(2);

/// What an action came to: text for standard output, what else is worth knowing, and a line for
/// each thing that failed.
#[derive(Default)]
struct Outcome {
    output: String,
    notes: Vec<String>,
    failures: Vec<String>,
}

/// Checks the arguments, carries the action out, prints, and returns the exit code.
pub fn run(arguments: &Arguments) -> ExitCode {
    let plan = match plan::plan(arguments) {
        Ok(plan) => plan,
        Err(refusal) => return refuse(&refusal),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime
        .context("the runtime does not start")
        .and_then(|runtime| runtime.block_on(execute(arguments, &plan)));
    match outcome {
        Ok(outcome) => report(&outcome),
        Err(error) => {
            eprintln!("Error while executing mirror command : {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(refusal: &Refusal) -> ExitCode {
    if refusal.with_usage {
        let usage = Arguments::augment_args_of_command().render_help();
        eprintln!("{usage}\n");
    }
    eprintln!("{}", refusal.message);
    ExitCode::FAILURE
}

fn report(outcome: &Outcome) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(outcome.output.as_bytes()).and_then(|()| stdout.flush());
    for line in outcome.notes.iter().chain(&outcome.failures) {
        eprintln!("{line}");
    }
    if written.is_ok() && outcome.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn execute(arguments: &Arguments, plan: &Plan) -> Result<Outcome> {
    let client_id = plan::client_id(arguments.command_config.as_deref())?;
    let admin = MirrorAdmin::new(&plan.bootstrap, &client_id);
    match &plan.action {
        Action::Create { mirror, config } => create(&admin, mirror, config).await,
        Action::Start { mirror, topics, exclude } => {
            start(&admin, &TopicRequest { mirror, topics, exclude }).await
        }
        Action::Stop { mirror, topics } => {
            stop(&admin, &TopicRequest { mirror, topics, exclude: &[] }).await
        }
        Action::Pause { mirror, topics } => {
            let outcomes = admin.pause(&TopicRequest { mirror, topics, exclude: &[] }).await?;
            Ok(changed("Paused mirroring", mirror, &outcomes))
        }
        Action::Resume { mirror, topics } => {
            let outcomes = admin.resume(&TopicRequest { mirror, topics, exclude: &[] }).await?;
            Ok(changed("Resumed mirroring", mirror, &outcomes))
        }
        Action::Delete { mirror } => {
            admin.delete(mirror).await?;
            Ok(said(format!("Deleted mirror {mirror}\n")))
        }
        Action::List => Ok(said(render::list(&admin.list().await?))),
        Action::Describe { mirror, json } => describe(&admin, mirror.as_deref(), *json).await,
    }
}

fn said(output: String) -> Outcome {
    Outcome { output, ..Outcome::default() }
}

async fn create(admin: &MirrorAdmin, mirror: &str, config: &Path) -> Result<Outcome> {
    let settings = plan::read_properties(config)?;
    admin.create(mirror, &settings).await?;
    Ok(said(format!("Created mirror {mirror}\n")))
}

async fn start(admin: &MirrorAdmin, asked: &TopicRequest<'_>) -> Result<Outcome> {
    // Only for the note: what is wrong with the mirror is told by the request itself.
    let before = tokio::time::timeout(NOTE_PATIENCE, admin.describe(Some(asked.mirror))).await;
    let before = before.ok().and_then(Result::ok).unwrap_or_default();
    let outcomes = admin.start(asked).await?;
    let mut outcome = started(asked.mirror, asked.topics, &outcomes);
    let again = succeeded(&outcomes).into_iter().filter(|name| {
        before.iter().any(|row| row.topic == *name && row.is(MirrorState::Stopped))
    });
    outcome.notes.extend(again.map(|name| {
        format!(
            "Topic {name} was stopped and is read-only again: what was written here since is cut \
             where the source does not have it (recordsCut of --describe --json)."
        )
    }));
    Ok(outcome)
}

/// Stops, and waits until the topics take writes: the order alone does not make them writable.
async fn stop(admin: &MirrorAdmin, asked: &TopicRequest<'_>) -> Result<Outcome> {
    let outcomes = admin.stop(asked).await?;
    let names = succeeded(&outcomes);
    let mut outcome = changed("Stopped mirroring", asked.mirror, &outcomes);
    if names.is_empty() {
        return Ok(outcome);
    }
    let still = match admin.wait_stopped(asked.mirror, &names, STOP_PATIENCE).await {
        Ok(0) => return Ok(outcome),
        Ok(count) => format!("{count} partition(s) are not STOPPED yet"),
        Err(error) => format!("whether the topics take writes yet cannot be told: {error:#}"),
    };
    outcome.failures.push(format!(
        "The order is stored and goes on by itself, but {still}; --describe shows it."
    ));
    Ok(outcome)
}

/// The names that succeeded, sorted, as the success lines show them.
fn succeeded(outcomes: &[TopicOutcome]) -> Vec<&str> {
    let done = outcomes.iter().filter(|outcome| outcome.failure.is_none());
    let mut names: Vec<&str> = done.map(|outcome| outcome.topic.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn failures(outcomes: &[TopicOutcome]) -> Vec<String> {
    let mut lines: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| {
            Some(format!("Topic {} failed: {}", outcome.topic, outcome.failure.as_ref()?))
        })
        .collect();
    lines.sort_unstable();
    lines
}

fn started(mirror: &str, topics: &TopicArguments, outcomes: &[TopicOutcome]) -> Outcome {
    let names = succeeded(outcomes);
    let failures = failures(outcomes);
    let mut notes = Vec::new();
    let output = if !names.is_empty() {
        let list = names.join(", ");
        format!("Started {} mirror topic(s) in mirror {mirror}: [{list}]\n", names.len())
    } else if failures.is_empty() && !topics.patterns.is_empty() {
        notes.push(
            "Discovery is not built yet: run --start again when such topics exist at the source."
                .to_owned(),
        );
        format!(
            "No matching topics found yet. Patterns saved to mirror {mirror} for auto-discovery.\n"
        )
    } else {
        String::new()
    };
    Outcome { output, notes, failures }
}

fn changed(verb: &str, mirror: &str, outcomes: &[TopicOutcome]) -> Outcome {
    let names = succeeded(outcomes);
    let mut failures = failures(outcomes);
    let mut output = String::new();
    if !names.is_empty() {
        let (count, list) = (names.len(), names.join(", "));
        output = format!("{verb} for {count} topic(s) in mirror {mirror}: [{list}]\n");
    } else if failures.is_empty() {
        failures.push(format!("No topic of mirror {mirror} matches."));
    }
    Outcome { output, failures, ..Outcome::default() }
}

async fn describe(admin: &MirrorAdmin, mirror: Option<&str>, json: bool) -> Result<Outcome> {
    let rows = admin.describe(mirror).await?;
    if json {
        return Ok(said(render::json(&rows)?));
    }
    if let Some(warning) = admin.state_topic_warning().await? {
        eprintln!("{warning}");
    }
    Ok(said(render::table(&rows)))
}

impl Arguments {
    /// The command alone, for its usage text.
    fn augment_args_of_command() -> clap::Command {
        let whole = super::Arguments::command();
        let found = whole.find_subcommand("kafka-mirrors").cloned();
        found.expect("the subcommand is defined above this file")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(topic: &str, failure: Option<&str>) -> TopicOutcome {
        TopicOutcome { topic: topic.to_owned(), failure: failure.map(str::to_owned) }
    }

    #[test]
    fn success_lines_are_sorted() {
        let outcomes = [outcome("orders-us", None), outcome("orders-eu", None)];
        let topics = TopicArguments::default();
        assert_eq!(
            started("m", &topics, &outcomes).output,
            "Started 2 mirror topic(s) in mirror m: [orders-eu, orders-us]\n"
        );
        assert_eq!(
            changed("Stopped mirroring", "m", &outcomes[..1]).output,
            "Stopped mirroring for 1 topic(s) in mirror m: [orders-us]\n"
        );
    }

    #[test]
    fn failed_topics_have_a_line_each_and_fail_the_command() {
        let outcomes =
            [outcome("b", Some("no")), outcome("a", None), outcome("aa", Some("never"))];
        let result = changed("Stopped mirroring", "m", &outcomes);
        assert_eq!(result.output, "Stopped mirroring for 1 topic(s) in mirror m: [a]\n");
        assert_eq!(result.failures, ["Topic aa failed: never", "Topic b failed: no"]);
        assert_eq!(changed("Stopped mirroring", "m", &[]).failures.len(), 1);
    }

    #[test]
    fn a_pattern_without_a_match_is_kept_for_later() {
        let topics = TopicArguments { literals: Vec::new(), patterns: vec!["a.*".to_owned()] };
        let result = started("m", &topics, &[]);
        assert!(result.output.starts_with("No matching topics found yet."));
        assert!(result.failures.is_empty());
        assert!(result.notes[0].contains("run --start again"));
    }
}
