//! A topic's settings as plain data: its own values over the broker's defaults.
//!
//! Owns their validation and their effective values. It never stores them; `mirror.name` is not
//! one of them, because only the mirroring commands may change it.

use std::collections::BTreeMap;

use crate::broker::BrokerConfig;
use crate::broker_keys;
use crate::describe::{Described, Source, Synonym, broker_synonyms, synonym};
use crate::error::{Error, Fault};
use crate::layers::Layers;
use crate::schema::{Key, Value};
use crate::topic_keys::TOPIC;

/// The view of a topic's desired mirroring state, refused and hidden wherever a user sets or
/// reads topic settings.
pub const MIRROR_NAME: &str = "mirror.name";

/// What happens to old segments. Both may hold, or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Segments past their retention are deleted.
    pub delete: bool,
    /// Only the newest record of a key is kept.
    pub compact: bool,
}

/// How a topic's batches are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionType {
    /// As the producer sent them.
    Producer,
    /// Not compressed.
    Uncompressed,
    /// With gzip.
    Gzip,
    /// With snappy.
    Snappy,
    /// With lz4.
    Lz4,
    /// With zstd.
    Zstd,
}

/// Which timestamp a record keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    /// Its producer's.
    CreateTime,
    /// The time it was appended.
    LogAppendTime,
}

/// A topic's effective settings. Times in milliseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// `cleanup.policy`; a compacted topic takes no record without a key, nothing else yet.
    pub cleanup_policy: CleanupPolicy,
    /// `compression.type`.
    pub compression_type: CompressionType,
    /// `flush.messages`; `i64::MAX` is never.
    pub flush_messages: i64,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `max.decompressed.message.bytes`.
    pub max_decompressed_message_bytes: u32,
    /// `max.message.bytes`.
    pub max_message_bytes: usize,
    /// `message.timestamp.after.max.ms`.
    pub message_timestamp_after_max_ms: i64,
    /// `message.timestamp.before.max.ms`.
    pub message_timestamp_before_max_ms: i64,
    /// `message.timestamp.type`.
    pub message_timestamp_type: TimestampType,
    /// `min.insync.replicas`.
    pub min_insync_replicas: usize,
    /// `segment.bytes`.
    pub segment_bytes: u32,
    /// `segment.index.bytes`.
    pub segment_index_bytes: u32,
    /// `segment.ms`.
    pub segment_ms: i64,
}

impl TopicConfig {
    /// The topic's own settings over this broker's defaults.
    pub fn effective(
        overrides: &BTreeMap<String, String>,
        broker: &BrokerConfig,
    ) -> Result<TopicConfig, Error> {
        let mut config = broker.topic_defaults.clone();
        let mut faults = Vec::new();
        for (name, raw) in overrides.iter().filter(|(name, _)| *name != MIRROR_NAME) {
            match parse(name, raw) {
                Ok(value) => config.set(name, &value),
                Err(fault) => faults.push(fault),
            }
        }
        Error::from_faults(faults).map(|()| config)
    }

    /// What a topic without settings of its own has on a broker with these.
    pub(crate) fn defaults(layers: &Layers) -> TopicConfig {
        let mut config = TopicConfig::default();
        for key in TOPIC {
            let given = key.synonyms.iter().find_map(|name| Some((*name, layers.given(name)?)));
            let value = given.and_then(|(name, raw)| key.parse(&in_topic_units(name, raw)).ok());
            if let Some(value) = value {
                config.set(key.name, &value);
            }
        }
        config
    }

    fn set(&mut self, name: &str, value: &Value) {
        match name {
            "cleanup.policy" => {
                let has = |policy| list(value).iter().any(|entry| entry == policy);
                self.cleanup_policy =
                    CleanupPolicy { delete: has("delete"), compact: has("compact") };
            }
            "compression.type" => self.compression_type = compression_type(text(value)),
            "flush.messages" => self.flush_messages = number(value),
            "index.interval.bytes" => self.index_interval_bytes = size32(value),
            "max.decompressed.message.bytes" => {
                self.max_decompressed_message_bytes = size32(value)
            }
            "max.message.bytes" => self.max_message_bytes = size(value),
            "message.timestamp.after.max.ms" => {
                self.message_timestamp_after_max_ms = number(value)
            }
            "message.timestamp.before.max.ms" => {
                self.message_timestamp_before_max_ms = number(value);
            }
            "message.timestamp.type" if text(value) == "LogAppendTime" => {
                self.message_timestamp_type = TimestampType::LogAppendTime;
            }
            "message.timestamp.type" => self.message_timestamp_type = TimestampType::CreateTime,
            "min.insync.replicas" => self.min_insync_replicas = size(value),
            "segment.bytes" => self.segment_bytes = size32(value),
            "segment.index.bytes" => self.segment_index_bytes = size32(value),
            "segment.ms" => self.segment_ms = number(value),
            _ => {}
        }
    }
}

