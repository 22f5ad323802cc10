//! From a request to the metadata crate's decision about it, and from its refusal to the answer
//! the asker understands. Pure: time and randomness come in [`Inputs`].

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;
use config::BrokerConfig;
use protocol::Reader;
use protocol::api::{ApiKey, Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{BrokerEpoch, DirectoryId, TopicId, TopicName};
use protocol::messages::create_topics_response::CreatableTopicResult;
use protocol::messages::forward_request::TopicConfigs;
use protocol::messages::{
    AllocateProducerIdsResponse, AlterPartitionResponse, BrokerHeartbeatResponse,
    BrokerRegistrationResponse, CreateMirrorResponse, CreateTopicsRequest, CreateTopicsResponse,
    ForwardRequest, ForwardResponse, RecordMirrorStopsResponse, RecordSourceClusterIdResponse,
    StartMirrorTopicsResponse, StopMirrorTopicsResponse,
};
use raft::{
    Authority, CreationArgs, Decision, InternalTopic, MetadataImage, RegistrationArgs, Settings,
    StartArgs, StateTopicArgs, TopicDefaults,
};

use crate::error::Error;

/// What a decision needs beyond image and request.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The deciding node's settings.
    pub config: Arc<BrokerConfig>,
    /// Fresh ids, one for each topic of the request and one for an internal topic.
    pub topic_ids: Vec<TopicId>,
    /// Where placements start.
    pub seed: u64,
    /// The epoch of a registration.
    pub broker_epoch: BrokerEpoch,
    /// Whether the registering broker's earlier session still runs.
    pub session_alive: bool,
}

/// What the controller is asked, taken out of its envelope if a broker handed it on.
#[derive(Debug)]
pub struct Asked {
    request: Request,
    /// The envelope without its body; `None` if the broker asks for itself.
    forward: Option<ForwardRequest>,
}

impl Asked {
    /// Opens the envelope.
    ///
    /// # Errors
    /// It holds no request.
    pub fn open(request: Request) -> Result<Asked, Error> {
        let Request::Forward(mut forward) = request else {
            return Ok(Asked { request, forward: None });
        };
        let key = ApiKey::from_i16(forward.api_key)
            .filter(|key| *key != ApiKey::Forward)
            .ok_or_else(|| Error::refused(ErrorCode::UnsupportedVersion))?;
        let mut reader = Reader::new(std::mem::take(&mut forward.body));
        let request = Request::decode(key, forward.api_version, &mut reader).map_err(broken)?;
        Ok(Asked { request, forward: Some(forward) })
    }

    /// The request itself.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// How many fresh topic ids it needs at most: one for each of its topics, one for an internal
    /// topic.
    pub fn topic_ids(&self) -> usize {
        1 + match &self.request {
            Request::CreateTopics(request) => request.topics.len(),
            Request::StartMirrorTopics(request) => request.topics.len(),
            _ => 0,
        }
    }
}

/// The refusal of what cannot be encoded or decoded.
pub(super) fn broken(error: protocol::Error) -> Error {
    Error::refused_with(ErrorCode::InvalidRequest, error.to_string())
}

/// Decides.
///
/// # Errors
/// A request that is none of the controller's.
pub fn decide(
    image: &MetadataImage,
    asked: &Asked,
    inputs: &Inputs,
) -> Result<Decision<Response>, Error> {
    let Some(forward) = &asked.forward else {
        return decide_request(image, &asked.request, inputs, &ForwardRequest::default());
    };
    let Decision { records, response } = decide_request(image, &asked.request, inputs, forward)?;
    let mut body = BytesMut::new();
    response.encode(forward.api_version, &mut body).map_err(broken)?;
    let response = ForwardResponse { error_code: 0, body: body.freeze() };
    Ok(Decision::new(records, response.into()))
}

