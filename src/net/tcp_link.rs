//! The link to a peer in another process: Kafka's framing over its inter-broker or controller
//! listener.
//!
//! Owns which request goes over which connection. It never keeps an address: it is looked up at
//! each attempt, because ports change between starts.

use std::sync::Arc;
use std::time::Duration;

use protocol::api::{ApiKey, Request, Response};

use crate::connection::ConnectionOptions;
use crate::jitter::Jitter;
use crate::peer_link::{BoxFuture, LinkError, PeerLink};
use crate::reconnecting::{Backoff, Reconnecting};
use crate::stream::{Connector, TcpConnector};

/// Says where the peer is now, as `host:port`; `None` while nobody knows.
pub type AddressBook = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// How a link behaves.
#[derive(Clone)]
pub struct TcpLinkOptions {
    /// For each of its connections.
    pub connection: ConnectionOptions,
    /// Between attempts.
    pub backoff: Backoff,
    /// Spreads the backoff.
    pub seed: u64,
    /// How streams are opened.
    pub connector: Arc<dyn Connector>,
}

impl TcpLinkOptions {
    /// Over TCP, with quick attempts: peers of one cluster are near.
    pub fn new(
        client_id: impl Into<String>,
        connect_timeout: Duration,
        seed: u64,
    ) -> TcpLinkOptions {
        TcpLinkOptions {
            connection: ConnectionOptions {
                client_id: client_id.into(),
                connect_timeout,
                ..ConnectionOptions::default()
            },
            backoff: Backoff { min: Duration::from_millis(10), max: Duration::from_millis(500) },
            seed,
            connector: TcpConnector::shared(),
        }
    }
}

/// A link over sockets. Long polls, Raft's messages, heartbeats and everything else have a
/// connection each, so that none waits behind another kind.
#[derive(Debug)]
pub struct TcpLink {
    polls: Reconnecting,
    raft: Reconnecting,
    heartbeats: Reconnecting,
    rest: Reconnecting,
}

impl TcpLink {
    /// A link to where `address` says; nothing is opened until the first call.
    pub fn new(address: &AddressBook, options: &TcpLinkOptions) -> TcpLink {
        let mut jitter = Jitter::new(options.seed);
        let mut lane = || {
            Reconnecting::new(
                options.connector.clone(),
                address.clone(),
                options.connection.clone(),
                options.backoff,
                jitter.next_u64(),
            )
        };
        TcpLink { polls: lane(), raft: lane(), heartbeats: lane(), rest: lane() }
    }

    /// Closes its connections; the next call opens another.
    pub fn disconnect(&self) {
        self.polls.disconnect();
        self.raft.disconnect();
        self.heartbeats.disconnect();
        self.rest.disconnect();
    }

    fn lane(&self, key: ApiKey) -> &Reconnecting {
        if key == ApiKey::Fetch {
            &self.polls
        } else if key == ApiKey::RaftRpc {
            &self.raft
        } else if key == ApiKey::BrokerHeartbeat {
            &self.heartbeats
        } else {
            &self.rest
        }
    }
}

impl PeerLink for TcpLink {
    fn call(
        &self,
        request: Request,
        deadline: Duration,
    ) -> BoxFuture<'_, Result<Response, LinkError>> {
        Box::pin(async move {
            let lane = self.lane(request.api_key());
            lane.call(None, &request, deadline).await.map_err(LinkError::from)
        })
    }
}
