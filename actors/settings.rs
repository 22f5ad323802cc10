//! Settings in force: what is set at run time, else what the node was started with. It parses
//! nothing by itself (`config` does), and parses a setting once, not at each use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{BrokerConfig, TimestampType, TopicConfig};
use imbl::OrdMap;
use log::{LogConfig, TimestampKind};
use protocol::ids::{NodeId, TopicName};
use raft::{ConfigResource, MetadataImage, ResourceKind};

use crate::clock::millis;

/// The settings one image gives to one node and to every topic. Immutable; cheap to clone.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the node was started with.
    fixed: Arc<BrokerConfig>,
    /// The same with what is set at run time for all brokers and for this one.
    broker: Arc<BrokerConfig>,
    /// What a topic without settings of its own has.
    topic_defaults: Arc<TopicConfig>,
    /// The topics that have settings of their own.
    topics: OrdMap<TopicName, Arc<TopicConfig>>,
}

impl Settings {
    /// The settings of a node that knows no image yet.
    pub fn fixed(fixed: Arc<BrokerConfig>) -> Settings {
        let topic_defaults = Arc::new(fixed.topic_defaults.clone());
        Settings { broker: Arc::clone(&fixed), fixed, topic_defaults, topics: OrdMap::new() }
    }

    /// All settings anew.
    #[must_use]
    pub fn of_image(&self, image: &MetadataImage, node: NodeId) -> Settings {
        let broker = dynamic_broker(&self.fixed, image, node);
        let mut topics = OrdMap::new();
        for (resource, own) in image.configs.iter() {
            if resource.kind == ResourceKind::Topic {
                let config = topic_config(&broker, &resource.name, own);
                topics.insert(TopicName::from(&*resource.name), Arc::new(config));
            }
        }
        Settings {
            fixed: Arc::clone(&self.fixed),
            topic_defaults: Arc::new(broker.topic_defaults.clone()),
            broker: Arc::new(broker),
            topics,
        }
    }

    /// The settings after `changed` resources got new ones in `image`.
    #[must_use]
    pub fn after(
        &self,
        image: &MetadataImage,
        node: NodeId,
        changed: &BTreeSet<ConfigResource>,
    ) -> Settings {
        if changed.iter().any(|resource| resource.kind == ResourceKind::Broker) {
            return self.of_image(image, node);
        }
        let mut next = self.clone();
        for resource in changed.iter().filter(|resource| resource.kind == ResourceKind::Topic) {
            let name = TopicName::from(&*resource.name);
            match image.configs.topic(&name) {
                Some(own) => {
                    let config = topic_config(&self.broker, &name, own);
                    next.topics.insert(name, Arc::new(config));
                }
                None => {
                    next.topics.remove(&name);
                }
            }
        }
        next
    }

    /// This node's settings.
    pub fn broker(&self) -> &Arc<BrokerConfig> {
        &self.broker
    }

    /// The settings of a topic, whether it exists or not.
    pub fn topic(&self, topic: &str) -> &Arc<TopicConfig> {
        self.topics.get(topic).unwrap_or(&self.topic_defaults)
    }

    /// What a topic's logs are told.
    pub fn log_config(&self, topic: &str) -> LogConfig {
        let topic = self.topic(topic);
        LogConfig {
            segment_bytes: topic.segment_bytes,
            segment_ms: topic.segment_ms,
            segment_index_bytes: topic.segment_index_bytes,
            index_interval_bytes: topic.index_interval_bytes,
            max_message_bytes: u32::try_from(topic.max_message_bytes).unwrap_or(u32::MAX),
            timestamp_type: match topic.message_timestamp_type {
                TimestampType::CreateTime => TimestampKind::CreateTime,
                TimestampType::LogAppendTime => TimestampKind::LogAppendTime,
            },
            flush_messages: topic.flush_messages,
            producer_id_expiration_ms: millis(self.broker.producer_id_expiration),
        }
    }
}

/// What is set at run time over what the node was started with. It was checked when it was set;
/// should it not parse all the same (a newer version wrote it), it is logged and left out.
fn dynamic_broker(fixed: &BrokerConfig, image: &MetadataImage, node: NodeId) -> BrokerConfig {
    let of = |name: &str| image.configs.settings(ResourceKind::Broker, name).clone();
    fixed.with_dynamic(of(""), of(&node.to_string())).unwrap_or_else(|error| {
        tracing::warn!(%node, %error, "using the settings the node was started with");
        fixed.clone()
    })
}

/// All settings of a topic. As [`dynamic_broker`] for what does not parse.
fn topic_config(
    broker: &BrokerConfig,
    topic: &str,
    own: &BTreeMap<String, String>,
) -> TopicConfig {
    TopicConfig::effective(own, broker).unwrap_or_else(|error| {
        tracing::warn!(topic, %error, "using the broker's defaults");
        broker.topic_defaults.clone()
    })
}

#[cfg(test)]
mod tests {
    use raft::{ConfigRecord, MetadataRecord};

    use super::*;

    fn set(image: &mut MetadataImage, resource: ResourceKind, name: &str, key: &str, value: &str) {
        let record = ConfigRecord {
            resource,
            name: name.to_owned(),
            key: key.to_owned(),
            value: Some(value.to_owned()),
        };
        image.replay(&MetadataRecord::Config(record)).unwrap();
    }

    fn broker() -> Arc<BrokerConfig> {
        let text = "node.id=1\nprocess.roles=broker,controller\nlog.dirs=/tmp/none\n\
                    listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n\
                    controller.listener.names=CONTROLLER\n\
                    controller.quorum.voters=1@127.0.0.1:9093\n";
        let properties = config::parse_properties(text).unwrap();
        Arc::new(BrokerConfig::from_settings(properties, config::Profile::Dev).unwrap())
    }

    #[test]
    fn a_topic_has_its_own_settings_then_the_clusters_then_the_nodes() {
        let node = NodeId(1);
        let mut image = MetadataImage::default();
        let first = Settings::fixed(broker()).of_image(&image, node);
        assert_eq!(first.topic("t").min_insync_replicas, 1);
        set(&mut image, ResourceKind::Broker, "", "min.insync.replicas", "2");
        let changed = BTreeSet::from([ConfigResource::new(ResourceKind::Broker, "")]);
        let second = first.after(&image, node, &changed);
        assert_eq!(second.topic("t").min_insync_replicas, 2);
        set(&mut image, ResourceKind::Topic, "t", "min.insync.replicas", "3");
        let changed = BTreeSet::from([ConfigResource::new(ResourceKind::Topic, "t")]);
        let third = second.after(&image, node, &changed);
        assert_eq!(third.topic("t").min_insync_replicas, 3);
        assert_eq!(third.topic("u").min_insync_replicas, 2);
        let fourth = third.after(&MetadataImage::default(), node, &changed);
        assert_eq!(fourth.topic("t").min_insync_replicas, 2);
    }
}
