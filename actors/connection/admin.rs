//! What clients ask of the controller through any broker: topics, partitions, configuration. The
//! broker hands the request on, and answers once its own image shows what was done, so that the
//! client's next question to it finds it. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use config::Described;
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{NodeId, TopicId};
use protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::delete_topics_response::DeletableTopicResult;
use protocol::messages::incremental_alter_configs_request::AlterConfigsResource;
use protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use raft::{MetadataImage, ResourceKind, Settings};

use super::context::RequestContext;
use crate::controller::client::{self, Forwarding};
use crate::directory::Directory;
use crate::error::Error;

/// How long an answer waits until this broker's image shows what was done.
const SEEN_WAIT: Duration = Duration::from_secs(2);

/// The version from which the refusal to delete any topic has a code of its own.
const DELETION_CODE_FROM: i16 = 3;

/// `ConfigOperation`: set.
const SET: i8 = 0;
/// `ConfigOperation`: delete.
const DELETE: i8 = 1;

/// Hands a request on to the controller in the client's name.
///
/// # Errors
/// No controller answered in time, or it refused the request as a whole.
pub(super) async fn forward<T>(context: &RequestContext, request: Request) -> Result<T, Error>
where
    T: TryFrom<Response, Error = protocol::Error>,
{
    let principal = Some(context.principal.to_string());
    let forwarding = Forwarding { principal, ..Forwarding::default() };
    let response = client::forward(&context.directory, forwarding, &request).await?;
    T::try_from(response)
        .map_err(|error| Error::refused_with(ErrorCode::UnknownServerError, error.to_string()))
}

/// The node that leads the quorum, as far as this one knows.
pub(super) fn quorum_leader(directory: &Directory) -> Option<NodeId> {
    directory.controller().ok()?.consensus().leadership().borrow().leader
}

/// The code of a request that could not be handed on.
pub(super) fn code_of(error: &Error) -> i16 {
    match error {
        Error::NoAnswer { .. } | Error::Unreachable { .. } => ErrorCode::RequestTimedOut.code(),
        Error::Refused { .. } | Error::Log(_) => error.code().code(),
    }
}

/// Waits until this broker's image shows it, and answers in any case.
pub(super) async fn wait_until_seen(
    directory: &Arc<Directory>,
    seen: impl Fn(&MetadataImage) -> bool,
) {
    if !directory.wait_for_image(SEEN_WAIT, seen).await {
        tracing::debug!(node = %directory.node_id(), "the image lags behind the controller");
    }
}

/// Answers CreateTopics.
pub async fn create_topics(
    context: RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let names: Vec<String> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let mut response: CreateTopicsResponse = match forward(&context, request.into()).await {
        Ok(response) => response,
        Err(error) => {
            let refused = names.into_iter().map(|name| CreatableTopicResult {
                name,
                error_code: code_of(&error),
                error_message: Some(error.to_string()),
                ..CreatableTopicResult::default()
            });
            return CreateTopicsResponse { topics: refused.collect(), ..Default::default() };
        }
    };
    // A topic that was only validated has no id.
    let made: Vec<TopicId> = response
        .topics
        .iter()
        .filter(|topic| topic.error_code == 0)
        .map(|topic| TopicId(topic.topic_id))
        .filter(|id| !id.is_zero())
        .collect();
    wait_until_seen(&context.directory, |image| {
        made.iter().all(|id| image.topics.by_id(*id).is_some())
    })
    .await;
    for topic in response.topics.iter_mut().filter(|topic| topic.error_code == 0) {
        show_settings(&context, topic);
    }
    response
}

/// Tells all settings of a new topic, not only those it was made with (KIP-525).
fn show_settings(context: &RequestContext, topic: &mut CreatableTopicResult) {
    let own: Settings = topic
        .configs
        .take()
        .into_iter()
        .flatten()
        .filter_map(|config| Some((config.name, config.value?)))
        .collect();
    let settings = context.directory.settings();
    let shown = config::describe_topic(&own, settings.broker()).into_iter().map(shown_setting);
    topic.configs = Some(shown.collect());
}

fn shown_setting(described: Described) -> CreatableTopicConfigs {
    CreatableTopicConfigs {
        name: described.name.to_owned(),
        value: described.value,
        read_only: described.read_only,
        config_source: described.source.id(),
        is_sensitive: described.sensitive,
    }
}

