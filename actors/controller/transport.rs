//! Raft's calls over the node's links, under the private key RaftRpc. It keeps no address.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use protocol::api::{Request, Response};
use protocol::ids::NodeId;
use protocol::messages::RaftRpcRequest;
use raft::consensus::{BoxFuture, Transport, TransportError};

use crate::directory::Directory;
use crate::peers::Plane;

/// Bounds a call whatever Raft's own timeouts say.
const DEADLINE: Duration = Duration::from_secs(30);

/// Raft's way to the other members. Weak: Raft outlives a crashed node by a moment.
#[derive(Debug)]
pub struct LinkTransport {
    directory: Weak<Directory>,
}

impl LinkTransport {
    /// A transport over the links of `directory`'s node.
    pub fn new(directory: Weak<Directory>) -> LinkTransport {
        LinkTransport { directory }
    }
}

impl Transport for LinkTransport {
    fn call(
        &self,
        target: NodeId,
        request: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        let directory: Option<Arc<Directory>> = self.directory.upgrade();
        Box::pin(async move {
            let failed = |reason: String| TransportError { target, reason };
            let directory = directory.ok_or_else(|| failed("this node has ended".into()))?;
            let link = directory.peers.link(target, Plane::Control);
            drop(directory);
            let request = RaftRpcRequest { kind: 0, payload: request };
            match link.call(Request::from(request), DEADLINE).await {
                Ok(Response::RaftRpc(response)) if response.error_code == 0 => {
                    Ok(response.payload)
                }
                Ok(Response::RaftRpc(response)) => {
                    Err(failed(format!("refused with error {}", response.error_code)))
                }
                Ok(other) => Err(failed(format!("answered with {:?}", other.api_key()))),
                Err(error) => Err(failed(error.to_string())),
            }
        })
    }
}
