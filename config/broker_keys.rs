//! The broker settings that are acted on, by area.
//!
//! Owns their names, types, defaults, ranges and texts. It never reads a value; settings that
//! Kafka has and this version does not act on are in `broker_not_built`.

use crate::broker_not_built::BROKER_NOT_BUILT;
use crate::schema::Kind::{Boolean, Int, List, Long, Short, String};
use crate::schema::{Key, Valid};

/// Compression types a topic can ask for.
pub(crate) const COMPRESSION_TYPES: Valid =
    Valid::OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]);
/// Timestamp types a topic can ask for.
pub(crate) const TIMESTAMP_TYPES: Valid = Valid::OneOf(&["CreateTime", "LogAppendTime"]);

/// Every built setting, in order of name within its area.
pub(crate) fn built() -> impl Iterator<Item = &'static Key> {
    [NODE, TOPICS, REPLICATION, GROUPS, NETWORK, LOG, MIRROR].into_iter().flatten()
}

/// The setting of that name, built or not.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    built().chain(BROKER_NOT_BUILT).find(|key| key.name == name)
}

/// Names of all settings, built or not.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    built().chain(BROKER_NOT_BUILT).map(|key| key.name)
}

const NODE: &[Key] = &[
    Key::new(
        "advertised.listeners",
        List,
        None,
        "Addresses given to clients, NAME://host:port each; without one the bound address is given.",
    )
    .high(),
    Key::new(
        "broker.heartbeat.interval.ms",
        Int,
        Some("2000"),
        "Time between two heartbeats of this broker to the controller.",
    )
    .at_least(1),
    Key::new("broker.rack", String, None, "The rack of this broker, told to clients."),
    Key::new(
        "broker.session.timeout.ms",
        Int,
        Some("9000"),
        "A broker whose heartbeats stay away this long is fenced.",
    )
    .at_least(1),
    Key::new(
        "controlled.shutdown.enable",
        Boolean,
        Some("true"),
        "Whether a stopping broker first hands over its leaderships.",
    ),
    Key::new(
        "controller.listener.names",
        List,
        None,
        "Names of the listeners the quorum uses. They never serve clients.",
    )
    .high(),
    Key::new(
        "controller.quorum.election.timeout.ms",
        Int,
        Some("1000"),
        "A controller that hears nothing from its leader for this long to twice this long asks \
         for votes.",
    )
    .at_least(10)
    .high(),
    Key::new(
        "controller.quorum.voters",
        List,
        Some(""),
        "The controllers that vote, as id@host:port each.",
    )
    .high(),
    Key::new(
        "inter.broker.listener.name",
        String,
        None,
        "The listener brokers use among themselves; the first one that is no controller's if \
         unset.",
    ),
    Key::new(
        "listener.security.protocol.map",
        List,
        None,
        "Security protocol of each listener name, NAME:PROTOCOL each. Only PLAINTEXT is built.",
    )
    .low(),
    Key::new(
        "listeners",
        List,
        Some("PLAINTEXT://:9092"),
        "Addresses to bind, NAME://host:port each. An empty host is every interface, port 0 a free \
         port.",
    )
    .valid(Valid::NotEmpty)
    .high(),
    Key::new("log.dir", List, None, "The directory of partition logs, if log.dirs is unset.")
        .high(),
    Key::new("log.dirs", List, None, "The directories of partition logs.").high(),
    Key::new("node.id", Int, None, "The id of this node, unique in its cluster.")
        .at_least(0)
        .high(),
    Key::new(
        "process.roles",
        List,
        None,
        "What this node does: broker, controller, or both.",
    )
    .valid(Valid::OneOf(&["broker", "controller"]))
    .high(),
];

const TOPICS: &[Key] = &[
    Key::new(
        "auto.create.topics.enable",
        Boolean,
        Some("true"),
        "Whether a topic a client asks metadata for is created.",
    )
    .high(),
    Key::new(
        "compression.type",
        String,
        Some("producer"),
        "How batches are kept: as the producer sent them, or compressed with the given codec.",
    )
    .valid(COMPRESSION_TYPES)
    .cluster_wide()
    .high(),
    Key::new(
        "default.replication.factor",
        Int,
        Some("1"),
        "Replicas of a topic created without saying how many.",
    )
    .at_least(1),
    Key::new("delete.topic.enable", Boolean, Some("true"), "Whether topics can be deleted.")
        .high(),
    Key::new(
        "max.decompressed.message.bytes",
        Int,
        Some("2147483639"),
        "The most bytes a record of a compressed batch may have when decompressed.",
    )
    .valid(Valid::Between(1, 2_147_483_639))
    .cluster_wide(),
    Key::new(
        "message.max.bytes",
        Int,
        Some("1048588"),
        "The most bytes one batch may have, compressed.",
    )
    .at_least(0)
    .cluster_wide()
    .high(),
    Key::new(
        "min.insync.replicas",
        Int,
        Some("1"),
        "In-sync replicas a write with acks=all needs.",
    )
    .at_least(1)
    .cluster_wide()
    .high(),
    Key::new(
        "num.partitions",
        Int,
        Some("1"),
        "Partitions of a topic created without saying how many.",
    )
    .at_least(1),
    Key::new(
        "unclean.leader.election.enable",
        Boolean,
        Some("false"),
        "Whether a replica that is not in sync may lead when no other can, which loses records. \
         The controllers read it from the metadata: set it for a topic, or for all brokers.",
    )
    .cluster_default()
    .high(),
];

