//! The ids, offsets, epochs and counts that every crate names. Owns their text forms; never
//! decides what a value means to a broker.
//!
//! Each is a newtype over the wire type, so that an offset can never be passed for an epoch.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            Serialize, Deserialize,
        )]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> $name {
                $name(value)
            }
        }

        impl From<$name> for $inner {
            fn from(value: $name) -> $inner {
                value.0
            }
        }
    };
}

number! {
    /// A node of a cluster, broker or controller (`node.id`, from 0). -1 stands for no node.
    NodeId(i32)
}
number! {
    /// A partition's number within its topic, from 0.
    PartitionIndex(i32)
}
number! {
    /// A record's position in its partition, from 0. -1 stands for no offset.
    Offset(i64)
}
number! {
    /// Counts the leaderships of a partition; each new leader gets a higher one. -1 stands for
    /// none.
    LeaderEpoch(i32)
}
number! {
    /// Counts the changes of a partition's registration (leader, ISR, replicas), from 0.
    PartitionEpoch(i32)
}
number! {
    /// Identifies one registration of a broker with the controller. -1 stands for none.
    BrokerEpoch(i64)
}
number! {
    /// An idempotent or transactional producer. -1 stands for a producer without one.
    ProducerId(i64)
}
number! {
    /// Counts the incarnations of one producer id, from 0. -1 stands for none.
    ProducerEpoch(i16)
}
number! {
    /// A record's number within its producer id, epoch and partition, from 0, wrapping at 2³¹. -1
    /// stands for none.
    Sequence(i32)
}
number! {
    /// Milliseconds since the Unix epoch. -1 stands for no timestamp.
    TimestampMs(i64)
}
number! {
    /// What a client calls one of its requests, to tell the answers apart. Any value.
    CorrelationId(i32)
}

impl NodeId {
    /// No node, as in a partition without a leader.
    pub const NONE: NodeId = NodeId(-1);
}

impl Offset {
    /// The first offset of every log that was never truncated from its start.
    pub const ZERO: Offset = Offset(0);
    /// No offset.
    pub const NONE: Offset = Offset(-1);

    /// The offset after this one.
    #[must_use]
    pub fn next(self) -> Offset {
        Offset(self.0.saturating_add(1))
    }

    /// How many offsets lie between `earlier` and this one; negative if this one comes first.
    #[must_use]
    pub fn since(self, earlier: Offset) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl LeaderEpoch {
    /// No epoch: an empty log, or a client that does not know.
    pub const NONE: LeaderEpoch = LeaderEpoch(-1);
}

impl BrokerEpoch {
    /// No epoch: a broker that is not registered.
    pub const NONE: BrokerEpoch = BrokerEpoch(-1);
}

impl ProducerId {
    /// A producer that is neither idempotent nor transactional.
    pub const NONE: ProducerId = ProducerId(-1);
}

impl ProducerEpoch {
    /// The epoch that goes with [`ProducerId::NONE`].
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl Sequence {
    /// The sequence that goes with [`ProducerId::NONE`], and that of a control batch.
    pub const NONE: Sequence = Sequence(-1);

    /// The sequence `count` records later; after 2³¹ − 1 comes 0. `count` is not negative.
    #[must_use]
    pub fn plus(self, count: i32) -> Sequence {
        let sum = i64::from(self.0) + i64::from(count);
        Sequence(i32::try_from(sum & i64::from(i32::MAX)).unwrap_or(i32::MAX))
    }

    /// The sequence `count` records earlier; before 0 comes 2³¹ − 1. `count` is not negative.
    #[must_use]
    pub fn minus(self, count: i32) -> Sequence {
        let difference = i64::from(self.0) - i64::from(count);
        Sequence(i32::try_from(difference & i64::from(i32::MAX)).unwrap_or(i32::MAX))
    }
}

impl TimestampMs {
    /// No timestamp.
    pub const NONE: TimestampMs = TimestampMs(-1);
}

macro_rules! kafka_uuid {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// All zero: no id.
            pub const ZERO: $name = $name(Uuid::nil());

            /// Whether this is [`Self::ZERO`].
            #[must_use]
            pub fn is_zero(self) -> bool {
                self.0.is_nil()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_base64(self.0, formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_base64(self.0, formatter)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<$name, ParseIdError> {
                parse_base64(text).map($name)
            }
        }

        impl From<Uuid> for $name {
            fn from(value: Uuid) -> $name {
                $name(value)
            }
        }

        impl From<$name> for Uuid {
            fn from(value: $name) -> Uuid {
                value.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                if deserializer.is_human_readable() {
                    let text = String::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                } else {
                    Uuid::deserialize(deserializer).map($name)
                }
            }
        }
    };
}

kafka_uuid! {
    /// A topic for as long as it exists (KIP-516); a topic made again under the same name gets
    /// another. Its text is Kafka's: 22 characters of URL-safe base64 without padding.
    TopicId
}
kafka_uuid! {
    /// A log or metadata directory for as long as its contents exist. Text as [`TopicId`]'s.
    DirectoryId
}

/// A text that is no id in Kafka's 22-character form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an id of 22 URL-safe base64 characters")]
pub struct ParseIdError {
    text: String,
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const BASE64_LEN: usize = 22;

fn write_base64(id: Uuid, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    // 128 bits are 21 digits of 6 bits and a last one whose low four bits are zero.
    let bits = id.as_u128();
    let mut text = [0u8; BASE64_LEN];
    for (index, digit) in text.iter_mut().enumerate() {
        let value = match index {
            21 => (bits & 0b11) << 4,
            _ => (bits >> (122 - 6 * index)) & 0b11_1111,
        };
        *digit = BASE64[usize::try_from(value).expect("six bits fit an index")];
    }
    formatter.pad(std::str::from_utf8(&text).expect("base64 is ASCII"))
}

fn parse_base64(text: &str) -> Result<Uuid, ParseIdError> {
    let refuse = || ParseIdError { text: text.chars().take(64).collect() };
    let digits = text.strip_suffix("==").unwrap_or(text).as_bytes();
    if digits.len() != BASE64_LEN {
        return Err(refuse());
    }
    let mut bits = 0u128;
    for (index, digit) in digits.iter().enumerate() {
        let value = BASE64.iter().position(|known| known == digit).ok_or_else(refuse)?;
        let value = u128::try_from(value).expect("an index below 64 fits");
        bits = if index == 21 { (bits << 2) | (value >> 4) } else { (bits << 6) | value };
    }
    Ok(Uuid::from_u128(bits))
}

/// A topic's name. Cloning shares the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

impl TopicName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for TopicName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for TopicName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for TopicName {
    fn from(name: &str) -> TopicName {
        TopicName(Arc::from(name))
    }
}

impl From<String> for TopicName {
    fn from(name: String) -> TopicName {
        TopicName(Arc::from(name))
    }
}

impl From<&String> for TopicName {
    fn from(name: &String) -> TopicName {
        TopicName(Arc::from(name.as_str()))
    }
}

impl From<TopicName> for String {
    fn from(name: TopicName) -> String {
        name.0.as_ref().to_owned()
    }
}

impl PartialEq<str> for TopicName {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for TopicName {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, formatter)
    }
}

impl Serialize for TopicName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TopicName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TopicName, D::Error> {
        String::deserialize(deserializer).map(TopicName::from)
    }
}

/// A partition by its topic's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: TopicName,
    /// The partition's number within the topic.
    pub partition: PartitionIndex,
}

