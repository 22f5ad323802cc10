//! Byte for byte against the Java classes: they read what we write, use all of it, and write
//! the same. Once both agree, the committed vectors can be written anew.

use crate::filling::{Fill, Visitor, filled, to_hex, visit_all};
use crate::kafka_libs;
use crate::layouts::{ONLY_OURS, OUR_VERSIONS};
use crate::vectors;
use protocol::Message;
use protocol::api::{ApiKey, RequestHeader, ResponseHeader};
use std::fmt::{Debug, Write as _};
use std::fs::File;

const SEEDS: u64 = 40;

/// The lines given to Java: message, version, bytes.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn push(&mut self, name: &str, version: i16, bytes: &[u8]) {
        writeln!(self.0, "{name} {version} {}", to_hex(bytes)).unwrap();
    }
}

impl Visitor for Lines {
    fn visit<M: Message + Fill + Clone + PartialEq + Debug>(&mut self) {
        if ONLY_OURS.contains(&M::NAME) {
            return;
        }
        for version in M::VERSIONS.filter(|version| !OUR_VERSIONS.contains(&(M::NAME, *version))) {
            for seed in 0..SEEDS {
                let message: M = filled(seed, version);
                self.push(M::NAME, version, &message.to_bytes(version).unwrap());
            }
        }
    }
}

fn push_headers(lines: &mut Lines) {
    for key in ApiKey::ALL.iter().filter(|key| !key.is_mirroring() && !key.is_private()) {
        for version in key.versions() {
            for client_id in [None, Some(String::new()), Some("client-1".to_owned())] {
                let header = RequestHeader {
                    api_key: key.as_i16(),
                    api_version: version,
                    correlation_id: -7,
                    client_id,
                };
                let mut out = bytes::BytesMut::new();
                header.encode(&mut out).unwrap();
                lines.push("RequestHeader", key.request_header_version(version), &out);
            }
            let mut out = bytes::BytesMut::new();
            ResponseHeader { correlation_id: 9 }.encode(*key, version, &mut out);
            lines.push("ResponseHeader", key.response_header_version(version), &out);
        }
    }
}

#[test]
fn java_reads_and_writes_the_same_bytes() {
    let mut lines = Lines::default();
    visit_all(&mut lines);
    push_headers(&mut lines);
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("messages.txt");
    std::fs::write(&input, &lines.0).unwrap();
    let program = kafka_libs::repository().join("tests/interop/java/CodecCheck.java");
    let output = kafka_libs::java()
        .arg(program)
        .stdin(File::open(&input).unwrap())
        .output()
        .expect("`java` comes with the JDK that `scripts/kafka.sh fetch` installs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaints}");
    assert_eq!(said.trim(), format!("{} messages agree", lines.0.lines().count()));
    if std::env::var_os("HELIOGRAPH_WRITE_VECTORS").is_some() {
        vectors::write();
    }
}
