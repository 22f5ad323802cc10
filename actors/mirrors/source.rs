//! Requests to a mirror's source, each run by a task of the mirror or of a fetcher. Owns which
//! request answers which question; remembers nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use mirror::SourceError;
use mirror::epochs::EpochEnd;
use net::{Client, ClientOptions};
use protocol::error_code::ErrorCode;
use protocol::ids::{LeaderEpoch, Offset, TopicName};
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeMirrorsRequest,
    DescribeMirrorsResponse, ListMirrorsRequest, ListMirrorsResponse, ListOffsetsRequest,
    ListOffsetsResponse, MetadataResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
};
use raft::Settings;

use super::handle::SourcePartition;
use super::survey::{SourceMirrors, Survey, metadata_request, mirrors_of_ours};
use crate::directory::Directory;

/// DescribeConfigs' resource type of topics.
const TOPIC: i8 = 2;

/// DescribeConfigs' source of a setting that is explicitly set on the topic.
const SET_ON_TOPIC: i8 = 1;

/// ListOffsets' timestamps that stand for the ends of a log.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

/// Topics of one DescribeConfigs request.
const CONFIGS_BATCH: usize = 500;

/// Why a question got no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// No broker answered, or the one that had to did not.
    Link(String),
    /// The source answered with an error.
    Source(SourceError),
}

impl Failure {
    fn other(reason: String) -> Failure {
        Failure::Source(SourceError::Other { reason })
    }
}

impl From<net::Error> for Failure {
    fn from(error: net::Error) -> Failure {
        match error {
            net::Error::Unsupported { .. } | net::Error::Protocol { .. } => {
                Failure::other(error.to_string())
            }
            error => Failure::Link(error.to_string()),
        }
    }
}

impl From<protocol::Error> for Failure {
    fn from(error: protocol::Error) -> Failure {
        Failure::other(format!("the source answered with another message: {error}"))
    }
}

/// A client to the cluster behind a mirror's settings. Opens nothing yet.
pub fn client(directory: &Directory, config: &config::MirrorConfig, client_id: String) -> Client {
    let servers = config.bootstrap_servers.iter().map(ToString::to_string).collect();
    let mut options = ClientOptions::new(servers, client_id, directory.entropy.next_u64());
    options.connection.connect_timeout = directory.config.network.connection_setup_timeout;
    Client::new(options)
}

/// What a survey asks.
#[derive(Debug, Clone)]
pub struct SurveyPlan {
    /// The topics to look at; all if `None`.
    pub topics: Option<Vec<TopicName>>,
    /// This cluster's id, if the source's own mirrors of it are asked too.
    pub mirrors_of: Option<String>,
}

/// Looks at the source.
///
/// # Errors
/// No broker answered, or the whole answer was an error.
pub async fn survey(
    client: Client,
    plan: SurveyPlan,
    deadline: Duration,
) -> Result<Survey, Failure> {
    let request = metadata_request(plan.topics.as_deref());
    let metadata = MetadataResponse::try_from(client.call_any(request, deadline).await?)?;
    match ErrorCode::from_code(metadata.error_code) {
        ErrorCode::None => {}
        code => return Err(Failure::other(format!("the source's metadata: {}", code.message()))),
    }
    let survey = Survey::new(metadata);
    let Some(ours) = plan.mirrors_of else {
        return Ok(survey);
    };
    let mirrors = match ask_mirrors(&client, &ours, deadline).await {
        Ok(mirrors) => Ok(mirrors),
        Err(Failure::Source(error)) => Err(error),
        Err(failure @ Failure::Link(_)) => return Err(failure),
    };
    Ok(survey.with_mirrors(mirrors))
}

/// What the source's mirrors that copy from the cluster `ours` know; nothing where the source has
/// no mirroring.
async fn ask_mirrors(
    client: &Client,
    ours: &str,
    deadline: Duration,
) -> Result<SourceMirrors, Failure> {
    let list = match client.call_any(ListMirrorsRequest::default(), deadline).await {
        Err(net::Error::Unsupported { .. }) => return Ok(SourceMirrors::default()),
        answer => ListMirrorsResponse::try_from(answer?)?,
    };
    let mirror_names = mirrors_of_ours(&list, ours).map_err(Failure::Source)?;
    if mirror_names.is_empty() {
        return Ok(SourceMirrors::default());
    }
    let request = DescribeMirrorsRequest { mirror_names, ..DescribeMirrorsRequest::default() };
    let described = client.call_any(request, deadline).await?;
    SourceMirrors::new(&DescribeMirrorsResponse::try_from(described)?).map_err(Failure::Source)
}

