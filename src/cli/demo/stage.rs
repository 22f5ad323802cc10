//! What the demo plays on: the standby in this process, and a source, in this process too or
//! running elsewhere behind a link that can be cut. Owns their start, the loss of the source, and
//! their end; knows nothing of topics and mirrors.

use std::path::PathBuf;
use std::time::Duration;

use actors::dev::{DevCluster, DevSpec, World};
use actors::peers::LinkMode;
use actors::process::ProcessHandle;
use anyhow::{Context, Result};
use config::Properties;

use super::cut_link::CutLink;
use super::topic;
use crate::cli::folder::Folder;

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
    /// Ends the clusters when it goes.
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
    /// One sentence: a cluster does not start, the source does not answer.
    pub async fn set(source: Option<&str>, folder: &Folder) -> Result<Stage> {
        let process = ProcessHandle::start().await.context("the process's root did not start")?;
        let folder = folder.path().to_owned();
        let standby = start(&process, &folder, "standby");
        let (source, standby) = match source {
            Some(bootstrap) => tokio::try_join!(reach(bootstrap), standby)?,
            None => {
                let primary = start(&process, &folder, "primary");
                let (primary, standby) = tokio::try_join!(primary, standby)?;
                (Source::Primary(primary), standby)
            }
        };
        Ok(Stage { source, standby, folder, _process: process })
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
    let cluster = DevCluster::start(process, &spec).await.with_context(|| name.to_owned())?;
    cluster.wait_until_ready(READY_DEADLINE).await.with_context(|| name.to_owned())?;
    Ok(cluster)
}

async fn reach(bootstrap: &str) -> Result<Source> {
    let unreachable = || format!("--source {bootstrap} does not answer; is it a Kafka's address?");
    let cluster = topic::client(bootstrap).refresh(SOURCE_DEADLINE).await;
    let link = CutLink::open(&cluster.with_context(unreachable)?).await?;
    Ok(Source::Elsewhere { bootstrap: bootstrap.to_owned(), link })
}
