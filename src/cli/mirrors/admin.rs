//! The mirroring requests of the tool, over the wire. Owns how an answer is asked for again while
//! the cluster elects or loads, and how a code becomes a sentence; prints nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use mirror::MirrorState;
use net::{Client, ClientOptions};
use protocol::api::{ApiKey, Request, Response};
use protocol::error_code::{ErrorCode, MirrorErrorCode};
use protocol::messages::{
    CreateMirrorRequest, CreateMirrorResponse, DeleteMirrorRequest, DeleteMirrorResponse,
    DescribeMirrorsRequest, DescribeMirrorsResponse, ListMirrorsRequest, ListMirrorsResponse,
    MetadataRequest, MetadataResponse, PauseMirrorTopicsRequest, PauseMirrorTopicsResponse,
    ResumeMirrorTopicsRequest, ResumeMirrorTopicsResponse, StartMirrorTopicsRequest,
    StartMirrorTopicsResponse, StopMirrorTopicsRequest, StopMirrorTopicsResponse,
    create_mirror_request, describe_mirrors_response, metadata_request,
    pause_mirror_topics_request, resume_mirror_topics_request, start_mirror_topics_request,
    stop_mirror_topics_request,
};

use super::plan::TopicArguments;
use super::render::{MirrorRow, PartitionRow};

/// How long the cluster may take to answer, elections and reloads included.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long it may take to find a server that answers at all.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Between two tries at an answer that a client may ask for again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks at states that are about to change.
const STATE_PAUSE: Duration = Duration::from_millis(20);
/// Fewer replicas than this of the mirrors' state is worth a warning.
const STATE_REPLICAS_WANTED: usize = 3;
const STATE_TOPIC: &str = "__mirror_state";

/// A cluster's mirrors, asked over the wire.
pub struct MirrorAdmin {
    client: Client,
}

/// Topics of one mirror to start, stop, pause or resume.
pub struct TopicRequest<'a> {
    pub mirror: &'a str,
    pub topics: &'a TopicArguments,
    pub exclude: &'a [String],
}

/// What a request came to for one topic.
pub struct TopicOutcome {
    pub topic: String,
    /// Why it failed.
    pub failure: Option<String>,
}

/// A request that the cluster refused as a whole.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct Refused {
    /// Kafka's code, or one of mirroring's own.
    pub code: i16,
    sentence: String,
}

/// An answer's error as a whole.
trait Answer: TryFrom<Response, Error = protocol::Error> {
    fn error(&self) -> (i16, Option<&str>);
}

macro_rules! answers {
    ($($response:ty),* $(,)?) => {
        $(impl Answer for $response {
            fn error(&self) -> (i16, Option<&str>) {
                (self.error_code, self.error_message.as_deref())
            }
        })*
    };
}

answers!(
    CreateMirrorResponse,
    StartMirrorTopicsResponse,
    StopMirrorTopicsResponse,
    PauseMirrorTopicsResponse,
    ResumeMirrorTopicsResponse,
    DeleteMirrorResponse,
    ListMirrorsResponse,
    DescribeMirrorsResponse,
);

/// Turns the per-topic results of any of the four topic answers into outcomes.
macro_rules! outcomes {
    ($response:expr) => {
        $response
            .topics
            .into_iter()
            .map(|topic| TopicOutcome {
                failure: failure(topic.error_code, topic.error_message.as_deref()),
                topic: topic.name,
            })
            .collect()
    };
}

impl MirrorAdmin {
    /// Connects to nobody yet.
    pub fn new(bootstrap: &[String], client_id: &str) -> MirrorAdmin {
        let seed = u64::from(std::process::id());
        MirrorAdmin {
            client: Client::new(ClientOptions::new(bootstrap.to_vec(), client_id, seed)),
        }
    }

    pub async fn create(&self, mirror: &str, settings: &BTreeMap<String, String>) -> Result<()> {
        let setting =
            |(name, value): (&String, &String)| create_mirror_request::CreatableMirrorConfig {
                name: name.clone(),
                value: Some(value.clone()),
            };
        let request = CreateMirrorRequest {
            mirror_name: mirror.to_owned(),
            config: settings.iter().map(setting).collect(),
            ..CreateMirrorRequest::default()
        };
        self.ask::<CreateMirrorResponse>(request.into()).await.map(|_| ())
    }

    pub async fn start(&self, asked: &TopicRequest<'_>) -> Result<Vec<TopicOutcome>> {
        let topic = |name: &String| start_mirror_topics_request::StartMirrorTopic {
            topic_name: name.clone(),
            ..Default::default()
        };
        let request = StartMirrorTopicsRequest {
            mirror_name: asked.mirror.to_owned(),
            topics: asked.topics.literals.iter().map(topic).collect(),
            include_patterns: asked.topics.patterns.clone(),
            exclude_patterns: asked.exclude.to_vec(),
            ..StartMirrorTopicsRequest::default()
        };
        Ok(outcomes!(self.ask::<StartMirrorTopicsResponse>(request.into()).await?))
    }

