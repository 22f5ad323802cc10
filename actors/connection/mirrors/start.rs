//! StartMirrorTopics: names and patterns are looked up on the source by the broker that got the
//! request, with the settings that new topics bring along; the controller does the rest (D4, D6).
//!
//! A request whose topics all have an id and a partition count was resolved by the client, as
//! KIP-1279's own tool does; its patterns are stored and not looked up again.

mod retry;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mirror::SourceError;
use mirror::patterns::{DEFAULT_EXCLUDE, TopicPatterns};
use protocol::api::Request;
use protocol::error_code::{ErrorCode, MirrorErrorCode};
use protocol::ids::{TopicIdPartition, TopicName};
use protocol::messages::forward_request::{TopicConfig, TopicConfigs};
use protocol::messages::start_mirror_topics_request::StartMirrorTopic;
use protocol::messages::start_mirror_topics_response::MirrorTopicResult;
use protocol::messages::{StartMirrorTopicsRequest, StartMirrorTopicsResponse};
use raft::{MirrorDesired, TopicImage};
use tokio::time::Instant;

use super::admin;
use crate::connection::context::RequestContext;
use crate::controller::client::{self, Forwarding};
use crate::coordinators::mirror_states;
use crate::error::Error;
use crate::mirrors::MirrorHandle;
use crate::mirrors::handle::TopicListing;

/// How long the source may take for each of the two questions.
const SOURCE_DEADLINE: Duration = Duration::from_secs(20);

/// How long the mirror's actor is waited for, and how often it is looked for.
const HANDLE_DEADLINE: Duration = Duration::from_secs(5);
const HANDLE_PAUSE: Duration = Duration::from_millis(10);

/// How long coordinators may take to tell the actual states.
const STATES_DEADLINE: Duration = Duration::from_secs(5);

/// A refusal of the whole request, or of one topic.
#[derive(Debug)]
struct Refusal {
    code: i16,
    message: String,
}

impl Refusal {
    fn new(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal { code: code.code(), message: message.into() }
    }

    fn result(self, name: String) -> MirrorTopicResult {
        MirrorTopicResult { name, error_code: self.code, error_message: Some(self.message) }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { code: admin::code_of(&error), message: error.to_string() }
    }
}

/// What is handed to the controller, and what was refused before.
#[derive(Debug)]
struct Prepared {
    request: StartMirrorTopicsRequest,
    configs: Vec<TopicConfigs>,
    refused: Vec<MirrorTopicResult>,
}

/// Answers StartMirrorTopics.
pub async fn start(
    context: &RequestContext,
    request: StartMirrorTopicsRequest,
) -> StartMirrorTopicsResponse {
    let mirror_name = request.mirror_name.clone();
    if request.retry_here {
        retry::here(context, &request);
        return StartMirrorTopicsResponse { mirror_name, ..StartMirrorTopicsResponse::default() };
    }
    match run(context, request).await {
        Ok(response) => response,
        Err(refusal) => StartMirrorTopicsResponse {
            error_code: refusal.code,
            error_message: Some(refusal.message),
            mirror_name,
            ..StartMirrorTopicsResponse::default()
        },
    }
}

async fn run(
    context: &RequestContext,
    request: StartMirrorTopicsRequest,
) -> Result<StartMirrorTopicsResponse, Refusal> {
    let mirror = request.mirror_name.clone();
    let mut prepared = prepare(context, request).await?;
    prepared.refuse_unfit_states(context).await;
    let forwarding = Forwarding {
        principal: Some(context.principal.to_string()),
        for_mirror: false,
        topic_configs: prepared.configs,
    };
    let again = retry::wanted_already(context, &prepared.request);
    let request = Request::from(prepared.request);
    let response = client::forward(&context.directory, forwarding, &request).await?;
    let mut response = StartMirrorTopicsResponse::try_from(response)
        .map_err(|error| Refusal::new(ErrorCode::UnknownServerError, error.to_string()))?;
    let done = response.topics.iter().filter(|topic| topic.error_code == 0);
    let started: Vec<String> = done.map(|topic| topic.name.clone()).collect();
    admin::wait_until_seen(&context.directory, |image| {
        started.iter().all(|name| {
            let held = image.topics.by_name(name).and_then(|topic| topic.mirror.as_ref());
            held.is_some_and(|held| *held.mirror == *mirror)
        })
    })
    .await;
    retry::everywhere(context, &mirror, again).await;
    response.topics.extend(prepared.refused);
    Ok(response)
}

