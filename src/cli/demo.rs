//! `heliograph demo`: a topic is mirrored, its source dies, the copy takes over, and every promise
//! made on the way is checked. Owns the order of the acts and the exit code; each act is a file of
//! [`demo`](self), and all of them go over the wire like any client.

mod checks;
mod cut_link;
mod failover;
mod findings;
mod load;
mod report;
mod segments;
mod stage;
mod topic;
mod watch;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::checks::Verdict;
use self::findings::Seen;
use self::load::{Load, Pace};
use self::report::{Figures, thousands};
use self::stage::Stage;
use self::topic::Topic;
use self::watch::Watch;
use super::folder::{self, Folder};
use super::interrupt::Interrupt;
use super::mirrors::admin::{MirrorAdmin, TopicRequest};
use super::mirrors::plan::TopicArguments;
use super::{logging, say};

const EXAMPLES: &str = "\
Examples:
  heliograph demo
  heliograph demo --source localhost:9092

Without --source two clusters of three nodes run in this process, and all nodes of the first one
crash. With --source the topic heliograph-demo-<random> is made on that Kafka, the link to it is
cut (nothing there crashes), and the topic is deleted at the end.

Exit codes:
  0    every promise was held; also --help
  1    a promise was broken or could not be checked, or the demo could not go on or was interrupted
       (standard error says why)
  130  ended at once by a second Ctrl-C";

/// Why it ended when somebody asked it to.
const INTERRUPTED: &str = "it was interrupted";
const MIRROR: &str = "demo";
const PARTITIONS: i32 = 6;
/// What is written before there is a mirror, so that there is a lag to see: so many bytes, or as
/// many as fit in the time.
const HEAD_START_BYTES: u64 = 64 << 20;
const HEAD_START_MAX: Duration = Duration::from_secs(6);
/// How long the steady load is watched.
const STEADY: Duration = Duration::from_secs(4);
/// How long the load hurries again before the source is lost, so that a copy has a tail to miss.
const BEFORE_THE_LOSS: Duration = Duration::from_millis(200);
/// How long the load goes on after the source was lost to the standby.
const AFTER_THE_LOSS: Duration = Duration::from_millis(300);

/// Mirror a topic, lose its source, fail over, and check every promise.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Mirror from this running Kafka instead of a cluster in this process
    #[arg(long, value_name = "HOST:PORT")]
    source: Option<String>,
}

