//! How Raft calls reach other members. Owns the seam only: addresses, sockets and the framing
//! under key 1000 belong to the caller.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use protocol::ids::NodeId;

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The peer did not answer: it is down, the link is cut, or nobody knows its address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {target} cannot be reached: {reason}")]
pub struct TransportError {
    /// Whom the call was for.
    pub target: NodeId,
    /// Why it failed.
    pub reason: String,
}

/// Carries one call to another node's [`Consensus::on_rpc`](super::Consensus::on_rpc) and its
/// answer back. Consensus sets the deadline and drops the future when it passes; calls to one node
/// may overtake each other.
pub trait Transport: Send + Sync + 'static {
    /// Sends `request` and returns the answer's bytes.
    fn call(
        &self,
        target: NodeId,
        request: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>>;
}