/// Looks up on the source what the request leaves open.
async fn prepare(
    context: &RequestContext,
    mut request: StartMirrorTopicsRequest,
) -> Result<Prepared, Refusal> {
    let image = context.directory.image();
    let config = image
        .mirror_config(&request.mirror_name)
        .map_err(|error| Refusal { code: error.code(), message: error.to_string() })?;
    let patterns = patterns(&config, &request)?;
    let mut refused = Vec::new();
    let open = request.topics.iter().any(|topic| !is_resolved(topic));
    let resolve_patterns =
        !request.include_patterns.is_empty() && (request.topics.is_empty() || open);
    if open || resolve_patterns {
        let names = request.topics.iter().filter(|topic| !is_resolved(topic));
        let names = names.map(|topic| TopicName::from(topic.topic_name.as_str())).collect();
        let names = (!resolve_patterns).then_some(names);
        let mirror = handle(context, &request.mirror_name).await?;
        let listing =
            mirror.list_topics(names, SOURCE_DEADLINE).await.map_err(|e| refusal_of(&e))?;
        refused = resolve_names(&mut request.topics, &listing);
        if resolve_patterns {
            add_matching(&mut request.topics, &listing, &patterns);
        }
    }
    let new = request.topics.iter().map(|topic| TopicName::from(topic.topic_name.as_str()));
    let new: Vec<TopicName> = new.filter(|name| image.topics.by_name(name).is_none()).collect();
    let configs = if new.is_empty() {
        Vec::new()
    } else {
        topic_configs(&handle(context, &request.mirror_name).await?, new).await?
    };
    Ok(Prepared { request, configs, refused })
}

fn is_resolved(topic: &StartMirrorTopic) -> bool {
    !topic.topic_id.is_nil() && topic.num_partitions > 0
}

/// The mirror on this broker. One that was created a moment ago, or restarts, is waited for.
async fn handle(context: &RequestContext, mirror: &str) -> Result<MirrorHandle, Refusal> {
    let end = Instant::now() + HANDLE_DEADLINE;
    loop {
        if let Some(handle) = context.directory.mirror(mirror) {
            return Ok(handle);
        }
        if Instant::now() >= end {
            let message = format!("mirror '{mirror}' is starting on this broker; try again");
            return Err(Refusal::new(ErrorCode::CoordinatorNotAvailable, message));
        }
        tokio::time::sleep(HANDLE_PAUSE).await;
    }
}

/// The patterns of the request under what the mirror excludes once they are stored.
fn patterns(
    config: &config::MirrorConfig,
    request: &StartMirrorTopicsRequest,
) -> Result<TopicPatterns, Refusal> {
    let stored = config.topics_exclude.clone().unwrap_or_else(|| vec![DEFAULT_EXCLUDE.to_owned()]);
    let exclude: Vec<String> = stored
        .into_iter()
        .filter(|pattern| !request.include_patterns.contains(pattern))
        .chain(request.exclude_patterns.iter().cloned())
        .collect();
    TopicPatterns::new(&request.include_patterns, Some(&exclude))
        .map_err(|error| Refusal::new(ErrorCode::InvalidConfig, error.to_string()))
}

/// Fills in ids and partition counts; takes out what the source does not have or does not show.
fn resolve_names(
    topics: &mut Vec<StartMirrorTopic>,
    listing: &TopicListing,
) -> Vec<MirrorTopicResult> {
    let mut refused = Vec::new();
    topics.retain_mut(|topic| {
        if is_resolved(topic) {
            return true;
        }
        let name = TopicName::from(topic.topic_name.as_str());
        if let Some(found) = listing.topics.get(&name) {
            // An id that was given is compared by the controller with the topic's here.
            if topic.topic_id.is_nil() {
                topic.topic_id = found.topic_id.0;
            }
            topic.num_partitions = found.partitions;
            return true;
        }
        let refusal = match listing.refused.get(&name) {
            Some(error) if *error != SourceError::TopicDeleted => refusal_of(error),
            Some(_) | None => {
                let message = format!("topic '{name}' does not exist at the source");
                Refusal::new(ErrorCode::UnknownTopicOrPartition, message)
            }
        };
        refused.push(refusal.result(topic.topic_name.clone()));
        false
    });
    refused
}

