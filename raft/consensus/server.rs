//! The answering side: a Raft call's bytes to openraft and back. Owns the snapshot that is on its
//! way in; refuses calls that are for another member.

use bytes::Bytes;
use parking_lot::Mutex;

use super::options::SNAPSHOT_BYTES_MAX;
use super::raft_id::RaftId;
use super::rpc::{Call, Request, Response, SnapshotChunk};
use super::type_config::{Raft, Snapshot, SnapshotMeta};

/// Answers the calls to one member.
pub(crate) struct Server {
    own: RaftId,
    raft: Raft,
    incoming: Mutex<Option<Incoming>>,
}

/// A snapshot of which the first bytes are here.
struct Incoming {
    from: RaftId,
    meta: SnapshotMeta,
    total: u64,
    bytes: Vec<u8>,
}

impl Server {
    pub(crate) fn new(own: RaftId, raft: Raft) -> Server {
        Server { own, raft, incoming: Mutex::new(None) }
    }

    /// Answers one call. A call that cannot be handled gets an answer that says why.
    pub(crate) async fn on_rpc(&self, bytes: &[u8]) -> Bytes {
        let response = match Request::decode(bytes) {
            Ok(request) if request.to == self.own => self.answer(request).await,
            Ok(request) => Response::Failed(format!(
                "the call is for member {}, this is member {}",
                request.to, self.own
            )),
            Err(error) => Response::Failed(error.to_string()),
        };
        match response.encode() {
            Ok(encoded) => Bytes::from(encoded),
            Err(error) => refusal(error.to_string()),
        }
    }

    async fn answer(&self, request: Request) -> Response {
        match request.call {
            Call::Vote(call) => response(self.raft.vote(call).await, Response::Vote),
            Call::PreVote(call) => response(self.raft.pre_vote(call).await, Response::Vote),
            Call::Append(call) => response(self.raft.append_entries(call).await, Response::Append),
            Call::Snapshot(chunk) => self.on_snapshot_chunk(request.from, chunk).await,
            Call::TransferLeader(call) => {
                let answer = self.raft.handle_transfer_leader(call).await;
                response(answer, Response::TransferLeader)
            }
        }
    }

    async fn on_snapshot_chunk(&self, from: RaftId, chunk: SnapshotChunk) -> Response {
        let vote = chunk.vote;
        let step = receive(&mut self.incoming.lock(), from, chunk);
        match step {
            Ok(Step::Received(next)) => Response::SnapshotReceived(next),
            Ok(Step::Complete(meta, bytes)) => {
                let snapshot = Snapshot { meta, snapshot: bytes };
                let installed = self.raft.install_full_snapshot(vote, snapshot).await;
                response(installed, Response::SnapshotInstalled)
            }
            Err(reason) => Response::Failed(reason),
        }
    }
}

/// The answer to a call that is not handled, and why.
pub(crate) fn refusal(reason: String) -> Bytes {
    let encoded = Response::Failed(reason).encode();
    Bytes::from(encoded.expect("a refusal of a few words fits its envelope"))
}

fn response<T, E: std::fmt::Display>(
    result: Result<T, E>,
    variant: impl FnOnce(T) -> Response,
) -> Response {
    match result {
        Ok(value) => variant(value),
        Err(error) => Response::Failed(error.to_string()),
    }
}

enum Step {
    Received(u64),
    Complete(SnapshotMeta, Bytes),
}

/// Adds a piece to what is there. A first piece starts anew; a piece that does not continue
/// forgets everything, and the sender starts again.
fn receive(
    incoming: &mut Option<Incoming>,
    from: RaftId,
    chunk: SnapshotChunk,
) -> Result<Step, String> {
    let limit = u64::try_from(SNAPSHOT_BYTES_MAX).unwrap_or(u64::MAX);
    if chunk.total > limit {
        return Err(format!("the snapshot has {} bytes, the limit is {limit}", chunk.total));
    }
    let mut present = match incoming.take() {
        Some(present)
            if chunk.offset != 0
                && present.from == from
                && present.meta == chunk.meta
                && present.total == chunk.total =>
        {
            present
        }
        None | Some(_) => {
            Incoming { from, meta: chunk.meta, total: chunk.total, bytes: Vec::new() }
        }
    };
    let length = |bytes: &Vec<u8>| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let here = length(&present.bytes);
    if chunk.offset != here {
        return Err(format!("the piece starts at {}, expected {here}", chunk.offset));
    }
    present.bytes.extend_from_slice(&chunk.data);
    let here = length(&present.bytes);
    match here.cmp(&present.total) {
        std::cmp::Ordering::Less => {
            *incoming = Some(present);
            Ok(Step::Received(here))
        }
        std::cmp::Ordering::Equal => Ok(Step::Complete(present.meta, Bytes::from(present.bytes))),
        std::cmp::Ordering::Greater => {
            Err(format!("{here} bytes came of a snapshot of {}", present.total))
        }
    }
}
