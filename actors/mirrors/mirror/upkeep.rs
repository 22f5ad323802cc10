//! What a mirror does about news of its source and of its settings: the cluster id is kept, topics
//! grow with the source's, changed addresses are taken up. It answers no question.

use std::sync::Arc;
use std::time::Duration;

use mirror::{SourceError, SourceEvent};
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{PartitionIndex, TopicIdPartition, TopicName};
use protocol::messages::create_partitions_request::CreatePartitionsTopic;
use protocol::messages::{CreatePartitionsRequest, RecordSourceClusterIdRequest};
use raft::{MirrorDesired, Settings};

use super::{MirrorState, new_client};
use crate::controller::client::{self, Forwarding};
use crate::directory::Directory;
use crate::mirrors::machine::MirrorInput;
use crate::mirrors::survey::Survey;

/// How long the controller may take to keep a cluster id.
const RECORD_DEADLINE: Duration = Duration::from_secs(20);

/// How long the controller may take to add partitions.
const GROWTH_TIMEOUT_MS: i32 = 30_000;

/// Whether a cluster may be the source of a mirror: not this cluster, and not another one than
/// before (D5).
pub(super) fn check_cluster(
    directory: &Directory,
    mirror: &str,
    found: Option<&str>,
) -> Result<(), SourceError> {
    let Some(found) = found else {
        return Ok(());
    };
    let image = directory.image();
    if image.cluster.id() == Some(found) {
        let reason = "the mirror's source is this cluster itself: bootstrap.servers must name \
                      another one"
            .to_owned();
        return Err(SourceError::Other { reason });
    }
    match image.mirrors.source_cluster_id(mirror) {
        Some(expected) if expected != found => Err(SourceError::ClusterChanged {
            expected: expected.to_owned(),
            found: found.to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}

impl MirrorState {
    /// The image changed in something of this mirror.
    pub(super) fn on_image_changed(&mut self) {
        let image = self.directory.image();
        // A mirror that is gone is ended by its supervisor.
        let Some(settings) = image.configs.mirror(&self.shared.name) else {
            return;
        };
        let reconnect = needs_reconnect(&self.settings, settings);
        (**settings).clone_into(&mut self.settings);
        if !reconnect {
            return;
        }
        match new_client(&self.directory, &self.shared) {
            Ok(client) => {
                tracing::info!(mirror = %self.shared.name, "connecting to the source anew");
                self.client.disconnect();
                self.client = client;
                self.drop_fetchers();
                self.asking.forget();
                self.want_survey();
            }
            Err(error) => {
                tracing::error!(mirror = %self.shared.name, %error, "the settings are not taken");
            }
        }
    }

    /// A broker of the source answered. Whoever was told that none does hears of it, partitions
    /// that are FAILED for it too.
    pub(super) fn on_source_reached(&mut self) {
        if self.shared.unreachable_since().is_none() {
            return;
        }
        tracing::info!(mirror = %self.shared.name, "the source answers again");
        self.shared.set_unreachable_since(None);
        self.tell_all_reached();
        let (image, me) = (self.directory.image(), self.directory.node_id());
        for topic in image.mirror_topics(&self.shared.name) {
            for (partition, registration) in &topic.partitions {
                if registration.leader != Some(me) {
                    continue;
                }
                let id = TopicIdPartition { topic_id: topic.id, partition: *partition };
                self.tell(id, registration.leader_epoch, SourceEvent::Reached);
            }
        }
    }

    /// Checks who the source is, and has the controller keep it at the first contact.
    pub(super) fn check_and_record(&mut self, survey: &Survey) -> Result<(), SourceError> {
        self.shared.set_cluster_id(survey.cluster_id.clone());
        check_cluster(&self.directory, &self.shared.name, survey.cluster_id.as_deref())?;
        let Some(found) = &survey.cluster_id else {
            return Ok(());
        };
        let image = self.directory.image();
        let known = image.mirrors.source_cluster_id(&self.shared.name).is_some();
        if known || self.recorded.as_ref() == Some(found) {
            return Ok(());
        }
        self.recorded = Some(found.clone());
        let request = RecordSourceClusterIdRequest {
            mirror: self.shared.name.to_string(),
            cluster_id: found.clone(),
        };
        let directory = Arc::clone(&self.directory);
        let mirror = self.shared.name.clone();
        self.spawn(async move {
            let answer = directory.call_controller(request.into(), RECORD_DEADLINE).await;
            if let Ok(Response::RecordSourceClusterId(answer)) = &answer
                && answer.error_code == 0
            {
                return;
            }
            tracing::warn!(%mirror, ?answer, "the source's cluster id was not kept");
        });
        Ok(())
    }

    /// Asks the controller for the partitions that the source has and we have not (D13). The
    /// leader of a topic's first partition asks.
    pub(super) fn grow_topics(&mut self) {
        let Some(survey) = &self.asking.survey else {
            return;
        };
        let (image, me) = (self.directory.image(), self.directory.node_id());
        let mut wanted = Vec::new();
        for topic in image.mirror_topics(&self.shared.name) {
            let active = topic.mirror.as_ref().is_some_and(|m| m.desired == MirrorDesired::Active);
            let first = topic.partitions.get(&PartitionIndex(0));
            if !active || first.is_none_or(|partition| partition.leader != Some(me)) {
                continue;
            }
            let count = survey.partition_count(&topic.name, topic.id);
            if let Some(count) = count.filter(|count| *count > topic.partition_count())
                && self.grown.insert(topic.name.clone(), count) != Some(count)
            {
                wanted.push((topic.name.clone(), count));
            }
        }
        if !wanted.is_empty() {
            self.ask_for_partitions(wanted);
        }
    }

    fn ask_for_partitions(&mut self, wanted: Vec<(TopicName, i32)>) {
        tracing::info!(mirror = %self.shared.name, ?wanted, "the source has more partitions");
        let topic = |(name, count): &(TopicName, i32)| CreatePartitionsTopic {
            name: name.to_string(),
            count: *count,
            assignments: None,
        };
        let request = Request::from(CreatePartitionsRequest {
            topics: wanted.iter().map(topic).collect(),
            timeout_ms: GROWTH_TIMEOUT_MS,
            validate_only: false,
        });
        let directory = Arc::clone(&self.directory);
        let mirror = self.shared.name.clone();
        self.spawn(async move {
            let forwarding = Forwarding { for_mirror: true, ..Forwarding::default() };
            match client::forward(&directory, forwarding, &request).await {
                Ok(Response::CreatePartitions(answer)) => {
                    for refused in answer.results.iter().filter(|result| result.error_code != 0) {
                        let code = ErrorCode::from_code(refused.error_code);
                        tracing::warn!(
                            %mirror, topic = refused.name, ?code,
                            why = refused.error_message, "the topic does not grow"
                        );
                    }
                }
                Ok(other) => tracing::error!(%mirror, key = ?other.api_key(), "a wrong answer"),
                Err(error) => tracing::warn!(%mirror, %error, "the topics do not grow"),
            }
        });
    }
}

/// Whether settings differ in one that says how to reach the source.
fn needs_reconnect(before: &Settings, after: &Settings) -> bool {
    let changed = |name: &&String| before.get(*name) != after.get(*name);
    before.keys().chain(after.keys()).filter(changed).any(|name| config::needs_reconnect(name))
}

/// Asks every partition of a mirror that is led here to announce itself: its fetchers are gone.
pub(in crate::mirrors) fn announce_restart(directory: &Directory, mirror: &str) {
    let (image, me) = (directory.image(), directory.node_id());
    for topic in image.mirror_topics(mirror) {
        for (partition, registration) in &topic.partitions {
            let id = TopicIdPartition { topic_id: topic.id, partition: *partition };
            if registration.leader == Some(me)
                && let Some(partition) = directory.partition(id)
            {
                partition.mirror(MirrorInput::MirrorRestarted);
            }
        }
    }
}
