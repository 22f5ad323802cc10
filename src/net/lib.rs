//! Sockets: accept loops, framing on streams, the client to other clusters, peer links.
//!
//! Owns every byte between a socket and a frame, and the asking side of a connection. It never
//! answers a request: what a frame means to a node is decided where the node runs. Everything
//! works over any `AsyncRead + AsyncWrite`, so that a simulation can bring its own streams.

pub mod budget;
pub mod framing;
pub mod listener;
pub mod stream;

mod chunks;
mod client;
mod connection;
mod error;
mod faulty_link;
mod jitter;
mod peer_link;
mod reconnecting;
mod span;
mod tcp_link;
mod versions;

pub use budget::{ByteBudget, Grant};
pub use chunks::write_chunks;
pub use client::{BrokerAddress, Client, ClientOptions, ClusterView};
pub use connection::{Connection, ConnectionOptions};
pub use error::Error;
pub use faulty_link::{Faults, FaultyLink};
pub use framing::{Frame, FrameReader};
pub use jitter::Jitter;
pub use listener::{AcceptLimits, Accepted, BoundListener, BoundSocket};
pub use peer_link::{BoxFuture, LinkError, PeerLink};
pub use reconnecting::{Backoff, Reconnecting};
pub use stream::{BoxedStream, Connector, Stream, TcpConnector};
pub use tcp_link::{AddressBook, TcpLink, TcpLinkOptions};
pub use versions::PeerVersions;
