//! The tables against the layouts in Kafka's jars: equal but for what is listed here by name,
//! and failing the day Kafka takes a key, version or code of cluster mirroring's.

use crate::kafka_libs;
use crate::schema::{self, Field, Kind, Message, Versions};
use protocol::error_code::{ErrorCode, MirrorErrorCode};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Messages that Kafka does not have.
pub const ONLY_OURS: [&str; 37] = [
    "BumpLeaderEpochsRequest",
    "BumpLeaderEpochsResponse",
    "CreateMirrorRequest",
    "CreateMirrorResponse",
    "DeleteMirrorRequest",
    "DeleteMirrorResponse",
    "DescribeMirrorsRequest",
    "DescribeMirrorsResponse",
    "ForwardRequest",
    "ForwardResponse",
    "LastMirrorEpochsKey",
    "LastMirrorEpochsValue",
    "ListMirrorsRequest",
    "ListMirrorsResponse",
    "MirrorPartitionStateKey",
    "MirrorPartitionStateValue",
    "MirrorPidReset",
    "PauseMirrorTopicsRequest",
    "PauseMirrorTopicsResponse",
    "QuorumHelloRequest",
    "QuorumHelloResponse",
    "RaftRpcRequest",
    "RaftRpcResponse",
    "ReadMirrorStatesRequest",
    "ReadMirrorStatesResponse",
    "RecordMirrorStopsRequest",
    "RecordMirrorStopsResponse",
    "RecordSourceClusterIdRequest",
    "RecordSourceClusterIdResponse",
    "ResumeMirrorTopicsRequest",
    "ResumeMirrorTopicsResponse",
    "StartMirrorTopicsRequest",
    "StartMirrorTopicsResponse",
    "StopMirrorTopicsRequest",
    "StopMirrorTopicsResponse",
    "WriteMirrorStatesRequest",
    "WriteMirrorStatesResponse",
];

/// The one version of a message that only we have.
pub const OUR_VERSIONS: [(&str, i16); 6] = [
    ("CreateTopicsRequest", 8),
    ("CreateTopicsResponse", 8),
    ("FetchRequest", 19),
    ("FetchResponse", 19),
    ("FindCoordinatorRequest", 7),
    ("FindCoordinatorResponse", 7),
];

/// Fields that only we have, all of them in those versions.
const OUR_FIELDS: [(&str, &str); 3] = [
    ("CreateTopicsRequest", "MirrorInfo"),
    ("FetchRequest", "MirrorLeaderEpoch"),
    ("FetchResponse", "MirrorLeaderEpoch"),
];

/// The key that cluster mirroring shares with Kafka's UnregisterController.
const SHARED_KEY: i16 = 94;

fn tables() -> Vec<Message> {
    let mut messages = Vec::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/schemas")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        messages.extend(schema::parse(&path.to_string_lossy(), &text).unwrap());
    }
    messages
}

fn versions(layout: &Value, name: &str) -> Versions {
    match layout.get(name) {
        Some(Value::String(text)) => Versions::parse(text).unwrap(),
        _ => Versions::NONE,
    }
}

fn versions_of_ours(message: &Message) -> Versions {
    let mut versions = message.versions;
    if let Some((_, ours)) = OUR_VERSIONS.iter().find(|(name, _)| *name == message.name) {
        assert_eq!(versions.last, *ours, "{}", message.name);
        versions.last -= 1;
    }
    versions
}

/// A default as the type's own zero, or as it is written.
fn default_of(kind: &str, default: Option<&str>) -> String {
    match default {
        None | Some("") => match kind {
            "bool" => "false".to_owned(),
            "records" => "null".to_owned(),
            "int8" | "int16" | "uint16" | "int32" | "int64" | "float64" => "0".to_owned(),
            _ => String::new(),
        },
        Some(default) => default.to_ascii_lowercase(),
    }
}

fn json_default(layout: &Value) -> Option<String> {
    match layout.get("default") {
        None => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    }
}

fn is_true(layout: &Value) -> bool {
    layout == &Value::Bool(true) || layout == &Value::String("true".to_owned())
}

/// One line that says everything about a field but its nested ones.
fn json_line(field: &Value, within: Versions) -> String {
    let kind = field["type"].as_str().unwrap();
    format!(
        "{} {kind} {} nullable {} tag {:?} default {:?} ignorable {}",
        field["name"].as_str().unwrap(),
        versions(field, "versions").intersect(within),
        versions(field, "nullableVersions").intersect(within),
        field.get("tag").and_then(Value::as_u64),
        default_of(kind, json_default(field).as_deref()),
        field.get("ignorable").is_some_and(is_true),
    )
}

fn our_line(field: &Field, within: Versions) -> String {
    let kind = field.kind.to_string();
    format!(
        "{} {kind} {} nullable {} tag {:?} default {:?} ignorable {}",
        field.name,
        field.versions.intersect(within),
        field.nullable.intersect(within),
        field.tag.map(u64::from),
        default_of(&kind, field.default.as_deref()),
        field.ignorable,
    )
}

fn json_lines(fields: &Value, within: Versions, depth: usize, lines: &mut Vec<String>) {
    for field in fields.as_array().into_iter().flatten() {
        lines.push(format!("{}{}", "  ".repeat(depth), json_line(field, within)));
        if let Some(tagged) = field.get("taggedVersions") {
            assert_eq!(Some(tagged), field.get("versions"), "a tag in some versions only");
        }
        json_lines(&field["fields"], within, depth + 1, lines);
    }
}