/// Adds what the patterns mean. Internal topics of the source come by name only.
fn add_matching(
    topics: &mut Vec<StartMirrorTopic>,
    listing: &TopicListing,
    patterns: &TopicPatterns,
) {
    let named: BTreeSet<String> = topics.iter().map(|topic| topic.topic_name.clone()).collect();
    for (name, found) in &listing.topics {
        if !found.internal && !named.contains(&**name) && patterns.matches(name) {
            topics.push(StartMirrorTopic {
                topic_id: found.topic_id.0,
                topic_name: name.to_string(),
                num_partitions: found.partitions,
            });
        }
    }
}

async fn topic_configs(
    mirror: &MirrorHandle,
    names: Vec<TopicName>,
) -> Result<Vec<TopicConfigs>, Refusal> {
    let configs =
        mirror.topic_configs(names, SOURCE_DEADLINE).await.map_err(|e| refusal_of(&e))?;
    let topics = configs.into_iter().map(|(topic, settings)| TopicConfigs {
        topic: topic.to_string(),
        configs: settings.into_iter().map(|(name, value)| TopicConfig { name, value }).collect(),
    });
    Ok(topics.collect())
}

/// What an error of the source means to the client.
fn refusal_of(error: &SourceError) -> Refusal {
    match error {
        SourceError::Unreachable { .. } => Refusal::new(
            ErrorCode::BrokerNotAvailable,
            "the source cluster does not answer: see that it runs and that the mirror's \
             bootstrap.servers name it, then start again",
        ),
        SourceError::NotLeader => {
            Refusal::new(ErrorCode::CoordinatorNotAvailable, "the mirror restarts; try again")
        }
        SourceError::NotAuthorized { right } => Refusal::new(
            ErrorCode::TopicAuthorizationFailed,
            format!("the mirror's user lacks {right} at the source"),
        ),
        SourceError::ClusterChanged { expected, found } => Refusal::new(
            ErrorCode::InconsistentClusterId,
            format!("the source is cluster {found}, but this mirror's source is {expected}"),
        ),
        SourceError::TopicDeleted => Refusal::new(
            ErrorCode::UnknownTopicOrPartition,
            "the topic does not exist at the source",
        ),
        SourceError::TopicRecreated { found } => Refusal::new(
            ErrorCode::InconsistentTopicId,
            format!("the topic's id at the source is {found}"),
        ),
        SourceError::OldFormat => {
            Refusal::new(ErrorCode::UnsupportedForMessageFormat, "the source's format is too old")
        }
        SourceError::Other { reason } => {
            Refusal::new(ErrorCode::InvalidRequest, format!("the source refuses: {reason}"))
        }
    }
}

impl Prepared {
    /// Takes out topics of this mirror that are not wanted active and of which a partition is in a
    /// state that allows no start, naming partition and state. What is wanted already succeeds
    /// unchanged, and what a race lets through is refused by the controller.
    async fn refuse_unfit_states(&mut self, context: &RequestContext) {
        let image = context.directory.image();
        let mirror = self.request.mirror_name.clone();
        let asked: BTreeMap<String, &TopicImage> = self
            .request
            .topics
            .iter()
            .filter_map(|topic| {
                let found = image.topics.by_name(&topic.topic_name)?;
                let held = found.mirror.as_ref()?;
                let unwanted = *held.mirror == *mirror && held.desired != MirrorDesired::Active;
                unwanted.then(|| (topic.topic_name.clone(), &**found))
            })
            .collect();
        let partitions: Vec<TopicIdPartition> = asked
            .values()
            .flat_map(|topic| {
                let id = |partition| TopicIdPartition { topic_id: topic.id, partition };
                topic.partitions.keys().map(move |partition| id(*partition))
            })
            .collect();
        if partitions.is_empty() {
            return;
        }
        let states =
            mirror_states::read(&context.directory, &mirror, partitions, STATES_DEADLINE).await;
        let mut unfit: BTreeMap<String, Refusal> = BTreeMap::new();
        for (name, topic) in asked {
            let of_topic = states.iter().filter(|(at, _)| at.topic_id == topic.id);
            let found = of_topic
                .filter_map(|(at, state)| Some((at.partition, state.as_ref().ok()?.state)))
                .find(|(_, state)| !state.accepts_start());
            if let Some((partition, state)) = found {
                let message = format!(
                    "partition {partition} of topic '{name}' is {state}; stop the topic and wait \
                     until every partition is STOPPED, then start it again"
                );
                let code = MirrorErrorCode::InvalidMirrorStates.code();
                unfit.insert(name, Refusal { code, message });
            }
        }
        self.request.topics.retain(|topic| !unfit.contains_key(&topic.topic_name));
        self.refused.extend(unfit.into_iter().map(|(name, refusal)| refusal.result(name)));
    }
}

