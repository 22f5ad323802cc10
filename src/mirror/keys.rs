//! Which partition of `__mirror_state` coordinates what. Owns the hash; never knows the topic's
//! size.

use protocol::ids::{PartitionIndex, TopicId};

/// The text that names one mirror partition: `{mirror}:{topicId}:{partition}`.
#[must_use]
pub fn partition_key(mirror: &str, topic_id: TopicId, partition: PartitionIndex) -> String {
    format!("{mirror}:{topic_id}:{}", partition.0)
}

/// Splits a text made by [`partition_key`], from the right; `None` when it is not one.
#[must_use]
pub fn parse_partition_key(text: &str) -> Option<(&str, TopicId, PartitionIndex)> {
    let (rest, partition) = text.rsplit_once(':')?;
    let (mirror, topic_id) = rest.rsplit_once(':')?;
    let partition: i32 = partition.parse().ok().filter(|index| *index >= 0)?;
    if mirror.is_empty() {
        return None;
    }
    Some((mirror, topic_id.parse().ok()?, PartitionIndex(partition)))
}

/// The coordinator of one mirror partition's state, among `count` partitions of `__mirror_state`.
#[must_use]
pub fn coordinator_of_partition(
    mirror: &str,
    topic_id: TopicId,
    partition: PartitionIndex,
    count: i32,
) -> PartitionIndex {
    coordinator_of(&partition_key(mirror, topic_id, partition), count)
}

/// The coordinator of a mirror's periodic sync, among `count` partitions of `__mirror_state`.
#[must_use]
pub fn coordinator_of_mirror(mirror: &str, count: i32) -> PartitionIndex {
    coordinator_of(mirror, count)
}

fn coordinator_of(text: &str, count: i32) -> PartitionIndex {
    assert!(count > 0, "an internal topic has at least one partition, not {count}");
    // Java's abs(MIN_VALUE) is negative; the protocol defines it as 0.
    PartitionIndex(java_hash(text).checked_abs().unwrap_or(0) % count)
}

/// Java's `String.hashCode`: 32-bit wrapping, over UTF-16 code units.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_javas() {
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash("my-mirror"), my_mirror_by_hand());
        // A well-known string whose hash is Integer.MIN_VALUE.
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
        assert_eq!(coordinator_of_mirror("polygenelubricants", 50), PartitionIndex(0));
        // A character outside the basic plane counts as two units.
        assert_eq!(java_hash("\u{1F600}"), 0xD83D * 31 + 0xDE00);
    }

    fn my_mirror_by_hand() -> i32 {
        let mut hash = 0_i64;
        for byte in b"my-mirror" {
            hash = (hash * 31 + i64::from(*byte)) & 0xFFFF_FFFF;
        }
        i32::from_be_bytes(u32::try_from(hash).unwrap().to_be_bytes())
    }

    #[test]
    fn a_key_comes_back_from_its_text() {
        let id: TopicId = "AAAAAAAAAAAAAAAAAAAAAQ".parse().unwrap();
        let text = partition_key("dr", id, PartitionIndex(3));
        assert_eq!(text, "dr:AAAAAAAAAAAAAAAAAAAAAQ:3");
        assert_eq!(parse_partition_key(&text), Some(("dr", id, PartitionIndex(3))));
        assert_eq!(parse_partition_key("dr:x:3"), None);
        assert_eq!(parse_partition_key("dr:AAAAAAAAAAAAAAAAAAAAAQ:-1"), None);
        assert_eq!(parse_partition_key("dr"), None);
    }
}
