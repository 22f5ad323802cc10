//! The server side of a connection. Two tasks: one reads frames and starts what must keep its
//! order (Produce), the other answers in the order of the requests. It knows no API by itself.

pub mod context;
pub mod dispatch;

pub mod admin;
pub mod api_versions;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_topic_partitions;
pub mod epochs;
pub mod fetch;
pub mod fetch_sessions;
pub mod find_coordinator;
pub mod groups;
pub mod list_offsets;
pub mod metadata;
pub mod mirror_states;
pub mod mirrors;
pub mod produce;
pub mod producer_ids;
pub mod quorum;

mod answers;
mod listener_view;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::{Frame, FrameReader, Grant};
use protocol::Reader;
use protocol::api::{ApiKey, Request, RequestHeader, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::NodeId;
use protocol::messages::CreateMirrorResponse;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::admission::CONNECTION_REQUESTS_MAX;
use crate::directory::Directory;
use context::{ListenerKind, RequestContext};
use dispatch::{Answer, Begun};

/// Why a connection ends other than by the client's wish.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket or the framing.
    #[error(transparent)]
    Net(#[from] net::Error),
    /// Bytes that are no request of the version they claim.
    #[error("API key {key} version {version}: {error}")]
    Malformed {
        /// The claimed key.
        key: i16,
        /// The claimed version.
        version: i16,
        /// What is wrong.
        error: protocol::Error,
    },
    /// A header that cannot be read.
    #[error("request header: {0}")]
    Header(protocol::Error),
    /// A key or version that is not served here.
    #[error("API key {key} version {version} is not served on this listener")]
    NotServed {
        /// The asked key.
        key: i16,
        /// The asked version.
        version: i16,
    },
    /// Nothing was asked for too long (`connections.max.idle.ms`).
    #[error("idle for {for_ms} ms")]
    Idle {
        /// How long.
        for_ms: u128,
    },
    /// The client takes nothing of an answer.
    #[error("no byte of an answer was taken for {for_ms} ms")]
    NotRead {
        /// How long.
        for_ms: u128,
    },
    /// An answer that cannot be written in the request's version.
    #[error("answering {key:?} version {version}: {error}")]
    Unanswerable {
        /// The API.
        key: ApiKey,
        /// The request's version.
        version: i16,
        /// The codec's error.
        error: protocol::Error,
    },
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Connection<S> {
    /// The node.
    pub directory: Arc<Directory>,
    /// The listener it came in on.
    pub listener: ListenerKind,
    /// That listener's name.
    pub listener_name: Arc<str>,
    /// The socket.
    pub stream: S,
    /// The other side.
    pub peer: SocketAddr,
    /// Ends the connection.
    pub closed: CancellationToken,
}

/// A request under way, in its place in the order of answers.
struct InFlight {
    key: ApiKey,
    version: i16,
    correlation_id: i32,
    begun: Begun,
    /// The frame's share of the node's memory, held until the answer is written.
    _grant: Grant,
    /// While somebody has one, the connection is not idle.
    _busy: Arc<()>,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection<S> {
    /// Serves the connection until one side ends it. A fault ends this connection and no other.
    pub async fn run(self) {
        let Connection { directory, listener, listener_name, stream, peer, closed } = self;
        let (reading, writing) = tokio::io::split(stream);
        let (queue, waiting) = mpsc::channel(CONNECTION_REQUESTS_MAX);
        let writing_for = Arc::clone(&directory);
        let node = Arc::clone(&directory);
        let context = RequestContext::of_client(node, listener, listener_name, peer.ip());
        let budget = directory.request_budget.clone();
        let frame_bytes_max = directory.config.network.request_max_bytes;
        let frames = FrameReader::new(reading, frame_bytes_max, budget);
        let idle_max = directory.config.network.connections_max_idle;
        let serve = async {
            tokio::select! {
                biased;
                read = read_requests(frames, context, queue, idle_max) => read,
                written = answers::write_answers(writing, waiting, &writing_for) => written,
            }
        };
        let ended = tokio::select! {
            biased;
            ended = serve => ended,
            () = closed.cancelled() => Ok(()),
            () = directory.stopped.cancelled() => Ok(()),
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "connection closed");
        }
    }
}

/// Reads until the client closes; then it stays, so that answers under way are still written. Ends
/// a connection on which neither side had anything to say for `idle_max`.
async fn read_requests<R: AsyncRead + Unpin>(
    mut frames: FrameReader<R>,
    context: RequestContext,
    queue: mpsc::Sender<InFlight>,
    idle_max: Option<Duration>,
) -> Result<(), Error> {
    let mut followed = CancellationToken::new();
    let busy = Arc::new(());
    loop {
        let next = match idle_max {
            None => frames.next().await?,
            Some(idle_max) => match tokio::time::timeout(idle_max, frames.next()).await {
                Ok(next) => next?,
                // Somebody still waits for an answer, or for the rest of a frame to be admitted.
                Err(_elapsed) if Arc::strong_count(&busy) > 1 => continue,
                Err(_elapsed) => return Err(Error::Idle { for_ms: idle_max.as_millis() }),
            },
        };
        let Some(frame) = next else { break };
        followed.cancel();
        followed = CancellationToken::new();
        let context = context.with_follower(followed.clone());
        let place = match queue.reserve().await {
            Ok(place) => place,
            Err(_writer_gone) => return Ok(()),
        };
        place.send(begin(frame, &context, Arc::clone(&busy)).await?);
    }
    drop(queue);
    std::future::pending().await
}

async fn begin(frame: Frame, context: &RequestContext, busy: Arc<()>) -> Result<InFlight, Error> {
    let Frame { bytes, grant } = frame;
    let mut reader = Reader::new(bytes);
    let header = RequestHeader::decode(&mut reader).map_err(Error::Header)?;
    let RequestHeader { api_key: key, api_version: version, correlation_id, client_id } = header;
    let not_served = Error::NotServed { key, version };
    let api = ApiKey::from_i16(key).filter(|api| context.serves(*api)).ok_or(not_served)?;
    if api == ApiKey::ApiVersions && !api.versions().contains(&version) {
        // Asked in a version to come: answered in version 0, so that the client can step down.
        let begun = Begun::Done(api_versions::unsupported_version().into());
        let (key, version) = (api, 0);
        return Ok(InFlight { key, version, correlation_id, begun, _grant: grant, _busy: busy });
    }
    if !api.versions().contains(&version) {
        return Err(Error::NotServed { key, version });
    }
    let context = context.with_request(version, client_id);
    let begun = match Request::decode_first(api, version, &mut reader) {
        Ok(request) => dispatch::begin(context, request).await,
        Err(protocol::Error::UnregisterController) => Begun::Done(unregister_controller()),
        Err(error) => return Err(Error::Malformed { key, version, error }),
    };
    Ok(InFlight { key: api, version, correlation_id, begun, _grant: grant, _busy: busy })
}

/// The answer to Kafka's UnregisterController, whose key is CreateMirror's: both have the same
/// form.
fn unregister_controller() -> Response {
    CreateMirrorResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        error_message: Some("UnregisterController is not served.".to_owned()),
        ..CreateMirrorResponse::default()
    }
    .into()
}

/// Serves a request of another node of the cluster over a local link: as a request of the newest
/// version, without a byte. `None` is what would end a connection: the request is not served.
pub async fn serve_peer(
    directory: Arc<Directory>,
    from: NodeId,
    request: Request,
) -> Option<Response> {
    let version = *request.api_key().versions().end();
    let context = RequestContext::of_peer(directory, from, version);
    let begun = dispatch::begin(context, request).await;
    match begun.finish().await {
        Answer::Response(response) => Some(response),
        Answer::Nothing | Answer::Close => None,
    }
}
