//! The deletion of topics, by name or by id. Owns what goes with a topic; deletes no file.

use std::collections::BTreeSet;

use protocol::ids::TopicId;
use protocol::messages::{
    DeleteTopicsRequest, DeleteTopicsResponse, delete_topics_response::DeletableTopicResult,
};

use super::MIRROR_STATE;
use crate::decision::Decision;
use crate::error::Error;
use crate::image::{MetadataImage, TopicImage};
use crate::records::{Listing, MetadataRecord, MirrorTopicListing, RemoveTopic};

impl MetadataImage {
    /// Deletes topics, one result a topic in the order of the request. A mirror's topic is
    /// deleted in any state, and discovery leaves its name alone from then on (D22).
    pub fn decide_delete_topics(
        &self,
        request: &DeleteTopicsRequest,
    ) -> Decision<DeleteTopicsResponse> {
        let by_name = request.topic_names.iter().map(|name| (Some(name.as_str()), TopicId::ZERO));
        let by_state =
            request.topics.iter().map(|topic| (topic.name.as_deref(), TopicId(topic.topic_id)));
        let mut gone: BTreeSet<TopicId> = BTreeSet::new();
        let mut records = Vec::new();
        let mut response = DeleteTopicsResponse::default();
        for (name, id) in by_state.chain(by_name) {
            let outcome = self.deletable(name, id).and_then(|topic| {
                if gone.insert(topic.id) {
                    Ok(topic)
                } else {
                    let reason = "Duplicate topic in the request.".to_owned();
                    Err(Error::InvalidRequest { reason })
                }
            });
            if let Ok(topic) = &outcome {
                records.extend(removal(topic));
            }
            response.responses.push(result(name, id, &outcome));
        }
        Decision::new(records, response)
    }

    fn deletable(&self, name: Option<&str>, id: TopicId) -> Result<&TopicImage, Error> {
        let topic = match (name, id.is_zero()) {
            (Some(_), false) => {
                let reason = "You may not specify both topic name and topic id.".to_owned();
                return Err(Error::InvalidRequest { reason });
            }
            (None, true) => {
                let reason = "Neither topic name nor id were specified.".to_owned();
                return Err(Error::InvalidRequest { reason });
            }
            (Some(name), true) => self
                .topics
                .by_name(name)
                .ok_or_else(|| Error::UnknownTopic { topic: name.to_owned() })?,
            (None, false) => {
                self.topics.by_id(id).ok_or(Error::UnknownTopicId { topic_id: id })?
            }
        };
        if *topic.name == *MIRROR_STATE && self.mirror_names().next().is_some() {
            return Err(Error::TopicNeeded { topic: topic.name.clone() });
        }
        Ok(topic)
    }
}

fn removal(topic: &TopicImage) -> Vec<MetadataRecord> {
    let mut records = vec![MetadataRecord::RemoveTopic(RemoveTopic { topic_id: topic.id })];
    records.extend(topic.mirror.as_ref().map(|mirror| {
        MetadataRecord::MirrorTopicListing(MirrorTopicListing {
            mirror: mirror.mirror.clone(),
            topic: topic.name.clone(),
            listing: Some(Listing::Excluded),
        })
    }));
    records
}

fn result(
    name: Option<&str>,
    id: TopicId,
    outcome: &Result<&TopicImage, Error>,
) -> DeletableTopicResult {
    match outcome {
        Ok(topic) => DeletableTopicResult {
            name: Some(topic.name.to_string()),
            topic_id: topic.id.0,
            ..DeletableTopicResult::default()
        },
        Err(error) => DeletableTopicResult {
            name: name.map(str::to_owned),
            topic_id: id.0,
            error_code: error.code(),
            error_message: Some(error.to_string()),
        },
    }
}
