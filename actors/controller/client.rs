//! Finds the leader of the quorum and asks it, again and again until a deadline. It decides
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use protocol::Reader;
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::NodeId;
use protocol::messages::ForwardRequest;
use protocol::messages::forward_request::TopicConfigs;
use tokio::time::Instant;

use super::decide::broken;
use crate::directory::Directory;
use crate::error::Error;
use crate::peers::Plane;

/// Pause before the leader is looked for again.
const RETRY: Duration = Duration::from_millis(20);

/// Sends `request` to the leader of the quorum.
///
/// # Errors
/// No leader answered within `deadline`.
pub async fn call(
    directory: &Arc<Directory>,
    request: Request,
    deadline: Duration,
) -> Result<Response, Error> {
    let end = Instant::now() + deadline;
    let mut next_voter = voters_in_turn(directory);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || directory.stopped.is_cancelled() {
            return Err(Error::NoAnswer { what: "the controller" });
        }
        let leader = directory
            .controller()
            .ok()
            .and_then(|controller| controller.consensus().leadership().borrow().leader)
            .or_else(&mut next_voter);
        if let Some(leader) = leader {
            let link = directory.peers.link(leader, Plane::Control);
            match link.call(request.clone(), left).await {
                Ok(response) if code_of(&response) == ErrorCode::NotController => {}
                Ok(response) => return Ok(response),
                Err(error) => tracing::debug!(%leader, %error, "the controller did not answer"),
            }
        }
        tokio::time::sleep(RETRY.min(left)).await;
    }
}

/// Whom a broker asks that hears of no leader: one that does not vote is told of leaders only when
/// its registration has made it a member, so it tries every voter for that.
fn voters_in_turn(directory: &Directory) -> impl FnMut() -> Option<NodeId> + use<> {
    let voters = super::voters(directory);
    let is_voter = voters.contains(&directory.node_id());
    let mut turns = voters.into_iter().cycle();
    move || if is_voter { None } else { turns.next() }
}

/// The longest request that is handed on. The controller decides on one at a time, and nothing a
/// client asks for in good faith comes near.
const FORWARD_BYTES_MAX: usize = 4 << 20;

/// What a broker adds to a client's request when it hands it on.
#[derive(Debug, Clone, Default)]
pub struct Forwarding {
    /// Who asks.
    pub principal: Option<String>,
    /// The broker asks for a mirror of its own.
    pub for_mirror: bool,
    /// Explicit settings of topics on a mirror's source.
    pub topic_configs: Vec<TopicConfigs>,
}

/// Hands a request on to the leader of the quorum, which answers it as if it had come there.
///
/// # Errors
/// No leader answered in time, or the leader could not read the request.
pub async fn forward(
    directory: &Arc<Directory>,
    forwarding: Forwarding,
    request: &Request,
) -> Result<Response, Error> {
    let key = request.api_key();
    let version = *key.versions().end();
    let mut body = BytesMut::new();
    request.encode(version, &mut body).map_err(broken)?;
    if body.len() > FORWARD_BYTES_MAX {
        let size = body.len();
        let why = format!("The request has {size} bytes, above {FORWARD_BYTES_MAX}: split it.");
        return Err(Error::refused_with(ErrorCode::InvalidRequest, why));
    }
    let forward = ForwardRequest {
        principal: forwarding.principal,
        api_key: key.as_i16(),
        api_version: version,
        body: body.freeze(),
        for_mirror: forwarding.for_mirror,
        topic_configs: forwarding.topic_configs,
    };
    let deadline = directory.config.network.request_timeout;
    let response = match call(directory, Request::from(forward), deadline).await? {
        Response::Forward(response) => response,
        other => return Err(crate::peers::unexpected(&other)),
    };
    let code = ErrorCode::from_code(response.error_code);
    if code != ErrorCode::None {
        return Err(Error::refused(code));
    }
    Response::decode(key, version, &mut Reader::new(response.body)).map_err(broken)
}

/// The code of a whole response, for the APIs that the controller answers.
fn code_of(response: &Response) -> ErrorCode {
    let code = match response {
        Response::AlterPartition(response) => response.error_code,
        Response::BrokerRegistration(response) => response.error_code,
        Response::BrokerHeartbeat(response) => response.error_code,
        Response::AllocateProducerIds(response) => response.error_code,
        Response::BumpLeaderEpochs(response) => response.error_code,
        Response::Forward(response) => response.error_code,
        Response::RecordMirrorStops(response) => response.error_code,
        Response::RecordSourceClusterId(response) => response.error_code,
        _ => 0,
    };
    ErrorCode::from_code(code)
}
