//! DescribeMirrors: any broker answers for all partitions (D17). It asks the leader of each for
//! the state and the offsets, and the mirror coordinators for what no leader tells; a partition
//! without a leader keeps its row. The leaders are asked by the same request with a field of ours
//! that bounds the answer to what they lead.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mirror::describe::{Lag, LagTracker};
use mirror::{MirrorState, StoredState};
use protocol::api::{Request, Response};
use protocol::error_code::{ErrorCode, MirrorErrorCode};
use protocol::ids::{NodeId, PartitionIndex, TopicIdPartition};
use protocol::messages::describe_mirrors_response::{
    DescribedMirror, DescribedMirrorPartition, DescribedMirrorTopic,
};
use protocol::messages::{DescribeMirrorsRequest, DescribeMirrorsResponse};
use ractor::RpcReplyPort;
use raft::{MetadataImage, MirrorDesired, MirrorRole};
use tokio::sync::oneshot;

use crate::connection::context::RequestContext;
use crate::coordinators::mirror_states;
use crate::directory::Directory;
use crate::mirrors::machine::{MirrorInput, MirrorReport};
use crate::peers::Plane;

/// How long a partition may take to report.
const REPORT_DEADLINE: Duration = Duration::from_secs(2);

/// How long another leader may take for all of its partitions.
const LEADER_DEADLINE: Duration = Duration::from_secs(3);

/// How long the coordinators may take.
const STATES_DEADLINE: Duration = Duration::from_secs(3);

/// Rows by mirror, topic name and partition.
type Rows = BTreeMap<(String, String, PartitionIndex), DescribedMirrorPartition>;

/// Answers DescribeMirrors.
pub async fn describe(
    context: &RequestContext,
    request: DescribeMirrorsRequest,
) -> DescribeMirrorsResponse {
    let directory = &context.directory;
    let image = directory.image();
    let named: BTreeSet<String> = if request.mirror_names.is_empty() {
        image.mirror_names().map(|name| name.to_string()).collect()
    } else {
        request.mirror_names.into_iter().collect()
    };
    let (known, unknown): (Vec<String>, Vec<String>) =
        named.into_iter().partition(|name| image.mirror_exists(name));
    let rows = if request.led_here {
        led_here(directory, &image, &known).await
    } else {
        let told = ask_leaders(directory, &image, &known).await;
        complete(directory, &image, &known, told).await
    };
    let missing = unknown.into_iter().map(|mirror_name| DescribedMirror {
        error_code: MirrorErrorCode::UnknownMirror.code(),
        mirror_name,
        ..DescribedMirror::default()
    });
    let mirrors = nested(&known, rows).into_iter().chain(missing).collect();
    DescribeMirrorsResponse { mirrors, ..DescribeMirrorsResponse::default() }
}

/// The rows of the partitions that this node leads.
async fn led_here(directory: &Arc<Directory>, image: &MetadataImage, mirrors: &[String]) -> Rows {
    let me = directory.node_id();
    let mut reports = Vec::new();
    for mirror in mirrors {
        for topic in image.mirror_topics(mirror) {
            for (index, partition) in &topic.partitions {
                if partition.leader != Some(me) {
                    continue;
                }
                let at = TopicIdPartition { topic_id: topic.id, partition: *index };
                let key = (mirror.clone(), topic.name.to_string(), *index);
                let role = topic.mirror_role(partition);
                reports.push(async move { (key, report(directory, at, role).await) });
            }
        }
    }
    join_all(reports).await.into_iter().filter_map(|(key, row)| Some((key, row?))).collect()
}

