//! The topic settings: all of Kafka 4.4's and the mirror's own.
//!
//! Owns their names, types, defaults, ranges and texts. It never reads a value. What mirroring
//! copies from a source but nothing acts on yet is *stored*: shown, without effect, and refused
//! to a client that asks for it.

use crate::broker_keys::{COMPRESSION_TYPES, TIMESTAMP_TYPES};
use crate::schema::Kind::{Boolean, Double, Int, List, Long, String};
use crate::schema::{Key, Valid};

/// Every topic setting in order of name.
pub(crate) const TOPIC: &[Key] = &[
    topic(
        Key::new(
            "cleanup.policy",
            List,
            Some("delete"),
            "What happens to old segments: delete, compact, or both. Stored; nothing is deleted \
             or compacted yet.",
        )
        .valid(Valid::OneOf(&["compact", "delete"]))
        .stored(),
        &["log.cleanup.policy"],
    ),
    topic(
        Key::new("compression.gzip.level", Int, Some("-1"), "Level of gzip compression. Stored.")
            .valid(Valid::EitherOr(-1, 1, 9))
            .stored(),
        &["compression.gzip.level"],
    ),
    topic(
        Key::new("compression.lz4.level", Int, Some("9"), "Level of lz4 compression. Stored.")
            .valid(Valid::Between(1, 17))
            .stored(),
        &["compression.lz4.level"],
    ),
    topic(
        Key::new(
            "compression.type",
            String,
            Some("producer"),
            "How batches are kept: as the producer sent them, or compressed with the given codec.",
        )
        .valid(COMPRESSION_TYPES),
        &["compression.type"],
    ),
    topic(
        Key::new("compression.zstd.level", Int, Some("3"), "Level of zstd compression. Stored.")
            .valid(Valid::Between(-131_072, 22))
            .stored(),
        &["compression.zstd.level"],
    ),
    topic(
        Key::new(
            "delete.retention.ms",
            Long,
            Some("86400000"),
            "How long compaction keeps tombstones. Stored; nothing is compacted yet.",
        )
        .at_least(0)
        .stored(),
        &["log.cleaner.delete.retention.ms"],
    ),
    Key::new(
        "errors.deadletterqueue.group.enable",
        Boolean,
        Some("false"),
        "Whether share groups may write their failed records to this topic. Not built.",
    )
    .not_built(),
    topic(
        Key::new(
            "file.delete.delay.ms",
            Long,
            Some("60000"),
            "How long the files of a deleted log stay. Stored; they go at once.",
        )
        .at_least(0)
        .stored()
        .idle_at("0"),
        &["log.segment.delete.delay.ms"],
    ),
    topic(
        Key::new(
            "flush.messages",
            Long,
            Some("9223372036854775807"),
            "Records appended before they are synced to disk; 1 syncs each write before it is \
             acknowledged.",
        )
        .at_least(1),
        &["log.flush.interval.messages"],
    ),
    topic(
        Key::new(
            "flush.ms",
            Long,
            Some("9223372036854775807"),
            "The longest time a record stays unsynced. Stored; the system decides.",
        )
        .at_least(0)
        .stored(),
        &["log.flush.interval.ms"],
    ),
    Key::new(
        "follower.replication.throttled.replicas",
        List,
        Some(""),
        "Followers whose replication is throttled. Not built.",
    )
    .not_built(),
    topic(
        Key::new(
            "index.interval.bytes",
            Int,
            Some("4096"),
            "Bytes of log between two entries of the offset index.",
        )
        .at_least(0),
        &["log.index.interval.bytes"],
    ),
    Key::new(
        "leader.replication.throttled.replicas",
        List,
        Some(""),
        "Leaders whose replication is throttled. Not built.",
    )
    .not_built(),
    topic(
        Key::new("local.retention.bytes", Long, Some("-2"), "Tiered storage is not built.")
            .at_least(-2)
            .not_built(),
        &["log.local.retention.bytes"],
    ),
    topic(
        Key::new("local.retention.ms", Long, Some("-2"), "Tiered storage is not built.")
            .at_least(-2)
            .not_built(),
        &["log.local.retention.ms"],
    ),
    topic(
        Key::new(
            "max.compaction.lag.ms",
            Long,
            Some("9223372036854775807"),
            "The longest time a record stays uncompacted. Stored; nothing is compacted yet.",
        )
        .at_least(1)
        .stored(),
        &["log.cleaner.max.compaction.lag.ms"],
    ),
    topic(
        Key::new(
            "max.decompressed.message.bytes",
            Int,
            Some("2147483639"),
            "The most bytes a record of a compressed batch may have when decompressed.",
        )
        .valid(Valid::Between(1, 2_147_483_639)),
        &["max.decompressed.message.bytes"],
    ),
    topic(
        Key::new(
            "max.message.bytes",
            Int,
            Some("1048588"),
            "The most bytes one batch may have, compressed.",
        )
        .at_least(0),
        &["message.max.bytes"],
    ),
    topic(
        Key::new(
            "message.timestamp.after.max.ms",
            Long,
            Some("3600000"),
            "How far a record's timestamp may lie after the broker's clock.",
        )
        .at_least(0),
        &["log.message.timestamp.after.max.ms"],
    ),
    topic(
        Key::new(
            "message.timestamp.before.max.ms",
            Long,
            Some("9223372036854775807"),
            "How far a record's timestamp may lie before the broker's clock.",
        )
        .at_least(0),
        &["log.message.timestamp.before.max.ms"],
    ),
    topic(
        Key::new(
            "message.timestamp.type",
            String,
            Some("CreateTime"),
            "Whether records keep their own timestamp or get the time of their append.",
        )
        .valid(TIMESTAMP_TYPES),
        &["log.message.timestamp.type"],
    ),
    topic(
        Key::new(
            "min.cleanable.dirty.ratio",
            Double,
            Some("0.5"),
            "Share of uncompacted log that starts compaction. Stored; nothing is compacted yet.",
        )
        .valid(Valid::Fraction)
        .stored(),
        &["log.cleaner.min.cleanable.ratio"],
    ),
    topic(
        Key::new(
            "min.compaction.lag.ms",
            Long,
            Some("0"),
            "The shortest time a record stays uncompacted. Stored; nothing is compacted yet.",
        )
        .at_least(0)
        .stored(),
        &["log.cleaner.min.compaction.lag.ms"],
    ),
    topic(
        Key::new(
            "min.insync.replicas",
            Int,
            Some("1"),
            "In-sync replicas a write with acks=all needs.",
        )
        .at_least(1),
        &["min.insync.replicas"],
    ),
    Key::new(
        "mirror.replication.throttled.replicas",
        List,
        Some(""),
        "Replicas whose mirror fetch is throttled. Not built.",
    )
    .not_built(),
    Key::new(
        "mirror.support.unclean.leader.election",
        Boolean,
        Some("false"),
        "Whether a mirror waits for all replicas before it truncates. Not built.",
    )
    .not_built(),
    topic(
        Key::new("preallocate", Boolean, Some("false"), "Preallocating segments is not built.")
            .not_built(),
        &["log.preallocate"],
    ),
    topic(
        Key::new("remote.copy.lag.bytes", Long, Some("-1"), "Tiered storage is not built.")
            .not_built(),
        &["log.remote.copy.lag.bytes"],
    ),
    topic(
        Key::new("remote.copy.lag.ms", Long, Some("0"), "Tiered storage is not built.")
            .not_built(),
        &["log.remote.copy.lag.ms"],
    ),
    Key::new("remote.log.copy.disable", Boolean, Some("false"), "Tiered storage is not built.")
        .not_built(),
    Key::new(
        "remote.log.delete.on.disable",
        Boolean,
        Some("false"),
        "Tiered storage is not built.",
    )
    .not_built(),
    Key::new("remote.storage.enable", Boolean, Some("false"), "Tiered storage is not built.")
        .not_built(),
    topic(
        Key::new(
            "retention.bytes",
            Long,
            Some("-1"),
            "Bytes of a partition kept; -1 keeps all. Stored; nothing is deleted yet.",
        )
        .stored(),
        &["log.retention.bytes"],
    ),
    topic(
        Key::new(
            "retention.ms",
            Long,
            Some("604800000"),
            "How long records are kept; -1 keeps them. Stored; nothing is deleted yet.",
        )
        .at_least(-1)
        .stored()
        .idle_at("-1"),
        &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
    ),
    topic(
        Key::new("segment.bytes", Int, Some("1073741824"), "Bytes after which a segment rolls.")
            .at_least(1_048_576),
        &["log.segment.bytes"],
    ),
    topic(
        Key::new(
            "segment.index.bytes",
            Int,
            Some("10485760"),
            "The most bytes of an index; a segment rolls when its index is full.",
        )
        .at_least(4),
        &["log.index.size.max.bytes"],
    ),
    topic(
        Key::new(
            "segment.jitter.ms",
            Long,
            Some("0"),
            "The most by which the rolling of segments is spread in time. Stored.",
        )
        .at_least(0)
        .stored(),
        &["log.roll.jitter.ms", "log.roll.jitter.hours"],
    ),
    topic(
        Key::new("segment.ms", Long, Some("604800000"), "Time after which a segment rolls.")
            .at_least(1),
        &["log.roll.ms", "log.roll.hours"],
    ),
    topic(
        Key::new(
            "unclean.leader.election.enable",
            Boolean,
            Some("false"),
            "Whether a replica that is not in sync may lead when no other can, which loses \
             records.",
        ),
        &["unclean.leader.election.enable"],
    ),
];

const fn topic(key: Key, synonyms: &'static [&'static str]) -> Key {
    key.from_broker(synonyms).cluster_wide()
}
