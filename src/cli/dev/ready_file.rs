//! `--ready-file`: says to another program that topics can be created, and where. Owns the JSON
//! and that the file is there whole or not at all.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::banner::Facts;

#[derive(Serialize)]
struct Ready<'a> {
    /// For `bootstrap.servers`, comma-separated.
    bootstrap: &'a str,
    cluster_id: &'a str,
    nodes: Vec<ReadyNode<'a>>,
    /// From the start of the process until topics could be created, in milliseconds.
    ready_ms: u128,
}

#[derive(Serialize)]
struct ReadyNode<'a> {
    id: i32,
    address: &'a str,
}

/// Removes what an earlier run left: until the new one is ready there is no file.
///
/// # Errors
/// One sentence, when the file is there and stays.
pub fn remove_stale(file: Option<&Path>) -> Result<()> {
    let Some(file) = file else {
        return Ok(());
    };
    if std::fs::symlink_metadata(file).is_ok_and(|there| !there.is_file()) {
        bail!(
            "--ready-file {} is there and is no regular file: name one that may be replaced",
            file.display()
        );
    }
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let file = file.display();
            Err(error).context(format!("--ready-file {file} is there and cannot be replaced"))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes the file under another name and renames it.
///
/// # Errors
/// One sentence, when its folder cannot be written.
pub fn write(file: &Path, facts: &Facts) -> Result<()> {
    let mut beside: OsString = file.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    std::fs::write(&beside, json(facts)?)
        .and_then(|()| std::fs::rename(&beside, file))
        .with_context(|| format!("--ready-file {} cannot be written", file.display()))
}

fn json(facts: &Facts) -> Result<String> {
    let nodes = facts.nodes.iter().map(|(id, address)| ReadyNode { id: *id, address });
    let mut text = serde_json::to_string(&Ready {
        bootstrap: &facts.bootstrap,
        cluster_id: &facts.cluster_id,
        nodes: nodes.collect(),
        ready_ms: facts.ready.as_millis(),
    })?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::dev::banner::tests::facts;

    #[test]
    fn only_a_regular_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for path in [Path::new("/dev/null"), folder.path(), &link] {
            let refused = remove_stale(Some(path)).unwrap_err().to_string();
            assert!(refused.contains("no regular file"), "{refused}");
            assert!(std::fs::symlink_metadata(path).is_ok());
        }
    }

    #[test]
    fn the_file_is_whole_and_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ready.json");
        remove_stale(Some(&file)).unwrap();
        write(&file, &facts()).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(
            text,
            "{\"bootstrap\":\"127.0.0.1:9092,127.0.0.1:9093\",\"cluster_id\":\"id\",\
             \"nodes\":[{\"id\":1,\"address\":\"127.0.0.1:9092\"},\
             {\"id\":2,\"address\":\"127.0.0.1:9093\"}],\"ready_ms\":87}\n"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        remove_stale(Some(&file)).unwrap();
        assert!(!file.exists());
    }
}
