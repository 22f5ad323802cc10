//! Where Kafka's jars are, and what is in them. Starts `jar` and `java`, never a broker.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the jars.
pub fn folder() -> PathBuf {
    let folder = match std::env::var_os("HELIOGRAPH_KAFKA_LIBS") {
        Some(folder) => PathBuf::from(folder),
        None => repository().join(".kafka/libs/4.4.0"),
    };
    assert!(
        folder.join("kafka-clients-4.4.0.jar").exists(),
        "no Kafka jars in {}: run `scripts/kafka.sh fetch`, or name their folder in \
         HELIOGRAPH_KAFKA_LIBS",
        folder.display()
    );
    folder
}

/// The repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("src/protocol lies in it")
}

/// A `java` with the jars on its class path.
pub fn java() -> Command {
    let mut command = Command::new("java");
    command.arg("-Xmx512m").arg("-cp").arg(format!("{}/*", folder().display()));
    command
}

/// Every message layout in the jars, by name.
pub fn layouts() -> BTreeMap<String, Value> {
    let mut layouts = BTreeMap::new();
    for jar in ["kafka-clients-4.4.0.jar", "kafka-group-coordinator-4.4.0.jar"] {
        let unpacked = tempfile::tempdir().unwrap();
        let status = Command::new("jar")
            .arg("xf")
            .arg(std::fs::canonicalize(folder().join(jar)).unwrap())
            .arg("common/message")
            .current_dir(unpacked.path())
            .status()
            .expect("`jar` comes with the JDK that `scripts/kafka.sh fetch` installs");
        assert!(status.success(), "jar xf {jar}: {status}");
        for entry in std::fs::read_dir(unpacked.path().join("common/message")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let layout = parse(&std::fs::read_to_string(&path).unwrap());
                layouts.insert(layout["name"].as_str().unwrap().to_owned(), layout);
            }
        }
    }
    layouts
}

/// JSON with whole-line comments.
fn parse(text: &str) -> Value {
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    serde_json::from_str(&lines.join("\n")).unwrap()
}