const REPLICATION: &[Key] = &[
    Key::new(
        "replica.fetch.backoff.ms",
        Int,
        Some("1000"),
        "How long a follower waits after a failed fetch of a partition.",
    )
    .at_least(0),
    Key::new(
        "replica.fetch.max.bytes",
        Int,
        Some("1048576"),
        "Bytes a follower asks for per partition; a larger first batch still comes whole.",
    )
    .at_least(0),
    Key::new(
        "replica.fetch.min.bytes",
        Int,
        Some("1"),
        "Bytes a leader waits for before it answers a follower.",
    )
    .at_least(0)
    .high(),
    Key::new(
        "replica.fetch.response.max.bytes",
        Int,
        Some("10485760"),
        "Bytes a follower asks for in one answer.",
    )
    .at_least(0),
    Key::new(
        "replica.fetch.wait.max.ms",
        Int,
        Some("500"),
        "How long a leader waits for those bytes.",
    )
    .at_least(0)
    .high(),
    Key::new(
        "replica.lag.time.max.ms",
        Long,
        Some("30000"),
        "A follower that has not caught up for this long leaves the in-sync replicas.",
    )
    .at_least(1)
    .high(),
    Key::new(
        "replica.socket.timeout.ms",
        Int,
        Some("30000"),
        "Deadline of a follower's requests.",
    )
    .at_least(1)
    .high(),
];

const GROUPS: &[Key] = &[
    Key::new(
        "group.initial.rebalance.delay.ms",
        Int,
        Some("3000"),
        "How long an empty group waits for more members before its first rebalance.",
    )
    .at_least(0),
    Key::new(
        "group.max.session.timeout.ms",
        Int,
        Some("1800000"),
        "The longest session timeout a member may ask for.",
    )
    .at_least(1),
    Key::new("group.max.size", Int, Some("2147483647"), "The most members of a group.")
        .at_least(1),
    Key::new(
        "group.min.session.timeout.ms",
        Int,
        Some("6000"),
        "The shortest session timeout a member may ask for.",
    )
    .at_least(1),
    Key::new(
        "offset.metadata.max.bytes",
        Int,
        Some("4096"),
        "The most bytes of text a committed offset may carry.",
    )
    .at_least(0)
    .high(),
    Key::new(
        "offsets.commit.timeout.ms",
        Int,
        Some("5000"),
        "How long a commit waits until the offsets topic holds it.",
    )
    .at_least(1)
    .high(),
    Key::new(
        "offsets.topic.num.partitions",
        Int,
        Some("50"),
        "Partitions of __consumer_offsets. It must not change once the topic exists.",
    )
    .at_least(1)
    .high(),
    Key::new(
        "offsets.topic.replication.factor",
        Short,
        Some("3"),
        "Replicas of __consumer_offsets.",
    )
    .at_least(1)
    .high(),
    Key::new(
        "offsets.topic.segment.bytes",
        Int,
        Some("104857600"),
        "Segment size of __consumer_offsets.",
    )
    .at_least(1)
    .high(),
];

const NETWORK: &[Key] = &[
    Key::new(
        "connections.max.idle.ms",
        Long,
        Some("600000"),
        "A connection without a request for this long is closed; -1 keeps it.",
    )
    .at_least(-1),
    Key::new(
        "fetch.max.bytes",
        Int,
        Some("57671680"),
        "The most bytes of one Fetch answer, whatever the client asks.",
    )
    .at_least(1024),
    Key::new(
        "max.connections",
        Int,
        Some("2147483647"),
        "The most connections of this broker, over all listeners.",
    )
    .at_least(0),
    Key::new(
        "max.incremental.fetch.session.cache.slots",
        Int,
        Some("1000"),
        "Incremental fetch sessions kept; 0 switches them off.",
    )
    .at_least(0),
    Key::new(
        "queued.max.request.bytes",
        Long,
        Some("-1"),
        "Bytes of requests held in memory before sockets are no longer read; -1 chooses a bound.",
    )
    .at_least(-1),
    Key::new(
        "request.timeout.ms",
        Int,
        Some("30000"),
        "Deadline of this node's requests to other nodes.",
    )
    .at_least(1)
    .high(),
    Key::new(
        "socket.connection.setup.timeout.ms",
        Long,
        Some("10000"),
        "Deadline for opening a connection to another node.",
    )
    .at_least(1),
    Key::new(
        "socket.listen.backlog.size",
        Int,
        Some("50"),
        "Connections the system holds until they are accepted.",
    )
    .at_least(1),
    Key::new(
        "socket.request.max.bytes",
        Int,
        Some("104857600"),
        "The most bytes of one request; a longer one closes its connection.",
    )
    .at_least(1)
    .high(),
];

