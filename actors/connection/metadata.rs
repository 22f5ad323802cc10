//! Metadata: brokers, topics, partitions and their leaders, as the listener of the request shows
//! them. Topics that are asked for by name and do not exist may be created on the way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use protocol::error_code::ErrorCode;
use protocol::ids::{TopicId, TopicName};
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, MetadataRequest, MetadataResponse,
};
use raft::{MetadataImage, TopicImage};

use super::admin;
use super::context::RequestContext;
use super::listener_view::{CLUSTER_OPERATIONS, ListenerView, TOPIC_OPERATIONS, VisiblePartition};
use super::produce::is_internal;

/// The version from which topics may be asked for by id.
const IDS_FROM: i16 = 12;

/// The version from which a missing listener has a code of its own.
const LISTENER_CODE_FROM: i16 = 6;

/// How long the answer waits for topics it had created.
const CREATION_WAIT: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Topics(BTreeSet<Topic>),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Named(TopicName),
    Known(TopicId),
}

/// Answers Metadata.
pub async fn metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse {
    let Some(wanted) = wanted(&request, context.version) else {
        return unreadable(request);
    };
    if request.allow_auto_topic_creation
        && context.directory.settings().broker().auto_create_topics_enable
        && let Wanted::Topics(topics) = &wanted
    {
        create_missing(&context, topics).await;
    }
    let image = context.directory.image();
    let view = ListenerView::new(&image, &context.listener_name);
    let operations = request.include_topic_authorized_operations;
    let tell = |topic: &TopicImage| known(&context, view, topic, operations);
    let topics = match wanted {
        Wanted::All => image.topics.iter_by_name().map(|topic| tell(topic)).collect(),
        Wanted::Topics(topics) => topics
            .into_iter()
            .map(|topic| match find(&image, &topic) {
                Some(found) => tell(found),
                None => unknown(topic),
            })
            .collect(),
    };
    let mut response = MetadataResponse {
        brokers: brokers(view),
        cluster_id: image.cluster.id().map(str::to_owned),
        controller_id: view.controller_id(admin::quorum_leader(&context.directory)),
        topics,
        ..MetadataResponse::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    response
}

/// What the request asks for; `None` for one that mixes its version's rules up.
fn wanted(request: &MetadataRequest, version: i16) -> Option<Wanted> {
    let Some(topics) = &request.topics else {
        return Some(Wanted::All);
    };
    // Version 0 knows no null.
    if version == 0 && topics.is_empty() {
        return Some(Wanted::All);
    }
    let topics = topics.iter().map(|topic| {
        let id = TopicId(topic.topic_id);
        match &topic.name {
            _ if !id.is_zero() && version >= IDS_FROM => Some(Topic::Known(id)),
            Some(name) if id.is_zero() => Some(Topic::Named(TopicName::from(name))),
            Some(_) | None => None,
        }
    });
    topics.collect::<Option<BTreeSet<Topic>>>().map(Wanted::Topics)
}

fn unreadable(request: MetadataRequest) -> MetadataResponse {
    let topics = request.topics.unwrap_or_default().into_iter();
    let topics = topics.map(|topic| MetadataResponseTopic {
        error_code: ErrorCode::InvalidRequest.code(),
        name: Some(topic.name.unwrap_or_default()),
        topic_id: topic.topic_id,
        ..MetadataResponseTopic::default()
    });
    MetadataResponse { topics: topics.collect(), ..MetadataResponse::default() }
}

fn find<'a>(image: &'a MetadataImage, topic: &Topic) -> Option<&'a Arc<TopicImage>> {
    match topic {
        Topic::Named(name) => image.topics.by_name(name),
        Topic::Known(id) => image.topics.by_id(*id),
    }
}

fn unknown(topic: Topic) -> MetadataResponseTopic {
    match topic {
        Topic::Named(name) => {
            let code = match raft::name_fault(&name) {
                Some(_) => ErrorCode::InvalidTopicException,
                None => ErrorCode::UnknownTopicOrPartition,
            };
            MetadataResponseTopic {
                error_code: code.code(),
                is_internal: is_internal(&name),
                name: Some(name.into()),
                ..MetadataResponseTopic::default()
            }
        }
        Topic::Known(id) => MetadataResponseTopic {
            error_code: ErrorCode::UnknownTopicId.code(),
            name: None,
            topic_id: id.0,
            ..MetadataResponseTopic::default()
        },
    }
}

fn known(
    context: &RequestContext,
    view: ListenerView<'_>,
    topic: &TopicImage,
    operations: bool,
) -> MetadataResponseTopic {
    let partitions = topic.partitions.iter();
    let mut answer = MetadataResponseTopic {
        name: Some(topic.name.to_string()),
        topic_id: topic.id.0,
        is_internal: is_internal(&topic.name),
        partitions: partitions
            .map(|(index, partition)| told(view.partition(*index, partition), context.version))
            .collect(),
        ..MetadataResponseTopic::default()
    };
    if operations {
        answer.topic_authorized_operations = TOPIC_OPERATIONS;
    }
    answer
}

