//! Listening sockets and their accept loops.
//!
//! Owns binding, admission of connections, and the end of the loop. It never reads from a
//! connection.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// How long the loop waits after the system refused to accept, most often for want of files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many connections a listener accepts. Listeners that share one clone share the limit.
#[derive(Debug, Clone)]
pub struct AcceptLimits {
    connections: Arc<Semaphore>,
}

impl AcceptLimits {
    /// At most `connections` at a time; further ones wait in the system's backlog.
    pub fn new(connections: usize) -> AcceptLimits {
        let connections = connections.min(Semaphore::MAX_PERMITS);
        AcceptLimits { connections: Arc::new(Semaphore::new(connections)) }
    }
}

/// A new connection.
#[derive(Debug)]
pub struct Accepted {
    /// The socket, without delay of small writes.
    pub stream: TcpStream,
    /// Who connected.
    pub peer: SocketAddr,
    /// Its place among the connections; keep it as long as the connection lives.
    pub permit: OwnedSemaphorePermit,
}

/// A socket that has its port. Until [`BoundSocket::listen`] whoever connects is refused.
#[derive(Debug)]
pub struct BoundSocket {
    socket: Socket,
    local: SocketAddr,
}

impl BoundSocket {
    /// Binds `host:port`. An empty host is every IPv4 interface, port 0 a free port.
    pub async fn bind(host: &str, port: u16) -> Result<BoundSocket, Error> {
        let host = if host.is_empty() { "0.0.0.0" } else { host };
        let failed = |source: io::Error| bind_error(host, port, source);
        let address =
            lookup_host((host, port)).await.map_err(failed)?.next().ok_or_else(|| {
                failed(io::Error::new(io::ErrorKind::NotFound, "the host has no address"))
            })?;
        let socket = bind(address).map_err(failed)?;
        let local = socket.local_addr().map_err(failed)?.as_socket().ok_or_else(|| {
            failed(io::Error::new(io::ErrorKind::InvalidData, "the address is no IP address"))
        })?;
        Ok(BoundSocket { socket, local })
    }

    /// Where it is bound, with the port that was chosen.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Listens. The port stays bound, and connections wait in the backlog, for as long as this or
    /// a listener made from it lives: a listener that ended is followed by another one. Must be
    /// called inside the runtime that will accept.
    pub fn listen(&self, backlog: u32) -> Result<BoundListener, Error> {
        let failed = |source: io::Error| {
            bind_error(&self.local.ip().to_string(), self.local.port(), source)
        };
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        self.socket.listen(backlog).map_err(failed)?;
        let shared = self.socket.try_clone().map_err(failed)?;
        let listener = TcpListener::from_std(shared.into()).map_err(failed)?;
        Ok(BoundListener { listener, local: self.local })
    }
}

/// A socket that is bound and listens, but does not accept yet.
#[derive(Debug)]
pub struct BoundListener {
    listener: TcpListener,
    local: SocketAddr,
}

impl BoundListener {
    /// Binds `host:port` as [`BoundSocket::bind`] and listens at once.
    pub async fn bind(host: &str, port: u16, backlog: u32) -> Result<BoundListener, Error> {
        BoundSocket::bind(host, port).await?.listen(backlog)
    }

    /// Where it listens, with the port that was chosen.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Accepts until the token is cancelled; each connection goes to `on_accept`, which must not
    /// block. The socket is closed when the task ends.
    pub fn serve(
        self,
        limits: AcceptLimits,
        token: CancellationToken,
        on_accept: impl FnMut(Accepted) + Send + 'static,
    ) -> JoinHandle<()> {
        tokio::spawn(async move {
            token.run_until_cancelled(self.accept(limits, on_accept)).await;
        })
    }

    /// Accepts until it is dropped; each connection goes to `on_accept`, which must not block.
    pub async fn accept(
        &self,
        limits: AcceptLimits,
        mut on_accept: impl FnMut(Accepted),
    ) -> Infallible {
        loop {
            let permit = limits.connections.clone().acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%peer, %error, "connection ended before it began");
                        continue;
                    }
                    on_accept(Accepted { stream, peer, permit });
                }
                Err(error) => {
                    tracing::warn!(local = %self.local, %error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn bind_error(host: &str, port: u16, source: io::Error) -> Error {
    let address =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    if source.kind() == io::ErrorKind::AddrInUse {
        Error::PortInUse { address }
    } else {
        Error::Bind { address, source }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_taken_port_says_what_to_do() {
        let first = BoundListener::bind("127.0.0.1", 0, 50).await.unwrap();
        let port = first.local_addr().port();
        let error = BoundListener::bind("127.0.0.1", port, 50).await.unwrap_err();
        assert!(matches!(error, Error::PortInUse { .. }), "{error:?}");
        assert!(error.to_string().contains("choose another port"), "{error}");
        drop(first);
        BoundListener::bind("127.0.0.1", port, 50).await.unwrap();
    }

    #[tokio::test]
    async fn a_bound_socket_refuses_until_it_listens_and_outlives_its_listeners() {
        let socket = BoundSocket::bind("127.0.0.1", 0).await.unwrap();
        let address = socket.local_addr();
        assert!(TcpStream::connect(address).await.is_err());
        drop(socket.listen(50).unwrap());
        let _waits = TcpStream::connect(address).await.unwrap();
        let (sender, mut accepted) = mpsc::unbounded_channel();
        let token = CancellationToken::new();
        let again = socket.listen(50).unwrap();
        let task = again.serve(AcceptLimits::new(1), token.clone(), move |connection| {
            sender.send(connection).unwrap();
        });
        accepted.recv().await.unwrap();
        drop(socket);
        token.cancel();
        task.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn accepts_up_to_the_limit_and_stops_when_told() {
        let listener = BoundListener::bind("", 0, 50).await.unwrap();
        let address = ("127.0.0.1", listener.local_addr().port());
        let token = CancellationToken::new();
        let (sender, mut accepted) = mpsc::unbounded_channel();
        let task = listener.serve(AcceptLimits::new(1), token.clone(), move |connection| {
            sender.send(connection).unwrap();
        });
        let _one = TcpStream::connect(address).await.unwrap();
        let _two = TcpStream::connect(address).await.unwrap();
        let first = accepted.recv().await.unwrap();
        let wait = Duration::from_millis(30);
        assert!(tokio::time::timeout(wait, accepted.recv()).await.is_err());
        drop(first);
        accepted.recv().await.unwrap();
        token.cancel();
        task.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }
}
