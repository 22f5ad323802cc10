//! The mirror coordinator of one partition of `__mirror_state`: the stored state and last mirror
//! epoch of mirror partitions. Owns fencing and the rows; never decides a state (the partition's
//! leader does, by the rules of mirroring).
//!
//! A row is refused with FENCED_LEADER_EPOCH when its leader epoch is lower than the stored one,
//! or its transition number not above it; the very same row sent again succeeds.

#[cfg(test)]
mod fencing_test;
mod records;
mod rows;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use protocol::error_code::ErrorCode;
use protocol::ids::TimestampMs;
use protocol::messages::read_mirror_states_response::{
    ReadMirrorStatePartitionResult, ReadMirrorStateTopicResult,
};
use protocol::messages::write_mirror_states_request::{
    WriteMirrorStatePartition, WriteMirrorStateTopic,
};
use protocol::messages::write_mirror_states_response::{
    WriteMirrorStatePartitionResult, WriteMirrorStateTopicResult,
};
use protocol::messages::{
    ReadMirrorStatesRequest, ReadMirrorStatesResponse, WriteMirrorStatesRequest,
    WriteMirrorStatesResponse,
};
use uuid::Uuid;

use crate::machine::{Effect, Effects, Machine, ReplayError, RequestId, Token, client_code};
use crate::record_form::KEY_STRING_BYTES_MAX;

pub use rows::{MirrorRow, RowKey};
use rows::{Row, Rows};

/// The state byte that leaves the stored state alone.
const LEAVE_STATE: i8 = 16;

/// What the mirror coordinator is asked. The caller sends a partition only to the shard that
/// coordinates it, and answers NOT_COORDINATOR itself for the others.
#[derive(Clone, Debug, PartialEq)]
pub enum MirrorStateCommand {
    /// WriteMirrorStates; every topic has its id.
    Write(WriteMirrorStatesRequest),
    /// ReadMirrorStates; the request has names only, so the caller adds the ids it knows.
    Read {
        /// The request.
        request: ReadMirrorStatesRequest,
        /// Topic ids by name.
        topic_ids: BTreeMap<String, Uuid>,
    },
    /// This shard's rows of a mirror, for describe.
    Describe {
        /// The mirror's name.
        mirror: String,
    },
    /// A topic was deleted: its rows go.
    TopicDeleted {
        /// The topic.
        topic_id: Uuid,
    },
    /// A mirror was deleted: its rows go.
    MirrorDeleted {
        /// The mirror's name.
        mirror: String,
    },
}

/// What the mirror coordinator answers; one variant a command.
#[derive(Clone, Debug, PartialEq)]
pub enum MirrorStateResponse {
    /// To Write.
    Write(WriteMirrorStatesResponse),
    /// To Read.
    Read(ReadMirrorStatesResponse),
    /// To Describe: rows by topic id and partition.
    Describe(Vec<MirrorRow>),
    /// To TopicDeleted and MirrorDeleted: the tombstones are committed, or there were none. An
    /// error means that the caller tries again.
    Deleted(ErrorCode),
}

/// The mirror coordinator has no timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MirrorStateTimer {}

/// An append that is under way.
#[derive(Clone, Debug, PartialEq)]
enum Pending {
    Write { rows: Vec<(RowKey, Row)> },
    Delete { topic: Option<Uuid>, mirror: Option<String>, to: RequestId },
}

/// A write whose answer waits for appends: its own, and those of rows it repeats.
#[derive(Clone, Debug, PartialEq)]
struct Waiting {
    response: WriteMirrorStatesResponse,
    /// Which partitions of the response wait for which append: topic and partition positions.
    places: Vec<(Token, usize, usize)>,
}

/// The machine behind one partition of `__mirror_state`.
#[derive(Debug, Default)]
pub struct MirrorStateMachine {
    rows: Rows,
    in_flight: BTreeMap<RowKey, (Token, Row)>,
    pending: BTreeMap<Token, Pending>,
    waiting: BTreeMap<RequestId, Waiting>,
    last_token: u64,
}

impl MirrorStateMachine {
    /// An empty machine.
    #[must_use]
    pub fn new() -> MirrorStateMachine {
        MirrorStateMachine::default()
    }

