//! What a handler knows about who asks. It grants nothing by itself.

use std::net::IpAddr;
use std::sync::Arc;

use protocol::api::ApiKey;
use protocol::ids::NodeId;
use tokio_util::sync::CancellationToken;

use super::dispatch;
use crate::directory::Directory;

/// What a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerKind {
    /// Clients only.
    Client,
    /// Clients and the brokers of the cluster, as in Kafka.
    InterBroker,
    /// Raft and the controller: private keys, never advertised to clients.
    Controller,
}

/// Who asks, and how.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The node that serves.
    pub directory: Arc<Directory>,
    /// The listener the request came in on.
    pub listener: ListenerKind,
    /// That listener's name: answers name brokers by their listeners of this name.
    pub listener_name: Arc<str>,
    /// The version of the request, which the answer has too.
    pub version: i16,
    /// The client's name for itself.
    pub client_id: Option<String>,
    /// The client's address as Kafka shows it, with a leading `/`.
    pub client_host: Arc<str>,
    /// The peer node, over a local link.
    pub peer: Option<NodeId>,
    /// Who the client is; everybody is anonymous until there is authentication.
    pub principal: Arc<str>,
    /// Cancelled when the connection's next request is here: it waits for this one's answer.
    pub followed: CancellationToken,
}

/// Keys that only the brokers of the cluster may use (CLUSTER_ACTION once there is an authorizer).
const INTER_BROKER: [ApiKey; 4] = [
    ApiKey::BumpLeaderEpochs,
    ApiKey::ReadMirrorStates,
    ApiKey::WriteMirrorStates,
    ApiKey::WriteTxnMarkers,
];

/// Keys that the controller listener serves beside the private ones.
const CONTROLLER: [ApiKey; 6] = [
    ApiKey::ApiVersions,
    ApiKey::AlterPartition,
    ApiKey::BrokerRegistration,
    ApiKey::BrokerHeartbeat,
    ApiKey::AllocateProducerIds,
    ApiKey::BumpLeaderEpochs,
];

/// Keys that only the controller listener serves.
const CONTROLLER_ONLY: [ApiKey; 4] = [
    ApiKey::AlterPartition,
    ApiKey::BrokerRegistration,
    ApiKey::BrokerHeartbeat,
    ApiKey::AllocateProducerIds,
];

impl RequestContext {
    /// A connection's context before its first request.
    pub fn of_client(
        directory: Arc<Directory>,
        listener: ListenerKind,
        listener_name: Arc<str>,
        client: IpAddr,
    ) -> RequestContext {
        RequestContext {
            directory,
            listener,
            listener_name,
            version: 0,
            client_id: None,
            client_host: Arc::from(format!("/{client}")),
            peer: None,
            principal: Arc::from("User:ANONYMOUS"),
            followed: CancellationToken::new(),
        }
    }

    /// A request of another node over a local link.
    pub fn of_peer(directory: Arc<Directory>, peer: NodeId, version: i16) -> RequestContext {
        let listener_name = directory.config.inter_broker_listener.as_deref().unwrap_or_default();
        RequestContext {
            listener: ListenerKind::Controller,
            listener_name: Arc::from(listener_name),
            directory,
            version,
            client_id: None,
            client_host: Arc::from("/127.0.0.1"),
            peer: Some(peer),
            principal: Arc::from("User:ANONYMOUS"),
            followed: CancellationToken::new(),
        }
    }

    /// The same connection's next request.
    pub fn with_request(&self, version: i16, client_id: Option<String>) -> RequestContext {
        RequestContext { version, client_id, ..self.clone() }
    }

    /// The same connection's next request; `followed` is cancelled when the one after it is here.
    pub fn with_follower(&self, followed: CancellationToken) -> RequestContext {
        RequestContext { followed, ..self.clone() }
    }

    /// Whether the listener serves this key.
    pub fn serves(&self, key: ApiKey) -> bool {
        if !dispatch::is_served(key) || !self.administers(key) {
            return false;
        }
        match self.listener {
            ListenerKind::Controller => key.is_private() || CONTROLLER.contains(&key),
            ListenerKind::InterBroker => !key.is_private() && !CONTROLLER_ONLY.contains(&key),
            ListenerKind::Client => {
                !key.is_private()
                    && !CONTROLLER_ONLY.contains(&key)
                    && !INTER_BROKER.contains(&key)
            }
        }
    }

    /// Whether the listener takes this key if it is one of the commands of mirroring, which
    /// `mirror.admin.listeners` can confine. Brokers ask each other for what they know of mirrors
    /// all the same, and take a peer that does not list both keys for one without mirroring.
    fn administers(&self, key: ApiKey) -> bool {
        if self.listener == ListenerKind::InterBroker
            && matches!(key, ApiKey::ListMirrors | ApiKey::DescribeMirrors)
        {
            return true;
        }
        let confined = &self.directory.config.mirror_admin_listeners;
        let command = key.is_mirroring() && !INTER_BROKER.contains(&key);
        !command
            || confined.is_empty()
            || confined.iter().any(|name| **name == *self.listener_name)
    }

    /// Whether the request may act as a broker: a peer, or the inter-broker listener.
    pub fn is_broker(&self) -> bool {
        self.peer.is_some() || self.listener != ListenerKind::Client
    }
}
