//! Rows as records of `__mirror_state` and back. Owns both key layouts; never keeps a row.
//!
//! Type 1 is the last mirror epoch, type 2 the state. Our keys hold mirror, topic id and
//! partition; those of revision 205 the mirror's name only, told apart by their length. Values
//! are revision 205's, what is ours in tagged fields.

use bytes::Bytes;
use protocol::messages::last_mirror_epochs_value::{
    LastMirrorEpochsPartition, LastMirrorEpochsTopic,
};
use protocol::messages::{
    LastMirrorEpochsKey, LastMirrorEpochsValue, MirrorPartitionStateKey, MirrorPartitionStateValue,
};

use super::rows::{Row, RowKey, Rows};
use crate::machine::{Record, ReplayError};
use crate::record_form;

/// The record type of the last mirror epoch.
const EPOCHS: i16 = 1;

/// The record type of the state.
const STATE: i16 = 2;

/// Revision 205's keys: the mirror's name only.
const NAMED_KEY: i16 = 0;

/// Our keys.
const KEY: i16 = 1;

/// The bytes that our keys have after the mirror's name: topic id and partition.
const KEY_TAIL_BYTES: usize = 20;

const VALUE_VERSION: i16 = 0;

/// The records of a row: its state, and its last mirror epoch where it has one.
pub(super) fn of_row(key: &RowKey, row: &Row) -> Vec<Record> {
    let state = MirrorPartitionStateValue {
        topic_name: row.topic.clone(),
        partition: key.partition,
        state: row.state,
        previous_state: row.previous_state,
        attempt: row.attempt,
        reason: row.reason.clone(),
        leader_epoch: row.leader_epoch,
        transition: row.transition,
        last_mirrored_offset: row.last_mirrored_offset,
        records_cut: row.records_cut,
        aborted_producers: row.aborted_producers.clone(),
    };
    let state_value = Some(record_form::value(VALUE_VERSION, &state));
    let mut records = vec![Record { key: state_key(key), value: state_value }];
    if row.last_mirror_epoch != -1 {
        let epochs = LastMirrorEpochsValue {
            topics: vec![LastMirrorEpochsTopic {
                name: row.topic.clone(),
                partitions: vec![LastMirrorEpochsPartition {
                    partition_index: key.partition,
                    last_mirror_epoch: row.last_mirror_epoch,
                    last_mirrored_offset: row.last_mirrored_offset,
                }],
            }],
        };
        let value = Some(record_form::value(VALUE_VERSION, &epochs));
        records.push(Record { key: epochs_key(key), value });
    }
    records
}

/// What deletes a row.
pub(super) fn tombstones(key: &RowKey) -> [Record; 2] {
    [Record { key: state_key(key), value: None }, Record { key: epochs_key(key), value: None }]
}

/// What deletes the rows of revision 205's layout.
pub(super) fn named_tombstones(mirror: &str) -> [Record; 2] {
    let state = MirrorPartitionStateKey { mirror_name: mirror.to_owned(), ..Default::default() };
    let epochs = LastMirrorEpochsKey { mirror_name: mirror.to_owned(), ..Default::default() };
    [
        Record { key: record_form::key(STATE, NAMED_KEY, &state), value: None },
        Record { key: record_form::key(EPOCHS, NAMED_KEY, &epochs), value: None },
    ]
}

fn state_key(key: &RowKey) -> Bytes {
    let fields = MirrorPartitionStateKey {
        mirror_name: key.mirror.clone(),
        topic_id: key.topic_id,
        partition: key.partition,
    };
    record_form::key(STATE, KEY, &fields)
}

fn epochs_key(key: &RowKey) -> Bytes {
    let fields = LastMirrorEpochsKey {
        mirror_name: key.mirror.clone(),
        topic_id: key.topic_id,
        partition: key.partition,
    };
    record_form::key(EPOCHS, KEY, &fields)
}

/// Takes one record into the rows.
pub(super) fn replay(
    rows: &mut Rows,
    key: &Bytes,
    value: Option<&Bytes>,
) -> Result<(), ReplayError> {
    let (record_type, fields) = record_form::split(key);
    if record_type != STATE && record_type != EPOCHS {
        return Err(ReplayError::UnknownType { record_type });
    }
    let version = if is_named(&fields) { NAMED_KEY } else { KEY };
    if record_type == STATE {
        let key: MirrorPartitionStateKey = record_form::read(record_type, version, fields)?;
        let value = value.map(|value| record_form::read_value(record_type, value)).transpose()?;
        replay_state(rows, version, key, value);
    } else {
        let key: LastMirrorEpochsKey = record_form::read(record_type, version, fields)?;
        let value = value.map(|value| record_form::read_value(record_type, value)).transpose()?;
        replay_epochs(rows, version, key, value);
    }
    Ok(())
}

/// Whether a key ends after the mirror's name.
fn is_named(fields: &Bytes) -> bool {
    let Some(length) = fields.first_chunk::<2>() else {
        return true;
    };
    let name_end = 2 + usize::from(u16::from_be_bytes(*length));
    fields.len() != name_end + KEY_TAIL_BYTES
}

fn replay_state(
    rows: &mut Rows,
    version: i16,
    key: MirrorPartitionStateKey,
    value: Option<MirrorPartitionStateValue>,
) {
    let row_key =
        RowKey { mirror: key.mirror_name, topic_id: key.topic_id, partition: key.partition };
    let Some(value) = value else {
        if version == NAMED_KEY {
            rows.forget_named(&row_key.mirror);
        } else {
            rows.forget_state(&row_key);
        }
        return;
    };
    let row = if version == NAMED_KEY {
        rows.named_entry(&row_key.mirror, &value.topic_name, value.partition)
    } else {
        rows.entry(row_key, &value.topic_name)
    };
    // The epoch's own record has the offset too, for readers of revision 205's layout.
    let last_mirrored_offset = value.last_mirrored_offset.max(row.last_mirrored_offset);
    *row = Row {
        topic: value.topic_name,
        state: value.state,
        previous_state: value.previous_state,
        attempt: value.attempt,
        reason: value.reason,
        leader_epoch: value.leader_epoch,
        transition: value.transition,
        last_mirror_epoch: row.last_mirror_epoch,
        last_mirrored_offset,
        records_cut: value.records_cut,
        aborted_producers: value.aborted_producers,
    };
}

fn replay_epochs(
    rows: &mut Rows,
    version: i16,
    key: LastMirrorEpochsKey,
    value: Option<LastMirrorEpochsValue>,
) {
    let row_key =
        RowKey { mirror: key.mirror_name, topic_id: key.topic_id, partition: key.partition };
    let Some(value) = value else {
        if version == NAMED_KEY {
            rows.forget_named(&row_key.mirror);
        } else {
            rows.forget_epoch(&row_key);
        }
        return;
    };
    for topic in value.topics {
        for partition in topic.partitions {
            let row = if version == NAMED_KEY {
                rows.named_entry(&row_key.mirror, &topic.name, partition.partition_index)
            } else {
                rows.entry(row_key.clone(), &topic.name)
            };
            row.last_mirror_epoch = partition.last_mirror_epoch;
            if partition.last_mirrored_offset != -1 {
                row.last_mirrored_offset = partition.last_mirrored_offset;
            }
        }
    }
}