fn told(mut partition: VisiblePartition, version: i16) -> MetadataResponsePartition {
    let mut error = match partition.error {
        ErrorCode::ListenerNotFound if version < LISTENER_CODE_FROM => {
            ErrorCode::LeaderNotAvailable
        }
        error => error,
    };
    if version == 0 {
        // The oldest clients know no replica that is away.
        let offline = &partition.offline;
        let away = !offline.is_empty();
        partition.replicas.retain(|replica| !offline.contains(replica));
        partition.isr.retain(|replica| !offline.contains(replica));
        if away && error == ErrorCode::None {
            error = ErrorCode::ReplicaNotAvailable;
        }
    }
    MetadataResponsePartition {
        error_code: error.code(),
        partition_index: partition.index,
        leader_id: partition.leader_id,
        leader_epoch: partition.leader_epoch,
        replica_nodes: partition.replicas,
        isr_nodes: partition.isr,
        offline_replicas: partition.offline,
    }
}

fn brokers(view: ListenerView<'_>) -> Vec<MetadataResponseBroker> {
    view.brokers()
        .map(|(broker, listener)| MetadataResponseBroker {
            node_id: broker.id.0,
            host: listener.host.clone(),
            port: i32::from(listener.port),
            rack: broker.rack.clone(),
        })
        .collect()
}

/// Has topics created that do not exist, and waits a little, so that already this answer has their
/// leaders. Whatever goes wrong, the client sees that they are missing and asks again.
async fn create_missing(context: &RequestContext, topics: &BTreeSet<Topic>) {
    let image = context.directory.image();
    let missing: Vec<&TopicName> = topics
        .iter()
        .filter_map(|topic| match topic {
            Topic::Named(name) => Some(name),
            Topic::Known(_) => None,
        })
        .filter(|name| image.topics.by_name(name).is_none() && raft::name_fault(name).is_none())
        .collect();
    if missing.is_empty() {
        return;
    }
    // An internal topic has a size of its own, which the controller gives it when it comes alone.
    let (internal, common): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|name| is_internal(name));
    let requests = internal
        .into_iter()
        .map(|name| vec![name])
        .chain([common])
        .filter(|names| !names.is_empty());
    let create = async {
        for names in requests {
            create(context, &names).await;
        }
    };
    if tokio::time::timeout(CREATION_WAIT, create).await.is_err() {
        tracing::debug!("the creation of topics goes on");
    }
}

async fn create(context: &RequestContext, names: &[&TopicName]) {
    let topics = names.iter().map(|name| CreatableTopic {
        name: name.to_string(),
        num_partitions: -1,
        replication_factor: -1,
        ..CreatableTopic::default()
    });
    let request = CreateTopicsRequest { topics: topics.collect(), ..Default::default() };
    let response: CreateTopicsResponse = match admin::forward(context, request.into()).await {
        Ok(response) => response,
        Err(error) => return tracing::debug!(%error, "no topic was created"),
    };
    let mut coming = Vec::new();
    for topic in response.topics {
        match ErrorCode::from_code(topic.error_code) {
            ErrorCode::None | ErrorCode::TopicAlreadyExists => coming.push(topic.name),
            code => {
                let why = topic.error_message.unwrap_or_default();
                tracing::info!(topic = topic.name, ?code, why, "the topic was not created");
            }
        }
    }
    let seen =
        |image: &MetadataImage| coming.iter().all(|name| image.topics.by_name(name).is_some());
    context.directory.wait_for_image(CREATION_WAIT, seen).await;
}

#[cfg(test)]
mod tests {
    use protocol::messages::metadata_request::MetadataRequestTopic;

    use super::*;

    fn asks(topics: Option<Vec<MetadataRequestTopic>>) -> MetadataRequest {
        MetadataRequest { topics, ..MetadataRequest::default() }
    }

    fn topic(name: Option<&str>, id: u128) -> MetadataRequestTopic {
        MetadataRequestTopic { topic_id: uuid::Uuid::from_u128(id), name: name.map(str::to_owned) }
    }

    #[test]
    fn an_empty_list_is_everything_in_version_0_and_nothing_later() {
        assert_eq!(wanted(&asks(Some(Vec::new())), 0), Some(Wanted::All));
        let nothing = Wanted::Topics(BTreeSet::new());
        assert_eq!(wanted(&asks(Some(Vec::new())), 1), Some(nothing));
        assert_eq!(wanted(&asks(None), 1), Some(Wanted::All));
    }

    #[test]
    fn ids_are_taken_from_version_12_on() {
        let by_id = asks(Some(vec![topic(None, 7)]));
        assert_eq!(wanted(&by_id, 11), None);
        let id = TopicId(uuid::Uuid::from_u128(7));
        let expected = Wanted::Topics(BTreeSet::from([Topic::Known(id)]));
        assert_eq!(wanted(&by_id, 12), Some(expected));
        assert_eq!(wanted(&asks(Some(vec![topic(None, 0)])), 12), None);
        assert_eq!(wanted(&asks(Some(vec![topic(Some("a"), 7)])), 10), None);
    }

    #[test]
    fn a_topic_is_told_once_however_often_it_is_asked_for() {
        let twice = asks(Some(vec![topic(Some("a"), 0), topic(Some("a"), 0)]));
        let Some(Wanted::Topics(topics)) = wanted(&twice, 12) else { panic!("topics are named") };
        assert_eq!(topics.len(), 1);
    }
}