/// Answers DeleteTopics.
pub async fn delete_topics(
    context: RequestContext,
    mut request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    // What is handed on is of the newest version, which has no place for mere names.
    let names = std::mem::take(&mut request.topic_names).into_iter();
    let named =
        names.map(|name| DeleteTopicState { name: Some(name), ..DeleteTopicState::default() });
    request.topics.extend(named);
    let asked = request.topics.clone();
    let refused = |code: i16, message: &str| DeleteTopicsResponse {
        responses: asked
            .iter()
            .map(|topic| DeletableTopicResult {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                error_code: code,
                error_message: Some(message.to_owned()),
            })
            .collect(),
        ..DeleteTopicsResponse::default()
    };
    if !context.directory.settings().broker().delete_topic_enable {
        let code = if context.version < DELETION_CODE_FROM {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TopicDeletionDisabled
        };
        return refused(code.code(), code.message());
    }
    let response: DeleteTopicsResponse = match forward(&context, request.into()).await {
        Ok(response) => response,
        Err(error) => return refused(code_of(&error), &error.to_string()),
    };
    let done = response.responses.iter().filter(|topic| topic.error_code == 0);
    let gone: Vec<TopicId> = done.map(|topic| TopicId(topic.topic_id)).collect();
    wait_until_seen(&context.directory, |image| {
        gone.iter().all(|id| image.topics.by_id(*id).is_none())
    })
    .await;
    response
}

/// Answers CreatePartitions.
pub async fn create_partitions(
    context: RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let asked: Vec<(String, i32)> =
        request.topics.iter().map(|topic| (topic.name.clone(), topic.count)).collect();
    let validate_only = request.validate_only;
    let response: CreatePartitionsResponse = match forward(&context, request.into()).await {
        Ok(response) => response,
        Err(error) => {
            let refused = asked.into_iter().map(|(name, _)| CreatePartitionsTopicResult {
                name,
                error_code: code_of(&error),
                error_message: Some(error.to_string()),
            });
            return CreatePartitionsResponse { results: refused.collect(), ..Default::default() };
        }
    };
    if !validate_only {
        let grown: Vec<&(String, i32)> = asked
            .iter()
            .filter(|(name, _)| {
                response
                    .results
                    .iter()
                    .any(|result| result.name == *name && result.error_code == 0)
            })
            .collect();
        let count = |image: &MetadataImage, name: &str| {
            image.topics.by_name(name).map_or(i32::MAX, |topic| topic.partition_count())
        };
        wait_until_seen(&context.directory, |image| {
            grown.iter().all(|(name, wanted)| count(image, name) >= *wanted)
        })
        .await;
    }
    response
}

/// Answers IncrementalAlterConfigs.
pub async fn incremental_alter_configs(
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let resources = request.resources.clone();
    let validate_only = request.validate_only;
    let response: IncrementalAlterConfigsResponse = match forward(&context, request.into()).await {
        Ok(response) => response,
        Err(error) => {
            let refused = resources.into_iter().map(|resource| AlterConfigsResourceResponse {
                error_code: code_of(&error),
                error_message: Some(error.to_string()),
                resource_type: resource.resource_type,
                resource_name: resource.resource_name,
            });
            return IncrementalAlterConfigsResponse {
                responses: refused.collect(),
                ..IncrementalAlterConfigsResponse::default()
            };
        }
    };
    if !validate_only {
        let accepted = |resource: &&AlterConfigsResource| {
            response.responses.iter().any(|answer| {
                answer.error_code == 0
                    && answer.resource_type == resource.resource_type
                    && answer.resource_name == resource.resource_name
            })
        };
        let changed: Vec<&AlterConfigsResource> = resources.iter().filter(accepted).collect();
        wait_until_seen(&context.directory, |image| {
            changed.iter().all(|resource| shows(image, resource))
        })
        .await;
    }
    response
}

/// Whether the image has the values that were set and none that was deleted. What lists became is
/// not known here.
fn shows(image: &MetadataImage, resource: &AlterConfigsResource) -> bool {
    let Some(kind) = ResourceKind::from_code(resource.resource_type) else {
        return true;
    };
    resource.configs.iter().all(|change| {
        let now = image.configs.get(kind, &resource.resource_name, &change.name);
        match change.config_operation {
            SET => now == change.value.as_deref(),
            DELETE => now.is_none(),
            _ => true,
        }
    })
}
