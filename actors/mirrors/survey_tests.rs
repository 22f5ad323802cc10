//! What answers of a source mean for one partition.

use protocol::messages::describe_mirrors_response::{
    DescribedMirror, DescribedMirrorPartition, DescribedMirrorTopic,
};
use protocol::messages::list_mirrors_response::ListedMirror;
use protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use uuid::Uuid;

use super::*;

fn partition(topic: &str, id: u128, index: i32) -> SourcePartition {
    SourcePartition {
        topic: TopicName::from(topic),
        topic_id: TopicId(Uuid::from_u128(id)),
        partition: PartitionIndex(index),
    }
}

fn topic(name: &str, id: u128, code: ErrorCode, leaders: &[(i32, i32)]) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: code.code(),
        name: Some(name.to_owned()),
        topic_id: Uuid::from_u128(id),
        partitions: (0..)
            .zip(leaders)
            .map(|(index, (leader, epoch))| MetadataResponsePartition {
                partition_index: index,
                leader_id: *leader,
                leader_epoch: *epoch,
                ..MetadataResponsePartition::default()
            })
            .collect(),
        ..MetadataResponseTopic::default()
    }
}

fn survey(topics: Vec<MetadataResponseTopic>) -> Survey {
    let cluster_id = Some("source".to_owned());
    Survey::new(MetadataResponse { topics, cluster_id, ..MetadataResponse::default() })
}

fn described(mirror: &str, rows: &[(&str, i32, MirrorState, i32)]) -> DescribedMirror {
    DescribedMirror {
        mirror_name: mirror.to_owned(),
        topics: rows
            .iter()
            .map(|(topic, index, state, epoch)| DescribedMirrorTopic {
                topic_name: (*topic).to_owned(),
                partitions: vec![DescribedMirrorPartition {
                    partition_index: *index,
                    state: state.name().to_owned(),
                    last_mirror_epoch: *epoch,
                    ..DescribedMirrorPartition::default()
                }],
            })
            .collect(),
        ..DescribedMirror::default()
    }
}

#[test]
fn a_topic_that_is_there_has_leaders_and_epochs() {
    let survey = survey(vec![topic("a", 1, ErrorCode::None, &[(4, 7), (-1, 8)])]);
    let leader = survey.leader(&partition("a", 1, 0)).unwrap();
    assert_eq!(leader, SourceLeader { broker: Some(4), epoch: LeaderEpoch(7) });
    let none = survey.leader(&partition("a", 1, 1)).unwrap();
    assert_eq!(none, SourceLeader { broker: None, epoch: LeaderEpoch(8) });
    let facts = survey.facts(&partition("a", 1, 0)).unwrap();
    assert_eq!(facts.leader_epoch, LeaderEpoch(7));
    assert_eq!(facts.last_mirror_epoch, LeaderEpoch::NONE);
    assert_eq!(
        survey.partition_count(&TopicName::from("a"), TopicId(Uuid::from_u128(1))),
        Some(2)
    );
    assert_eq!(survey.partition_count(&TopicName::from("a"), TopicId(Uuid::from_u128(2))), None);
}

#[test]
fn a_topic_that_is_not_there_or_another_one_is_told_apart() {
    let survey = survey(vec![
        topic("gone", 0, ErrorCode::UnknownTopicOrPartition, &[]),
        topic("again", 2, ErrorCode::None, &[(1, 0)]),
        topic("old", 0, ErrorCode::None, &[(1, 0)]),
        topic("secret", 0, ErrorCode::TopicAuthorizationFailed, &[]),
    ]);
    assert_eq!(survey.leader(&partition("gone", 1, 0)), Err(TopicFault::Missing));
    assert_eq!(survey.leader(&partition("never-asked", 1, 0)), Err(TopicFault::Missing));
    let found = TopicId(Uuid::from_u128(2));
    assert_eq!(
        survey.leader(&partition("again", 1, 0)),
        Err(TopicFault::Failed(SourceError::TopicRecreated { found }))
    );
    // A source without topic ids says nothing of them.
    assert!(survey.leader(&partition("old", 1, 0)).is_ok());
    let right = "DESCRIBE on topic secret".to_owned();
    assert_eq!(
        survey.leader(&partition("secret", 1, 0)),
        Err(TopicFault::Failed(SourceError::NotAuthorized { right }))
    );
    assert!(matches!(
        survey.leader(&partition("again", 2, 1)),
        Err(TopicFault::Failed(SourceError::Other { .. }))
    ));
    let listing = survey.listing();
    assert_eq!(listing.topics.len(), 2);
    assert_eq!(listing.refused.len(), 2);
}

#[test]
fn the_largest_last_mirror_epoch_counts_and_an_active_mirror_is_a_loop() {
    let list = ListMirrorsResponse {
        mirrors: [("back", "ours"), ("other", "theirs"), ("dr", "ours")]
            .map(|(name, source)| ListedMirror {
                mirror_name: name.to_owned(),
                source_cluster_id: source.to_owned(),
                ..ListedMirror::default()
            })
            .to_vec(),
        ..ListMirrorsResponse::default()
    };
    assert_eq!(mirrors_of_ours(&list, "ours").unwrap(), ["back", "dr"]);
    let described = DescribeMirrorsResponse {
        mirrors: vec![
            described(
                "back",
                &[("a", 0, MirrorState::Stopped, 5), ("b", 0, MirrorState::Stopped, 2)],
            ),
            described(
                "dr",
                &[("a", 0, MirrorState::Stopped, 3), ("b", 0, MirrorState::Mirroring, -1)],
            ),
        ],
        ..DescribeMirrorsResponse::default()
    };
    let mirrors = SourceMirrors::new(&described);
    let topics = ["a", "b"].map(|name| topic(name, 1, ErrorCode::None, &[(1, 9)]));
    let survey = survey(topics.to_vec()).with_mirrors(mirrors);
    let facts = survey.facts(&partition("a", 1, 0)).unwrap();
    assert_eq!((facts.last_mirror_epoch, facts.mirroring_from_us), (LeaderEpoch(5), None));
    let facts = survey.facts(&partition("b", 1, 0)).unwrap();
    assert_eq!(facts.last_mirror_epoch, LeaderEpoch(2));
    assert_eq!(facts.mirroring_from_us.as_deref(), Some("dr"));
}

#[test]
fn a_refusal_of_the_sources_mirrors_is_no_empty_answer() {
    let refused = DescribeMirrorsResponse {
        mirrors: vec![DescribedMirror {
            error_code: MirrorErrorCode::MirrorAuthorizationFailed.code(),
            ..DescribedMirror::default()
        }],
        ..DescribeMirrorsResponse::default()
    };
    let mirrors = SourceMirrors::new(&refused);
    assert!(matches!(mirrors, Err(SourceError::NotAuthorized { .. })));
    let survey = survey(vec![topic("a", 1, ErrorCode::None, &[(1, 0)])]).with_mirrors(mirrors);
    assert!(survey.facts(&partition("a", 1, 0)).is_err());
    assert!(survey.leader(&partition("a", 1, 0)).is_ok());
    let off = ListMirrorsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        ..ListMirrorsResponse::default()
    };
    assert_eq!(mirrors_of_ours(&off, "ours"), Ok(Vec::new()));
}
