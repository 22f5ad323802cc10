//! What clients ask of a cluster of three nodes, over real sockets, with both kinds of link
//! between the nodes.

use std::collections::BTreeSet;

use actors::peers::LinkMode;
use bytes::Bytes;
use protocol::api::{Request, Response};
use protocol::batch::BatchBuilder;
use protocol::ids::TimestampMs;
use protocol::messages::create_partitions_request::CreatePartitionsTopic;
use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::metadata_response::MetadataResponseTopic;
use protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse, DescribeClusterRequest, DescribeClusterResponse,
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, InitProducerIdRequest, InitProducerIdResponse,
    ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, ProduceRequest, ProduceResponse,
};

use crate::fixture::{Fixture, over_both_links};

over_both_links! {
    topics_are_made_grown_described_and_deleted,
    a_topic_that_a_client_names_is_made_and_the_first_answer_has_its_leaders,
    offsets_and_epochs_of_what_was_produced_are_found,
    producer_ids_are_given_once_and_transactions_are_refused_for_good,
    settings_are_shown_as_they_were_set,
}

/// A running cluster and what clients ask of it.
struct Serving(Fixture);

impl Serving {
    async fn start(name: &str, links: LinkMode) -> Serving {
        // Exact answers: no election of a busy machine may cost one, or have it asked for twice.
        let settings = [("controller.quorum.election.timeout.ms", "2000")];
        Serving(Fixture::start(name, 3, links, &settings).await)
    }

    async fn ask<T>(&self, node: i32, request: impl Into<Request>) -> T
    where
        T: TryFrom<Response, Error = protocol::Error>,
    {
        self.0.ask(node, request).await
    }

    async fn create(&self, node: i32, topic: CreatableTopic) -> CreateTopicsResponse {
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        self.ask(node, request).await
    }

    async fn topic(&self, node: i32, name: &str) -> MetadataResponseTopic {
        let request = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                name: Some(name.to_owned()),
                ..MetadataRequestTopic::default()
            }]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let mut answer: MetadataResponse = self.ask(node, request).await;
        answer.topics.remove(0)
    }

    /// Produces one record a timestamp; the offset of the first.
    async fn produce(&self, topic: &MetadataResponseTopic, timestamps: &[i64]) -> i64 {
        let mut batch = BatchBuilder::new();
        for timestamp in timestamps {
            batch.append(TimestampMs(*timestamp), None, Some(&Bytes::from_static(b"v")), &[]);
        }
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 10_000,
            topic_data: vec![TopicProduceData {
                name: topic.name.clone().unwrap(),
                topic_id: topic.topic_id,
                partition_data: vec![PartitionProduceData {
                    index: 0,
                    records: Some(batch.build()),
                }],
            }],
            ..ProduceRequest::default()
        };
        let answer: ProduceResponse = self.ask(topic.partitions[0].leader_id, request).await;
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, 0, "{:?}", partition.error_message);
        partition.base_offset
    }

    async fn offset(&self, topic: &MetadataResponseTopic, timestamp: i64) -> (i16, i64) {
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: topic.name.clone().unwrap(),
                partitions: vec![ListOffsetsPartition {
                    partition_index: 0,
                    timestamp,
                    ..ListOffsetsPartition::default()
                }],
            }],
            ..ListOffsetsRequest::default()
        };
        let answer: ListOffsetsResponse = self.ask(topic.partitions[0].leader_id, request).await;
        let partition = &answer.topics[0].partitions[0];
        (partition.error_code, partition.offset)
    }

    async fn epoch_end(&self, topic: &MetadataResponseTopic, epoch: i32) -> (i16, i32, i64) {
        let request = OffsetForLeaderEpochRequest {
            replica_id: -1,
            topics: vec![OffsetForLeaderTopic {
                topic: topic.name.clone().unwrap(),
                partitions: vec![OffsetForLeaderPartition {
                    partition: 0,
                    current_leader_epoch: -1,
                    leader_epoch: epoch,
                }],
            }],
        };
        let leader = topic.partitions[0].leader_id;
        let answer: OffsetForLeaderEpochResponse = self.ask(leader, request).await;
        let partition = &answer.topics[0].partitions[0];
        (partition.error_code, partition.leader_epoch, partition.end_offset)
    }
}

