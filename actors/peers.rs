//! Links from one node to the others of its cluster: a cast inside the process, a socket outside
//! (or inside too, when told so), each behind a switchboard of faults. It serves nothing itself.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use net::{
    AddressBook, BoxFuture, Faults, FaultyLink, LinkError, PeerLink, TcpLink, TcpLinkOptions,
};
use parking_lot::Mutex;
use protocol::api::{Request, Response};
use protocol::ids::NodeId;

use crate::connection;
use crate::directory::Directory;
use crate::error::Error;

/// What a call is about: it decides the runtime that serves it and, over sockets, the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plane {
    /// Raft and the controller's requests.
    Control,
    /// Fetches, which wait at the leader.
    Data,
    /// Coordinators: over a connection of its own, because answers keep the order of requests and
    /// a parked fetch would hold them up.
    Coordination,
}

/// How the nodes of one process talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkMode {
    /// A cast, no bytes.
    #[default]
    Local,
    /// Sockets, as between processes.
    Tcp,
}

/// Where a node listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// The inter-broker listener.
    pub data: Option<SocketAddr>,
    /// The controller listener.
    pub control: Option<SocketAddr>,
}

/// The nodes of one cluster that live in this process, and where each listens. Addresses are
/// resolved here at every connect, never stored.
#[derive(Debug, Default)]
pub struct Neighbours {
    nodes: Mutex<BTreeMap<NodeId, Weak<Directory>>>,
    addresses: Mutex<BTreeMap<NodeId, NodeAddresses>>,
    faults: Mutex<BTreeMap<(NodeId, NodeId), Faults>>,
}

impl Neighbours {
    /// Makes a node reachable; it stays so until it is dropped or leaves.
    pub fn join(&self, node: NodeId, directory: &Arc<Directory>) {
        self.nodes.lock().insert(node, Arc::downgrade(directory));
    }

    /// Makes a node unreachable.
    pub fn leave(&self, node: NodeId) {
        self.nodes.lock().remove(&node);
    }

    /// The addresses of a node, as its listeners told them.
    pub fn addresses(&self, node: NodeId) -> NodeAddresses {
        self.addresses.lock().get(&node).copied().unwrap_or_default()
    }

    /// Tells where a node listens.
    pub fn set_addresses(&self, node: NodeId, addresses: NodeAddresses) {
        self.addresses.lock().insert(node, addresses);
    }

    /// The switch for faults on the way from one node to another.
    pub fn faults(&self, from: NodeId, to: NodeId) -> Faults {
        self.faults
            .lock()
            .entry((from, to))
            .or_insert_with(|| Faults::new(fault_seed(from, to)))
            .clone()
    }

    pub(crate) fn node(&self, node: NodeId) -> Option<Arc<Directory>> {
        self.nodes.lock().get(&node).and_then(Weak::upgrade)
    }

    fn address(&self, node: NodeId, plane: Plane) -> Option<SocketAddr> {
        let addresses = self.addresses(node);
        match plane {
            Plane::Control => addresses.control,
            Plane::Data | Plane::Coordination => addresses.data,
        }
    }
}

/// One node's links.
pub struct Peers {
    from: NodeId,
    mode: LinkMode,
    /// How long opening a connection may take.
    connect_timeout: Duration,
    neighbours: Arc<Neighbours>,
    links: Mutex<BTreeMap<(NodeId, Plane), Arc<dyn PeerLink>>>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("from", &self.from).field("mode", &self.mode).finish()
    }
}

impl Peers {
    /// The links of the node `from`.
    pub fn new(
        from: NodeId,
        mode: LinkMode,
        connect_timeout: Duration,
        neighbours: Arc<Neighbours>,
    ) -> Peers {
        Peers { from, mode, connect_timeout, neighbours, links: Mutex::default() }
    }

    /// The link to a node; to itself too.
    pub fn link(&self, to: NodeId, plane: Plane) -> Arc<dyn PeerLink> {
        let mut links = self.links.lock();
        Arc::clone(links.entry((to, plane)).or_insert_with(|| self.connect(to, plane)))
    }

    /// The nodes of this process's part of the cluster.
    pub fn neighbours(&self) -> &Arc<Neighbours> {
        &self.neighbours
    }

    fn connect(&self, to: NodeId, plane: Plane) -> Arc<dyn PeerLink> {
        let neighbours = Arc::clone(&self.neighbours);
        let link: Arc<dyn PeerLink> = if to == self.from || self.mode == LinkMode::Local {
            Arc::new(LocalLink { from: self.from, to, plane, neighbours })
        } else {
            let client_id = format!("broker-{}", self.from);
            let options =
                TcpLinkOptions::new(client_id, self.connect_timeout, fault_seed(self.from, to));
            let book: AddressBook =
                Arc::new(move || neighbours.address(to, plane).map(|address| address.to_string()));
            Arc::new(TcpLink::new(&book, &options))
        };
        Arc::new(FaultyLink::new(link, self.neighbours.faults(self.from, to)))
    }
}

/// Different for every pair of nodes, the same in every run.
fn fault_seed(from: NodeId, to: NodeId) -> u64 {
    (u64::from(from.0.cast_unsigned()) << 32) | u64::from(to.0.cast_unsigned())
}

/// A link to a node of this process: the request is served on that node's runtime, as it is.
struct LocalLink {
    from: NodeId,
    to: NodeId,
    plane: Plane,
    neighbours: Arc<Neighbours>,
}

impl PeerLink for LocalLink {
    fn call(
        &self,
        request: Request,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Response, LinkError>> {
        Box::pin(async move {
            let gone =
                || LinkError::Unreachable { reason: format!("node {} is not running", self.to) };
            let directory = self.neighbours.node(self.to).ok_or_else(gone)?;
            if directory.stopped.is_cancelled() {
                return Err(gone());
            }
            let key = request.api_key();
            let runtime = match self.plane {
                Plane::Control => directory.runtimes.control.clone(),
                Plane::Data | Plane::Coordination => directory.runtimes.data.clone(),
            };
            let stopped = directory.stopped.clone();
            let served = runtime.spawn(connection::serve_peer(directory, self.from, request));
            let served = AbortServing(served);
            // A crash breaks connections: what is answered after it is never heard.
            let answer = tokio::select! {
                biased;
                () = stopped.cancelled() => None,
                answer = tokio::time::timeout(deadline, served) => Some(answer),
            };
            match answer {
                Some(Ok(Some(Some(response)))) => Ok(response),
                Some(Ok(Some(None))) => Err(LinkError::Unsupported { key }),
                Some(Ok(None)) | None => {
                    let reason = format!("node {} ended while it served", self.to);
                    Err(LinkError::Lost { reason })
                }
                Some(Err(_elapsed)) => Err(LinkError::TimedOut { after: deadline }),
            }
        })
    }
}

/// A served request that ends when its caller stops waiting.
struct AbortServing(tokio::task::JoinHandle<Option<Response>>);

impl Future for AbortServing {
    /// `None` when the node that served ended; within, `None` for a request it does not serve.
    type Output = Option<Option<Response>>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(context).map(Result::ok)
    }
}

impl Drop for AbortServing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The error for a peer that answered another question.
pub fn unexpected(response: &Response) -> Error {
    Error::Unreachable {
        node: NodeId::NONE.0,
        why: format!("answered with {:?}", response.api_key()),
    }
}
