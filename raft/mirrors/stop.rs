//! Stop: topics of a mirror are to fail over (D4, D10).
//!
//! Owns the desired state only. Works in every state and asks nobody first: an operator must
//! always be able to fail over.

use std::collections::BTreeMap;

use protocol::ids::{TopicId, TopicName};
use protocol::messages::{
    StopMirrorTopicsRequest, StopMirrorTopicsResponse,
    stop_mirror_topics_response::MirrorTopicResult,
};

use super::patterns::Patterns;
use super::topic_name;
use crate::decision::Decision;
use crate::error::Error;
use crate::image::MetadataImage;
use crate::mirror_name::MirrorName;
use crate::records::{MetadataRecord, MirrorDesired, MirrorTopicState};

impl MetadataImage {
    /// Stops topics of a mirror, the named ones and those of its own topics that match a pattern;
    /// one result a topic. A topic that is stopping or stopped succeeds unchanged.
    ///
    /// # Errors
    /// No such mirror (137); a pattern that is no regular expression (40).
    pub fn decide_stop_mirror_topics(
        &self,
        request: &StopMirrorTopicsRequest,
    ) -> Result<Decision<StopMirrorTopicsResponse>, Error> {
        self.check_mirroring_enabled()?;
        let mirror = self.existing_mirror(&request.mirror_name)?;
        let patterns = Patterns::new(&request.patterns)?;
        let mut asked: Vec<(String, TopicId)> = Vec::new();
        let named = request.topics.iter().map(|t| (t.topic_name.clone(), TopicId(t.topic_id)));
        let matching = self
            .mirror_topics(&mirror)
            .filter(|topic| patterns.matches(&topic.name))
            .map(|topic| (topic.name.to_string(), topic.id));
        let mut seen = BTreeMap::new();
        for (name, id) in named.chain(matching) {
            if seen.insert(name.clone(), ()).is_none() {
                asked.push((name, id));
            }
        }
        let mut records = Vec::new();
        let mut response =
            StopMirrorTopicsResponse { mirror_name: mirror.to_string(), ..Default::default() };
        for (name, id) in asked {
            let (error_code, error_message) = match self.stop_topic(&mirror, &name, id) {
                Ok(record) => {
                    records.extend(record);
                    (0, None)
                }
                Err(error) => (error.code(), Some(error.to_string())),
            };
            response.topics.push(MirrorTopicResult { name, error_code, error_message });
        }
        Ok(Decision::new(records, response))
    }

    fn stop_topic(
        &self,
        mirror: &MirrorName,
        name: &str,
        id: TopicId,
    ) -> Result<Option<MetadataRecord>, Error> {
        let name: TopicName = topic_name(name)?;
        let topic = self
            .topics
            .by_name(&name)
            .ok_or_else(|| Error::UnknownTopic { topic: name.to_string() })?;
        if !id.is_zero() && id != topic.id {
            return Err(Error::UnknownTopicId { topic_id: id });
        }
        let held = topic.mirror.as_ref().filter(|held| held.mirror == *mirror);
        let Some(held) = held else {
            return Err(Error::TopicNotInMirror { topic: name, mirror: mirror.to_string() });
        };
        if held.desired == MirrorDesired::Stopped {
            return Ok(None);
        }
        Ok(Some(MetadataRecord::MirrorTopicState(MirrorTopicState {
            topic_id: topic.id,
            mirror: mirror.clone(),
            desired: MirrorDesired::Stopped,
            adopted: held.adopted,
        })))
    }
}
