//! From a request to its handler: one flat match. It decides nothing.

use std::pin::Pin;

use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::messages::ApiVersionsResponse;

use super::context::RequestContext;
use super::groups::offsets;
use super::{fetch, find_coordinator, groups, mirror_states, produce, quorum};

/// What goes back to the client.
#[derive(Debug)]
pub enum Answer {
    /// A response.
    Response(Response),
    /// Nothing: a Produce request with acks 0.
    Nothing,
    /// The end of the connection.
    Close,
}

/// A request that was begun and may not be finished.
pub enum Begun {
    /// The answer is known.
    Done(Response),
    /// The answer comes when this is run, in the order of the connection's requests.
    Later(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

impl Begun {
    /// A request whose rest runs when it is its turn.
    pub fn later(rest: impl Future<Output = Answer> + Send + 'static) -> Begun {
        Begun::Later(Box::pin(rest))
    }

    /// Runs the rest.
    pub async fn finish(self) -> Answer {
        match self {
            Begun::Done(response) => Answer::Response(response),
            Begun::Later(rest) => rest.await,
        }
    }
}

/// Begins a request. Only Produce does something now, which keeps the order of writes while their
/// answers are waited for together; everything else runs when the requests before it are answered.
pub async fn begin(context: RequestContext, request: Request) -> Begun {
    match request {
        Request::Produce(request) => produce::begin(context, request).await,
        other => Begun::later(async move { Answer::Response(serve(context, other).await) }),
    }
}

/// The answer to ApiVersions in a version this node does not know: version 0, with the error.
pub fn unsupported_api_versions() -> Response {
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        ..ApiVersionsResponse::default()
    }
    .into()
}

/// Runs a request to its answer.
pub async fn serve(context: RequestContext, request: Request) -> Response {
    match request {
        Request::Fetch(request) => fetch::fetch(context, request).await.into(),
        Request::QuorumHello(request) => quorum::hello(context.directory, request).await.into(),
        Request::RaftRpc(request) => quorum::raft_rpc(context.directory, request).await.into(),
        Request::AlterPartition(_)
        | Request::BrokerRegistration(_)
        | Request::BrokerHeartbeat(_)
        | Request::AllocateProducerIds(_)
        | Request::BumpLeaderEpochs(_)
        | Request::RecordMirrorStops(_)
        | Request::RecordSourceClusterId(_)
        | Request::Forward(_) => quorum::decide(context.directory, request).await,
        Request::DescribeGroups(request) => groups::describe(&context, request).await.into(),
        Request::FindCoordinator(request) => {
            find_coordinator::find_coordinator(&context, request).await.into()
        }
        Request::Heartbeat(request) => groups::heartbeat(&context, request).await.into(),
        Request::JoinGroup(request) => groups::join(&context, request).await.into(),
        Request::LeaveGroup(request) => groups::leave(&context, request).await.into(),
        Request::ListGroups(request) => groups::list(&context, request).await.into(),
        Request::OffsetCommit(request) => offsets::commit(&context, request).await.into(),
        Request::OffsetFetch(request) => offsets::fetch(&context, request).await.into(),
        Request::SyncGroup(request) => groups::sync(&context, request).await.into(),
        Request::ReadMirrorStates(request) => {
            mirror_states::read(&context.directory, request).await.into()
        }
        Request::WriteMirrorStates(request) => {
            mirror_states::write(&context.directory, request).await.into()
        }
        other => {
            tracing::debug!(key = ?other.api_key(), "not served yet");
            std::future::pending().await
        }
    }
}
