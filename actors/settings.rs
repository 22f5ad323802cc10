//! Effective settings: a topic's own, else this broker's. It parses nothing: `config` does.

use std::collections::BTreeMap;

use config::{BrokerConfig, TimestampType, TopicConfig};
use log::{LogConfig, TimestampKind};
use raft::MetadataImage;

use crate::clock::millis;

/// All settings of a topic. What is stored was checked when it was set; should one setting not
/// parse all the same (a newer version wrote it), the broker's defaults hold and it is logged.
pub fn topic_config(broker: &BrokerConfig, image: &MetadataImage, topic: &str) -> TopicConfig {
    let own: BTreeMap<String, String> = image
        .configs
        .topic(topic)
        .iter()
        .flat_map(|own| own.iter().map(|(key, value)| (key.to_string(), value.to_string())))
        .collect();
    TopicConfig::effective(&own, broker).unwrap_or_else(|error| {
        tracing::warn!(topic, %error, "using the broker's defaults");
        broker.topic_defaults.clone()
    })
}

/// What a topic's logs are told.
pub fn log_config(broker: &BrokerConfig, image: &MetadataImage, topic: &str) -> LogConfig {
    let topic = topic_config(broker, image, topic);
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
        sync_appends: topic.flush_messages == 1,
        producer_id_expiration_ms: millis(broker.producer_id_expiration),
    }
}

/// min.insync.replicas of a topic.
pub fn min_insync_replicas(broker: &BrokerConfig, image: &MetadataImage, topic: &str) -> usize {
    topic_config(broker, image, topic).min_insync_replicas
}
