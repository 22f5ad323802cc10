//! The bytes of every record version, pinned: a difference here is a new format.

use bincode::Options;

use super::*;

/// One of each record, with no field at its default.
#[expect(clippy::too_many_lines, reason = "a flat list of one literal for each variant")]
pub(crate) fn one_of_each() -> Vec<MetadataRecord> {
    let topic_id = TopicId(Uuid::from_u128(7));
    let partition = PartitionIndex(2);
    let mirror = MirrorName::from("m");
    vec![
        MetadataRecord::ClusterCreated(ClusterCreated { cluster_id: "c".to_owned() }),
        MetadataRecord::FeatureLevel(FeatureLevel { name: "mirror.version".to_owned(), level: 1 }),
        MetadataRecord::RegisterBroker(registration()),
        MetadataRecord::BrokerChanged(BrokerChanged {
            id: NodeId(1),
            epoch: BrokerEpoch(5),
            fenced: Some(false),
            in_controlled_shutdown: None,
        }),
        MetadataRecord::UnregisterBroker(UnregisterBroker {
            id: NodeId(9),
            epoch: BrokerEpoch(5),
        }),
        MetadataRecord::Topic(TopicRecord { name: TopicName::from("t"), topic_id }),
        MetadataRecord::RemoveTopic(RemoveTopic { topic_id: TopicId(Uuid::from_u128(8)) }),
        MetadataRecord::Partition(PartitionRecord {
            topic_id,
            partition,
            replicas: vec![NodeId(1), NodeId(2)],
            isr: vec![NodeId(1)],
            leader: Some(NodeId(1)),
            leader_epoch: LeaderEpoch(3),
            partition_epoch: PartitionEpoch(4),
        }),
        MetadataRecord::PartitionChange(PartitionChange {
            isr: Some(vec![NodeId(1), NodeId(2)]),
            leader: Some(None),
            min_leader_epoch: Some(LeaderEpoch(20)),
            ..PartitionChange::new(topic_id, partition)
        }),
        MetadataRecord::Config(ConfigRecord {
            resource: ResourceKind::Mirror,
            name: "m".to_owned(),
            key: "bootstrap.servers".to_owned(),
            value: Some("h:1".to_owned()),
        }),
        MetadataRecord::ProducerIds(ProducerIds {
            broker: NodeId(1),
            broker_epoch: BrokerEpoch(5),
            next_producer_id: ProducerId(1000),
        }),
        MetadataRecord::MirrorSourceClusterId(MirrorSourceClusterId {
            mirror: mirror.clone(),
            cluster_id: "s".to_owned(),
        }),
        MetadataRecord::MirrorTopicState(MirrorTopicState {
            topic_id,
            mirror: mirror.clone(),
            desired: MirrorDesired::Stopped,
            adopted: true,
        }),
        MetadataRecord::MirrorTopicRemoved(MirrorTopicRemoved { topic_id }),
        MetadataRecord::MirrorPartitionStopped(MirrorPartitionStopped {
            topic_id,
            partition,
            stop: MirrorStop {
                mirror: mirror.clone(),
                leader_epoch: LeaderEpoch(21),
                last_mirror_epoch: LeaderEpoch(6),
                last_mirrored_offset: Offset(99),
            },
        }),
        MetadataRecord::MirrorPartitionStarted(MirrorPartitionStarted { topic_id, partition }),
        MetadataRecord::MirrorTopicListing(MirrorTopicListing {
            mirror,
            topic: TopicName::from("t"),
            listing: Some(Listing::Excluded),
        }),
    ]
}

pub(crate) fn registration() -> BrokerRegistration {
    BrokerRegistration {
        id: NodeId(1),
        directory_id: DirectoryId(Uuid::from_u128(11)),
        incarnation_id: Uuid::from_u128(12),
        epoch: BrokerEpoch(5),
        listeners: vec![Listener {
            name: "PLAINTEXT".to_owned(),
            host: "localhost".to_owned(),
            port: 9092,
            security_protocol: 0,
        }],
        rack: Some("r".to_owned()),
        log_dirs: vec![DirectoryId(Uuid::from_u128(13))],
        features: vec![SupportedFeature {
            name: "mirror.version".to_owned(),
            min_level: 0,
            max_level: 1,
        }],
        fenced: true,
        in_controlled_shutdown: false,
    }
}

/// As the envelope of the controller log does it.
fn codec() -> impl Options {
    bincode::DefaultOptions::new()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn record_bytes_stay_what_they_are() {
    let mut text = String::new();
    for record in one_of_each() {
        let bytes = codec().serialize(&record).expect("a record serializes");
        let debug = format!("{record:?}");
        let name = debug.split('(').next().expect("a variant has a name");
        text.push_str(&format!("{name} {}\n", hex(&bytes)));
    }
    crate::GOLDEN.check("record_bytes_v1.txt", &text);
}

#[test]
fn every_record_reads_back() {
    for record in one_of_each() {
        let bytes = codec().serialize(&record).expect("a record serializes");
        let back: MetadataRecord = codec().deserialize(&bytes).expect("its bytes deserialize");
        assert_eq!(back, record);
    }
}
