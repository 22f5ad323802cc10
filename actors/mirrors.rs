//! Supervisor of this node's mirrors: one actor a mirror, with its connections to the source.
//! Every node runs every mirror of the image; which partitions a mirror fetches here is told by
//! their leaders. It talks to no source itself.

pub mod handle;
pub mod machine;
pub mod source_offsets;

pub mod mirror;
pub mod mirror_fetcher;

pub mod batches;
pub mod shared_budget;
pub mod source;
pub mod survey;

use std::collections::BTreeMap;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use raft::{MetadataDelta, MirrorName};

use crate::children::{Children, Ended};
use crate::directory::Directory;
use crate::supervision::{ChildKind, Verdict};
pub use handle::{MirrorHandle, MirrorShared, SourcePartition};
use mirror::{Mirror, MirrorArgs, MirrorMsg};

/// What the supervisor can be told.
#[derive(Debug)]
pub enum MirrorsMsg {
    /// The image changed; the directory has it already.
    ImageChanged(Arc<MetadataDelta>),
    /// A mirror's start succeeded or failed.
    MirrorStarted(MirrorName, Result<ActorRef<MirrorMsg>, SpawnErr>),
    /// A mirror's backoff is over.
    RestartTimeout(MirrorName),
}

/// What the supervisor is started with.
#[derive(Debug, Clone)]
pub struct MirrorsArgs {
    /// The node.
    pub directory: Arc<Directory>,
}

/// The actor; everything mutable is in [`MirrorsState`].
#[derive(Debug)]
pub struct Mirrors;

/// A cheap handle to the supervisor.
#[derive(Debug, Clone)]
pub struct MirrorsHandle {
    actor: ActorRef<MirrorsMsg>,
}

impl MirrorsHandle {
    /// A handle to `actor`.
    pub fn new(actor: ActorRef<MirrorsMsg>) -> MirrorsHandle {
        MirrorsHandle { actor }
    }

    /// Tells it what changed in the image.
    pub fn image_changed(&self, delta: Arc<MetadataDelta>) {
        if self.actor.cast(MirrorsMsg::ImageChanged(delta)).is_err() {
            tracing::debug!("mirrors are restarting: they read the whole image then");
        }
    }
}

/// The state of one incarnation of the supervisor.
#[derive(Debug)]
pub struct MirrorsState {
    directory: Arc<Directory>,
    myself: ActorRef<MirrorsMsg>,
    children: Children<MirrorName>,
    shared: BTreeMap<MirrorName, Arc<MirrorShared>>,
}

impl Actor for Mirrors {
    type Msg = MirrorsMsg;
    type State = MirrorsState;
    type Arguments = MirrorsArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let MirrorsArgs { directory } = args;
        // Before the image is read, so that no delta falls between.
        let handle = MirrorsHandle::new(myself.clone());
        directory.set_part(|parts| parts.mirrors = Some(handle));
        let mut state = MirrorsState {
            directory,
            myself,
            children: Children::default(),
            shared: BTreeMap::new(),
        };
        let image = state.directory.image();
        for name in image.mirror_names() {
            state.reconcile(&name);
        }
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            MirrorsMsg::ImageChanged(delta) => {
                delta.mirrors.iter().for_each(|name| state.reconcile(name));
            }
            MirrorsMsg::MirrorStarted(name, started) => state.on_mirror_started(&name, started),
            MirrorsMsg::RestartTimeout(name) => state.on_restart_timeout(&name),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(ended) = state.children.on_event(&event) {
            state.on_child_ended(&ended);
        }
        Ok(())
    }
}

impl MirrorsState {
    /// Brings one mirror in line with the image.
    fn reconcile(&mut self, name: &MirrorName) {
        if !self.directory.image().mirror_exists(name) {
            self.children.stop_and_forget(name);
            self.directory.set_mirror(name, None);
            self.shared.remove(name);
        } else if self.shared.contains_key(name) {
            if let Some(mirror) = self.directory.mirror(name) {
                mirror.tell(MirrorMsg::ImageChanged);
            }
        } else {
            let shared = MirrorShared::new(name.clone(), self.directory.clock);
            self.shared.insert(name.clone(), Arc::new(shared));
            self.spawn(name);
        }
    }

    fn spawn(&mut self, name: &MirrorName) {
        let Some(shared) = self.shared.get(name) else {
            return;
        };
        let args =
            MirrorArgs { directory: Arc::clone(&self.directory), shared: Arc::clone(shared) };
        let (myself, name) = (self.myself.clone(), name.clone());
        self.directory.runtimes.spawn_data(async move {
            let started = Actor::spawn_linked(None, Mirror, args, myself.get_cell()).await;
            let started = started.map(|(actor, _join)| actor);
            if myself.cast(MirrorsMsg::MirrorStarted(name, started)).is_err() {
                tracing::debug!("mirrors are gone before one of them started");
            }
        });
    }

    fn on_mirror_started(
        &mut self,
        name: &MirrorName,
        started: Result<ActorRef<MirrorMsg>, SpawnErr>,
    ) {
        match started {
            Ok(actor) => {
                let Some(shared) = self.shared.get(name) else {
                    // Deleted while it started.
                    return actor.stop(None);
                };
                let handle = MirrorHandle::new(actor, Arc::clone(shared));
                self.children.on_started(name.clone(), ChildKind::Mirror, handle.cell());
                self.directory.set_mirror(name, Some(handle.clone()));
                // What changed while it started.
                handle.tell(MirrorMsg::ImageChanged);
                mirror::announce_restart(&self.directory, name);
            }
            Err(error) => {
                let name = name.clone();
                let ended = self.children.on_start_failed(name, ChildKind::Mirror, &error);
                self.on_child_ended(&ended);
            }
        }
    }

    fn on_child_ended(&mut self, ended: &Ended<MirrorName>) {
        let name = ended.key.clone();
        self.directory.set_mirror(&name, None);
        if let Verdict::Restart(delay) = ended.verdict {
            self.myself.send_after(delay, move || MirrorsMsg::RestartTimeout(name));
        }
    }

    fn on_restart_timeout(&mut self, name: &MirrorName) {
        if !self.directory.stopped.is_cancelled() && self.directory.mirror(name).is_none() {
            self.spawn(name);
        }
    }
}

#[cfg(test)]
mod tests;
