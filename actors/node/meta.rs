//! `meta.properties`: whose folder a log directory is. Written once, read at every start.

use std::path::Path;

use config::BrokerConfig;
use log::disk::Disk;
use protocol::ids::DirectoryId;

use crate::entropy::Entropy;

const FILE: &str = "meta.properties";

/// Why a folder is not this node's.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder cannot be read or written.
    #[error("{path}: {source}. Check the folder and its rights")]
    Io {
        /// The file.
        path: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file is there and is not readable as what it should be.
    #[error("{path} is not valid: {why}. Restore it, or start with an empty folder")]
    Invalid {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// Another node's folder.
    #[error("{path} belongs to node {found}, not to node {expected}: use another folder")]
    OtherNode {
        /// The file.
        path: String,
        /// The node it names.
        found: i32,
        /// This node.
        expected: i32,
    },
}

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Id of the directory.
    pub directory_id: DirectoryId,
}

/// Reads the file, or makes it in a folder that has none.
///
/// # Errors
/// The folder is another node's, or cannot be used.
pub fn load_or_create(
    disk: &Disk,
    folder: &Path,
    config: &BrokerConfig,
    entropy: &Entropy,
) -> Result<Meta, Error> {
    let path = folder.join(FILE);
    let shown = path.display().to_string();
    let failed = |source| Error::Io { path: shown.clone(), source };
    create_durably(disk, folder).map_err(failed)?;
    if disk.exists(&path).map_err(failed)? {
        let bytes = disk.read(&path).map_err(failed)?;
        return parse(&shown, &bytes, config.node_id);
    }
    let meta = Meta { directory_id: DirectoryId(entropy.next_uuid()) };
    let text =
        format!("version=1\nnode.id={}\ndirectory.id={}\n", config.node_id, meta.directory_id);
    disk.write_atomically(&path, text.as_bytes()).map_err(failed)?;
    Ok(meta)
}

/// Creates a folder whose name survives a loss of power, like what is synced in it.
fn create_durably(disk: &Disk, folder: &Path) -> std::io::Result<()> {
    let mut missing = Vec::new();
    for dir in folder.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        if disk.exists(dir)? {
            break;
        }
        missing.push(dir);
    }
    disk.create_dir(folder)?;
    for dir in missing {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        disk.sync_dir(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

fn parse(path: &str, bytes: &[u8], node_id: i32) -> Result<Meta, Error> {
    let invalid = |why: String| Error::Invalid { path: path.to_string(), why };
    let text = std::str::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
    let entries = config::parse_properties(text).map_err(|error| invalid(error.to_string()))?;
    let entry = |key: &str| entries.get(key).ok_or_else(|| invalid(format!("'{key}' is missing")));
    let found: i32 =
        entry("node.id")?.parse().map_err(|_| invalid("node.id is no number".to_string()))?;
    if found != node_id {
        return Err(Error::OtherNode { path: path.to_string(), found, expected: node_id });
    }
    let directory_id = entry("directory.id")?
        .parse()
        .map_err(|_| invalid("directory.id is no 22-character id".to_string()))?;
    Ok(Meta { directory_id })
}