#[expect(clippy::too_many_lines, reason = "one flat match over the controller's requests")]
fn decide_request(
    image: &MetadataImage,
    request: &Request,
    inputs: &Inputs,
    forward: &ForwardRequest,
) -> Result<Decision<Response>, Error> {
    Ok(match request {
        Request::BrokerRegistration(request) => {
            let args = RegistrationArgs {
                directory_id: DirectoryId(request.log_dirs.first().copied().unwrap_or_default()),
                broker_epoch: inputs.broker_epoch,
                session_alive: inputs.session_alive,
            };
            let refuse = |error: raft::Error| BrokerRegistrationResponse {
                error_code: error.code(),
                broker_epoch: -1,
                ..BrokerRegistrationResponse::default()
            };
            answer(image.decide_register_broker(request, args), refuse, |registered| {
                let alone = registered.unclean_sole_member.len();
                if alone > 0 {
                    tracing::warn!(
                        broker = request.broker_id,
                        partitions = alone,
                        "stopped uncleanly as the only in-sync replica: it leads with what it has"
                    );
                }
                registered.response
            })
        }
        Request::BrokerHeartbeat(request) => answer(
            image.decide_heartbeat(request),
            |error| BrokerHeartbeatResponse {
                error_code: error.code(),
                ..BrokerHeartbeatResponse::default()
            },
            |response| response,
        ),
        Request::AlterPartition(request) => answer(
            image.decide_alter_partition(request),
            |error| AlterPartitionResponse {
                error_code: error.code(),
                ..AlterPartitionResponse::default()
            },
            |response| response,
        ),
        Request::AllocateProducerIds(request) => answer(
            image.decide_allocate_producer_ids(request),
            |error| AllocateProducerIdsResponse {
                error_code: error.code(),
                ..AllocateProducerIdsResponse::default()
            },
            |response| response,
        ),
        Request::BumpLeaderEpochs(request) => {
            image.decide_bump_leader_epochs(request).map(Response::from)
        }
        Request::RecordMirrorStops(request) => answer(
            image.decide_record_mirror_stops(request),
            |error| RecordMirrorStopsResponse {
                error_code: error.code(),
                error_message: Some(error.to_string()),
                ..RecordMirrorStopsResponse::default()
            },
            |response| response,
        ),
        Request::RecordSourceClusterId(request) => answer(
            image.decide_record_source_cluster_id(request),
            |error| RecordSourceClusterIdResponse {
                error_code: error.code(),
                error_message: Some(error.to_string()),
            },
            |response| response,
        ),
        Request::CreateTopics(request) => decide_create_topics(image, request, inputs),
        Request::DeleteTopics(request) => image.decide_delete_topics(request).map(Response::from),
        Request::CreatePartitions(request) => {
            let authority = if forward.for_mirror { Authority::Mirror } else { Authority::Client };
            image.decide_create_partitions(request, authority, inputs.seed).map(Response::from)
        }
        Request::IncrementalAlterConfigs(request) => {
            image.decide_incremental_alter_configs(request).map(Response::from)
        }
        Request::CreateMirror(request) => answer(
            image.decide_create_mirror(request, state_topic(inputs)),
            |error| CreateMirrorResponse {
                error_code: error.code(),
                error_message: Some(error.to_string()),
                ..CreateMirrorResponse::default()
            },
            |response| response,
        ),
        Request::StartMirrorTopics(request) => {
            let configs = topic_configs(&forward.topic_configs);
            let args = StartArgs {
                replication_factor: defaults(inputs).replication_factor,
                topic_ids: &inputs.topic_ids,
                configs: &configs,
                seed: inputs.seed,
            };
            answer(
                image.decide_start_mirror_topics(request, args),
                |error| StartMirrorTopicsResponse {
                    error_code: error.code(),
                    error_message: Some(error.to_string()),
                    mirror_name: request.mirror_name.clone(),
                    ..StartMirrorTopicsResponse::default()
                },
                |response| response,
            )
        }
        Request::StopMirrorTopics(request) => answer(
            image.decide_stop_mirror_topics(request),
            |error| StopMirrorTopicsResponse {
                error_code: error.code(),
                error_message: Some(error.to_string()),
                mirror_name: request.mirror_name.clone(),
                ..StopMirrorTopicsResponse::default()
            },
            |response| response,
        ),
        other => {
            let why = format!("{:?} is no request of the controller", other.api_key());
            return Err(Error::refused_with(ErrorCode::UnsupportedVersion, why));
        }
    })
}