async fn report(
    directory: &Arc<Directory>,
    at: TopicIdPartition,
    role: MirrorRole,
) -> Option<DescribedMirrorPartition> {
    let partition = directory.partition(at)?;
    let mirror = match &role {
        MirrorRole::Mirroring { mirror, .. } | MirrorRole::Stopped { mirror, .. } => {
            directory.mirror(mirror)
        }
        MirrorRole::None { .. } => None,
    };
    let (sender, answer) = oneshot::channel();
    partition.mirror(MirrorInput::Describe(RpcReplyPort::from(sender)));
    let MirrorReport { state, row, log_end, .. } =
        tokio::time::timeout(REPORT_DEADLINE, answer).await.ok()?.ok()?;
    let lag = match mirror {
        Some(mirror) => mirror.lag(at, log_end),
        None => LagTracker::default().lag(log_end, directory.clock.now()),
    };
    Some(row_of(at.partition, &role, state, row.as_ref(), lag))
}

/// What the leaders of all partitions tell.
async fn ask_leaders(
    directory: &Arc<Directory>,
    image: &MetadataImage,
    mirrors: &[String],
) -> Rows {
    let leaders: BTreeSet<NodeId> = mirrors
        .iter()
        .flat_map(|mirror| image.mirror_topics(mirror))
        .flat_map(|topic| topic.partitions.values())
        .filter_map(|partition| partition.leader)
        .collect();
    let asked = leaders.into_iter().map(|leader| ask_leader(directory, image, mirrors, leader));
    join_all(asked).await.into_iter().flatten().collect()
}

async fn ask_leader(
    directory: &Arc<Directory>,
    image: &MetadataImage,
    mirrors: &[String],
    leader: NodeId,
) -> Rows {
    if leader == directory.node_id() {
        return led_here(directory, image, mirrors).await;
    }
    let request = DescribeMirrorsRequest {
        mirror_names: mirrors.to_vec(),
        led_here: true,
        ..DescribeMirrorsRequest::default()
    };
    let link = directory.peers.link(leader, Plane::Data);
    match link.call(Request::from(request), LEADER_DEADLINE).await {
        Ok(Response::DescribeMirrors(response)) => flat(response),
        Ok(other) => {
            tracing::error!(%leader, key = ?other.api_key(), "a wrong answer");
            Rows::new()
        }
        Err(error) => {
            tracing::debug!(%leader, %error, "a leader does not describe its partitions");
            Rows::new()
        }
    }
}

/// Adds every partition that no leader told of, and what the coordinators know of those whose
/// leader does not know its row.
async fn complete(
    directory: &Arc<Directory>,
    image: &MetadataImage,
    mirrors: &[String],
    told: Rows,
) -> Rows {
    let mut rows = Rows::new();
    for mirror in mirrors {
        let mut open = Vec::new();
        for topic in image.mirror_topics(mirror) {
            for (index, partition) in &topic.partitions {
                let key = (mirror.clone(), topic.name.to_string(), *index);
                let at = TopicIdPartition { topic_id: topic.id, partition: *index };
                let row = told.get(&key).cloned();
                if row.as_ref().is_none_or(|row| !knows_its_row(row)) {
                    open.push((key.clone(), at, topic.mirror_role(partition)));
                }
                if let Some(row) = row {
                    rows.insert(key, row);
                }
            }
        }
        if open.is_empty() {
            continue;
        }
        let asked: Vec<TopicIdPartition> = open.iter().map(|(_, at, _)| *at).collect();
        let stored = mirror_states::read(directory, mirror, asked, STATES_DEADLINE).await;
        for (key, at, role) in open {
            let told = rows.get(&key);
            let row = stored_row(at, &role, stored.get(&at), told);
            rows.insert(key, row);
        }
    }
    rows
}

/// A leader that loads does not know its state, and one that is STOPPED keeps no row.
fn knows_its_row(row: &DescribedMirrorPartition) -> bool {
    row.state != MirrorState::Unknown.name() && row.state != MirrorState::Stopped.name()
}

