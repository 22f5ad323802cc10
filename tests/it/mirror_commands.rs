//! What an operator does with mirrors, as requests to a cluster: create, start, stop, describe. It
//! asserts that they are accepted and nothing more.

use std::collections::BTreeMap;

use protocol::messages::create_mirror_request::CreatableMirrorConfig;
use protocol::messages::describe_mirrors_response::DescribedMirrorPartition;
use protocol::messages::start_mirror_topics_request::StartMirrorTopic;
use protocol::messages::stop_mirror_topics_request::StopMirrorTopic;
use protocol::messages::{
    CreateMirrorRequest, CreateMirrorResponse, DescribeMirrorsRequest, DescribeMirrorsResponse,
    StartMirrorTopicsRequest, StartMirrorTopicsResponse, StopMirrorTopicsRequest,
    StopMirrorTopicsResponse,
};

use crate::fixture::{Fixture, eventually};

/// The one mirror of every test.
const MIRROR: &str = "dr";

impl Fixture {
    fn any_id(&self) -> i32 {
        self.any().node_id().0
    }

    /// Creates the mirror of a source.
    pub async fn create_mirror(&self, bootstrap: &str) {
        let request = CreateMirrorRequest {
            mirror_name: MIRROR.to_owned(),
            config: vec![CreatableMirrorConfig {
                name: "bootstrap.servers".to_owned(),
                value: Some(bootstrap.to_owned()),
            }],
            ..CreateMirrorRequest::default()
        };
        let created: CreateMirrorResponse = self.ask(self.any_id(), request).await;
        assert_eq!(created.error_code, 0, "{created:?}");
    }

    /// Mirrors a topic, or mirrors it again.
    pub async fn start_mirroring(&self, topic: &str) {
        let request = StartMirrorTopicsRequest {
            mirror_name: MIRROR.to_owned(),
            topics: vec![StartMirrorTopic {
                topic_name: topic.to_owned(),
                ..StartMirrorTopic::default()
            }],
            ..StartMirrorTopicsRequest::default()
        };
        let started: StartMirrorTopicsResponse = self.ask(self.any_id(), request).await;
        assert_eq!((started.error_code, started.topics[0].error_code), (0, 0), "{started:?}");
    }

    /// Fails a topic over to here.
    pub async fn stop_mirroring(&self, topic: &str) {
        let request = StopMirrorTopicsRequest {
            mirror_name: MIRROR.to_owned(),
            topics: vec![StopMirrorTopic {
                topic_name: topic.to_owned(),
                ..StopMirrorTopic::default()
            }],
            ..StopMirrorTopicsRequest::default()
        };
        let stopped: StopMirrorTopicsResponse = self.ask(self.any_id(), request).await;
        assert_eq!((stopped.error_code, stopped.topics[0].error_code), (0, 0), "{stopped:?}");
    }

    /// Waits until a partition is described in `state`, and answers its row.
    pub async fn wait_for_mirror_state(
        &self,
        topic: &str,
        partition: i32,
        state: &str,
    ) -> DescribedMirrorPartition {
        let mut found = None;
        eventually(&format!("{topic}-{partition} is {state}"), async || {
            let request = DescribeMirrorsRequest {
                mirror_names: vec![MIRROR.to_owned()],
                ..DescribeMirrorsRequest::default()
            };
            let described: DescribeMirrorsResponse = self.ask(self.any_id(), request).await;
            let topics = described.mirrors.into_iter().flat_map(|mirror| mirror.topics);
            let rows = topics.filter(|row| row.topic_name == topic).flat_map(|row| row.partitions);
            found = rows
                .into_iter()
                .find(|row| row.partition_index == partition && row.state == state);
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// Waits until the records here are exactly `written`, at the same offsets.
    pub async fn wait_for_copy(
        &self,
        topic: &str,
        written: &BTreeMap<i32, BTreeMap<i64, String>>,
    ) {
        for (partition, records) in written {
            let id = self.id(topic, *partition);
            eventually("the copy is whole", async || self.read(id).await == *records).await;
        }
    }
}