/// A decision's response, or the refusal as one.
fn answer<T, R: Into<Response>>(
    decided: Result<Decision<T>, raft::Error>,
    refuse: impl FnOnce(raft::Error) -> R,
    accept: impl FnOnce(T) -> R,
) -> Decision<Response> {
    match decided {
        Ok(decision) => decision.map(|response| accept(response).into()),
        Err(error) => Decision::unchanged(refuse(error).into()),
    }
}

fn defaults(inputs: &Inputs) -> TopicDefaults {
    TopicDefaults {
        partitions: inputs.config.num_partitions,
        replication_factor: factor(inputs.config.default_replication_factor),
    }
}

fn factor(configured: i32) -> i16 {
    i16::try_from(configured).unwrap_or(i16::MAX)
}

fn state_topic(inputs: &Inputs) -> StateTopicArgs {
    StateTopicArgs {
        partitions: inputs.config.mirror.topic_num_partitions,
        replication_factor: factor(inputs.config.mirror.topic_replication_factor),
        topic_id: inputs.topic_ids.first().copied().unwrap_or(TopicId::ZERO),
        seed: inputs.seed,
    }
}

/// An internal topic that a client or a coordinator asks for is made as the settings say.
fn internal_topic(name: &str, config: &BrokerConfig) -> Option<InternalTopic> {
    if name == raft::CONSUMER_OFFSETS {
        Some(InternalTopic {
            name: raft::CONSUMER_OFFSETS,
            partitions: config.groups.offsets_topic_num_partitions,
            replication_factor: factor(config.groups.offsets_topic_replication_factor),
            segment_bytes: Some(config.groups.offsets_topic_segment_bytes),
        })
    } else if name == raft::MIRROR_STATE {
        Some(InternalTopic {
            name: raft::MIRROR_STATE,
            partitions: config.mirror.topic_num_partitions,
            replication_factor: factor(config.mirror.topic_replication_factor),
            segment_bytes: None,
        })
    } else {
        None
    }
}

fn decide_create_topics(
    image: &MetadataImage,
    request: &CreateTopicsRequest,
    inputs: &Inputs,
) -> Decision<Response> {
    if let [topic] = &request.topics[..]
        && let Some(internal) = internal_topic(&topic.name, &inputs.config)
        && image.topics.by_name(&topic.name).is_none()
        && !request.validate_only
    {
        let id = inputs.topic_ids.first().copied().unwrap_or(TopicId::ZERO);
        let result = |error_code, error_message, topic_id: TopicId| CreateTopicsResponse {
            topics: vec![CreatableTopicResult {
                name: topic.name.clone(),
                topic_id: topic_id.0,
                error_code,
                error_message,
                num_partitions: internal.partitions,
                replication_factor: internal.replication_factor,
                ..CreatableTopicResult::default()
            }],
            ..CreateTopicsResponse::default()
        };
        return answer(
            image.decide_create_internal_topic(internal, id, inputs.seed),
            |error| result(error.code(), Some(error.to_string()), TopicId::ZERO),
            |topic_id| result(0, None, topic_id),
        );
    }
    let args = CreationArgs {
        defaults: defaults(inputs),
        topic_ids: &inputs.topic_ids,
        seed: inputs.seed,
    };
    image.decide_create_topics(request, args).map(Response::from)
}

fn topic_configs(forwarded: &[TopicConfigs]) -> BTreeMap<TopicName, Settings> {
    forwarded
        .iter()
        .map(|topic| {
            let settings = topic
                .configs
                .iter()
                .map(|config| (config.name.clone(), config.value.clone()))
                .collect();
            (TopicName::from(topic.topic.as_str()), settings)
        })
        .collect()
}
