//! What `dev` prints once it is ready: one table, and two commands to try. Owns the facts that are
//! shown; asks nobody over the network for them.

use std::time::Duration;

use actors::dev::DevCluster;
use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};

use crate::cli::folder::Folder;

/// What there is to say of a cluster that is ready.
#[derive(Clone, Debug)]
pub struct Facts {
    /// For `bootstrap.servers`.
    pub bootstrap: String,
    /// The cluster's id.
    pub cluster_id: String,
    /// Each node's id and client address.
    pub nodes: Vec<(i32, String)>,
    /// Replicas of a topic that asks for no number.
    pub replication: usize,
    /// The folder, and whether it goes at the end.
    pub folder: (String, bool),
    /// From the start of the process until topics could be created.
    pub ready: Duration,
}

impl Facts {
    /// The facts of a cluster that is ready since `ready`.
    pub fn of(cluster: &DevCluster, folder: &Folder, ready: Duration) -> Facts {
        let nodes: Vec<(i32, String)> = cluster
            .directories()
            .iter()
            .filter_map(|(id, directory)| {
                let advertised = directory.advertised();
                let client = advertised.first()?;
                Some((id.0, format!("{}:{}", client.host, client.port)))
            })
            .collect();
        let cluster_id = cluster
            .directories()
            .values()
            .find_map(|directory| directory.image().cluster.id().map(str::to_owned));
        let settings = cluster.directories().values().map(|directory| &directory.config);
        let replication = settings.map(|config| config.default_replication_factor).next();
        let replication = replication.and_then(|factor| usize::try_from(factor).ok());
        let replication = replication.unwrap_or(nodes.len());
        let temporary = matches!(folder, Folder::Temporary(_));
        Facts {
            bootstrap: cluster.bootstrap(),
            cluster_id: cluster_id.unwrap_or_default(),
            replication,
            nodes,
            folder: (folder.path().display().to_string(), temporary),
            ready,
        }
    }
}

/// The table and the commands, with a newline at the end.
pub fn text(facts: &Facts) -> String {
    let program = program();
    let bootstrap = &facts.bootstrap;
    format!(
        "{}\n\nTry:\n  {program} kafka-mirrors --bootstrap-server {bootstrap} --list\n  \
         kcat -b {bootstrap} -L\nCtrl-C stops it.\n",
        table(facts)
    )
}

fn table(facts: &Facts) -> Table {
    let nodes: Vec<String> =
        facts.nodes.iter().map(|(id, address)| format!("{id}  {address}")).collect();
    let (folder, temporary) = &facts.folder;
    let data = if *temporary { format!("{folder} (temporary)") } else { folder.clone() };
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    // Addresses and paths are there to be copied: never wrapped.
    table.set_content_arrangement(ContentArrangement::Disabled);
    let rows = [
        ("cluster", facts.cluster_id.clone()),
        ("nodes", nodes.join("\n")),
        ("replication", facts.replication.to_string()),
        ("data", data),
        ("ready in", format!("{} ms", facts.ready.as_millis())),
    ];
    for (what, value) in rows {
        table.add_row([Cell::new(what).add_attribute(Attribute::Bold), Cell::new(value)]);
    }
    table
}

/// How this program was called, so that the commands work as they are printed.
pub fn program() -> String {
    let called = std::env::args_os().next();
    called.map_or_else(|| "heliograph".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn facts() -> Facts {
        Facts {
            bootstrap: "127.0.0.1:9092,127.0.0.1:9093".to_owned(),
            cluster_id: "id".to_owned(),
            nodes: vec![(1, "127.0.0.1:9092".to_owned()), (2, "127.0.0.1:9093".to_owned())],
            replication: 2,
            folder: ("/tmp/x".to_owned(), true),
            ready: Duration::from_micros(87_654),
        }
    }

    #[test]
    fn the_table_says_what_a_user_needs() {
        let text = text(&facts());
        for needed in ["1  127.0.0.1:9092", "2  127.0.0.1:9093", "87 ms", "(temporary)", "--list"]
        {
            assert!(text.contains(needed), "{needed} is missing in\n{text}");
        }
    }
}