/// Where an epoch ends in the log of a partition's leader; `None` when it knows none that old.
///
/// # Errors
/// The leader did not answer, moved, or refused.
pub async fn epoch_end(
    client: Client,
    partition: SourcePartition,
    leader: i32,
    epoch: LeaderEpoch,
    deadline: Duration,
) -> Result<Option<EpochEnd>, Failure> {
    let request = OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: partition.topic.to_string(),
            partitions: vec![OffsetForLeaderPartition {
                partition: partition.partition.0,
                leader_epoch: epoch.0,
                ..OffsetForLeaderPartition::default()
            }],
        }],
    };
    let response = client.call(leader, request, deadline).await?;
    let response = OffsetForLeaderEpochResponse::try_from(response)?;
    let answer = response
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .find(|answer| answer.partition == partition.partition.0)
        .ok_or_else(|| Failure::other("OffsetForLeaderEpoch left the partition out".to_owned()))?;
    check_partition("OffsetForLeaderEpoch", &partition, answer.error_code)?;
    let found = answer.leader_epoch >= 0 && answer.end_offset >= 0;
    Ok(found.then_some(EpochEnd {
        epoch: LeaderEpoch(answer.leader_epoch),
        end_offset: Offset(answer.end_offset),
    }))
}

/// Start and end of a partition's log at its leader.
///
/// # Errors
/// As [`epoch_end`].
pub async fn log_bounds(
    client: Client,
    partition: SourcePartition,
    leader: i32,
    deadline: Duration,
) -> Result<(Offset, Offset), Failure> {
    let start = list_offset(&client, &partition, leader, EARLIEST, deadline).await?;
    let end = list_offset(&client, &partition, leader, LATEST, deadline).await?;
    Ok((start, end))
}

async fn list_offset(
    client: &Client,
    partition: &SourcePartition,
    leader: i32,
    timestamp: i64,
    deadline: Duration,
) -> Result<Offset, Failure> {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: partition.topic.to_string(),
            partitions: vec![ListOffsetsPartition {
                partition_index: partition.partition.0,
                timestamp,
                ..ListOffsetsPartition::default()
            }],
        }],
        ..ListOffsetsRequest::default()
    };
    let response = ListOffsetsResponse::try_from(client.call(leader, request, deadline).await?)?;
    let answer = response
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .find(|answer| answer.partition_index == partition.partition.0)
        .ok_or_else(|| Failure::other("ListOffsets left the partition out".to_owned()))?;
    check_partition("ListOffsets", partition, answer.error_code)?;
    Ok(Offset(answer.offset))
}

/// The error of a partition in an answer of its leader.
fn check_partition(api: &str, partition: &SourcePartition, code: i16) -> Result<(), Failure> {
    let code = ErrorCode::from_code(code);
    let SourcePartition { topic, partition, .. } = partition;
    match code {
        ErrorCode::None => Ok(()),
        ErrorCode::TopicAuthorizationFailed => {
            let right = format!("DESCRIBE on topic {topic}");
            Err(Failure::Source(SourceError::NotAuthorized { right }))
        }
        code if code.is_retriable() => Err(Failure::Source(SourceError::NotLeader)),
        code => Err(Failure::other(format!("{api} of {topic}-{partition}: {}", code.message()))),
    }
}

/// The settings explicitly set on topics, by topic. Sensitive ones are left out: the source does
/// not tell them.
///
/// # Errors
/// The source did not answer, or refused for one of the topics.
pub async fn topic_configs(
    client: Client,
    topics: Vec<TopicName>,
    deadline: Duration,
) -> Result<BTreeMap<TopicName, Settings>, Failure> {
    let mut configs = BTreeMap::new();
    for names in topics.chunks(CONFIGS_BATCH) {
        let resource = |name: &TopicName| DescribeConfigsResource {
            resource_type: TOPIC,
            resource_name: name.to_string(),
            configuration_keys: None,
        };
        let request = DescribeConfigsRequest {
            resources: names.iter().map(resource).collect(),
            ..DescribeConfigsRequest::default()
        };
        let answer = client.call_any(request, deadline).await?;
        let answer = DescribeConfigsResponse::try_from(answer)?;
        for result in answer.results {
            let name = TopicName::from(result.resource_name.as_str());
            match ErrorCode::from_code(result.error_code) {
                ErrorCode::None => {}
                ErrorCode::TopicAuthorizationFailed | ErrorCode::ClusterAuthorizationFailed => {
                    let right = format!("DESCRIBE_CONFIGS on topic {name}");
                    return Err(Failure::Source(SourceError::NotAuthorized { right }));
                }
                code => {
                    let what = format!("DescribeConfigs of topic {name}: {}", code.message());
                    return Err(Failure::other(what));
                }
            }
            let explicit = result.configs.into_iter().filter(|c| c.config_source == SET_ON_TOPIC);
            let settings = explicit.filter_map(|c| Some((c.name, c.value?))).collect();
            configs.insert(name, settings);
        }
    }
    Ok(configs)
}
