//! The rows of a mirror coordinator in memory. Owns lookup and merging; never encodes one.

use std::collections::BTreeMap;

use protocol::messages::write_mirror_states_request::WriteMirrorStatePartition;
use uuid::Uuid;

use super::LEAVE_STATE;

/// Names one mirror partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// The mirror's name.
    pub mirror: String,
    /// The topic's id, the same at source and destination.
    pub topic_id: Uuid,
    /// The partition.
    pub partition: i32,
}

/// What is stored of one mirror partition; the fields are those of the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The topic's name when this was written.
    pub topic: String,
    /// The state's byte; 16 is UNKNOWN.
    pub state: i8,
    /// The byte of the state before.
    pub previous_state: i8,
    /// Failures in a row; −1 for good.
    pub attempt: i16,
    /// One line for the operator.
    pub reason: Option<String>,
    /// The leader epoch of the writer; −1 for a row of another implementation.
    pub leader_epoch: i32,
    /// The row's number.
    pub transition: i64,
    /// The last mirror epoch; −1 without one.
    pub last_mirror_epoch: i32,
    /// The last mirrored offset; −1 without one.
    pub last_mirrored_offset: i64,
    /// Offsets ever cut from the log.
    pub records_cut: i64,
    /// Producers whose transactions the last stop aborted.
    pub aborted_producers: Vec<i64>,
}

impl Row {
    pub(super) fn unknown(topic: &str) -> Row {
        Row {
            topic: topic.to_owned(),
            state: LEAVE_STATE,
            previous_state: LEAVE_STATE,
            attempt: 0,
            reason: None,
            leader_epoch: -1,
            transition: 0,
            last_mirror_epoch: -1,
            last_mirrored_offset: -1,
            records_cut: 0,
            aborted_producers: Vec::new(),
        }
    }
}

/// One row with its key, for describe. A row whose record had no topic id has the zero id.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorRow {
    /// Which partition.
    pub key: RowKey,
    /// What is stored of it.
    pub row: Row,
}

/// All committed rows of a shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rows {
    by_id: BTreeMap<RowKey, Row>,
    /// Rows of revision 205's key layout, which has the mirror's name only: by mirror, topic
    /// name and partition. A row by id stands above them.
    by_name: BTreeMap<(String, String, i32), Row>,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.by_id.len() + self.by_name.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &RowKey> {
        self.by_id.keys()
    }

    pub(super) fn find(&self, key: &RowKey, topic: &str) -> Option<&Row> {
        self.by_id
            .get(key)
            .or_else(|| self.by_name.get(&(key.mirror.clone(), topic.to_owned(), key.partition)))
    }

    pub(super) fn put(&mut self, key: RowKey, row: Row) {
        self.by_name.remove(&(key.mirror.clone(), row.topic.clone(), key.partition));
        self.by_id.insert(key, row);
    }

    /// The row of a key to change while loading; made when there is none.
    pub(super) fn entry(&mut self, key: RowKey, topic: &str) -> &mut Row {
        self.by_id.entry(key).or_insert_with(|| Row::unknown(topic))
    }

    pub(super) fn named_entry(&mut self, mirror: &str, topic: &str, partition: i32) -> &mut Row {
        self.by_name
            .entry((mirror.to_owned(), topic.to_owned(), partition))
            .or_insert_with(|| Row::unknown(topic))
    }

    /// Takes the state of a row away; the row goes with its last part.
    pub(super) fn forget_state(&mut self, key: &RowKey) {
        if let Some(row) = self.by_id.get_mut(key) {
            let (epoch, offset) = (row.last_mirror_epoch, row.last_mirrored_offset);
            *row = Row::unknown(&row.topic.clone());
            (row.last_mirror_epoch, row.last_mirrored_offset) = (epoch, offset);
            if epoch == -1 {
                self.by_id.remove(key);
            }
        }
    }

    /// Takes the last mirror epoch of a row away; the row goes with its last part.
    pub(super) fn forget_epoch(&mut self, key: &RowKey) {
        if let Some(row) = self.by_id.get_mut(key) {
            row.last_mirror_epoch = -1;
            row.last_mirrored_offset = -1;
            if row.state == LEAVE_STATE {
                self.by_id.remove(key);
            }
        }
    }

    pub(super) fn forget_named(&mut self, mirror: &str) {
        self.by_name.retain(|(named, _, _), _| named != mirror);
    }

    pub(super) fn has_named(&self, mirror: &str) -> bool {
        self.by_name.keys().any(|(named, _, _)| named == mirror)
    }

    pub(super) fn remove(&mut self, topic: Option<Uuid>, mirror: Option<&str>) {
        self.by_id.retain(|key, _| !is_meant(key, topic, mirror));
        if let Some(mirror) = mirror {
            self.forget_named(mirror);
        }
    }

    pub(super) fn of_mirror(&self, mirror: &str) -> Vec<MirrorRow> {
        let named = self.by_name.iter().filter(|((named, _, _), _)| named == mirror).map(
            |((_, _, partition), row)| MirrorRow {
                key: RowKey {
                    mirror: mirror.to_owned(),
                    topic_id: Uuid::nil(),
                    partition: *partition,
                },
                row: row.clone(),
            },
        );
        let by_id = self
            .by_id
            .iter()
            .filter(|(key, _)| key.mirror == mirror)
            .map(|(key, row)| MirrorRow { key: key.clone(), row: row.clone() });
        named.chain(by_id).collect()
    }
}

/// Whether a deletion of a topic or of a mirror means this row.
pub(super) fn is_meant(key: &RowKey, topic: Option<Uuid>, mirror: Option<&str>) -> bool {
    topic.is_some_and(|topic| topic == key.topic_id)
        || mirror.is_some_and(|mirror| mirror == key.mirror)
}

/// Whether a byte is a state of the wire; 16 leaves the state alone.
pub(super) fn is_state(byte: i8) -> bool {
    (0..=7).contains(&byte) || byte == LEAVE_STATE
}

/// The row after a write: state 16 leaves the state and what belongs to it, epoch −1 leaves the
/// last mirror epoch and offset.
pub(super) fn merge(stored: Option<Row>, topic: &str, written: &WriteMirrorStatePartition) -> Row {
    let mut row = stored.unwrap_or_else(|| Row::unknown(topic));
    topic.clone_into(&mut row.topic);
    row.leader_epoch = written.leader_epoch;
    row.transition = written.transition;
    if written.state != LEAVE_STATE {
        row.state = written.state;
        row.previous_state = written.previous_state;
        row.attempt = written.attempt;
        row.reason.clone_from(&written.reason);
        row.records_cut = written.records_cut;
        row.aborted_producers.clone_from(&written.aborted_producers);
    }
    if written.last_mirror_epoch != -1 {
        row.last_mirror_epoch = written.last_mirror_epoch;
        row.last_mirrored_offset = written.last_mirrored_offset;
    }
    row
}
