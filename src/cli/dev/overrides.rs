//! `--override KEY=VALUE`, taken apart. Owns what is refused because `dev` gives each node its own
//! value; whether a setting exists and a value fits is the settings' own table's to say.

use std::collections::BTreeMap;

use config::Properties;

/// Settings that tell the nodes of one process apart. One value for all of them breaks the
/// cluster.
const EACH_NODES_OWN: [&str; 9] = [
    "node.id",
    "broker.id",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "log.dir",
    "log.dirs",
];

/// The settings, and a sentence for each argument that is none.
#[derive(Debug, Default, PartialEq)]
pub struct Overrides {
    /// What is left to be checked by the settings' table.
    pub settings: Properties,
    /// All that is wrong with the rest.
    pub faults: Vec<String>,
}

/// Reads the arguments in their order; of two with the same key the last one counts.
pub fn parse(arguments: &[String]) -> Overrides {
    let mut settings = BTreeMap::new();
    let mut faults = Vec::new();
    for argument in arguments {
        let Some((key, value)) = argument.split_once('=') else {
            faults.push(format!("--override {argument} is no KEY=VALUE"));
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if EACH_NODES_OWN.contains(&key) {
            faults.push(format!(
                "'{key}' cannot be overridden: dev gives each node its own (see --nodes, --port \
                 and --dir)"
            ));
        } else {
            settings.insert(key.to_owned(), value.to_owned());
        }
    }
    Overrides { settings, faults }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Overrides {
        parse(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn the_last_of_two_counts_and_values_may_hold_equals_signs() {
        let overrides = parsed(&["a=1", "b = x=y", "a=2"]);
        assert_eq!(overrides.settings["a"], "2");
        assert_eq!(overrides.settings["b"], "x=y");
        assert!(overrides.faults.is_empty());
    }

    #[test]
    fn every_fault_is_reported() {
        let overrides = parsed(&["nonsense", "listeners=PLAINTEXT://:1", "num.partitions=2"]);
        assert_eq!(overrides.faults.len(), 2);
        assert!(overrides.faults[0].contains("nonsense"));
        assert!(overrides.faults[1].contains("'listeners'"));
        assert_eq!(overrides.settings.len(), 1);
    }
}
