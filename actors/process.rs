//! The root of everything that runs in this process: its clusters. It lives on the process's own
//! runtime and ends with it.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::children::Children;
use crate::cluster::ClusterHandle;
use crate::supervision::{ChildKind, Verdict};

/// What the process can be told.
#[derive(Debug)]
pub enum ProcessMsg {
    /// A cluster was started under this actor.
    ClusterStarted(String, ractor::ActorCell),
}

/// The actor; everything mutable is in [`ProcessState`].
#[derive(Debug)]
pub struct Process;

/// What the process is started with: nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessArgs;

/// The clusters of the process.
#[derive(Debug, Default)]
pub struct ProcessState {
    children: Children<String>,
}

/// A cheap handle to the process's root.
#[derive(Debug, Clone)]
pub struct ProcessHandle {
    actor: ActorRef<ProcessMsg>,
    joined: Arc<tokio::sync::Mutex<Option<ractor::concurrency::JoinHandle<()>>>>,
}

impl ProcessHandle {
    /// Starts the root on the current runtime.
    ///
    /// # Errors
    /// ractor's, when the actor does not start.
    pub async fn start() -> Result<ProcessHandle, ractor::SpawnErr> {
        let (actor, joined) = Actor::spawn(None, Process, ProcessArgs).await?;
        Ok(ProcessHandle { actor, joined: Arc::new(tokio::sync::Mutex::new(Some(joined))) })
    }

    /// Starts a cluster without nodes.
    ///
    /// # Errors
    /// ractor's, when the actor does not start.
    pub async fn start_cluster(&self, name: &str) -> Result<ClusterHandle, ractor::SpawnErr> {
        let (cluster, cell) = ClusterHandle::start(name, self.actor.get_cell()).await?;
        if self.actor.cast(ProcessMsg::ClusterStarted(name.to_string(), cell)).is_err() {
            tracing::debug!("the process is ending");
        }
        Ok(cluster)
    }

    /// Waits until the root has ended: a cluster failed for good.
    pub async fn ended(&self) {
        if let Some(joined) = self.joined.lock().await.take()
            && let Err(error) = joined.await
        {
            tracing::debug!(%error, "the root ended abnormally");
        }
    }
}

impl Actor for Process {
    type Msg = ProcessMsg;
    type State = ProcessState;
    type Arguments = ProcessArgs;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        _args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(ProcessState::default())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProcessMsg::ClusterStarted(name, cell) => {
                state.children.on_started(name, ChildKind::Cluster, cell);
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match state.children.on_event(&event) {
            Some(ended) if ended.verdict != Verdict::Stop => {
                Err(format!("cluster {} ended: {:?}", ended.key, ended.ending).into())
            }
            Some(_) | None => Ok(()),
        }
    }
}
