//! The bytes on disk and on the wire are frozen: what one release writes every later one reads.

use std::collections::BTreeMap;

use openraft::entry::RaftEntry;
use openraft::raft::{AppendEntriesRequest, VoteRequest};
use openraft::{EntryPayload, Membership};

use super::log_storage::encode_value;
use super::rpc::{Call, Request};
use super::type_config::{CommittedLeader, Entry, LogId, Vote};
use super::*;
use crate::envelope::{self, HEADER_BYTES, Kind};
use crate::{FeatureLevel, MetadataRecord};

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeader::new(term), index)
}

fn entries() -> [Entry; 3] {
    let records = vec![MetadataRecord::FeatureLevel(FeatureLevel {
        name: String::from("metadata.version"),
        level: 25,
    })];
    let voters = BTreeSet::from([RaftId(11), RaftId(22)]);
    let nodes = BTreeMap::from([
        (RaftId(11), NodeId(1)),
        (RaftId(22), NodeId(2)),
        (RaftId(33), NodeId(300)),
    ]);
    let membership = Membership::new(vec![voters], nodes).unwrap();
    [
        Entry::new(log_id(0, 0), EntryPayload::Membership(membership)),
        Entry::new(log_id(1, 1), EntryPayload::Blank),
        Entry::new(log_id(1, 300), EntryPayload::Normal(RecordBatch::new(records))),
    ]
}

/// The payload of an envelope in hexadecimal.
fn payload(bytes: &[u8]) -> String {
    bytes[HEADER_BYTES..].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn entries_and_small_values_keep_their_bytes() {
    let mut lines = Vec::new();
    for entry in entries() {
        let bytes = envelope::encode(Kind::Entry, 1, &entry, 1 << 20).unwrap();
        let read: Entry = envelope::decode(Kind::Entry, 1, &bytes, 1 << 20).unwrap();
        assert_eq!(read, entry);
        lines.push(format!("entry {}", payload(&bytes)));
    }
    let vote = Vote::new_committed(3, RaftId(11));
    lines.push(format!("vote {}", payload(&encode_value(Kind::Vote, &vote).unwrap())));
    let last = log_id(7, 1_000);
    lines.push(format!("log id {}", payload(&encode_value(Kind::LogId, &last).unwrap())));
    lines.push(format!("member {}", payload(&encode_value(Kind::Identity, &RaftId(9)).unwrap())));
    let expected = [
        "entry 00000201020b16030b02160421fb5802",
        "entry 010100",
        "entry 01fb2c01010101106d657461646174612e76657273696f6e32",
        "vote 03010b01",
        "log id 07fbe803",
        "member 09",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn calls_keep_their_bytes() {
    let vote = Vote::new(3, RaftId(11));
    let calls = [
        Call::Vote(VoteRequest::new(vote, Some(log_id(2, 40)))),
        Call::Append(AppendEntriesRequest {
            vote: Vote::new_committed(3, RaftId(11)),
            prev_log_id: Some(log_id(2, 40)),
            entries: vec![Entry::new(log_id(3, 41), EntryPayload::Blank)],
            leader_commit: None,
        }),
    ];
    let lines = calls.map(|call| {
        let request = Request { from: RaftId(11), to: RaftId(22), call };
        payload(&request.encode().unwrap())
    });
    let expected = ["0b160003010b0001022800", "0b160203010b010102280103290000"];
    assert_eq!(lines.to_vec(), expected);
}
