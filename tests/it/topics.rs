//! Topics as the nodes keep them: in every image, and as folders where the replicas are.

use std::collections::BTreeSet;

use actors::peers::LinkMode;
use protocol::ids::NodeId;
use protocol::messages::create_partitions_request::CreatePartitionsTopic;
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
};

use crate::fixture::{Fixture, eventually, over_both_links};

over_both_links! {
    topics_come_grow_and_go_in_images_and_folders,
    a_topic_deleted_while_a_node_is_away_goes_there_too,
}

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

async fn topics_come_grow_and_go_in_images_and_folders(links: LinkMode) {
    let mut fixture = Fixture::start("life", 3, links, &[]).await;
    fixture.create("kept", 2, 3).await;
    fixture.create("gone", 4, 2).await;
    wait_for_folders(&fixture, "kept").await;
    wait_for_folders(&fixture, "gone").await;
    for partition in 0..4 {
        fixture.produce(fixture.id("gone", partition), "x").await;
    }

    grow(&fixture, "gone", 7).await;
    fixture.wait_for_replicas("gone", 7).await;
    wait_for_folders(&fixture, "gone").await;
    for partition in 0..7 {
        fixture.produce(fixture.id("gone", partition), "y").await;
    }

    let before = fixture.id("gone", 0).topic_id;
    delete(&fixture, "gone").await;
    fixture
        .wait_for_images("it is gone", |image| {
            image.topics.by_name("gone").is_none() && image.topics.by_id(before).is_none()
        })
        .await;
    eventually("its folders are gone", async || {
        NODES.iter().all(|node| folders(&fixture, *node, "gone").is_empty())
    })
    .await;
    wait_for_folders(&fixture, "kept").await;

    fixture.create("gone", 1, 3).await;
    let id = fixture.id("gone", 0);
    assert_ne!(id.topic_id, before, "a new topic, not the old one");
    assert_eq!(fixture.produce(id, "z").await, 0);
    let read: Vec<String> = fixture.read(id).await.into_values().collect();
    assert_eq!(read, ["z"]);
    fixture.cluster.stop().await;
}

async fn a_topic_deleted_while_a_node_is_away_goes_there_too(links: LinkMode) {
    let mut fixture = Fixture::start("away", 3, links, &[]).await;
    fixture.create("gone", 2, 3).await;
    fixture.create("kept", 1, 3).await;
    wait_for_folders(&fixture, "gone").await;
    let away = NodeId(3);
    fixture.cluster.crash_node(away).await;
    assert!(!folders(&fixture, away, "gone").is_empty());
    delete(&fixture, "gone").await;
    fixture.cluster.start_node(away).await.unwrap();
    fixture.wait_for_images("it is gone", |image| image.topics.by_name("gone").is_none()).await;
    eventually("its folders are gone everywhere", async || {
        NODES.iter().all(|node| folders(&fixture, *node, "gone").is_empty())
    })
    .await;
    wait_for_folders(&fixture, "kept").await;
    fixture.cluster.stop().await;
}

async fn grow(fixture: &Fixture, topic: &str, count: i32) {
    let topics = vec![CreatePartitionsTopic { name: topic.to_owned(), count, assignments: None }];
    let request = CreatePartitionsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    let grown: CreatePartitionsResponse = fixture.ask(2, request).await;
    assert_eq!(grown.results[0].error_code, 0, "{grown:?}");
}

async fn delete(fixture: &Fixture, topic: &str) {
    let state = DeleteTopicState { name: Some(topic.to_owned()), ..DeleteTopicState::default() };
    let request =
        DeleteTopicsRequest { topics: vec![state], timeout_ms: 10_000, ..Default::default() };
    let gone: DeleteTopicsResponse = fixture.ask(1, request).await;
    assert_eq!(gone.responses[0].error_code, 0, "{gone:?}");
}

/// Waits until each node has a folder for exactly the replicas it holds.
async fn wait_for_folders(fixture: &Fixture, topic: &str) {
    eventually("folders are where the replicas are", async || {
        NODES.iter().all(|node| {
            let image = fixture.node(*node).image();
            let Some(known) = image.topics.by_name(topic) else { return false };
            let replicas = known.partitions.iter().filter(|(_, p)| p.is_replica(*node));
            let expected: BTreeSet<String> =
                replicas.map(|(index, _)| format!("{topic}-{index}")).collect();
            folders(fixture, *node, topic) == expected
        })
    })
    .await;
}

/// The folders of a topic on a node, under whatever name a deletion gives them.
fn folders(fixture: &Fixture, node: NodeId, topic: &str) -> BTreeSet<String> {
    let names = std::fs::read_dir(fixture.data(node)).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&format!("{topic}-")))
        .collect()
}