    pub async fn stop(&self, asked: &TopicRequest<'_>) -> Result<Vec<TopicOutcome>> {
        let topic = |name: &String| stop_mirror_topics_request::StopMirrorTopic {
            topic_name: name.clone(),
            ..Default::default()
        };
        let request = StopMirrorTopicsRequest {
            mirror_name: asked.mirror.to_owned(),
            topics: asked.topics.literals.iter().map(topic).collect(),
            patterns: asked.topics.patterns.clone(),
        };
        Ok(outcomes!(self.ask::<StopMirrorTopicsResponse>(request.into()).await?))
    }

    pub async fn pause(&self, asked: &TopicRequest<'_>) -> Result<Vec<TopicOutcome>> {
        let topic = |name: &String| pause_mirror_topics_request::PauseMirrorTopic {
            topic_name: name.clone(),
            ..Default::default()
        };
        let request = PauseMirrorTopicsRequest {
            mirror_name: asked.mirror.to_owned(),
            topics: asked.names()?.iter().map(topic).collect(),
        };
        Ok(outcomes!(self.ask::<PauseMirrorTopicsResponse>(request.into()).await?))
    }

    pub async fn resume(&self, asked: &TopicRequest<'_>) -> Result<Vec<TopicOutcome>> {
        let topic = |name: &String| resume_mirror_topics_request::ResumeMirrorTopic {
            topic_name: name.clone(),
            ..Default::default()
        };
        let request = ResumeMirrorTopicsRequest {
            mirror_name: asked.mirror.to_owned(),
            topics: asked.names()?.iter().map(topic).collect(),
        };
        Ok(outcomes!(self.ask::<ResumeMirrorTopicsResponse>(request.into()).await?))
    }

    pub async fn delete(&self, mirror: &str) -> Result<()> {
        let request = DeleteMirrorRequest { mirror_name: mirror.to_owned() };
        self.ask::<DeleteMirrorResponse>(request.into()).await.map(|_| ())
    }

    pub async fn list(&self) -> Result<Vec<MirrorRow>> {
        let answer: ListMirrorsResponse = self.ask(ListMirrorsRequest::default().into()).await?;
        let row = |mirror: protocol::messages::list_mirrors_response::ListedMirror| MirrorRow {
            mirror: mirror.mirror_name,
            topics: mirror.topic_count,
            source_cluster_id: mirror.source_cluster_id,
            source_bootstrap: mirror.source_bootstrap,
        };
        Ok(answer.mirrors.into_iter().map(row).collect())
    }

    /// The partitions of one mirror, or of all. A named mirror that does not exist is an error.
    pub async fn describe(&self, mirror: Option<&str>) -> Result<Vec<PartitionRow>> {
        let request = DescribeMirrorsRequest {
            mirror_names: mirror.into_iter().map(str::to_owned).collect(),
            ..DescribeMirrorsRequest::default()
        };
        let answer: DescribeMirrorsResponse = self.ask(request.into()).await?;
        let mut rows = Vec::new();
        for described in answer.mirrors {
            let name = &described.mirror_name;
            if let Some(failure) = failure(described.error_code, None) {
                bail!("mirror '{name}': {failure}");
            }
            for topic in &described.topics {
                let partitions = topic.partitions.iter().cloned();
                rows.extend(partitions.map(|part| partition_row(name, &topic.topic_name, part)));
            }
        }
        Ok(rows)
    }

    /// Waits until every partition of `topics` is STOPPED, and so takes writes. Says how many are
    /// not when `patience` is over, or the last failure to ask.
    pub async fn wait_stopped(
        &self,
        mirror: &str,
        topics: &[&str],
        patience: Duration,
    ) -> Result<usize> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now()).max(RETRY_PAUSE);
            let rows = tokio::time::timeout(left, self.describe(Some(mirror))).await;
            let rows = rows.map_err(|_| anyhow!("the cluster does not answer"))??;
            let waiting = rows
                .iter()
                .filter(|row| topics.contains(&row.topic.as_str()))
                .filter(|row| !row.is(MirrorState::Stopped))
                .count();
            if waiting == 0 || Instant::now() >= until {
                return Ok(waiting);
            }
            tokio::time::sleep(STATE_PAUSE).await;
        }
    }

    /// A sentence where the mirrors' state has fewer replicas than it should.
    pub async fn state_topic_warning(&self) -> Result<Option<String>> {
        let topic = metadata_request::MetadataRequestTopic {
            name: Some(STATE_TOPIC.to_owned()),
            ..Default::default()
        };
        let request = MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let answer = self.client.call_any(request, DEADLINE).await.map_err(net_failure)?;
        let answer = MetadataResponse::try_from(answer)?;
        let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
        let fewest = partitions.map(|partition| partition.replica_nodes.len()).min();
        Ok(fewest.filter(|count| *count < STATE_REPLICAS_WANTED).map(|count| {
            format!(
                "Warning: {STATE_TOPIC} has {count} replica(s), fewer than \
                 {STATE_REPLICAS_WANTED}: the mirrors' state dies with {count} node(s)."
            )
        }))
    }

    /// Asks until there is an answer that is not "try again".
    async fn ask<R: Answer>(&self, request: Request) -> Result<R> {
        let until = Instant::now() + DEADLINE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = R::try_from(self.ask_a_broker(request.clone(), left).await?)?;
            let (code, message) = answer.error();
            let Some(failure) = failure(code, message) else {
                return Ok(answer);
            };
            if !is_retriable(code) || Instant::now() + RETRY_PAUSE >= until {
                return Err(Refused { code, sentence: failure }.into());
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Asks the brokers in turn, until one of them certainly got the request.
    async fn ask_a_broker(&self, request: Request, left: Duration) -> Result<Response> {
        let view = self.client.refresh(left.min(CONNECT_DEADLINE)).await.map_err(net_failure)?;
        let mut last = anyhow!("the cluster names no broker");
        for node_id in view.brokers.keys() {
            match self.client.call(*node_id, request.clone(), left).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.was_not_sent() => last = net_failure(error),
                Err(error) => return Err(net_failure(error)),
            }
        }
        Err(last)
    }
}

