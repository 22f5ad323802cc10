//! `dev --mirror-from`: a mirror of a running cluster, created and started over the wire on our
//! own bootstrap, as a user would. Owns the mirror's name; knows nothing of how mirroring works.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mirror::MirrorState;
use mirror::patterns::PatternSet;
use protocol::error_code::ErrorCode;

use super::banner::program;
use crate::cli::mirrors::admin::{MirrorAdmin, Refused, TopicRequest};
use crate::cli::mirrors::plan::TopicArguments;
use crate::cli::mirrors::render::PartitionRow;

/// What the mirror of `--mirror-from` is called.
const MIRROR: &str = "source";

/// Between two tries to reach the source.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// What to mirror, checked.
#[derive(Debug)]
pub struct Wanted {
    source: String,
    topics: TopicArguments,
}

impl Wanted {
    /// Checks the patterns, before anything is started.
    ///
    /// # Errors
    /// Names the first that is no regular expression.
    pub fn new(source: &str, topics: &str) -> Result<Wanted> {
        let topics = TopicArguments::parse(topics);
        PatternSet::new(&topics.patterns).context("--topics")?;
        Ok(Wanted { source: source.to_owned(), topics })
    }
}

/// Creates the mirror unless an earlier run did, starts the topics, and says how to watch it.
/// While the source does not answer it says so once and goes on trying.
///
/// # Errors
/// One sentence: a setting or a topic is refused.
pub async fn set_up(bootstrap: &str, wanted: &Wanted) -> Result<String> {
    let servers: Vec<String> = bootstrap.split(',').map(str::to_owned).collect();
    let admin = MirrorAdmin::new(&servers, "heliograph-dev");
    let source = &wanted.source;
    create(&admin, source).await?;
    let known = admin.describe(Some(MIRROR)).await.context("the mirror cannot be described")?;
    let topics = not_started(&wanted.topics, &known);
    if topics == TopicArguments::default() {
        return Ok(goes_on(bootstrap, source, &known));
    }
    let asked = TopicRequest { mirror: MIRROR, topics: &topics, exclude: &[] };
    let mut told = false;
    let started = loop {
        match admin.start(&asked).await {
            Ok(started) => break started,
            Err(error) if is_unreachable(&error) => {
                if !std::mem::replace(&mut told, true) {
                    eprintln!(
                        "heliograph dev: --mirror-from {source}: {error:#}\nNothing new is \
                         mirrored yet; it is tried again every {} s.",
                        RETRY_PAUSE.as_secs()
                    );
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => {
                let what = format!("--mirror-from {source}: the topics cannot be started");
                return Err(error.context(what));
            }
        }
    };
    let mut names: Vec<&str> = Vec::new();
    for outcome in &started {
        match &outcome.failure {
            None => names.push(&outcome.topic),
            Some(failure) => bail!("--mirror-from {source}: topic {}: {failure}", outcome.topic),
        }
    }
    names.sort_unstable();
    let none = "No topic matches yet. Discovery is not built yet: start what comes later with \
                kafka-mirrors --start.\n";
    Ok(format!(
        "\nMirroring {} topic(s) of {source}: [{}].\n{}{}",
        names.len(),
        names.join(", "),
        if names.is_empty() { none } else { "" },
        watch(bootstrap)
    ))
}

/// What no earlier run has started. A topic that was, and was stopped since, was failed over: to
/// start it again would cut what has been written to it. Patterns would find such topics again, so
/// they are asked for once.
fn not_started(wanted: &TopicArguments, known: &[PartitionRow]) -> TopicArguments {
    let is_known = |name: &String| known.iter().any(|row| row.topic == *name);
    TopicArguments {
        literals: wanted.literals.iter().filter(|name| !is_known(name)).cloned().collect(),
        patterns: if known.is_empty() { wanted.patterns.clone() } else { Vec::new() },
    }
}

fn goes_on(bootstrap: &str, source: &str, known: &[PartitionRow]) -> String {
    let topics: BTreeSet<&str> = known.iter().map(|row| row.topic.as_str()).collect();
    let stopped: BTreeSet<&str> = known
        .iter()
        .filter(|row| row.is(MirrorState::Stopped) || row.is(MirrorState::Stopping))
        .map(|row| row.topic.as_str())
        .collect();
    let mut text = format!("\nThe mirror of {source} goes on with {} topic(s).\n", topics.len());
    if !stopped.is_empty() {
        let names = stopped.into_iter().collect::<Vec<_>>().join(", ");
        text.push_str(&format!(
            "Stopped before, and left as they are: [{names}]. kafka-mirrors --start would mirror \
             them again\nand cut what was written here since.\n"
        ));
    }
    text + "New topics of the source are not looked for: start them with kafka-mirrors --start.\n"
        + &watch(bootstrap)
}

fn watch(bootstrap: &str) -> String {
    let program = program();
    format!(
        "Watch it:\n  {program} kafka-mirrors --bootstrap-server {bootstrap} --describe --mirror \
         {MIRROR}\n"
    )
}

fn is_unreachable(error: &anyhow::Error) -> bool {
    let code = error.downcast_ref::<Refused>().map(|refused| ErrorCode::from_code(refused.code));
    code == Some(ErrorCode::BrokerNotAvailable)
}

async fn create(admin: &MirrorAdmin, source: &str) -> Result<()> {
    let existing = admin.list().await.context("the mirrors cannot be listed")?;
    match existing.iter().find(|row| row.mirror == MIRROR) {
        Some(row) if row.source_bootstrap == source => Ok(()),
        Some(row) => bail!(
            "mirror '{MIRROR}' of this folder has the source {}, not {source}: choose another \
             --dir",
            row.source_bootstrap
        ),
        None => {
            let settings = BTreeMap::from([("bootstrap.servers".to_owned(), source.to_owned())]);
            admin
                .create(MIRROR, &settings)
                .await
                .with_context(|| format!("--mirror-from {source}: the mirror cannot be created"))
        }
    }
}
