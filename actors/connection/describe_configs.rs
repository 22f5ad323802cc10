//! DescribeConfigs: settings of topics, of this broker and of all brokers by default, and of
//! mirrors. The tables are the config crate's; secrets have no value there already.

use std::collections::BTreeSet;

use config::{Described, Source};
use protocol::error_code::ErrorCode;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use raft::{MetadataImage, ResourceKind};

use super::context::RequestContext;
use crate::error::Error;

/// Answers DescribeConfigs.
pub fn describe_configs(
    context: &RequestContext,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let image = context.directory.image();
    let results = request.resources.iter().map(|resource| {
        let result = DescribeConfigsResult {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            ..DescribeConfigsResult::default()
        };
        match describe(context, &image, resource) {
            Ok(described) => {
                let wanted = resource
                    .configuration_keys
                    .as_ref()
                    .map(|keys| keys.iter().map(String::as_str).collect::<BTreeSet<&str>>());
                let told = described
                    .into_iter()
                    .filter(|one| wanted.as_ref().is_none_or(|keys| keys.contains(one.name)))
                    .map(|one| told(one, request));
                DescribeConfigsResult { configs: told.collect(), ..result }
            }
            Err(error) => DescribeConfigsResult {
                error_code: error.code().code(),
                error_message: Some(error.to_string()),
                ..result
            },
        }
    });
    DescribeConfigsResponse { results: results.collect(), ..DescribeConfigsResponse::default() }
}

fn describe(
    context: &RequestContext,
    image: &MetadataImage,
    resource: &DescribeConfigsResource,
) -> Result<Vec<Described>, Error> {
    let name = resource.resource_name.as_str();
    match ResourceKind::from_code(resource.resource_type) {
        Some(ResourceKind::Topic) => {
            if let Some(fault) = raft::name_fault(name) {
                let why = format!("Topic name {fault}");
                return Err(Error::refused_with(ErrorCode::InvalidTopicException, why));
            }
            if image.topics.by_name(name).is_none() {
                return Err(Error::refused(ErrorCode::UnknownTopicOrPartition));
            }
            let settings = context.directory.settings();
            Ok(config::describe_topic(image.configs.topic_settings(name), settings.broker()))
        }
        Some(ResourceKind::Broker) if name.is_empty() => all_brokers(context, image),
        Some(ResourceKind::Broker) => {
            let me = context.directory.node_id().0;
            if name.parse() != Ok(me) {
                let why = format!(
                    "Unexpected broker id, expected {me} or an empty string, but received {name}"
                );
                return Err(Error::refused_with(ErrorCode::InvalidRequest, why));
            }
            Ok(config::describe_broker(context.directory.settings().broker()))
        }
        Some(ResourceKind::Mirror) => match image.configs.mirror(name) {
            Some(settings) => Ok(config::describe_mirror(settings)),
            None => {
                // The codes of mirroring are not this API's.
                let why = format!("Mirror '{name}' does not exist.");
                Err(Error::refused_with(ErrorCode::InvalidRequest, why))
            }
        },
        None => {
            let why = format!(
                "Configuration of resource type {} is not served.",
                resource.resource_type
            );
            Err(Error::refused_with(ErrorCode::InvalidRequest, why))
        }
    }
}

/// What was set at run time for all brokers, and nothing else.
fn all_brokers(context: &RequestContext, image: &MetadataImage) -> Result<Vec<Described>, Error> {
    let cluster = image.configs.settings(ResourceKind::Broker, "").clone();
    let broker = context.directory.config.with_dynamic(cluster, Default::default());
    let broker = broker
        .map_err(|error| Error::refused_with(ErrorCode::InvalidConfig, error.to_string()))?;
    let described = config::describe_broker(&broker).into_iter();
    Ok(described.filter(|one| one.source == Source::DynamicDefaultBroker).collect())
}

fn told(described: Described, request: &DescribeConfigsRequest) -> DescribeConfigsResourceResult {
    let synonyms = described.synonyms.into_iter().filter(|_| request.include_synonyms);
    DescribeConfigsResourceResult {
        name: described.name.to_owned(),
        value: described.value,
        read_only: described.read_only,
        config_source: described.source.id(),
        is_sensitive: described.sensitive,
        synonyms: synonyms
            .map(|synonym| DescribeConfigsSynonym {
                name: synonym.name,
                value: synonym.value,
                source: synonym.source.id(),
            })
            .collect(),
        config_type: described.kind.id(),
        documentation: request.include_documentation.then(|| described.documentation.to_owned()),
    }
}
