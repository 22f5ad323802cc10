//! One accept loop: a connection that comes becomes a task of the data runtime. It reads nothing
//! from a connection, and ends none when it ends.
//!
//! A controller's listener accepts at once, because the quorum forms over it. The others listen
//! from the moment the broker is unfenced; until then who connects is refused and looks elsewhere.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use net::{Accepted, BoundListener};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use raft::MetadataImage;

use super::sockets::{ListeningSocket, Sockets};
use crate::connection::Connection;
use crate::connection::context::ListenerKind;
use crate::directory::Directory;
use crate::runtimes::AbortOnDrop;

/// Bounds one wait for the image; the wait is begun again then.
const IMAGE_WAIT: Duration = Duration::from_secs(3_600);

/// What a listener can be told.
#[derive(Debug)]
pub enum ListenerMsg {
    /// The accept loop ended, and not because the node stops.
    Ended {
        /// Why.
        why: String,
    },
}

/// What it is started with, again and again.
#[derive(Debug, Clone)]
pub struct ListenerArgs {
    /// The node.
    pub directory: Arc<Directory>,
    /// The listener's name, as in the settings.
    pub name: Arc<str>,
}

/// The actor; everything mutable is in [`ListenerState`].
#[derive(Debug)]
pub struct Listener;

/// The state of one incarnation.
#[derive(Debug)]
pub struct ListenerState {
    _accepting: AbortOnDrop,
}

impl Actor for Listener {
    type Msg = ListenerMsg;
    type State = ListenerState;
    type Arguments = ListenerArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let ListenerArgs { directory, name } = args;
        let missing = || format!("listener {name} has no socket: the node stops");
        let sockets = directory.sockets().ok_or_else(missing)?;
        let socket = sockets.get(&name).ok_or_else(missing)?;
        // Who may be open already is, when this returns: its start tells that the port answers.
        let opened = socket.opened.load(Ordering::Acquire);
        let at_once = opened || socket.kind() == ListenerKind::Controller;
        let backlog = directory.config.network.listen_backlog;
        let open = at_once.then(|| socket.listen(backlog)).transpose()?;
        let accepting = tokio::spawn(async move {
            let stopped = directory.stopped.clone();
            let closed = sockets.closed().clone();
            let ended = tokio::select! {
                ended = accept(directory, &sockets, &socket, open) => ended,
                () = stopped.cancelled() => return,
                () = closed.cancelled() => return,
            };
            let Err(error) = ended;
            if myself.cast(ListenerMsg::Ended { why: error.to_string() }).is_err() {
                tracing::debug!(%error, "the listener is gone");
            }
        });
        Ok(ListenerState { _accepting: AbortOnDrop::new(accepting) })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        _state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ListenerMsg::Ended { why } => Err(why.into()),
        }
    }
}

async fn accept(
    directory: Arc<Directory>,
    sockets: &Sockets,
    socket: &Arc<ListeningSocket>,
    open: Option<BoundListener>,
) -> Result<Infallible, net::Error> {
    let listener = match open {
        Some(open) => open,
        None => {
            wait_until_unfenced(&directory).await;
            let open = socket.listen(directory.config.network.listen_backlog)?;
            socket.opened.store(true, Ordering::Release);
            open
        }
    };
    socket.listening.store(true, Ordering::Release);
    tracing::info!(
        node = %directory.node_id(), listener = %socket.name(), at = %listener.local_addr(),
        "accepting connections"
    );
    let limits = sockets.limits(socket.kind());
    let closed = sockets.closed().clone();
    let (kind, name) = (socket.kind(), Arc::clone(socket.name()));
    let serve = move |accepted: Accepted| {
        let Accepted { stream, peer, permit } = accepted;
        let connection = Connection {
            directory: Arc::clone(&directory),
            listener: kind,
            listener_name: Arc::clone(&name),
            stream,
            peer,
            closed: closed.clone(),
        };
        directory.runtimes.spawn_data(async move {
            connection.run().await;
            drop(permit);
        });
    };
    Ok(listener.accept(limits, serve).await)
}

async fn wait_until_unfenced(directory: &Directory) {
    let unfenced = |image: &MetadataImage| {
        // The registration of an earlier life may still stand unfenced.
        let own = |epoch| epoch == directory.broker_epoch();
        let me = image.cluster.broker(directory.node_id());
        me.is_some_and(|broker| !broker.fenced && own(broker.epoch))
    };
    while !directory.wait_for_image(IMAGE_WAIT, unfenced).await {}
}
