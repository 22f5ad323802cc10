//! The commands of mirroring that a client sends to any broker: create, stop and list here, start
//! and describe in files of their own. A broker talks to the source where that is needed and hands
//! the rest to the controller; it decides nothing that is the controller's.
//!
//! Codes 134 to 145 appear in these answers only: elsewhere they mean something else to Kafka.

pub mod describe;
pub mod start;

use std::time::Duration;

use protocol::messages::list_mirrors_response::ListedMirror;
use protocol::messages::{
    CreateMirrorRequest, CreateMirrorResponse, ListMirrorsResponse, StopMirrorTopicsRequest,
    StopMirrorTopicsResponse,
};
use raft::{MirrorDesired, Settings};

use super::admin;
use super::context::RequestContext;
use crate::mirrors::source;

/// How long the creation of a mirror waits for its source to tell its cluster id.
const LEARN_DEADLINE: Duration = Duration::from_secs(2);

/// Answers CreateMirror. The source is asked for its cluster id; where it does not answer soon the
/// id is learned at the first contact (D5).
pub async fn create(
    context: &RequestContext,
    mut request: CreateMirrorRequest,
) -> CreateMirrorResponse {
    let name = request.mirror_name.clone();
    // What a client says of it counts for nothing.
    request.source_cluster_id = learn_cluster_id(context, &request).await;
    let response: CreateMirrorResponse = match admin::forward(context, request.into()).await {
        Ok(response) => response,
        Err(error) => CreateMirrorResponse {
            error_code: admin::code_of(&error),
            error_message: Some(error.to_string()),
            ..CreateMirrorResponse::default()
        },
    };
    if response.error_code == 0 {
        let directory = &context.directory;
        admin::wait_until_seen(directory, |image| image.mirror_exists(&name)).await;
    }
    response
}

async fn learn_cluster_id(
    context: &RequestContext,
    request: &CreateMirrorRequest,
) -> Option<String> {
    let entries = request.config.iter();
    let settings: Settings =
        entries.filter_map(|entry| Some((entry.name.clone(), entry.value.clone()?))).collect();
    // What is wrong with them is the controller's to say.
    let config = config::MirrorConfig::from_settings(&settings).ok()?;
    let directory = &context.directory;
    let client_id = format!("broker-{}-mirror-{}", directory.node_id(), request.mirror_name);
    let client = source::client(directory, &config, client_id);
    match client.refresh(LEARN_DEADLINE).await {
        Ok(view) => view.cluster_id,
        Err(error) => {
            tracing::info!(mirror = request.mirror_name, %error, "its source does not answer yet");
            own_id_behind(context, &config)
        }
    }
}

/// This cluster's id where an address of the source is one of its own brokers': it need not answer
/// to be known.
fn own_id_behind(context: &RequestContext, config: &config::MirrorConfig) -> Option<String> {
    let image = context.directory.image();
    let mut listeners = image.cluster.brokers.values().flat_map(|broker| &broker.listeners);
    let own = listeners.any(|listener| {
        config
            .bootstrap_servers
            .iter()
            .any(|server| server.host == listener.host && server.port == listener.port)
    });
    own.then(|| image.cluster.id().map(str::to_owned)).flatten()
}

/// Answers StopMirrorTopics. It asks no coordinator and no source: an operator must always be able
/// to fail over (D4).
pub async fn stop(
    context: &RequestContext,
    request: StopMirrorTopicsRequest,
) -> StopMirrorTopicsResponse {
    let mirror_name = request.mirror_name.clone();
    let response: StopMirrorTopicsResponse = match admin::forward(context, request.into()).await {
        Ok(response) => response,
        Err(error) => StopMirrorTopicsResponse {
            error_code: admin::code_of(&error),
            error_message: Some(error.to_string()),
            mirror_name,
            ..StopMirrorTopicsResponse::default()
        },
    };
    let done = response.topics.iter().filter(|topic| topic.error_code == 0);
    let stopped: Vec<&str> = done.map(|topic| topic.name.as_str()).collect();
    admin::wait_until_seen(&context.directory, |image| {
        stopped.iter().all(|name| {
            let held = image.topics.by_name(name).and_then(|topic| topic.mirror.as_ref());
            held.is_none_or(|held| held.desired == MirrorDesired::Stopped)
        })
    })
    .await;
    response
}

/// Answers ListMirrors.
pub fn list(context: &RequestContext) -> ListMirrorsResponse {
    let image = context.directory.image();
    let listed = image.mirror_names().map(|name| {
        let settings = image.configs.mirror(&name);
        let bootstrap = settings.and_then(|settings| settings.get("bootstrap.servers"));
        ListedMirror {
            source_bootstrap: bootstrap.cloned().unwrap_or_default(),
            source_cluster_id: image
                .mirrors
                .source_cluster_id(&name)
                .unwrap_or_default()
                .to_owned(),
            topic_count: image.active_topic_count(&name),
            mirror_name: name.to_string(),
        }
    });
    ListMirrorsResponse { mirrors: listed.collect(), ..ListMirrorsResponse::default() }
}
