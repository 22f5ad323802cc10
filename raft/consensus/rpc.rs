//! The Raft calls between members as bytes. Owns the two enums of the wire, in the envelope; never
//! sends anything itself. The enums' order is the wire format: add variants at the end only.

use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};

use super::options::{APPEND_BYTES_MAX, ENTRY_BYTES_MAX, SNAPSHOT_CHUNK_BYTES};
use super::raft_id::RaftId;
use super::type_config::{SnapshotMeta, TypeConfig, Vote};
use crate::envelope::{self, Kind};

/// The layout of both enums.
const VERSION: u16 = 1;

/// One append holds entries up to its bound, or a single larger one; room for the rest of the
/// call.
const CALL_BYTES_MAX: usize = ENTRY_BYTES_MAX + APPEND_BYTES_MAX + SNAPSHOT_CHUNK_BYTES;

/// A call, with the members it is from and for: a node with an emptied directory is another
/// member, and must not answer for the old one.
#[derive(Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) from: RaftId,
    pub(crate) to: RaftId,
    pub(crate) call: Call,
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) enum Call {
    Vote(VoteRequest<TypeConfig>),
    PreVote(VoteRequest<TypeConfig>),
    Append(AppendEntriesRequest<TypeConfig>),
    Snapshot(SnapshotChunk),
    TransferLeader(TransferLeaderRequest<TypeConfig>),
}

/// A piece of a snapshot file. The last one installs it.
#[derive(Serialize, Deserialize)]
pub(crate) struct SnapshotChunk {
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    /// Where the piece starts.
    pub(crate) offset: u64,
    /// Bytes of the whole file.
    pub(crate) total: u64,
    pub(crate) data: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) enum Response {
    Vote(VoteResponse<TypeConfig>),
    Append(AppendEntriesResponse<TypeConfig>),
    /// The piece is kept; the next one starts here.
    SnapshotReceived(u64),
    SnapshotInstalled(SnapshotResponse<TypeConfig>),
    TransferLeader(TransferLeaderResponse<TypeConfig>),
    /// The call was not handled.
    Failed(String),
}

impl Request {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, envelope::Error> {
        envelope::encode(Kind::Request, VERSION, self, CALL_BYTES_MAX)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Request, envelope::Error> {
        envelope::decode(Kind::Request, VERSION, bytes, CALL_BYTES_MAX)
    }
}

impl Response {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, envelope::Error> {
        envelope::encode(Kind::Response, VERSION, self, CALL_BYTES_MAX)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Response, envelope::Error> {
        envelope::decode(Kind::Response, VERSION, bytes, CALL_BYTES_MAX)
    }

    /// What arrived, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Response::Vote(_) => "Vote",
            Response::Append(_) => "Append",
            Response::SnapshotReceived(_) => "SnapshotReceived",
            Response::SnapshotInstalled(_) => "SnapshotInstalled",
            Response::TransferLeader(_) => "TransferLeader",
            Response::Failed(_) => "Failed",
        }
    }
}
