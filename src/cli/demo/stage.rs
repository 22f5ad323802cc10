//! What the demo plays on: the standby in this process, and a source, in this process too or
//! running elsewhere behind a link that can be cut. Owns their start, the loss of the source, and
//! their end: a node that was started is ended before anybody removes its folder, also where the
//! stage is not set after all. Knows nothing of topics and mirrors.

use std::path::PathBuf;
use std::time::Duration;

use actors::dev::{DevCluster, DevSpec, World};
use actors::peers::LinkMode;
use actors::process::ProcessHandle;
use anyhow::{Context, Result, bail};
use config::Properties;

use super::cut_link::CutLink;
use super::topic;
use crate::cli::folder::Folder;
use crate::cli::interrupt::Interrupt;

/// Nodes of each cluster.
const NODES: usize = 3;
/// How long a cluster may take until topics can be created.
const READY_DEADLINE: Duration = Duration::from_secs(20);
/// How long a running source may take to say who its brokers are.
const SOURCE_DEADLINE: Duration = Duration::from_secs(10);

/// The two sides.
#[derive(Debug)]
pub struct Stage {
    source: Source,
    standby: DevCluster,
    folder: PathBuf,
    _process: ProcessHandle,
}

#[derive(Debug)]
enum Source {
    /// Three nodes in this process.
    Primary(DevCluster),
    /// A cluster somewhere, and what the standby reaches it through.
    Elsewhere { bootstrap: String, link: CutLink },
}

impl Stage {
    /// Starts the standby and, without a running source, the primary beside it.
    ///
    /// # Errors
    /// One sentence: a cluster does not start, the source does not answer, it was interrupted.
    pub async fn set(
        source: Option<&str>,
        folder: &Folder,
        interrupt: &Interrupt,
    ) -> Result<Stage> {
        let process = ProcessHandle::start().await.context("the process's root did not start")?;
        let folder = folder.path().to_owned();
        let source = async {
            match source {
                Some(bootstrap) => unless_asked(interrupt, reach(bootstrap)).await,
                None => start(&process, &folder, "primary").await.map(Source::Primary),
            }
        };
        // Both come to their end: nodes that are starting when one side fails would go on.
        let (source, standby) = tokio::join!(source, start(&process, &folder, "standby"));
        let stage = match (source, standby) {
            (Ok(source), Ok(standby)) => Stage { source, standby, folder, _process: process },
            (Err(error), standby) => {
                if let Ok(mut standby) = standby {
                    standby.crash().await;
                }
                return Err(error);
            }
            (Ok(source), Err(error)) => {
                if let Source::Primary(mut primary) = source {
                    primary.crash().await;
                }
                return Err(error);
            }
        };
        match unless_asked(interrupt, stage.until_ready()).await {
            Ok(()) => Ok(stage),
            Err(error) => {
                stage.tear_down().await;
                Err(error)
            }
        }
    }

    async fn until_ready(&self) -> Result<()> {
        let primary = async {
            match &self.source {
                Source::Primary(primary) => {
                    primary.wait_until_ready(READY_DEADLINE).await.context("primary")
                }
                Source::Elsewhere { .. } => Ok(()),
            }
        };
        let standby =
            async { self.standby.wait_until_ready(READY_DEADLINE).await.context("standby") };
        tokio::try_join!(primary, standby).map(|_both| ())
    }

    /// Where the load writes.
    pub fn source_bootstrap(&self) -> String {
        match &self.source {
            Source::Primary(primary) => primary.bootstrap(),
            Source::Elsewhere { bootstrap, .. } => bootstrap.clone(),
        }
    }

    /// Where the mirror reads.
    pub fn mirrored_bootstrap(&self) -> String {
        match &self.source {
            Source::Primary(primary) => primary.bootstrap(),
            Source::Elsewhere { link, .. } => link.bootstrap(),
        }
    }

    /// Where the mirror is, and where clients go after the failover.
    pub fn standby_bootstrap(&self) -> String {
        self.standby.bootstrap()
    }

    /// The folder of the primary's nodes; none where the source runs elsewhere.
    pub fn primary_folder(&self) -> Option<PathBuf> {
        match &self.source {
            Source::Primary(_) => Some(self.folder.join("primary")),
            Source::Elsewhere { .. } => None,
        }
    }

    /// The folder of the standby's nodes.
    pub fn standby_folder(&self) -> PathBuf {
        self.folder.join("standby")
    }

    /// Takes the source away from the standby for good: all nodes of the primary crash, or the
    /// link is cut.
    pub async fn lose_source(&mut self) {
        match &mut self.source {
            Source::Primary(primary) => primary.crash().await,
            Source::Elsewhere { link, .. } => link.cut(),
        }
    }

    /// Ends everything at once: nothing is kept that an orderly end would save.
    pub async fn tear_down(mut self) {
        self.lose_source().await;
        self.standby.crash().await;
    }
}

async fn start(
    process: &ProcessHandle,
    folder: &std::path::Path,
    name: &str,
) -> Result<DevCluster> {
    let spec = DevSpec {
        name: name.to_owned(),
        nodes: NODES,
        port: 0,
        dir: folder.join(name),
        overrides: Properties::new(),
        links: LinkMode::Local,
        world: World::Machine { data_threads: crate::cli::data_threads(2 * NODES) },
    };
    DevCluster::start(process, &spec).await.with_context(|| name.to_owned())
}

/// What `work` comes to, unless the process is asked to end before.
async fn unless_asked<T>(
    interrupt: &Interrupt,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        done = work => done,
        () = interrupt.asked() => bail!(super::INTERRUPTED),
    }
}

async fn reach(bootstrap: &str) -> Result<Source> {
    let unreachable = || format!("--source {bootstrap} does not answer; is it a Kafka's address?");
    let cluster = topic::client(bootstrap).refresh(SOURCE_DEADLINE).await;
    let link = CutLink::open(&cluster.with_context(unreachable)?).await?;
    Ok(Source::Elsewhere { bootstrap: bootstrap.to_owned(), link })
}
