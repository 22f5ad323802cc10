//! Streams: what a connection runs over, and how a client opens one.
//!
//! Owns the seam between clients and sockets. A simulation brings its own [`Connector`].

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::peer_link::BoxFuture;

/// Bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream of any kind.
pub type BoxedStream = Box<dyn Stream>;

/// Opens streams to addresses.
pub trait Connector: Send + Sync {
    /// Opens a stream to `host:port`.
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<BoxedStream>>;
}

/// Opens TCP connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpConnector;

impl TcpConnector {
    /// As a shared connector.
    pub fn shared() -> Arc<dyn Connector> {
        Arc::new(TcpConnector)
    }
}

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<BoxedStream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxedStream)
        })
    }
}
