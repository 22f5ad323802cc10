//! Supervisor of this node's listeners. It binds every port before anything is served, so that a
//! port in use is a sentence at start, and tells the other parts which ports they became.
//!
//! Sockets outlive it: they lie in the node's directory, and go with the node. Connections are
//! tasks that no ending of a listener reaches.

pub mod listener;
pub mod sockets;

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};

use crate::children::{Children, Ended};
use crate::directory::Directory;
use crate::supervision::{ChildKind, Verdict};
use listener::{Listener, ListenerArgs};
use sockets::Sockets;

/// What the supervisor can be told.
#[derive(Debug)]
pub enum EdgeMsg {
    /// A listener's backoff is over.
    RestartTimeout(Arc<str>),
}

/// What it is started with.
#[derive(Debug, Clone)]
pub struct EdgeArgs {
    /// The node.
    pub directory: Arc<Directory>,
}

/// The actor; everything mutable is in [`EdgeState`].
#[derive(Debug)]
pub struct Edge;

/// The state of one incarnation.
#[derive(Debug)]
pub struct EdgeState {
    directory: Arc<Directory>,
    children: Children<Arc<str>>,
    myself: ActorRef<EdgeMsg>,
}

impl Actor for Edge {
    type Msg = EdgeMsg;
    type State = EdgeState;
    type Arguments = EdgeArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let EdgeArgs { directory } = args;
        // A killed edge leaves its ports bound: its successor goes on with them.
        let sockets = match directory.sockets() {
            Some(bound) => bound,
            None => {
                let bound = Arc::new(Sockets::bind(&directory.config).await?);
                directory.set_sockets(Arc::clone(&bound));
                bound
            }
        };
        let node = directory.node_id();
        directory.peers.neighbours().set_addresses(node, sockets.addresses(&directory.config));
        directory.set_advertised(sockets.endpoints());
        let mut state = EdgeState { directory, children: Children::default(), myself };
        for name in sockets.names() {
            state.start_listener(name).await?;
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
            EdgeMsg::RestartTimeout(name) => state.on_restart_timeout(name).await,
        }
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match state.children.on_event(&event) {
            Some(ended) => state.on_listener_ended(ended),
            None => Ok(()),
        }
    }

    /// Runs when it is asked to stop, not when it is killed: the node serves nobody any more.
    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        for name in state.children.keys().cloned().collect::<Vec<_>>() {
            state.children.stop_and_forget(&name);
        }
        state.directory.close_sockets().await;
        Ok(())
    }
}

impl EdgeState {
    async fn start_listener(&mut self, name: Arc<str>) -> Result<(), SpawnErr> {
        let directory = Arc::clone(&self.directory);
        let args = ListenerArgs { directory, name: Arc::clone(&name) };
        let me = self.myself.get_cell();
        let (actor, _join) = Actor::spawn_linked(None, Listener, args, me).await?;
        self.children.on_started(name, ChildKind::Listener, actor.get_cell());
        Ok(())
    }

    fn on_listener_ended(&mut self, ended: Ended<Arc<str>>) -> Result<(), ActorProcessingErr> {
        if self.directory.stopped.is_cancelled() {
            return Ok(());
        }
        match ended.verdict {
            Verdict::Restart(delay) => {
                let name = ended.key;
                self.myself.send_after(delay, move || EdgeMsg::RestartTimeout(name));
                Ok(())
            }
            Verdict::Stop | Verdict::GiveUp => Ok(()),
            Verdict::Escalate => {
                Err(format!("listener {} ended too often: {:?}", ended.key, ended.ending).into())
            }
        }
    }

    async fn on_restart_timeout(&mut self, name: Arc<str>) -> Result<(), ActorProcessingErr> {
        if self.directory.stopped.is_cancelled() {
            return Ok(());
        }
        match self.start_listener(Arc::clone(&name)).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let ended = self.children.on_start_failed(name, ChildKind::Listener, &error);
                self.on_listener_ended(ended)
            }
        }
    }
}

#[cfg(test)]
#[path = "edge_tests.rs"]
mod tests;
