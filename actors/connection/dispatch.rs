//! From a request to its handler: one flat match. It decides nothing.

use std::pin::Pin;

use protocol::api::{ApiKey, Request, Response};

use super::context::RequestContext;
use super::groups::offsets;
use super::{
    admin, api_versions, describe_cluster, describe_configs, describe_topic_partitions, epochs,
    fetch, find_coordinator, groups, list_offsets, metadata, mirror_states, mirrors, produce,
    producer_ids, quorum,
};

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
        other => Begun::later(async move {
            serve(context, other).await.map_or(Answer::Close, Answer::Response)
        }),
    }
}

/// Whether [`serve`] has a handler for a key. A request for any other ends its connection, as
/// Kafka ends one for a key it does not know, and no listener tells of it.
pub fn is_served(key: ApiKey) -> bool {
    match key {
        // Not built: transactions, and the commands of mirroring beyond stop.
        ApiKey::WriteTxnMarkers
        | ApiKey::PauseMirrorTopics
        | ApiKey::ResumeMirrorTopics
        | ApiKey::DeleteMirror => false,
        _ => true,
    }
}

/// Runs a request to its answer; `None` for one that nobody serves (see [`is_served`]).
#[expect(clippy::too_many_lines, reason = "one flat match over all requests")]
pub async fn serve(context: RequestContext, request: Request) -> Option<Response> {
    Some(match request {
        Request::ApiVersions(request) => api_versions::api_versions(&context, &request).into(),
        Request::CreatePartitions(request) => {
            admin::create_partitions(context, request).await.into()
        }
        Request::CreateTopics(request) => admin::create_topics(context, request).await.into(),
        Request::DeleteTopics(request) => admin::delete_topics(context, request).await.into(),
        Request::DescribeCluster(request) => {
            describe_cluster::describe_cluster(&context, &request).into()
        }
        Request::DescribeConfigs(request) => {
            describe_configs::describe_configs(&context, &request).into()
        }
        Request::DescribeTopicPartitions(request) => {
            describe_topic_partitions::describe_topic_partitions(&context, &request).into()
        }
        Request::Fetch(request) => fetch::fetch(context, request).await.into(),
        Request::IncrementalAlterConfigs(request) => {
            admin::incremental_alter_configs(context, request).await.into()
        }
        Request::InitProducerId(request) => {
            producer_ids::init_producer_id(context, request).await.into()
        }
        Request::ListOffsets(request) => list_offsets::list_offsets(context, request).await.into(),
        Request::Metadata(request) => metadata::metadata(context, request).await.into(),
        Request::OffsetForLeaderEpoch(request) => {
            epochs::offset_for_leader_epoch(&context, &request).into()
        }
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
        Request::CreateMirror(request) => mirrors::create(&context, request).await.into(),
        Request::DescribeMirrors(request) => {
            mirrors::describe::describe(&context, request).await.into()
        }
        Request::ListMirrors(_) => mirrors::list(&context).into(),
        Request::StartMirrorTopics(request) => {
            mirrors::start::start(&context, request).await.into()
        }
        Request::StopMirrorTopics(request) => mirrors::stop(&context, request).await.into(),
        Request::ReadMirrorStates(request) => {
            mirror_states::read(&context.directory, request).await.into()
        }
        Request::WriteMirrorStates(request) => {
            mirror_states::write(&context.directory, request).await.into()
        }
        other => {
            tracing::debug!(key = ?other.api_key(), "not served");
            return None;
        }
    })
}