impl TopicPartition {
    /// The partition `partition` of `topic`.
    pub fn new(topic: impl Into<TopicName>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition: PartitionIndex(partition) }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.topic, self.partition)
    }
}

/// A partition by its topic's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicIdPartition {
    /// The topic's id.
    pub topic_id: TopicId,
    /// The partition's number within the topic.
    pub partition: PartitionIndex,
}

impl TopicIdPartition {
    /// The partition `partition` of the topic `topic_id`.
    #[must_use]
    pub fn new(topic_id: TopicId, partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id, partition: PartitionIndex(partition) }
    }
}

impl fmt::Display for TopicIdPartition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.topic_id, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn topic_ids_have_kafkas_text() {
        // org.apache.kafka.common.Uuid prints these.
        assert_eq!(TopicId::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(TopicId(Uuid::from_u128(1)).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        let id = Uuid::from_u128(0xffee_ddcc_bbaa_9988_7766_5544_3322_1100);
        assert_eq!(TopicId(id).to_string(), "_-7dzLuqmYh3ZlVEMyIRAA");
        assert_eq!("_-7dzLuqmYh3ZlVEMyIRAA".parse::<TopicId>(), Ok(TopicId(id)));
    }

    #[test]
    fn texts_that_are_no_id_are_refused() {
        for text in ["", "short", "AAAAAAAAAAAAAAAAAAAAAA=", "AAAAAAAAAAAAAAAAAAAAA+", "ä"] {
            assert!(text.parse::<TopicId>().is_err(), "{text}");
        }
    }

    #[test]
    fn sequences_wrap_after_the_largest() {
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
        assert_eq!(Sequence(0).minus(1), Sequence(i32::MAX));
        assert_eq!(Sequence(3).plus(4).minus(4), Sequence(3));
    }

    #[test]
    fn ids_are_text_in_json() {
        let text = serde_json::to_string(&TopicId(Uuid::from_u128(1))).unwrap();
        assert_eq!(text, "\"AAAAAAAAAAAAAAAAAAAAAQ\"");
        assert_eq!(
            serde_json::to_string(&TopicPartition::new("a", 3)).unwrap(),
            r#"{"topic":"a","partition":3}"#
        );
    }

    proptest! {
        #[test]
        fn every_id_reads_back(bits: u128) {
            let id = TopicId(Uuid::from_u128(bits));
            prop_assert_eq!(id.to_string().len(), 22);
            prop_assert_eq!(id.to_string().parse::<TopicId>(), Ok(id));
        }
    }
}