impl Default for TopicConfig {
    /// Kafka's defaults; a test compares them with the table.
    fn default() -> TopicConfig {
        TopicConfig {
            cleanup_policy: CleanupPolicy { delete: true, compact: false },
            compression_type: CompressionType::Producer,
            flush_messages: i64::MAX,
            index_interval_bytes: 4096,
            max_decompressed_message_bytes: 2_147_483_639,
            max_message_bytes: 1_048_588,
            message_timestamp_after_max_ms: 3_600_000,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_type: TimestampType::CreateTime,
            min_insync_replicas: 1,
            segment_bytes: 1_073_741_824,
            segment_index_bytes: 10_485_760,
            segment_ms: 604_800_000,
        }
    }
}

/// All topic settings in order of name.
pub fn topic_keys() -> &'static [Key] {
    TOPIC
}

/// Checks one setting that a client gives a topic: one that nothing acts on may not ask for
/// anything. The caller answers for [`MIRROR_NAME`] first: it is refused with another code.
pub fn check_topic_setting(name: &str, raw: &str) -> Result<(), Fault> {
    check_copied_topic_setting(name, raw)?;
    find(name)?.refuse_if_not_acted_on(raw)
}

/// Checks one setting that a mirrored topic has at its source: it comes along (D6) even where
/// nothing acts on it yet, because the topic is to have it the day something does.
pub fn check_copied_topic_setting(name: &str, raw: &str) -> Result<(), Fault> {
    parse(name, raw).map(|_| ())
}

/// Every setting of a topic with its effective value and where that comes from.
pub fn describe_topic(
    overrides: &BTreeMap<String, String>,
    broker: &BrokerConfig,
) -> Vec<Described> {
    let describe = |key: &Key| {
        let own = overrides.get(key.name).map(|raw| synonym(key.name, raw, Source::DynamicTopic));
        let mut synonyms: Vec<Synonym> = own.into_iter().collect();
        for name in key.synonyms {
            synonyms.extend(
                broker_keys::find(name)
                    .into_iter()
                    .flat_map(|key| broker_synonyms(key, broker.layers())),
            );
        }
        let fallback = key.default.map(|raw| synonym(key.name, raw, Source::Default));
        if key.synonyms.is_empty() || synonyms.is_empty() {
            synonyms.extend(fallback.clone());
        }
        let inherited = synonyms.first().map(|first| first.source) != Some(Source::DynamicTopic);
        let value_here = synonyms
            .first()
            .and_then(|first| first.value.as_deref().map(|raw| in_topic_units(&first.name, raw)));
        let mut described = Described::new(key, false, synonyms);
        if inherited {
            described.value = value_here.or_else(|| fallback.and_then(|fallback| fallback.value));
        }
        described
    };
    TOPIC.iter().map(describe).collect()
}

fn find(name: &str) -> Result<&'static Key, Fault> {
    TOPIC
        .iter()
        .find(|key| key.name == name)
        .ok_or_else(|| Fault::unknown(name, TOPIC.iter().map(|key| key.name)))
}

fn parse(name: &str, raw: &str) -> Result<Value, Fault> {
    let key = find(name)?;
    key.refuse_if_not_built(raw)?;
    key.parse(raw)
}

/// Broker defaults in minutes and hours become a topic's milliseconds.
fn in_topic_units(broker_name: &str, raw: &str) -> String {
    let factor = if broker_name.ends_with(".hours") {
        3_600_000
    } else if broker_name.ends_with(".minutes") {
        60_000
    } else {
        return raw.to_owned();
    };
    match raw.trim().parse::<i64>() {
        Ok(count) => count.saturating_mul(factor).to_string(),
        Err(_) => raw.to_owned(),
    }
}

fn compression_type(name: &str) -> CompressionType {
    match name {
        "uncompressed" => CompressionType::Uncompressed,
        "gzip" => CompressionType::Gzip,
        "snappy" => CompressionType::Snappy,
        "lz4" => CompressionType::Lz4,
        "zstd" => CompressionType::Zstd,
        _ => CompressionType::Producer,
    }
}

fn number(value: &Value) -> i64 {
    let Value::Number(number) = value else {
        unreachable!("the table says number, not {value:?}")
    };
    *number
}

fn text(value: &Value) -> &str {
    let Value::Text(text) = value else { unreachable!("the table says text, not {value:?}") };
    text
}

fn list(value: &Value) -> &[String] {
    let Value::List(list) = value else { unreachable!("the table says list, not {value:?}") };
    list
}

fn size(value: &Value) -> usize {
    usize::try_from(number(value)).expect("the table says it is not negative")
}

fn size32(value: &Value) -> u32 {
    u32::try_from(number(value)).expect("the table says INT, not negative")
}
