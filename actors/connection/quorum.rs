//! What nodes of the cluster ask the controller part: Raft's calls, the first start, and the
//! requests that only the leader of the quorum answers. It decides nothing.

use std::sync::Arc;

use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::messages::{
    AllocateProducerIdsResponse, AlterPartitionResponse, BrokerHeartbeatResponse,
    BrokerRegistrationResponse, BumpLeaderEpochsResponse, ForwardResponse, QuorumHelloRequest,
    QuorumHelloResponse, RaftRpcRequest, RaftRpcResponse, RecordMirrorStopsResponse,
    RecordSourceClusterIdResponse,
};

use crate::directory::Directory;

/// One call of Raft.
pub async fn raft_rpc(directory: Arc<Directory>, request: RaftRpcRequest) -> RaftRpcResponse {
    match directory.controller() {
        Ok(controller) => controller.on_raft_rpc(request.payload).await,
        Err(error) => {
            RaftRpcResponse { error_code: error.code().code(), ..RaftRpcResponse::default() }
        }
    }
}

/// Whether this node's folder is empty. One whose controller part is not up answers as
/// one that is not: the first start then waits.
pub async fn hello(
    directory: Arc<Directory>,
    _request: QuorumHelloRequest,
) -> QuorumHelloResponse {
    match directory.controller() {
        Ok(controller) => controller.on_quorum_hello(&directory).await,
        Err(_restarting) => QuorumHelloResponse {
            directory_id: directory.identity.directory_id.0,
            node_id: directory.node_id().0,
            cluster_id: None,
            empty: false,
        },
    }
}

/// A request for the leader of the quorum, answered here if this node is it.
pub async fn decide(directory: Arc<Directory>, request: Request) -> Response {
    let refuse = refusal_of(&request);
    let decided = match directory.controller() {
        Ok(controller) => controller.decide(request).await,
        Err(error) => Err(error),
    };
    decided.unwrap_or_else(|error| refuse(error.code()))
}

/// The refusal of a request in its own response's form.
fn refusal_of(request: &Request) -> fn(ErrorCode) -> Response {
    macro_rules! refused {
        ($response:ident) => {
            |code| $response { error_code: code.code(), ..$response::default() }.into()
        };
    }
    match request {
        Request::AlterPartition(_) => refused!(AlterPartitionResponse),
        Request::BrokerRegistration(_) => refused!(BrokerRegistrationResponse),
        Request::BrokerHeartbeat(_) => refused!(BrokerHeartbeatResponse),
        Request::AllocateProducerIds(_) => refused!(AllocateProducerIdsResponse),
        Request::BumpLeaderEpochs(_) => refused!(BumpLeaderEpochsResponse),
        Request::RecordMirrorStops(_) => refused!(RecordMirrorStopsResponse),
        Request::RecordSourceClusterId(_) => refused!(RecordSourceClusterIdResponse),
        _ => refused!(ForwardResponse),
    }
}
