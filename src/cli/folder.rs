//! The folder a command keeps its clusters in: the user's own, which stays, or a temporary one,
//! which goes with the command whatever happens. Never looks into a node's part of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use log::disk::Disk;
use tempfile::TempDir;

/// Where the data lies. Dropping a temporary one removes it.
#[derive(Debug)]
pub enum Folder {
    /// Named by the user.
    Kept(PathBuf),
    /// Made for this run.
    Temporary(TempDir),
}

impl Folder {
    /// The folder `named`, made if it is not there, or a temporary one for `command`.
    ///
    /// # Errors
    /// One sentence, when it can be neither opened nor made.
    pub fn open(named: Option<&Path>, command: &str) -> Result<Folder> {
        match named {
            Some(path) => {
                std::fs::create_dir_all(path).with_context(|| {
                    let path = path.display();
                    format!("folder {path} cannot be made: choose another with --dir")
                })?;
                Ok(Folder::Kept(path.to_owned()))
            }
            None => {
                let prefix = format!("heliograph-{command}-");
                let made = TempDir::with_prefix(prefix).context(
                    "no temporary folder can be made: set TMPDIR to a folder that can be written",
                )?;
                Ok(Folder::Temporary(made))
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            Folder::Kept(path) => path,
            Folder::Temporary(made) => made.path(),
        }
    }

    /// What has to be removed by whoever ends the process without dropping this.
    pub fn temporary(&self) -> Option<PathBuf> {
        match self {
            Folder::Kept(_) => None,
            Folder::Temporary(made) => Some(made.path().to_owned()),
        }
    }

    /// Refuses to start another number of nodes than the folder was made by, where the cluster
    /// would wait for ever for the voters that are missing, and where a node's folder was taken
    /// away.
    ///
    /// # Errors
    /// One sentence with what to do.
    pub fn check_nodes(&self, nodes: usize) -> Result<()> {
        let path = self.path();
        let ids = node_ids(path)?;
        let held = ids.last().copied().unwrap_or(0);
        if let Some(missing) = (1..=held).find(|id| !ids.contains(id)) {
            let there: Vec<String> = ids.iter().map(|id| format!("node-{id}")).collect();
            let (path, there) = (path.display(), there.join(", "));
            bail!(
                "folder {path} holds {there}, but not node-{missing}: a node cannot rejoin its \
                 cluster with an emptied folder yet, so bring node-{missing}'s folder back, or \
                 choose an empty folder with --dir"
            );
        }
        let voters = |nodes: usize| if nodes < 3 { 1 } else { 3 };
        let node = |id: usize| path.join(format!("node-{id}"));
        let has_metadata = |id: usize| node(id).join("metadata").exists();
        if !(1..=voters(held)).any(has_metadata) && ids.iter().any(|id| has_logs(&node(*id))) {
            let path = path.display();
            bail!(
                "folder {path} holds partition logs, but no metadata that says what they are, \
                 and a new cluster would delete them: bring node-1/metadata back, or choose \
                 another --dir"
            );
        }
        if held > 0 && (nodes < held || voters(nodes) != voters(held)) {
            let path = path.display();
            let taken_away = match nodes > held {
                true => format!(" (or bring node-{nodes}'s folder back if it was taken away)"),
                false => String::new(),
            };
            bail!(
                "folder {path} holds a cluster of {held} node(s), not {nodes}: start it with \
                 --nodes {held}{taken_away}, or choose another --dir"
            );
        }
        Ok(())
    }
}

fn has_logs(node: &Path) -> bool {
    log::log_dir::holds_logs(&Disk::os(), &node.join("data")).unwrap_or(false)
}

/// The nodes that have a folder in `path`, in order.
fn node_ids(path: &Path) -> Result<BTreeSet<usize>> {
    let context = || format!("folder {} cannot be read", path.display());
    let mut ids = BTreeSet::new();
    for entry in std::fs::read_dir(path).with_context(context)? {
        let entry = entry.with_context(context)?;
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix("node-"));
        if let Some(id) = id.and_then(|id| id.parse().ok())
            && entry.path().is_dir()
        {
            ids.insert(id);
        }
    }
    Ok(ids)
}

/// How often a folder is removed that writers still make files in, and the pause in between.
const REMOVALS_MAX: usize = 20;
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);

/// Removes a temporary folder from under a process that ends at once: its writers may still make
/// files while it goes, hence more than one try.
pub fn remove_at_once(path: &Path) {
    for _ in 0..REMOVALS_MAX {
        if std::fs::remove_dir_all(path).is_ok() || !path.exists() {
            return;
        }
        std::thread::sleep(REMOVAL_PAUSE);
    }
    // What is left now is left to the system's own clean-up.
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_goes_and_a_named_one_stays() {
        let temporary = Folder::open(None, "test").unwrap();
        let path = temporary.path().to_owned();
        assert!(path.is_dir());
        let named = path.join("kept");
        drop(Folder::open(Some(&named), "test").unwrap());
        assert!(named.is_dir());
        drop(temporary);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_of_three_nodes_takes_three_or_more() {
        let folder = Folder::open(None, "test").unwrap();
        folder.check_nodes(1).unwrap();
        for id in 1..=3 {
            std::fs::create_dir(folder.path().join(format!("node-{id}"))).unwrap();
        }
        folder.check_nodes(3).unwrap();
        folder.check_nodes(5).unwrap();
        let refused = folder.check_nodes(1).unwrap_err().to_string();
        assert!(refused.contains("--nodes 3"), "{refused}");
    }

    #[test]
    fn logs_without_any_metadata_make_no_new_cluster() {
        let folder = Folder::open(None, "test").unwrap();
        for id in 1..=3 {
            std::fs::create_dir_all(folder.path().join(format!("node-{id}/data/t-0"))).unwrap();
        }
        let refused = folder.check_nodes(3).unwrap_err().to_string();
        assert!(refused.contains("bring node-1/metadata back"), "{refused}");
        std::fs::create_dir(folder.path().join("node-2/metadata")).unwrap();
        folder.check_nodes(3).unwrap();
    }

    #[test]
    fn a_node_that_was_taken_away_is_named() {
        let folder = Folder::open(None, "test").unwrap();
        for id in [1, 3] {
            std::fs::create_dir(folder.path().join(format!("node-{id}"))).unwrap();
        }
        let refused = folder.check_nodes(3).unwrap_err().to_string();
        assert!(refused.contains("holds node-1, node-3, but not node-2"), "{refused}");
        assert!(refused.contains("bring node-2's folder back"), "{refused}");
        assert!(!refused.contains("--nodes"), "{refused}");
    }
}
