//! The ports a node has bound, and what it is reached at because of them. It accepts nothing: the
//! listeners do, one after another over the same socket.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use config::{BrokerConfig, HostPort};
use net::{AcceptLimits, BoundListener, BoundSocket};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::connection::context::ListenerKind;
use crate::peers::NodeAddresses;

/// Kafka's number of the security protocol PLAINTEXT, the only one that is built.
const PLAINTEXT: i16 = 0;

/// How long the end of the accept loops is waited for.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// One bound port.
#[derive(Debug)]
pub struct ListeningSocket {
    name: Arc<str>,
    kind: ListenerKind,
    advertised: HostPort,
    socket: BoundSocket,
    /// Whether it has listened before: it goes on then, whatever the image says.
    pub(super) opened: AtomicBool,
    /// Whether connections are accepted.
    pub(super) listening: AtomicBool,
    /// Dropped last: the port is free when every clone of this is gone.
    _held: mpsc::Sender<Infallible>,
}

impl ListeningSocket {
    /// The listener's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What it is for.
    pub fn kind(&self) -> ListenerKind {
        self.kind
    }

    /// Listens, or goes on listening.
    ///
    /// # Errors
    /// The port was taken between binding and listening, or the system has no file left.
    pub fn listen(&self, backlog: u32) -> Result<BoundListener, net::Error> {
        self.socket.listen(backlog)
    }
}

/// All ports of a node.
#[derive(Debug)]
pub struct Sockets {
    sockets: Mutex<Vec<Arc<ListeningSocket>>>,
    released: tokio::sync::Mutex<mpsc::Receiver<Infallible>>,
    closed: CancellationToken,
    client_limits: AcceptLimits,
    controller_limits: AcceptLimits,
}

impl Sockets {
    /// Binds every listener of the settings.
    ///
    /// # Errors
    /// The first that cannot be bound, in a sentence; none stays bound then.
    pub async fn bind(config: &BrokerConfig) -> Result<Sockets, net::Error> {
        let (held, released) = mpsc::channel(1);
        let mut sockets = Vec::new();
        for listener in &config.listeners {
            let socket = BoundSocket::bind(&listener.bind.host, listener.bind.port).await?;
            let mut advertised = listener.advertised.clone();
            if advertised.port == 0 {
                advertised.port = socket.local_addr().port();
            }
            sockets.push(Arc::new(ListeningSocket {
                name: Arc::from(listener.name.as_str()),
                kind: kind_of(config, listener),
                advertised,
                socket,
                opened: AtomicBool::new(false),
                listening: AtomicBool::new(false),
                _held: held.clone(),
            }));
        }
        Ok(Sockets {
            sockets: Mutex::new(sockets),
            released: tokio::sync::Mutex::new(released),
            closed: CancellationToken::new(),
            client_limits: AcceptLimits::new(config.network.max_connections),
            controller_limits: AcceptLimits::new(config.network.max_connections),
        })
    }