const LOG: &[Key] = &[
    Key::new(
        "log.flush.interval.messages",
        Long,
        Some("9223372036854775807"),
        "Records appended to a partition before they are synced to disk; 1 syncs each write \
         before it is acknowledged.",
    )
    .at_least(1)
    .cluster_wide()
    .high(),
    Key::new(
        "log.index.interval.bytes",
        Int,
        Some("4096"),
        "Bytes of log between two entries of the offset index.",
    )
    .at_least(0)
    .cluster_wide(),
    Key::new(
        "log.index.size.max.bytes",
        Int,
        Some("10485760"),
        "The most bytes of an index; a segment rolls when its index is full.",
    )
    .at_least(4)
    .cluster_wide(),
    Key::new(
        "log.message.timestamp.after.max.ms",
        Long,
        Some("3600000"),
        "How far a record's timestamp may lie after the broker's clock.",
    )
    .at_least(0)
    .cluster_wide(),
    Key::new(
        "log.message.timestamp.before.max.ms",
        Long,
        Some("9223372036854775807"),
        "How far a record's timestamp may lie before the broker's clock.",
    )
    .at_least(0)
    .cluster_wide(),
    Key::new(
        "log.message.timestamp.type",
        String,
        Some("CreateTime"),
        "Whether records keep their own timestamp or get the time of their append.",
    )
    .valid(TIMESTAMP_TYPES)
    .cluster_wide(),
    Key::new(
        "log.roll.hours",
        Int,
        Some("168"),
        "Hours after which a segment rolls, if log.roll.ms is unset.",
    )
    .at_least(1)
    .high(),
    Key::new("log.roll.ms", Long, None, "Time after which a segment rolls.")
        .at_least(1)
        .cluster_wide()
        .high(),
    Key::new("log.segment.bytes", Int, Some("1073741824"), "Bytes after which a segment rolls.")
        .at_least(1_048_576)
        .cluster_wide()
        .high(),
    Key::new(
        "producer.id.expiration.ms",
        Int,
        Some("86400000"),
        "An idempotent producer silent this long is forgotten.",
    )
    .at_least(1)
    .cluster_wide()
    .low(),
];

const MIRROR: &[Key] = &[
    Key::new(
        "mirror.admin.listeners",
        List,
        Some(""),
        "Listeners on which mirrors are administered; all client listeners if empty.",
    ),
    Key::new(
        "mirror.failed.retry.initial.backoff.ms",
        Long,
        Some("1000"),
        "Wait before the first retry of a failed mirror partition; it doubles each time.",
    )
    .at_least(1),
    Key::new(
        "mirror.failed.retry.max.attempts",
        Int,
        Some("100"),
        "Retries of a failed mirror partition; an unreachable source is retried without limit.",
    )
    .at_least(0),
    Key::new(
        "mirror.failed.retry.max.backoff.ms",
        Long,
        Some("300000"),
        "The longest wait between two retries of a failed mirror partition.",
    )
    .at_least(1),
    Key::new(
        "mirror.fetch.backoff.ms",
        Long,
        Some("1000"),
        "Wait after a failed fetch from a source.",
    )
    .at_least(0),
    Key::new(
        "mirror.fetch.max.bytes",
        Int,
        Some("1048576"),
        "Bytes asked for per partition of a source.",
    )
    .at_least(1),
    Key::new(
        "mirror.fetch.min.bytes",
        Int,
        Some("1"),
        "Bytes a source waits for before it answers.",
    )
    .at_least(0),
    Key::new(
        "mirror.fetch.response.max.bytes",
        Int,
        Some("10485760"),
        "Bytes asked for in one answer of a source.",
    )
    .at_least(1),
    Key::new(
        "mirror.fetch.wait.max.ms",
        Int,
        Some("1000"),
        "How long a source waits for those bytes.",
    )
    .at_least(0),
    Key::new(
        "mirror.metadata.refresh.interval.ms",
        Long,
        Some("30000"),
        "Time between two looks at a source's topics, partitions and leaders.",
    )
    .at_least(0),
    Key::new(
        "mirror.num.replica.fetchers",
        Int,
        Some("1"),
        "Fetchers for each source broker of a mirror.",
    )
    .valid(Valid::Between(1, 64))
    .high(),
    Key::new(
        "mirror.topic.num.partitions",
        Int,
        Some("50"),
        "Partitions of __mirror_state. It must not change once the topic exists.",
    )
    .at_least(1)
    .high(),
    Key::new(
        "mirror.topic.replication.factor",
        Short,
        Some("3"),
        "Replicas of __mirror_state, capped to the number of brokers.",
    )
    .at_least(1)
    .high(),
];