    /// How many partitions have a row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no partition has a row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    fn next_token(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    fn on_write(&mut self, to: RequestId, request: &WriteMirrorStatesRequest) -> Effects<Self> {
        let token = self.next_token();
        let mut accepted: Vec<(RowKey, Row)> = Vec::new();
        let mut places = Vec::new();
        let mut topics = Vec::with_capacity(request.topics.len());
        for (at_topic, topic) in request.topics.iter().enumerate() {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for (at_partition, partition) in topic.partitions.iter().enumerate() {
                let judged = self.judge(&request.mirror_name, topic, partition, token);
                let code = match judged {
                    Judged::Accept(key, row) => {
                        self.in_flight.insert(key.clone(), (token, row.clone()));
                        accepted.push((key, row));
                        places.push((token, at_topic, at_partition));
                        ErrorCode::None
                    }
                    Judged::Repeat(Some(earlier)) => {
                        places.push((earlier, at_topic, at_partition));
                        ErrorCode::None
                    }
                    Judged::Repeat(None) => ErrorCode::None,
                    Judged::Refuse(code) => code,
                };
                partitions.push(WriteMirrorStatePartitionResult {
                    partition_index: partition.partition_index,
                    error_code: code.code(),
                });
            }
            topics.push(WriteMirrorStateTopicResult { name: topic.name.clone(), partitions });
        }
        let response =
            WriteMirrorStatesResponse { topics, ..WriteMirrorStatesResponse::default() };
        if places.is_empty() {
            return vec![reply(to, MirrorStateResponse::Write(response))];
        }
        self.waiting.insert(to, Waiting { response, places });
        if accepted.is_empty() {
            return Vec::new();
        }
        let records = accepted.iter().flat_map(|(key, row)| records::of_row(key, row)).collect();
        self.pending.insert(token, Pending::Write { rows: accepted });
        vec![Effect::Append { records, token }]
    }

    fn judge(
        &self,
        mirror: &str,
        topic: &WriteMirrorStateTopic,
        partition: &WriteMirrorStatePartition,
        token: Token,
    ) -> Judged {
        if !rows::is_state(partition.state) || mirror.len() > KEY_STRING_BYTES_MAX {
            return Judged::Refuse(ErrorCode::InvalidRequest);
        }
        if topic.topic_id.is_nil() {
            return Judged::Refuse(ErrorCode::UnknownTopicId);
        }
        let key = RowKey {
            mirror: mirror.to_owned(),
            topic_id: topic.topic_id,
            partition: partition.partition_index,
        };
        let (earlier, stored) = match self.in_flight.get(&key) {
            Some((earlier, row)) => (Some(*earlier), Some(row.clone())),
            None => (None, self.rows.find(&key, &topic.name).cloned()),
        };
        let row = rows::merge(stored.clone(), &topic.name, partition);
        let Some(stored) = stored else {
            return Judged::Accept(key, row);
        };
        if earlier == Some(token) {
            // The same partition twice in one request.
            return Judged::Refuse(ErrorCode::InvalidRequest);
        }
        if partition.leader_epoch == stored.leader_epoch
            && partition.transition == stored.transition
            && row == stored
        {
            return Judged::Repeat(earlier);
        }
        if partition.leader_epoch < stored.leader_epoch
            || partition.transition <= stored.transition
        {
            return Judged::Refuse(ErrorCode::FencedLeaderEpoch);
        }
        Judged::Accept(key, row)
    }

    fn on_read(
        &self,
        request: &ReadMirrorStatesRequest,
        topic_ids: &BTreeMap<String, Uuid>,
    ) -> ReadMirrorStatesResponse {
        let topics = request
            .topics
            .iter()
            .map(|topic| {
                let topic_id = topic_ids.get(&topic.name).copied().unwrap_or_default();
                let partitions = topic
                    .partitions
                    .iter()
                    .map(|partition| {
                        let key = RowKey {
                            mirror: request.mirror_name.clone(),
                            topic_id,
                            partition: partition.partition_index,
                        };
                        read_result(partition.partition_index, self.rows.find(&key, &topic.name))
                    })
                    .collect();
                ReadMirrorStateTopicResult { name: topic.name.clone(), partitions }
            })
            .collect();
        ReadMirrorStatesResponse { topics, ..ReadMirrorStatesResponse::default() }
    }

    fn on_delete(
        &mut self,
        to: RequestId,
        topic: Option<Uuid>,
        mirror: Option<String>,
    ) -> Effects<Self> {
        let keys: BTreeSet<&RowKey> = self
            .rows
            .keys()
            .chain(self.in_flight.keys())
            .filter(|key| rows::is_meant(key, topic, mirror.as_deref()))
            .collect();
        let mut records: Vec<_> = keys.into_iter().flat_map(records::tombstones).collect();
        if let Some(mirror) = &mirror
            && self.rows.has_named(mirror)
        {
            records.extend(records::named_tombstones(mirror));
        }
        if records.is_empty() {
            return vec![reply(to, MirrorStateResponse::Deleted(ErrorCode::None))];
        }
        let token = self.next_token();
        self.pending.insert(token, Pending::Delete { topic, mirror, to });
        vec![Effect::Append { records, token }]
    }

    fn finish_write(&mut self, token: Token, result: Result<(), ErrorCode>) -> Effects<Self> {
        let code = result.err().map_or(ErrorCode::None, client_code);
        let mut done = Vec::new();
        for (to, waiting) in &mut self.waiting {
            for (_, topic, partition) in waiting.places.iter().filter(|place| place.0 == token) {
                waiting.response.topics[*topic].partitions[*partition].error_code = code.code();
            }
            waiting.places.retain(|place| place.0 != token);
            if waiting.places.is_empty() {
                done.push(*to);
            }
        }
        done.into_iter()
            .filter_map(|to| {
                let waiting = self.waiting.remove(&to)?;
                Some(reply(to, MirrorStateResponse::Write(waiting.response)))
            })
            .collect()
    }
}