#[cfg(test)]
mod tests {
    use protocol::ids::TopicId;
    use uuid::Uuid;

    use super::*;
    use crate::mirrors::handle::ListedTopic;

    fn listing(topics: &[(&str, u128, bool)]) -> TopicListing {
        let topics = topics.iter().map(|(name, id, internal)| {
            let topic_id = TopicId(Uuid::from_u128(*id));
            let listed = ListedTopic { topic_id, partitions: 3, internal: *internal };
            (TopicName::from(*name), listed)
        });
        TopicListing { topics: topics.collect(), ..TopicListing::default() }
    }

    fn named(name: &str) -> StartMirrorTopic {
        StartMirrorTopic { topic_name: name.to_owned(), ..StartMirrorTopic::default() }
    }

    fn config(exclude: Option<&str>) -> config::MirrorConfig {
        let mut settings = raft::Settings::new();
        settings.insert("bootstrap.servers".to_owned(), "a:1".to_owned());
        if let Some(exclude) = exclude {
            settings.insert("mirror.topics.exclude".to_owned(), exclude.to_owned());
        }
        config::MirrorConfig::from_settings(&settings).unwrap()
    }

    fn request(include: &[&str], exclude: &[&str]) -> StartMirrorTopicsRequest {
        StartMirrorTopicsRequest {
            include_patterns: include.iter().map(|p| (*p).to_owned()).collect(),
            exclude_patterns: exclude.iter().map(|p| (*p).to_owned()).collect(),
            ..StartMirrorTopicsRequest::default()
        }
    }

    #[test]
    fn names_are_resolved_and_missing_ones_refused() {
        let mut listing = listing(&[("a", 1, false)]);
        let right = "DESCRIBE on topic c".to_owned();
        listing.refused.insert(TopicName::from("b"), SourceError::TopicDeleted);
        listing.refused.insert(TopicName::from("c"), SourceError::NotAuthorized { right });
        let mut topics = vec![named("a"), named("b"), named("c")];
        let refused = resolve_names(&mut topics, &listing);
        assert_eq!(topics.len(), 1);
        assert_eq!((topics[0].topic_id, topics[0].num_partitions), (Uuid::from_u128(1), 3));
        let codes: Vec<i16> = refused.iter().map(|result| result.error_code).collect();
        assert_eq!(codes, [3, 29]);
        assert!(refused[1].error_message.as_ref().unwrap().contains("DESCRIBE on topic c"));
    }

    #[test]
    fn patterns_add_what_is_not_named_nor_excluded_nor_internal() {
        let listing = listing(&[
            ("__consumer_offsets", 9, true),
            ("orders", 1, false),
            ("orders-eu", 2, false),
            ("tmp-1", 3, false),
        ]);
        let patterns = patterns(&config(None), &request(&[".*"], &["tmp-.*"])).unwrap();
        let mut topics = vec![named("orders")];
        add_matching(&mut topics, &listing, &patterns);
        let names: Vec<&str> = topics.iter().map(|topic| topic.topic_name.as_str()).collect();
        assert_eq!(names, ["orders", "orders-eu"]);
    }

    #[test]
    fn an_include_pattern_takes_its_twin_off_the_exclude_list() {
        let kept = patterns(&config(Some("tmp-.*")), &request(&["tmp-.*", "__x"], &[])).unwrap();
        assert!(kept.matches("tmp-1") && kept.matches("__x"));
        let default = patterns(&config(None), &request(&["__x"], &[])).unwrap();
        assert!(!default.matches("__x"));
        let bad = patterns(&config(None), &request(&["a("], &[])).unwrap_err();
        assert_eq!(bad.code, ErrorCode::InvalidConfig.code());
    }
}
