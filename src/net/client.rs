//! The client to a cluster: who its brokers are, and a connection to each.
//!
//! Owns the bootstrap list, the brokers the cluster named, and one connection per broker and
//! lane. It never decides what is worth a second try: a failed call is the caller's.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::api::{Request, Response};
use protocol::messages::{MetadataRequest, MetadataResponse};
use tokio::time::Instant;

use crate::connection::ConnectionOptions;
use crate::error::Error;
use crate::jitter::Jitter;
use crate::reconnecting::{Backoff, Reconnecting};
use crate::stream::{Connector, TcpConnector};

/// How a client reaches its cluster.
#[derive(Clone)]
pub struct ClientOptions {
    /// `host:port` each; any of them that answers will do.
    pub bootstrap: Vec<String>,
    /// For each connection.
    pub connection: ConnectionOptions,
    /// Between attempts to reach one broker.
    pub backoff: Backoff,
    /// Spreads the backoff and the order in which brokers are asked.
    pub seed: u64,
    /// How streams are opened.
    pub connector: Arc<dyn Connector>,
}

impl ClientOptions {
    /// Over TCP, with defaults.
    pub fn new(bootstrap: Vec<String>, client_id: impl Into<String>, seed: u64) -> ClientOptions {
        ClientOptions {
            bootstrap,
            connection: ConnectionOptions {
                client_id: client_id.into(),
                ..ConnectionOptions::default()
            },
            backoff: Backoff::default(),
            seed,
            connector: TcpConnector::shared(),
        }
    }
}

/// A broker as its cluster advertises it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerAddress {
    /// `node.id`.
    pub node_id: i32,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: i32,
    /// Its rack, if it says so.
    pub rack: Option<String>,
}

/// What a cluster says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Its id, if it gave one.
    pub cluster_id: Option<String>,
    /// Its controller, as clients are told.
    pub controller_id: Option<i32>,
    /// Its brokers by id.
    pub brokers: BTreeMap<i32, BrokerAddress>,
}

/// A client to one cluster. Clones share everything.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    options: ClientOptions,
    bootstrap: Vec<Reconnecting>,
    view: Arc<Mutex<ClusterView>>,
    connections: Mutex<BTreeMap<(i32, u8), Arc<Reconnecting>>>,
    jitter: Mutex<Jitter>,
}

impl Client {
    /// A client; nothing is opened until the first call.
    pub fn new(options: ClientOptions) -> Client {
        let mut jitter = Jitter::new(options.seed);
        let bootstrap = options
            .bootstrap
            .iter()
            .map(|address| {
                let address = address.clone();
                Reconnecting::new(
                    options.connector.clone(),
                    Arc::new(move || Some(address.clone())),
                    options.connection.clone(),
                    options.backoff,
                    jitter.next_u64(),
                )
            })
            .collect();
        Client {
            inner: Arc::new(Inner {
                options,
                bootstrap,
                view: Arc::default(),
                connections: Mutex::default(),
                jitter: Mutex::new(jitter),
            }),
        }
    }

    /// Asks one broker, on its lane 0.
    pub async fn call(
        &self,
        node_id: i32,
        request: impl Into<Request>,
        deadline: Duration,
    ) -> Result<Response, Error> {
        self.call_on(node_id, 0, None, request, deadline).await
    }

    /// Asks one broker on a lane of its own: a long poll on one lane holds up no other. The
    /// client id is the connection's unless given.
    pub async fn call_on(
        &self,
        node_id: i32,
        lane: u8,
        client_id: Option<&str>,
        request: impl Into<Request>,
        deadline: Duration,
    ) -> Result<Response, Error> {
        let until = Instant::now() + deadline;
        if !self.knows(node_id) {
            self.refresh(deadline).await?;
            if !self.knows(node_id) {
                let cluster = self.inner.options.bootstrap.join(",");
                return Err(Error::UnknownBroker { cluster, node_id });
            }
        }
        let connection = self.reconnecting(node_id, lane);
        let left = until.saturating_duration_since(Instant::now());
        let request = request.into();
        let response = connection.call(client_id, &request, left).await?;
        self.learn_from(&response);
        Ok(response)
    }

