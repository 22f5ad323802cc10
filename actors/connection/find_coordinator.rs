//! FindCoordinator, versions 0 to 7: key types 0 (group) and 3 (mirror, from version 7). Owns the
//! answer; where a key belongs is `coordinators::locate`'s.
//!
//! The internal topic is made when the first key asks for it. Key types that are not served
//! (1 transactions, 2 share groups) get INVALID_REQUEST, which is final for every client, and a
//! message: COORDINATOR_NOT_AVAILABLE would make them ask for ever.

use std::time::Duration;

use mirror::keys::{coordinator_of_mirror, parse_partition_key};
use protocol::error_code::ErrorCode;
use protocol::ids::{PartitionIndex, TopicIdPartition};
use protocol::messages::find_coordinator_response::Coordinator;
use protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use raft::{MetadataImage, MirrorName};

use super::context::RequestContext;
use crate::coordinators::{ShardId, ShardKind, locate};

/// The first version with several keys.
const MANY_KEYS_VERSION: i16 = 4;

/// The first version with mirrors.
const MIRROR_VERSION: i16 = 7;

/// How long a missing internal topic may take to be made.
const TOPIC_DEADLINE: Duration = Duration::from_secs(1);

const GROUP_TYPE: i8 = 0;
const TRANSACTION_TYPE: i8 = 1;
const SHARE_TYPE: i8 = 2;
const MIRROR_TYPE: i8 = 3;

/// Why a key has no coordinator.
#[derive(Debug, Clone)]
struct Refusal {
    code: ErrorCode,
    message: String,
}

impl Refusal {
    fn new(code: ErrorCode) -> Refusal {
        Refusal { code, message: code.message().to_owned() }
    }

    fn invalid(message: impl Into<String>) -> Refusal {
        Refusal { code: ErrorCode::InvalidRequest, message: message.into() }
    }
}

/// Serves the request.
pub async fn find_coordinator(
    context: &RequestContext,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let many = context.version >= MANY_KEYS_VERSION;
    let keys = if many { request.coordinator_keys } else { vec![request.key] };
    let kind = kind_of(request.key_type, context.version);
    let available = match &kind {
        Ok(kind) => locate::ensure_topic(&context.directory, *kind, TOPIC_DEADLINE).await,
        Err(_) => Ok(()),
    };
    let image = context.directory.image();
    let answer = |key: &String| {
        let found = match (&kind, available) {
            (Err(refusal), _) => Err(refusal.clone()),
            (Ok(_), Err(code)) => Err(Refusal::new(code)),
            (Ok(kind), Ok(())) => find(context, &image, *kind, key),
        };
        found.unwrap_or_else(|refusal| refused(key, refusal))
    };
    let mut coordinators: Vec<Coordinator> = keys.iter().map(answer).collect();
    if many {
        return FindCoordinatorResponse { coordinators, ..FindCoordinatorResponse::default() };
    }
    let one = coordinators.pop().unwrap_or_default();
    FindCoordinatorResponse {
        error_code: one.error_code,
        error_message: one.error_message,
        node_id: one.node_id,
        host: one.host,
        port: one.port,
        ..FindCoordinatorResponse::default()
    }
}

fn kind_of(key_type: i8, version: i16) -> Result<ShardKind, Refusal> {
    match key_type {
        GROUP_TYPE => Ok(ShardKind::Group),
        MIRROR_TYPE if version >= MIRROR_VERSION => Ok(ShardKind::MirrorState),
        MIRROR_TYPE => Err(Refusal::invalid(format!(
            "coordinators of mirrors are found from version {MIRROR_VERSION} on, not {version}"
        ))),
        TRANSACTION_TYPE => {
            Err(Refusal::invalid("transactions are not served: use no transactional.id"))
        }
        SHARE_TYPE => Err(Refusal::invalid("share groups are not served")),
        other => Err(Refusal::invalid(format!("coordinator type {other} is unknown"))),
    }
}

fn find(
    context: &RequestContext,
    image: &MetadataImage,
    kind: ShardKind,
    key: &str,
) -> Result<Coordinator, Refusal> {
    let unavailable = || Refusal::new(ErrorCode::CoordinatorNotAvailable);
    let partition = match kind {
        ShardKind::Group => locate::group_partition(image, key),
        ShardKind::MirrorState => mirror_partition(image, key)?,
    };
    let partition = partition.ok_or_else(unavailable)?;
    let node = locate::leader(image, ShardId { kind, partition }).ok_or_else(unavailable)?;
    let broker = image.cluster.broker(node).filter(|broker| !broker.fenced);
    let listener = broker.and_then(|broker| broker.listener(&context.listener_name));
    let listener = listener.ok_or_else(unavailable)?;
    Ok(Coordinator {
        key: key.to_owned(),
        node_id: node.0,
        host: listener.host.clone(),
        port: i32::from(listener.port),
        error_message: Some(String::new()),
        ..Coordinator::default()
    })
}

/// A mirror's key is its name, for the owner of its periodic sync, or names one partition.
fn mirror_partition(image: &MetadataImage, key: &str) -> Result<Option<PartitionIndex>, Refusal> {
    if let Some((mirror, topic_id, partition)) = parse_partition_key(key) {
        MirrorName::validate(mirror).map_err(Refusal::invalid)?;
        let at = TopicIdPartition { topic_id, partition };
        return Ok(locate::mirror_partition(image, mirror, at));
    }
    MirrorName::validate(key).map_err(|why| {
        Refusal::invalid(format!("neither a mirror nor mirror:topicId:partition: {why}"))
    })?;
    let count = locate::partition_count(image, ShardKind::MirrorState);
    Ok(count.map(|count| coordinator_of_mirror(key, count)))
}

fn refused(key: &str, refusal: Refusal) -> Coordinator {
    Coordinator {
        key: key.to_owned(),
        node_id: -1,
        port: -1,
        error_code: refusal.code.code(),
        error_message: Some(refusal.message),
        ..Coordinator::default()
    }
}