fn creatable(name: &str, partitions: i32) -> CreatableTopic {
    CreatableTopic {
        name: name.to_owned(),
        num_partitions: partitions,
        replication_factor: 3,
        ..CreatableTopic::default()
    }
}

async fn topics_are_made_grown_described_and_deleted(links: LinkMode) {
    let mut fixture = Serving::start("topics", links).await;
    let made = fixture.create(1, creatable("t", 2)).await;
    assert_eq!(made.topics[0].error_code, 0, "{made:?}");
    let settings = made.topics[0].configs.as_ref().unwrap();
    assert!(settings.iter().any(|setting| setting.name == "retention.ms"));
    let twice = fixture.create(2, creatable("t", 2)).await;
    assert_eq!(twice.topics[0].error_code, 36);

    let told = fixture.topic(1, "t").await;
    assert_eq!((told.error_code, told.partitions.len()), (0, 2));
    assert!(told.partitions.iter().all(|partition| partition.isr_nodes.len() == 3));

    let grown: CreatePartitionsResponse = fixture
        .ask(
            1,
            CreatePartitionsRequest {
                topics: vec![CreatePartitionsTopic {
                    name: "t".to_owned(),
                    count: 5,
                    assignments: None,
                }],
                ..CreatePartitionsRequest::default()
            },
        )
        .await;
    assert_eq!(grown.results[0].error_code, 0);
    assert_eq!(fixture.topic(1, "t").await.partitions.len(), 5);

    let page: DescribeTopicPartitionsResponse = fixture
        .ask(
            1,
            DescribeTopicPartitionsRequest {
                response_partition_limit: 3,
                ..DescribeTopicPartitionsRequest::default()
            },
        )
        .await;
    assert_eq!(page.topics[0].partitions.len(), 3);
    assert_eq!(page.next_cursor.map(|cursor| cursor.partition_index), Some(3));

    let gone: DeleteTopicsResponse = fixture
        .ask(
            3,
            DeleteTopicsRequest {
                topics: vec![DeleteTopicState {
                    name: Some("t".to_owned()),
                    ..DeleteTopicState::default()
                }],
                ..DeleteTopicsRequest::default()
            },
        )
        .await;
    assert_eq!(gone.responses[0].error_code, 0);
    assert_eq!(fixture.topic(3, "t").await.error_code, 3);
    fixture.0.cluster.crash().await;
}

async fn a_topic_that_a_client_names_is_made_and_the_first_answer_has_its_leaders(
    links: LinkMode,
) {
    let mut fixture = Serving::start("auto", links).await;
    let request = MetadataRequest {
        topics: Some(
            ["made", "not a name"]
                .map(|name| MetadataRequestTopic {
                    name: Some(name.to_owned()),
                    ..MetadataRequestTopic::default()
                })
                .to_vec(),
        ),
        ..MetadataRequest::default()
    };
    let answer: MetadataResponse = fixture.ask(2, request).await;
    assert_eq!(answer.brokers.len(), 3);
    let made = &answer.topics[0];
    assert_eq!(made.error_code, 0, "{answer:?}");
    assert!(made.partitions.iter().all(|partition| partition.leader_id > 0));
    assert_eq!(answer.topics[1].error_code, 17);
    let cluster: DescribeClusterResponse = fixture.ask(3, DescribeClusterRequest::default()).await;
    assert_eq!(Some(cluster.cluster_id), answer.cluster_id);
    assert_eq!(cluster.brokers.len(), 3);
    fixture.0.cluster.crash().await;
}

async fn offsets_and_epochs_of_what_was_produced_are_found(links: LinkMode) {
    let mut fixture = Serving::start("offsets", links).await;
    fixture.create(1, creatable("t", 1)).await;
    fixture.0.wait_for_replicas("t", 1).await;
    let topic = fixture.topic(1, "t").await;
    assert_eq!(fixture.offset(&topic, -1).await, (0, 0));
    assert_eq!(fixture.offset(&topic, -3).await, (0, -1));
    let now = i64::try_from(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis(),
    )
    .unwrap();
    assert_eq!(fixture.produce(&topic, &[now - 50, now, now - 10]).await, 0);
    assert_eq!(fixture.produce(&topic, &[now - 20]).await, 3);
    assert_eq!(fixture.offset(&topic, -1).await, (0, 4));
    assert_eq!(fixture.offset(&topic, -2).await, (0, 0));
    assert_eq!(fixture.offset(&topic, -3).await, (0, 1));
    assert_eq!(fixture.offset(&topic, -4).await, (0, 0));
    assert_eq!(fixture.offset(&topic, -5).await, (0, -1));
    assert_eq!(fixture.offset(&topic, -7).await, (35, -1));
    assert_eq!(fixture.offset(&topic, now - 49).await, (0, 1));
    assert_eq!(fixture.offset(&topic, now + 1).await, (0, -1));
    assert_eq!(fixture.epoch_end(&topic, 0).await, (0, 0, 4));
    assert_eq!(fixture.epoch_end(&topic, 9).await, (0, -1, -1));
    fixture.0.cluster.crash().await;
}

