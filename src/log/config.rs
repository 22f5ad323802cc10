//! What one log is told about itself: the topic settings that reach its files. Owns plain data
//! only; parsing and defaults of Kafka's names live in `config`.

/// Which clock stamps the records of produced batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimestampKind {
    /// The client's (`message.timestamp.type=CreateTime`).
    #[default]
    CreateTime,
    /// The broker's at append (`LogAppendTime`): the batch header is rebuilt.
    LogAppendTime,
}

/// The settings of one log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment rolls before it would grow above this.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment rolls when a batch is this much younger than its first one.
    pub segment_ms: i64,
    /// `segment.index.bytes`: an index holds at most this much.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: an index entry at most every so many bytes of batches.
    pub index_interval_bytes: u32,
    /// `max.message.bytes`: largest batch a client may produce; mirrors and replicas are free.
    pub max_message_bytes: u32,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampKind,
    /// `flush.messages`: a group of appends is synced before it is acknowledged when as many
    /// records are unsynced; 1 syncs every group.
    pub flush_messages: i64,
    /// `producer.id.expiration.ms`: state of a producer idle for longer is forgotten.
    pub producer_id_expiration_ms: i64,
}

impl Default for LogConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600 * 1_000,
            segment_index_bytes: 10 * 1_024 * 1_024,
            index_interval_bytes: 4_096,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampKind::CreateTime,
            flush_messages: i64::MAX,
            producer_id_expiration_ms: 24 * 3_600 * 1_000,
        }
    }
}