    /// Asks any broker: one that is connected, then any known one, then the bootstrap list, until
    /// one answers. Only for requests that may be carried out twice.
    pub async fn call_any(
        &self,
        request: impl Into<Request>,
        deadline: Duration,
    ) -> Result<Response, Error> {
        let until = Instant::now() + deadline;
        let request = request.into();
        let known = self.known_in_turn();
        let candidates: Vec<&Reconnecting> =
            known.iter().map(Arc::as_ref).chain(&self.inner.bootstrap).collect();
        let mut last = Error::Unreachable {
            peer: "The cluster".to_owned(),
            reason: "no bootstrap server is given".to_owned(),
        };
        let count = candidates.len();
        for (index, candidate) in candidates.into_iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            let turns = u32::try_from(count - index).unwrap_or(u32::MAX);
            match candidate.call(None, &request, left / turns).await {
                Ok(response) => {
                    self.learn_from(&response);
                    return Ok(response);
                }
                Err(error @ Error::Unsupported { .. }) => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Learns the cluster's id and brokers.
    pub async fn refresh(&self, deadline: Duration) -> Result<ClusterView, Error> {
        let request = MetadataRequest {
            topics: Some(Vec::new()),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        self.call_any(request, deadline).await?;
        Ok(self.view())
    }

    /// What the cluster last said of itself.
    pub fn view(&self) -> ClusterView {
        lock(&self.inner.view).clone()
    }

    /// The connection to a broker on a lane, opened when it is used.
    pub fn reconnecting(&self, node_id: i32, lane: u8) -> Arc<Reconnecting> {
        let inner = &*self.inner;
        let mut connections = lock(&inner.connections);
        let connection = connections.entry((node_id, lane)).or_insert_with(|| {
            let view = inner.view.clone();
            Arc::new(Reconnecting::new(
                inner.options.connector.clone(),
                Arc::new(move || {
                    let view = lock(&view);
                    let broker = view.brokers.get(&node_id)?;
                    Some(address(&broker.host, broker.port))
                }),
                inner.options.connection.clone(),
                inner.options.backoff,
                lock(&inner.jitter).next_u64(),
            ))
        });
        connection.clone()
    }

    /// Closes all connections; later calls open new ones.
    pub fn disconnect(&self) {
        lock(&self.inner.connections).values().for_each(|connection| connection.disconnect());
        self.inner.bootstrap.iter().for_each(Reconnecting::disconnect);
    }

    fn knows(&self, node_id: i32) -> bool {
        lock(&self.inner.view).brokers.contains_key(&node_id)
    }

    /// Known brokers, connected ones first, starting at a random one.
    fn known_in_turn(&self) -> Vec<Arc<Reconnecting>> {
        let ids: Vec<i32> = lock(&self.inner.view).brokers.keys().copied().collect();
        let mut known: Vec<_> = ids.into_iter().map(|id| self.reconnecting(id, 0)).collect();
        if let Ok(count) = u64::try_from(known.len())
            && count > 1
        {
            let start = lock(&self.inner.jitter).next_u64() % count;
            known.rotate_left(usize::try_from(start).expect("it is below a length"));
        }
        known.sort_by_key(|connection| connection.open_connection().is_none());
        known
    }

    fn learn_from(&self, response: &Response) {
        if let Response::Metadata(metadata) = response {
            self.learn(metadata);
        }
    }

    fn learn(&self, metadata: &MetadataResponse) {
        let brokers: BTreeMap<i32, BrokerAddress> = metadata
            .brokers
            .iter()
            .map(|broker| {
                let known = BrokerAddress {
                    node_id: broker.node_id,
                    host: broker.host.clone(),
                    port: broker.port,
                    rack: broker.rack.clone(),
                };
                (broker.node_id, known)
            })
            .collect();
        if brokers.is_empty() {
            return;
        }
        let mut view = lock(&self.inner.view);
        let moved: Vec<i32> = view
            .brokers
            .iter()
            .filter(|(id, before)| brokers.get(id) != Some(before))
            .map(|(id, _)| *id)
            .collect();
        view.brokers = brokers;
        view.cluster_id = metadata.cluster_id.clone().or(view.cluster_id.take());
        view.controller_id = Some(metadata.controller_id).filter(|id| *id >= 0);
        drop(view);
        // A broker that moved or left is not talked to at its old address any more.
        let connections = lock(&self.inner.connections);
        for ((id, _), connection) in connections.iter() {
            if moved.contains(id) {
                connection.disconnect();
            }
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("bootstrap", &self.inner.options.bootstrap)
            .field("view", &self.view())
            .finish_non_exhaustive()
    }
}

fn address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while one of these is held, and each is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