/// Plays the demo and returns the exit code.
pub fn run(arguments: &Arguments) -> ExitCode {
    // A source that dies is the point here, not worth a warning.
    logging::start("error");
    let outcome = super::main_runtime().and_then(|runtime| {
        let outcome = runtime.block_on(play(arguments));
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(Verdict::Held) => ExitCode::SUCCESS,
        Ok(Verdict::Broken) => {
            eprintln!("heliograph demo: a promise was broken; the table above says which");
            ExitCode::FAILURE
        }
        Ok(Verdict::NotChecked) => {
            eprintln!(
                "heliograph demo: not every promise could be checked; the table above says why"
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("heliograph demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Sets the stage, plays, and clears up whatever happened.
async fn play(arguments: &Arguments) -> Result<Verdict> {
    let folder = Folder::open(None, "demo")?;
    let temporary = folder.temporary();
    let interrupt = Interrupt::listen(move || {
        temporary.as_deref().map(folder::remove_at_once);
    })
    .context("signals cannot be taken over")?;
    let began = Instant::now();
    let mut stage = Stage::set(arguments.source.as_deref(), &folder, &interrupt).await?;
    say(&format!(
        "source   {}\nstandby  {}\nready    {} ms\n\n",
        stage.source_bootstrap(),
        stage.standby_bootstrap(),
        began.elapsed().as_millis()
    ));
    let name = format!("heliograph-demo-{:08x}", RandomState::new().hash_one(0) >> 32);
    let outcome = tokio::select! {
        outcome = acts(&mut stage, &name) => outcome,
        () = interrupt.asked() => Err(anyhow::anyhow!(INTERRUPTED)),
    };
    let cleared = match &arguments.source {
        Some(source) => topic::delete(&topic::client(source), &name)
            .await
            .with_context(|| format!("clearing topic {name} up on {source}")),
        None => Ok(()),
    };
    stage.tear_down().await;
    let verdict = outcome?;
    match cleared {
        Ok(()) => Ok(verdict),
        // The verdict is the news; of a source that is gone nothing has to be cleared up.
        Err(error) if verdict != Verdict::Held => {
            eprintln!("heliograph demo: {error:#}");
            Ok(verdict)
        }
        Err(error) => Err(error),
    }
}

async fn acts(stage: &mut Stage, name: &str) -> Result<Verdict> {
    let source =
        Topic::create(&topic::client(&stage.source_bootstrap()), name, PARTITIONS).await?;
    say(&format!("Topic {name} with {PARTITIONS} partitions; a load writes to it, acks=all\n"));
    let began = Instant::now();
    let load = Load::start(&source);
    head_start(&load).await?;
    let written = i64::try_from(load.records())?;
    say(&format!(
        "  {} records before there is a mirror; steady from here on\n",
        thousands(written)
    ));

    let standby_bootstrap = stage.standby_bootstrap();
    let servers: Vec<String> = standby_bootstrap.split(',').map(str::to_owned).collect();
    let admin = MirrorAdmin::new(&servers, "heliograph-demo");
    start_mirror(&admin, &stage.mirrored_bootstrap(), name).await?;
    say(&format!("Mirror '{MIRROR}' created and started on the standby\n"));
    let watch = Watch::new(&admin, MIRROR, name, source.partitions().len());
    let caught_up = watch.until_caught_up().await?;
    say(&format!("  lag 0 after {} ms; the load goes on\n", caught_up.took.as_millis()));
    let kept_up = watch.steady(STEADY).await?;
    let standby = Topic::find(&topic::client(&standby_bootstrap), name, PARTITIONS).await?;
    let read_only = failover::read_only(&standby).await;

    load.set_pace(Pace::Burst);
    tokio::time::sleep(BEFORE_THE_LOSS).await;
    stage.lose_source().await;
    let lost = if stage.primary_folder().is_some() {
        "All nodes of the primary crashed"
    } else {
        "The link to the source is cut"
    };
    say(&format!("{lost}; stopping the mirror\n"));
    tokio::time::sleep(AFTER_THE_LOSS).await;
    let failover = failover::fail_over(&admin, MIRROR, &standby, &watch).await?;
    say(&format!("  first write accepted after {} ms\n", failover.first_write.as_millis()));

    let acknowledged = (load.records(), load.bytes());
    let load_took = began.elapsed();
    let seen = Seen { acknowledged: load.stop().await, read_only, kept_up, failover };
    say("Checking\n");
    let (equal, checks) = seen.check(stage, &source, &standby).await?;
    let figures = Figures {
        acknowledged,
        load_took,
        caught_up: (caught_up.records, caught_up.took),
        lags: (caught_up.lag_max, seen.kept_up.lag_max, seen.kept_up.lag),
        equal,
        writable_after: (seen.failover.first_write, seen.failover.all_writable),
    };
    say(&report::text(&figures, &checks));
    Ok(Verdict::of(&checks))
}

/// Lets the load hurry until there is something to copy.
async fn head_start(load: &Load) -> Result<()> {
    let began = Instant::now();
    while load.bytes() < HEAD_START_BYTES && began.elapsed() < HEAD_START_MAX {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    load.set_pace(Pace::Steady);
    if load.records() == 0 {
        bail!("the source accepted no write within {HEAD_START_MAX:?}");
    }
    Ok(())
}

async fn start_mirror(admin: &MirrorAdmin, source: &str, topic: &str) -> Result<()> {
    let settings = BTreeMap::from([("bootstrap.servers".to_owned(), source.to_owned())]);
    admin.create(MIRROR, &settings).await.context("the mirror was not created")?;
    let topics = TopicArguments { literals: vec![topic.to_owned()], patterns: Vec::new() };
    let asked = TopicRequest { mirror: MIRROR, topics: &topics, exclude: &[] };
    let outcomes = admin.start(&asked).await.context("the mirror was not started")?;
    match outcomes.iter().find_map(|outcome| outcome.failure.as_deref()) {
        Some(failure) => bail!("the mirror was not started: {failure}"),
        None => Ok(()),
    }
}