async fn producer_ids_are_given_once_and_transactions_are_refused_for_good(links: LinkMode) {
    let mut fixture = Serving::start("ids", links).await;
    let mut ids = BTreeSet::new();
    let idempotent =
        InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() };
    for node in [1, 2, 3, 1, 2, 3] {
        let answer: InitProducerIdResponse = fixture.ask(node, idempotent.clone()).await;
        assert_eq!((answer.error_code, answer.producer_epoch), (0, 0));
        assert!(ids.insert(answer.producer_id), "{} was given twice", answer.producer_id);
    }
    let transactional = InitProducerIdRequest {
        transactional_id: Some("tx".to_owned()),
        ..InitProducerIdRequest::default()
    };
    let answer: InitProducerIdResponse = fixture.ask(1, transactional).await;
    assert_eq!(answer.error_code, 53);
    fixture.0.cluster.crash().await;
}

async fn settings_are_shown_as_they_were_set(links: LinkMode) {
    let mut fixture = Serving::start("settings", links).await;
    let mirrored = CreatableTopic {
        configs: vec![CreatableTopicConfig {
            name: "mirror.name".to_owned(),
            value: Some("m".to_owned()),
        }],
        ..creatable("m", 1)
    };
    assert_eq!(fixture.create(1, mirrored).await.topics[0].error_code, 42);
    fixture.create(1, creatable("t", 1)).await;
    let change = |kind: i8, name: &str, key: &str, value: &str| AlterConfigsResource {
        resource_type: kind,
        resource_name: name.to_owned(),
        configs: vec![AlterableConfig {
            name: key.to_owned(),
            value: Some(value.to_owned()),
            ..AlterableConfig::default()
        }],
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![
            change(2, "t", "segment.ms", "77"),
            change(4, "", "min.insync.replicas", "2"),
            change(2, "t2", "segment.ms", "77"),
            change(2, "no", "mirror.name", "m"),
        ],
        validate_only: false,
    };
    let answer: IncrementalAlterConfigsResponse = fixture.ask(2, request).await;
    let codes: Vec<i16> = answer.responses.iter().map(|one| one.error_code).collect();
    assert_eq!(codes, [0, 0, 3, 3]);
    let resource = |kind: i8, name: &str| DescribeConfigsResource {
        resource_type: kind,
        resource_name: name.to_owned(),
        configuration_keys: None,
    };
    let request = DescribeConfigsRequest {
        resources: vec![
            resource(2, "t"),
            resource(4, "2"),
            resource(4, ""),
            resource(4, "1"),
            resource(64, "no"),
            resource(2, "no"),
            resource(8, "2"),
        ],
        include_synonyms: true,
        include_documentation: true,
    };
    let answer: DescribeConfigsResponse = fixture.ask(2, request).await;
    let codes: Vec<i16> = answer.results.iter().map(|one| one.error_code).collect();
    assert_eq!(codes, [0, 0, 0, 42, 42, 3, 42]);
    let value = |at: usize, key: &str| {
        let found = answer.results[at].configs.iter().find(|config| config.name == key);
        found.map(|config| (config.value.clone().unwrap_or_default(), config.config_source))
    };
    assert_eq!(value(0, "segment.ms"), Some(("77".to_owned(), 1)));
    assert_eq!(value(0, "min.insync.replicas"), Some(("2".to_owned(), 3)));
    assert_eq!(value(0, "mirror.name"), None);
    assert_eq!(value(1, "min.insync.replicas"), Some(("2".to_owned(), 3)));
    assert_eq!(answer.results[2].configs.len(), 1);
    assert!(answer.results[0].configs.iter().all(|config| config.documentation.is_some()));
    fixture.0.cluster.crash().await;
}
