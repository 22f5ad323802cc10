//! The calling side: openraft's requests over the caller's [`Transport`], each with a deadline.
//! Never knows an address.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use protocol::ids::NodeId;

use super::options::SNAPSHOT_CHUNK_BYTES;
use super::raft_id::RaftId;
use super::rpc::{Call, Request, Response, SnapshotChunk};
use super::transport::Transport;
use super::type_config::{Snapshot, TypeConfig, Vote};

type RpcError = RPCError<TypeConfig>;

/// Makes a client for each member openraft talks to.
pub(crate) struct Network {
    pub(crate) own: RaftId,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) call_timeout: Duration,
}

/// The calls to one member.
pub(crate) struct Peer {
    own: RaftId,
    target: RaftId,
    node: NodeId,
    transport: Arc<dyn Transport>,
    call_timeout: Duration,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: RaftId, node: &NodeId) -> Peer {
        Peer {
            own: self.own,
            target,
            node: *node,
            transport: Arc::clone(&self.transport),
            call_timeout: self.call_timeout,
        }
    }
}

impl Peer {
    async fn call(&self, call: Call, timeout: Duration) -> Result<Response, RpcError> {
        let request = Request { from: self.own, to: self.target, call };
        let bytes = request.encode().map_err(|e| RPCError::Network(NetworkError::new(&e)))?;
        let sent = self.transport.call(self.node, Bytes::from(bytes));
        let answer = match tokio::time::timeout(timeout, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(RPCError::Unreachable(Unreachable::new(&error))),
            Err(elapsed) => return Err(RPCError::Network(NetworkError::new(&elapsed))),
        };
        match Response::decode(&answer) {
            Ok(Response::Failed(reason)) => {
                Err(RPCError::Unreachable(Unreachable::from_string(reason)))
            }
            Ok(response) => Ok(response),
            Err(error) => Err(RPCError::Unreachable(Unreachable::new(&error))),
        }
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> Result<SnapshotResponse<TypeConfig>, RpcError> {
        let bytes = snapshot.snapshot;
        let total = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        for (number, piece) in bytes.chunks(SNAPSHOT_CHUNK_BYTES).enumerate() {
            let offset = u64::try_from(number * SNAPSHOT_CHUNK_BYTES).unwrap_or(u64::MAX);
            let end = offset + u64::try_from(piece.len()).unwrap_or(u64::MAX);
            let meta = snapshot.meta.clone();
            let chunk = SnapshotChunk { vote, meta, offset, total, data: piece.to_vec() };
            // Installing takes as long as the image is large.
            let patience = if end == total { 30 } else { 1 };
            let answer =
                self.call(Call::Snapshot(chunk), self.call_timeout.saturating_mul(patience)).await;
            let answer = answer?;
            if let Response::SnapshotInstalled(response) = answer {
                return Ok(response);
            }
            if !matches!(answer, Response::SnapshotReceived(next) if next == end) {
                return Err(unexpected("Snapshot", &answer));
            }
        }
        Err(RPCError::Network(NetworkError::from_string("the peer did not install the snapshot")))
    }
}

fn unexpected(call: &str, response: &Response) -> RpcError {
    let text = format!("a {call} call was answered with {}", response.name());
    RPCError::Unreachable(Unreachable::from_string(text))
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        // openraft offers one heartbeat interval, too short for entries behind a stalled disk;
        // heartbeats themselves it cuts off at the interval.
        let timeout = option.soft_ttl().max(self.call_timeout);
        let answer = self.call(Call::Append(rpc), timeout).await?;
        let Response::Append(response) = answer else {
            return Err(unexpected("Append", &answer));
        };
        Ok(response)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let answer = self.call(Call::Vote(rpc), option.soft_ttl()).await?;
        let Response::Vote(response) = answer else {
            return Err(unexpected("Vote", &answer));
        };
        Ok(response)
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let answer = self.call(Call::PreVote(rpc), option.soft_ttl()).await?;
        let Response::Vote(response) = answer else {
            return Err(unexpected("PreVote", &answer));
        };
        Ok(response)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let cancel = pin!(cancel);
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(vote, snapshot) => sent.map_err(StreamingError::from),
        }
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let answer = self.call(Call::TransferLeader(rpc), option.soft_ttl()).await?;
        let Response::TransferLeader(response) = answer else {
            return Err(unexpected("TransferLeader", &answer));
        };
        Ok(response)
    }
}