    /// The names of the listeners, in the order of the settings.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.sockets.lock().iter().map(|socket| Arc::clone(&socket.name)).collect()
    }

    /// One socket, by the listener's name.
    pub fn get(&self, name: &str) -> Option<Arc<ListeningSocket>> {
        self.sockets.lock().iter().find(|socket| *socket.name == *name).cloned()
    }

    /// Whether every listener accepts connections.
    pub fn are_listening(&self) -> bool {
        self.names()
            .iter()
            .filter_map(|name| self.get(name))
            .all(|socket| socket.listening.load(Ordering::Acquire))
    }

    /// Cancelled when the ports are given back: ends every connection.
    pub fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// How many connections a kind of listener takes. Clients never take the controller's places.
    pub fn limits(&self, kind: ListenerKind) -> AcceptLimits {
        match kind {
            ListenerKind::Client | ListenerKind::InterBroker => self.client_limits.clone(),
            ListenerKind::Controller => self.controller_limits.clone(),
        }
    }

    /// What the broker registers: where clients and brokers reach it.
    pub fn endpoints(&self) -> Vec<raft::Listener> {
        let sockets = self.sockets.lock();
        let brokers = sockets.iter().filter(|socket| socket.kind != ListenerKind::Controller);
        let endpoint = |socket: &Arc<ListeningSocket>| raft::Listener {
            name: socket.name.to_string(),
            host: socket.advertised.host.clone(),
            port: socket.advertised.port,
            security_protocol: PLAINTEXT,
        };
        brokers.map(endpoint).collect()
    }

    /// Where the other nodes of this process reach this one.
    pub fn addresses(&self, config: &BrokerConfig) -> NodeAddresses {
        let sockets = self.sockets.lock();
        let of = |wanted: &dyn Fn(&ListeningSocket) -> bool| {
            sockets
                .iter()
                .find(|socket| wanted(socket))
                .map(|socket| reachable(socket.socket.local_addr()))
        };
        let inter_broker = config.inter_broker_listener.as_deref();
        NodeAddresses {
            data: of(&|socket| Some(&*socket.name) == inter_broker),
            control: of(&|socket| socket.kind == ListenerKind::Controller),
        }
    }

    /// Ends accept loops and connections; the ports are free when those have ended.
    pub fn give_up(&self) {
        self.closed.cancel();
        self.sockets.lock().clear();
    }

    /// Ends accept loops and connections and gives the ports back; returns when they are free.
    pub async fn close(&self) {
        self.give_up();
        let mut released = self.released.lock().await;
        if tokio::time::timeout(CLOSE_DEADLINE, released.recv()).await.is_err() {
            tracing::warn!("a listener did not end: its port stays bound for now");
        }
    }
}

fn kind_of(config: &BrokerConfig, listener: &config::Listener) -> ListenerKind {
    match listener.kind {
        config::ListenerKind::Controller => ListenerKind::Controller,
        config::ListenerKind::Broker
            if config.inter_broker_listener.as_deref() == Some(&*listener.name) =>
        {
            ListenerKind::InterBroker
        }
        config::ListenerKind::Broker => ListenerKind::Client,
    }
}

/// A wildcard address is reached at the loopback one from inside the machine.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listeners: &str) -> BrokerConfig {
        let text = format!(
            "node.id=1\nprocess.roles=broker,controller\nlog.dirs=/tmp/none\n\
             listeners={listeners}\ncontroller.listener.names=CONTROLLER\n\
             controller.quorum.voters=1@127.0.0.1:9093\n"
        );
        let properties = config::parse_properties(&text).unwrap();
        BrokerConfig::from_settings(properties, config::Profile::Dev).unwrap()
    }

    #[tokio::test]
    async fn the_ports_that_were_chosen_are_advertised_and_free_again_after_the_close() {
        let settings = config("PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0");
        let sockets = Sockets::bind(&settings).await.unwrap();
        let endpoints = sockets.endpoints();
        assert_eq!(endpoints.len(), 1, "the controller's is nobody's but the quorum's");
        let port = endpoints[0].port;
        assert_ne!(port, 0);
        let addresses = sockets.addresses(&settings);
        assert_eq!(addresses.data.map(|at| at.port()), Some(port));
        assert!(addresses.control.is_some_and(|at| at.port() != port));
        let listening = sockets.get("PLAINTEXT").unwrap();
        let listener = listening.listen(50).unwrap();
        let again = config(&format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"));
        let refused = Sockets::bind(&again).await.unwrap_err();
        assert!(matches!(refused, net::Error::PortInUse { .. }), "{refused}");
        drop((listener, listening));
        sockets.close().await;
        Sockets::bind(&again).await.unwrap();
    }

    #[tokio::test]
    async fn the_first_listener_for_brokers_is_the_inter_broker_one() {
        let settings = config("PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0");
        let sockets = Sockets::bind(&settings).await.unwrap();
        assert_eq!(sockets.get("PLAINTEXT").unwrap().kind(), ListenerKind::InterBroker);
        assert_eq!(sockets.get("CONTROLLER").unwrap().kind(), ListenerKind::Controller);
    }
}