fn our_lines(
    message: &str,
    fields: &[Field],
    within: Versions,
    depth: usize,
    lines: &mut Vec<String>,
) {
    for field in fields {
        if OUR_FIELDS.contains(&(message, &field.name)) {
            assert!(field.versions.intersect(within).is_empty(), "{}", field.name);
            continue;
        }
        lines.push(format!("{}{}", "  ".repeat(depth), our_line(field, within)));
        our_lines(message, &field.fields, within, depth + 1, lines);
    }
}

fn compare(message: &Message, layout: &Value) {
    let name = &message.name;
    let within = versions_of_ours(message);
    assert_eq!(versions(layout, "validVersions"), within, "{name}: versions");
    let flexible = versions(layout, "flexibleVersions");
    assert_eq!(flexible.intersect(within), message.flexible.intersect(within), "{name}: flexible");
    let key = layout.get("apiKey").and_then(Value::as_i64);
    assert_eq!(key, message.key.map(i64::from), "{name}: key");
    let unstable = layout.get("latestVersionUnstable").is_some_and(is_true);
    assert_eq!(message.unstable, unstable.then_some(within.last), "{name}: unstable");
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    json_lines(&layout["fields"], within, 0, &mut theirs);
    our_lines(name, &message.fields, within, 0, &mut ours);
    assert_eq!(ours.join("\n"), theirs.join("\n"), "{name}: fields");
    let structs: BTreeMap<&str, &Value> = layout["commonStructs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|each| (each["name"].as_str().unwrap(), each))
        .collect();
    assert_eq!(structs.len(), message.structs.len(), "{name}: structs");
    for each in &message.structs {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        let layout = structs[each.name.as_str()];
        assert_eq!(versions(layout, "versions"), each.versions, "{name}: {}", each.name);
        json_lines(&layout["fields"], within, 0, &mut theirs);
        our_lines(name, &each.fields, within, 0, &mut ours);
        assert_eq!(ours.join("\n"), theirs.join("\n"), "{name}: {}", each.name);
    }
}

#[test]
fn tables_equal_kafkas_layouts() {
    let layouts = kafka_libs::layouts();
    let mut without = BTreeSet::new();
    for message in tables() {
        match layouts.get(&message.name) {
            Some(layout) => compare(&message, layout),
            None => drop(without.insert(message.name)),
        }
    }
    let listed: BTreeSet<String> = ONLY_OURS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(without, listed, "messages that the jars do not have");
}

#[test]
fn kafka_takes_none_of_our_keys_but_the_shared_one() {
    let ours: BTreeMap<i16, String> = tables()
        .into_iter()
        .filter(|message| message.kind == Kind::Request)
        .filter(|message| ONLY_OURS.contains(&message.name.as_str()))
        .map(|message| (message.key.unwrap(), message.name))
        .collect();
    let mut shared = Vec::new();
    for (name, layout) in kafka_libs::layouts() {
        let key = layout.get("apiKey").and_then(Value::as_i64);
        let request = layout["type"] == "request" || layout["type"] == "response";
        let Some(key) = key.filter(|_| request) else { continue };
        let key = i16::try_from(key).unwrap();
        if key == SHARED_KEY {
            shared.push(name);
        } else if let Some(taken) = ours.get(&key) {
            panic!("Kafka's {name} has key {key}, which is our {taken}");
        }
    }
    assert_eq!(shared, ["UnregisterControllerRequest", "UnregisterControllerResponse"]);
}

/// `NOT_COORDINATOR` from `NotCoordinator`.
fn upper_snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

/// Rows of the HTML table that Kafka's error enum prints: name, code, retriable.
fn kafkas_errors() -> Vec<(String, i16, bool)> {
    let output = kafka_libs::java()
        .arg("org.apache.kafka.common.protocol.Errors")
        .output()
        .expect("`java` comes with the JDK that `scripts/kafka.sh fetch` installs");
    let text = String::from_utf8(output.stdout).unwrap();
    let cells: Vec<&str> = text
        .split("<td>")
        .skip(1)
        .map(|cell| cell.split("</td>").next().unwrap_or_default())
        .collect();
    cells
        .chunks_exact(4)
        .map(|row| (row[0].to_owned(), row[1].parse().unwrap(), row[2] == "True"))
        .collect()
}

#[test]
fn error_codes_equal_kafkas_and_none_of_ours_is_taken() {
    let theirs = kafkas_errors();
    let ours: Vec<(String, i16, bool)> = ErrorCode::ALL
        .iter()
        .map(|code| (upper_snake(&format!("{code:?}")), code.code(), code.is_retriable()))
        .collect();
    assert_eq!(ours, theirs);
    let shared: Vec<(i16, &str)> = theirs
        .iter()
        .filter(|(_, code, _)| MirrorErrorCode::from_code(*code).is_some())
        .map(|(name, code, _)| (*code, name.as_str()))
        .collect();
    let known = [
        (134, "GROUP_DELETION_FAILED"),
        (135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED"),
        (136, "CONTROLLER_ID_NOT_REGISTERED"),
    ];
    assert_eq!(shared, known, "codes that Kafka and cluster mirroring both use");
}