fn stored_row(
    at: TopicIdPartition,
    role: &MirrorRole,
    stored: Option<&Result<StoredState, ErrorCode>>,
    told: Option<&DescribedMirrorPartition>,
) -> DescribedMirrorPartition {
    let lag = told.map_or_else(LagTracker::unknown, |row| Lag {
        source_offset: row.source_offset,
        destination_offset: row.destination_offset,
        lag: row.lag,
        lag_ms: row.lag_ms,
        source_offset_age_ms: row.source_offset_age_ms,
    });
    match stored {
        Some(Ok(stored)) => row_of(at.partition, role, stored.state, Some(stored), lag),
        Some(Err(code)) => {
            let mut row = row_of(at.partition, role, MirrorState::Unknown, None, lag);
            if row.state == MirrorState::Unknown.name() {
                row.reason = Some(format!("its state cannot be read: {}", code.message()));
            }
            row
        }
        None => row_of(at.partition, role, MirrorState::Unknown, None, lag),
    }
}

/// One partition's row. The controller's record of a stop counts for more than any coordinator's:
/// a partition is STOPPED once it takes writes, and never depends on `__mirror_state` after that.
fn row_of(
    index: PartitionIndex,
    role: &MirrorRole,
    state: MirrorState,
    stored: Option<&StoredState>,
    lag: Lag,
) -> DescribedMirrorPartition {
    let last_stop = match role {
        MirrorRole::None { last_stop } | MirrorRole::Mirroring { last_stop, .. } => {
            last_stop.as_ref()
        }
        MirrorRole::Stopped { stop, .. } => Some(stop),
    };
    let shown = match role {
        MirrorRole::Stopped { .. } => MirrorState::Stopped,
        MirrorRole::Mirroring { desired: MirrorDesired::Stopped, .. }
            if state == MirrorState::Stopped =>
        {
            MirrorState::Stopping
        }
        MirrorRole::Mirroring { .. } | MirrorRole::None { .. } => state,
    };
    let stored_epoch = stored.map(|row| row.last_mirror_epoch.0).filter(|epoch| *epoch >= 0);
    let stored_offset = stored.map(|row| row.last_mirrored_offset.0).filter(|last| *last >= 0);
    let (stop_epoch, stop_offset) = last_stop
        .map_or((-1, -1), |stop| (stop.last_mirror_epoch.0, stop.last_mirrored_offset.0.max(-1)));
    DescribedMirrorPartition {
        partition_index: index.0,
        source_offset: lag.source_offset,
        destination_offset: lag.destination_offset,
        lag: lag.lag,
        state: shown.name().to_owned(),
        last_mirror_epoch: stored_epoch.unwrap_or(stop_epoch),
        attempt: stored.map_or(0, |row| row.attempt),
        reason: stored.and_then(|row| row.reason.clone()),
        last_mirrored_offset: stored_offset.unwrap_or(stop_offset),
        records_cut: stored.map_or(0, |row| row.records_cut),
        aborted_producers: stored
            .map(|row| row.aborted_producers.iter().map(|id| id.0).collect())
            .unwrap_or_default(),
        lag_ms: lag.lag_ms,
        source_offset_age_ms: lag.source_offset_age_ms,
    }
}

fn flat(response: DescribeMirrorsResponse) -> Rows {
    let mut rows = Rows::new();
    for mirror in response.mirrors {
        for topic in mirror.topics {
            for row in topic.partitions {
                let partition = PartitionIndex(row.partition_index);
                let key = (mirror.mirror_name.clone(), topic.topic_name.clone(), partition);
                rows.insert(key, row);
            }
        }
    }
    rows
}

fn nested(mirrors: &[String], rows: Rows) -> Vec<DescribedMirror> {
    let mut nested: BTreeMap<&String, DescribedMirror> = mirrors
        .iter()
        .map(|name| {
            let mirror =
                DescribedMirror { mirror_name: name.clone(), ..DescribedMirror::default() };
            (name, mirror)
        })
        .collect();
    for ((mirror, topic, _), row) in rows {
        let Some(described) = nested.get_mut(&mirror) else {
            continue;
        };
        if described.topics.last().is_none_or(|last| last.topic_name != topic) {
            let topic_name = topic;
            described.topics.push(DescribedMirrorTopic { topic_name, partitions: Vec::new() });
        }
        if let Some(last) = described.topics.last_mut() {
            last.partitions.push(row);
        }
    }
    nested.into_values().collect()
}

#[cfg(test)]
#[path = "describe_tests.rs"]
mod tests;
