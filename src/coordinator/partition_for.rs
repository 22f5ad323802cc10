//! Which partition of an internal topic a key belongs to. Owns Kafka's hash; never knows the
//! topic.

use protocol::ids::PartitionIndex;

/// The partition of `__consumer_offsets` (or another internal topic of `count` partitions) that
/// coordinates a group: Java's string hash, made positive, modulo the count.
#[must_use]
pub fn partition_for(key: &str, count: i32) -> PartitionIndex {
    assert!(count > 0, "an internal topic has at least one partition, not {count}");
    let hash = key
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // Kafka's Utils.abs clears the sign of MIN_VALUE to 0 rather than leaving it negative.
    PartitionIndex(hash.checked_abs().unwrap_or(0) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_where_kafka_puts_them() {
        // "hello".hashCode() is 99162322.
        assert_eq!(partition_for("hello", 50), PartitionIndex(22));
        // "my-group".hashCode() is negative.
        assert_eq!(partition_for("polygenelubricants", 50), PartitionIndex(0));
        assert_eq!(partition_for("", 50), PartitionIndex(0));
    }
}
