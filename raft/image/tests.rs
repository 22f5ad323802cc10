//! The image: equal from equal logs, whole in a snapshot, its deltas complete.

use super::*;
use crate::records::tests::one_of_each;

fn applied(records: &[MetadataRecord]) -> MetadataImage {
    let mut image = MetadataImage::default();
    for record in records {
        image.replay(record).expect("the log is sound");
    }
    image
}

/// One of each record in an order a log could hold.
fn log() -> Vec<MetadataRecord> {
    one_of_each()
        .into_iter()
        .filter(|record| {
            !matches!(record, MetadataRecord::RemoveTopic(_) | MetadataRecord::UnregisterBroker(_))
        })
        .collect()
}

#[test]
fn two_replays_give_equal_images() {
    assert_eq!(applied(&log()), applied(&log()));
}

#[test]
fn a_snapshot_holds_the_whole_image() {
    for end in 0..=log().len() {
        let image = applied(&log()[..end]);
        let bytes = bincode::serialize(&image).expect("an image serializes");
        let back: MetadataImage = bincode::deserialize(&bytes).expect("its bytes deserialize");
        assert_eq!(back, image, "after {end} records");
    }
}

#[test]
fn a_delta_covers_the_difference_of_its_images() {
    let mut image = MetadataImage::default();
    let mut merged = MetadataDelta::default();
    let start = image.clone();
    for record in log() {
        let before = image.clone();
        let delta = image.replay_batch(std::slice::from_ref(&record)).expect("the log is sound");
        let between = MetadataDelta::between(&before, &image);
        assert!(between.partitions.is_subset(&delta.partitions), "{record:?}");
        assert!(between.topics.is_subset(&delta.topics), "{record:?}");
        assert!(between.mirrors.is_subset(&delta.mirrors), "{record:?}");
        assert!(between.configs.is_subset(&delta.configs), "{record:?}");
        assert!(between.brokers.is_subset(&delta.brokers), "{record:?}");
        merged.merge(delta);
    }
    let between = MetadataDelta::between(&start, &image);
    assert!(between.partitions.is_subset(&merged.partitions));
    assert_eq!(between.brokers, merged.brokers);
}
