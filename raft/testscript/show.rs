//! Records and images in the short words of the scripts.

use protocol::ids::{NodeId, TopicId};

use crate::image::{MetadataImage, MirrorRole, PartitionImage, TopicImage};
use crate::records::{MetadataRecord, PartitionChange};

/// One record in one line.
pub(super) fn record(image: &MetadataImage, record: &MetadataRecord) -> String {
    let topic =
        |id: TopicId| image.topics.name_of(id).map_or_else(|| short(id), |n| n.to_string());
    match record {
        MetadataRecord::ClusterCreated(r) => format!("ClusterCreated {}", r.cluster_id),
        MetadataRecord::FeatureLevel(r) => format!("FeatureLevel {}={}", r.name, r.level),
        MetadataRecord::RegisterBroker(r) => {
            format!("RegisterBroker {} epoch={} fenced={}", r.id, r.epoch, r.fenced)
        }
        MetadataRecord::BrokerChanged(r) => {
            let fenced = r.fenced.map(|on| format!(" fenced={on}")).unwrap_or_default();
            let down = r.in_controlled_shutdown.map(|on| format!(" shutting_down={on}"));
            format!("BrokerChanged {}{fenced}{}", r.id, down.unwrap_or_default())
        }
        MetadataRecord::UnregisterBroker(r) => format!("UnregisterBroker {}", r.id),
        MetadataRecord::Topic(r) => format!("Topic {} id={}", r.name, short(r.topic_id)),
        MetadataRecord::RemoveTopic(r) => format!("RemoveTopic {}", topic(r.topic_id)),
        MetadataRecord::Partition(r) => format!(
            "Partition {}-{} replicas={} isr={} leader={} epoch={}/{}",
            topic(r.topic_id),
            r.partition,
            ids(&r.replicas),
            ids(&r.isr),
            leader(r.leader),
            r.leader_epoch,
            r.partition_epoch
        ),
        MetadataRecord::PartitionChange(r) => {
            format!("PartitionChange {}-{}{}", topic(r.topic_id), r.partition, change(r))
        }
        MetadataRecord::Config(r) => {
            let value = r.value.as_deref().map_or("(removed)".to_owned(), |v| format!("= {v}"));
            format!("Config {:?} '{}' {} {value}", r.resource, r.name, r.key)
        }
        MetadataRecord::ProducerIds(r) => {
            format!("ProducerIds broker={} next={}", r.broker, r.next_producer_id)
        }
        MetadataRecord::MirrorSourceClusterId(r) => {
            format!("MirrorSourceClusterId {} {}", r.mirror, r.cluster_id)
        }
        MetadataRecord::MirrorTopicState(r) => {
            let adopted = if r.adopted { " adopted" } else { "" };
            let topic = topic(r.topic_id);
            format!("MirrorTopicState {topic} {} {:?}{adopted}", r.mirror, r.desired)
        }
        MetadataRecord::MirrorTopicRemoved(r) => {
            format!("MirrorTopicRemoved {}", topic(r.topic_id))
        }
        MetadataRecord::MirrorPartitionStopped(r) => format!(
            "MirrorPartitionStopped {}-{} {} epoch={} lme={} lmo={}",
            topic(r.topic_id),
            r.partition,
            r.stop.mirror,
            r.stop.leader_epoch,
            r.stop.last_mirror_epoch,
            r.stop.last_mirrored_offset
        ),
        MetadataRecord::MirrorPartitionStarted(r) => {
            format!("MirrorPartitionStarted {}-{}", topic(r.topic_id), r.partition)
        }
        MetadataRecord::MirrorTopicListing(r) => {
            format!("MirrorTopicListing {} {} {:?}", r.mirror, r.topic, r.listing)
        }
    }
}

fn change(r: &PartitionChange) -> String {
    let mut text = String::new();
    if let Some(replicas) = &r.replicas {
        text.push_str(&format!(" replicas={}", ids(replicas)));
    }
    if let Some(isr) = &r.isr {
        text.push_str(&format!(" isr={}", ids(isr)));
    }
    if let Some(new) = r.leader {
        text.push_str(&format!(" leader={}", leader(new)));
    }
    if let Some(min) = r.min_leader_epoch {
        text.push_str(&format!(" epoch>{min}"));
    }
    text
}

/// Small ids are numbers in the scripts; others are Kafka's text.
pub(super) fn short(id: TopicId) -> String {
    match u16::try_from(id.0.as_u128()) {
        Ok(number) => format!("#{number}"),
        Err(_) => id.to_string(),
    }
}

fn ids(ids: &[NodeId]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    format!("[{}]", ids.join(","))
}

fn leader(leader: Option<NodeId>) -> String {
    leader.map_or_else(|| "none".to_owned(), |id| id.to_string())
}

pub(super) fn brokers(image: &MetadataImage) -> Vec<String> {
    let line = |b: &crate::records::BrokerRegistration| {
        let fenced = if b.fenced { " fenced" } else { "" };
        let down = if b.in_controlled_shutdown { " shutting_down" } else { "" };
        format!("{} epoch={}{fenced}{down}", b.id, b.epoch)
    };
    image.cluster.brokers.values().map(|broker| line(broker)).collect()
}

pub(super) fn topics(image: &MetadataImage) -> Vec<String> {
    let mut lines = Vec::new();
    for topic in image.topics.iter_by_name() {
        let mirror =
            topic.mirror.as_ref().map(|m| format!(" mirror.name={}", m.mirror_name_config()));
        lines.push(format!("{} id={}{}", topic.name, short(topic.id), mirror.unwrap_or_default()));
        for (index, partition) in &topic.partitions {
            lines.push(format!(
                "  {index}: replicas={} isr={} leader={} epoch={}/{}{}",
                ids(&partition.replicas),
                ids(&partition.isr),
                leader(partition.leader),
                partition.leader_epoch,
                partition.partition_epoch,
                role(topic, partition)
            ));
        }
    }
    lines
}

fn role(topic: &TopicImage, partition: &PartitionImage) -> String {
    match topic.mirror_role(partition) {
        MirrorRole::None { last_stop: None } => String::new(),
        MirrorRole::None { last_stop: Some(stop) } => {
            format!(" (was mirrored up to epoch {})", stop.last_mirror_epoch)
        }
        MirrorRole::Mirroring { desired, adopted, last_stop, .. } => {
            let adopted = if adopted { " adopted" } else { "" };
            let last = last_stop.map(|s| format!(" last_epoch={}", s.last_mirror_epoch));
            format!(" read-only {desired:?}{adopted}{}", last.unwrap_or_default())
        }
        MirrorRole::Stopped { stop, .. } => {
            format!(" stopped lme={} lmo={}", stop.last_mirror_epoch, stop.last_mirrored_offset)
        }
    }
}

pub(super) fn mirrors(image: &MetadataImage) -> Vec<String> {
    let mut lines = Vec::new();
    for mirror in image.mirror_names() {
        let source = image.mirrors.source_cluster_id(&mirror).unwrap_or("?");
        lines.push(format!(
            "{mirror} source={source} active={}",
            image.active_topic_count(&mirror)
        ));
        for (key, value) in image.configs.mirror(&mirror).into_iter().flat_map(|s| s.iter()) {
            lines.push(format!("  {key} = {value}"));
        }
        for (topic, listing) in image.mirrors.get(&mirror).into_iter().flat_map(|m| &m.listings) {
            lines.push(format!("  {topic}: {listing:?}"));
        }
    }
    lines
}
