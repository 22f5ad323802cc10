//! A start of what is wanted already changes nothing, but FAILED partitions try again at once
//! (D12). Owns how their leaders hear of it; the machines decide.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use protocol::api::Request;
use protocol::ids::{NodeId, TopicIdPartition};
use protocol::messages::StartMirrorTopicsRequest;
use protocol::messages::start_mirror_topics_request::StartMirrorTopic;
use raft::MirrorDesired;

use crate::connection::context::RequestContext;
use crate::mirrors::machine::MirrorInput;
use crate::peers::Plane;

/// How long another leader may take to hear of it.
const DEADLINE: Duration = Duration::from_secs(2);

/// The topics of a request that its mirror is wanted to copy already.
pub(super) fn wanted_already(
    context: &RequestContext,
    request: &StartMirrorTopicsRequest,
) -> Vec<StartMirrorTopic> {
    let image = context.directory.image();
    let wanted = request.topics.iter().filter(|topic| {
        let held = image.topics.by_name(&topic.topic_name).and_then(|found| found.mirror.as_ref());
        held.is_some_and(|held| {
            *held.mirror == *request.mirror_name && held.desired == MirrorDesired::Active
        })
    });
    wanted.cloned().collect()
}

/// Lets every leader of the topics' partitions try again.
pub(super) async fn everywhere(
    context: &RequestContext,
    mirror: &str,
    topics: Vec<StartMirrorTopic>,
) {
    if topics.is_empty() {
        return;
    }
    let directory = &context.directory;
    let image = directory.image();
    let leaders: BTreeSet<NodeId> = topics
        .iter()
        .filter_map(|topic| image.topics.by_name(&topic.topic_name))
        .flat_map(|topic| topic.partitions.values())
        .filter_map(|partition| partition.leader)
        .collect();
    let request = StartMirrorTopicsRequest {
        mirror_name: mirror.to_owned(),
        topics,
        retry_here: true,
        ..StartMirrorTopicsRequest::default()
    };
    let told = leaders.into_iter().map(|leader| {
        let request = request.clone();
        async move {
            if leader == directory.node_id() {
                return here(context, &request);
            }
            let link = directory.peers.link(leader, Plane::Data);
            if let Err(error) = link.call(Request::from(request), DEADLINE).await {
                tracing::debug!(%leader, %error, "it retries by its own clock");
            }
        }
    });
    join_all(told).await;
}

/// Lets the partitions that this node leads try again.
pub(super) fn here(context: &RequestContext, request: &StartMirrorTopicsRequest) {
    let (directory, me) = (&context.directory, context.directory.node_id());
    let image = directory.image();
    for topic in &request.topics {
        let Some(found) = image.topics.by_name(&topic.topic_name) else {
            continue;
        };
        for (index, partition) in &found.partitions {
            let at = TopicIdPartition { topic_id: found.id, partition: *index };
            if partition.leader == Some(me)
                && let Some(partition) = directory.partition(at)
            {
                partition.mirror(MirrorInput::RetryNow);
            }
        }
    }
}