/// What is to become of one written row.
enum Judged {
    Accept(RowKey, Row),
    /// The very row that is stored, or in flight under this append.
    Repeat(Option<Token>),
    Refuse(ErrorCode),
}

impl Machine for MirrorStateMachine {
    type Command = MirrorStateCommand;
    type Response = MirrorStateResponse;
    type Timer = MirrorStateTimer;

    fn replay(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), ReplayError> {
        records::replay(&mut self.rows, key, value)
    }

    fn on_loaded(&mut self, _now: TimestampMs) -> Effects<Self> {
        Vec::new()
    }

    fn handle(
        &mut self,
        _now: TimestampMs,
        request: RequestId,
        command: MirrorStateCommand,
    ) -> Effects<Self> {
        match command {
            MirrorStateCommand::Write(body) => self.on_write(request, &body),
            MirrorStateCommand::Read { request: body, topic_ids } => {
                let response = self.on_read(&body, &topic_ids);
                vec![reply(request, MirrorStateResponse::Read(response))]
            }
            MirrorStateCommand::Describe { mirror } => {
                let rows = self.rows.of_mirror(&mirror);
                vec![reply(request, MirrorStateResponse::Describe(rows))]
            }
            MirrorStateCommand::TopicDeleted { topic_id } => {
                self.on_delete(request, Some(topic_id), None)
            }
            MirrorStateCommand::MirrorDeleted { mirror } => {
                self.on_delete(request, None, Some(mirror))
            }
        }
    }

    fn on_appended(
        &mut self,
        _now: TimestampMs,
        token: Token,
        result: Result<(), ErrorCode>,
    ) -> Effects<Self> {
        match self.pending.remove(&token) {
            Some(Pending::Write { rows }) => {
                for (key, row) in rows {
                    if self.in_flight.get(&key).is_some_and(|(newest, _)| *newest == token) {
                        self.in_flight.remove(&key);
                    }
                    if result.is_ok() {
                        self.rows.put(key, row);
                    }
                }
                self.finish_write(token, result)
            }
            Some(Pending::Delete { topic, mirror, to }) => {
                if result.is_ok() {
                    self.rows.remove(topic, mirror.as_deref());
                }
                let code = result.err().map_or(ErrorCode::None, client_code);
                vec![reply(to, MirrorStateResponse::Deleted(code))]
            }
            None => Vec::new(),
        }
    }

    fn on_timer(&mut self, _now: TimestampMs, timer: MirrorStateTimer) -> Effects<Self> {
        match timer {}
    }

    fn on_resigned(&mut self) -> Effects<Self> {
        let code = ErrorCode::NotCoordinator;
        let mut effects = Vec::new();
        for (to, mut waiting) in std::mem::take(&mut self.waiting) {
            for (_, topic, partition) in &waiting.places {
                waiting.response.topics[*topic].partitions[*partition].error_code = code.code();
            }
            effects.push(reply(to, MirrorStateResponse::Write(waiting.response)));
        }
        for pending in std::mem::take(&mut self.pending).into_values() {
            if let Pending::Delete { to, .. } = pending {
                effects.push(reply(to, MirrorStateResponse::Deleted(code)));
            }
        }
        self.in_flight.clear();
        effects
    }
}

fn reply(
    to: RequestId,
    response: MirrorStateResponse,
) -> Effect<MirrorStateResponse, MirrorStateTimer> {
    Effect::Reply { to, response }
}

fn read_result(partition: i32, row: Option<&Row>) -> ReadMirrorStatePartitionResult {
    let unknown = ReadMirrorStatePartitionResult {
        partition_index: partition,
        last_mirror_epoch: -1,
        state: LEAVE_STATE,
        ..ReadMirrorStatePartitionResult::default()
    };
    let Some(row) = row else {
        return unknown;
    };
    ReadMirrorStatePartitionResult {
        last_mirror_epoch: row.last_mirror_epoch,
        state: row.state,
        previous_state: row.previous_state,
        attempt: row.attempt,
        reason: row.reason.clone(),
        leader_epoch: row.leader_epoch,
        transition: row.transition,
        last_mirrored_offset: row.last_mirrored_offset,
        records_cut: row.records_cut,
        aborted_producers: row.aborted_producers.clone(),
        ..unknown
    }
}