impl TopicRequest<'_> {
    /// Where the request carries no patterns, only names can be asked for.
    fn names(&self) -> Result<&[String]> {
        match self.topics.patterns.first() {
            None => Ok(&self.topics.literals),
            Some(pattern) => bail!("'{pattern}' is a pattern: name the topics"),
        }
    }
}

fn partition_row(
    mirror: &str,
    topic: &str,
    partition: describe_mirrors_response::DescribedMirrorPartition,
) -> PartitionRow {
    PartitionRow {
        mirror: mirror.to_owned(),
        topic: topic.to_owned(),
        partition: partition.partition_index,
        source_offset: partition.source_offset,
        destination_offset: partition.destination_offset,
        lag: partition.lag,
        state: partition.state,
        last_mirror_epoch: partition.last_mirror_epoch,
        attempt: partition.attempt,
        reason: partition.reason,
        last_mirrored_offset: partition.last_mirrored_offset,
        records_cut: partition.records_cut,
        aborted_producers: partition.aborted_producers,
        lag_ms: partition.lag_ms,
        source_offset_age_ms: partition.source_offset_age_ms,
    }
}

/// A peer without the API is told by Kafka's own name for it.
fn net_failure(error: net::Error) -> anyhow::Error {
    let net::Error::Unsupported { key, .. } = &error else { return error.into() };
    let code = ErrorCode::UnsupportedVersion.code();
    let later = [ApiKey::PauseMirrorTopics, ApiKey::ResumeMirrorTopics, ApiKey::DeleteMirror];
    let remedy = if later.contains(key) {
        "Heliograph creates, starts, stops, lists and describes mirrors; pausing, resuming and \
         deleting them is not built yet."
    } else {
        "Give --bootstrap-server the destination cluster, which mirrors; the source needs nothing \
         of it."
    };
    anyhow!("UNSUPPORTED_VERSION ({code}): {error} {remedy}")
}

/// Codes 134 to 145 are mirroring's own in these answers and none of them is worth a retry.
fn is_retriable(code: i16) -> bool {
    MirrorErrorCode::from_code(code).is_none() && ErrorCode::from_code(code).is_retriable()
}

/// None for success, else the code's name, its number, and what the server says of it.
fn failure(code: i16, message: Option<&str>) -> Option<String> {
    if code == ErrorCode::None.code() {
        return None;
    }
    let (name, meaning) = match MirrorErrorCode::from_code(code) {
        Some(known) => (format!("{known:?}"), known.message()),
        None => {
            let known = ErrorCode::from_code(code);
            (format!("{known:?}"), known.message())
        }
    };
    let text = message.filter(|message| !message.is_empty()).unwrap_or(meaning);
    Some(format!("{} ({code}): {text}", upper_snake_case(&name)))
}

/// `UnknownMirror` as Kafka writes it: `UNKNOWN_MIRROR`.
fn upper_snake_case(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_uppercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_code_and_prefer_the_servers_words() {
        assert_eq!(failure(0, None), None);
        let unknown = failure(137, None).unwrap();
        assert!(unknown.starts_with("UNKNOWN_MIRROR (137): "), "{unknown}");
        let said = failure(42, Some("a partition is PREPARING")).unwrap();
        assert_eq!(said, "INVALID_REQUEST (42): a partition is PREPARING");
        assert!(failure(35, Some("")).unwrap().starts_with("UNSUPPORTED_VERSION (35): "));
    }

    #[test]
    fn mirroring_codes_are_not_read_as_kafkas() {
        assert!(is_retriable(ErrorCode::NotController.code()));
        assert!(is_retriable(ErrorCode::CoordinatorLoadInProgress.code()));
        assert!(!is_retriable(MirrorErrorCode::ReadOnlyTopic.code()));
        assert!(!is_retriable(ErrorCode::InvalidRequest.code()));
    }
}
