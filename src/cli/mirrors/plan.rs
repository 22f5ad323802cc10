//! From arguments to one action: the checks of the mirrors tool, in the order of KIP-1279, and the
//! files it reads. Owns what is refused before a server is asked; never talks to one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use mirror::patterns::is_literal;

use super::Arguments;

/// What the tool is for, said where it is called without arguments.
const PURPOSE: &str = "Create cluster mirrors and manage mirrored topics.";

/// One checked action on one cluster.
#[derive(Debug, PartialEq)]
pub struct Plan {
    /// The destination's servers.
    pub bootstrap: Vec<String>,
    /// What to do there.
    pub action: Action,
}

/// The eight actions with what each needs.
#[derive(Debug, PartialEq)]
pub enum Action {
    Create { mirror: String, config: PathBuf },
    Start { mirror: String, topics: TopicArguments, exclude: Vec<String> },
    Stop { mirror: String, topics: TopicArguments },
    Pause { mirror: String, topics: TopicArguments },
    Resume { mirror: String, topics: TopicArguments },
    Delete { mirror: String },
    List,
    Describe { mirror: Option<String>, json: bool },
}

/// `--topics`, taken apart: legal topic names are names, the rest are patterns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicArguments {
    /// Names, to be taken literally.
    pub literals: Vec<String>,
    /// Regular expressions that match a whole name.
    pub patterns: Vec<String>,
}

impl TopicArguments {
    /// Takes a comma-separated list apart.
    pub fn parse(list: &str) -> TopicArguments {
        let (literals, patterns) = split(list).into_iter().partition(|item| is_literal(item));
        TopicArguments { literals, patterns }
    }
}

/// Why the arguments ask for nothing that can be done.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    /// One line.
    pub message: String,
    /// Whether the usage is shown before it.
    pub with_usage: bool,
}

fn refuse<T>(message: impl Into<String>) -> std::result::Result<T, Refusal> {
    Err(Refusal { message: message.into(), with_usage: false })
}

/// Checks the arguments in the order of KIP-1279's tool.
pub fn plan(arguments: &Arguments) -> std::result::Result<Plan, Refusal> {
    let chosen = chosen_actions(arguments);
    let [name] = chosen[..] else {
        let nothing_given = chosen.is_empty() && arguments.bootstrap_server.is_none();
        let message = if nothing_given { PURPOSE.to_owned() } else { exactly_one() };
        return Err(Refusal { message, with_usage: true });
    };
    let Some(servers) = &arguments.bootstrap_server else {
        return refuse("--bootstrap-server must be specified");
    };
    let action = action(name, arguments)?;
    if arguments.exclude.is_some() && !arguments.start {
        return refuse("--exclude is only valid with --start");
    }
    if arguments.json && !arguments.describe {
        return refuse("--json is only supported for describing mirrors");
    }
    check_unused(name, arguments)?;
    Ok(Plan { bootstrap: split(servers), action })
}

/// What an action does not look at is refused: whoever gave it expects something of it.
fn check_unused(action: &str, arguments: &Arguments) -> std::result::Result<(), Refusal> {
    let of_topics = matches!(action, "start" | "stop" | "pause" | "resume");
    if arguments.topics.is_some() && !of_topics {
        return refuse("--topics is only valid with --start, --stop, --pause and --resume");
    }
    if arguments.mirror.is_some() && action == "list" {
        return refuse("--mirror is not valid with --list, which shows all mirrors");
    }
    if arguments.mirror_config.is_some() && action != "create" {
        return refuse("--mirror-config is only valid with --create");
    }
    Ok(())
}

fn exactly_one() -> String {
    let names: Vec<String> = ACTIONS.iter().map(|(name, _)| format!("--{name}")).collect();
    format!("Command must include exactly one action: {}", names.join(", "))
}

type Chosen = fn(&Arguments) -> bool;

const ACTIONS: [(&str, Chosen); 8] = [
    ("create", |arguments| arguments.create),
    ("start", |arguments| arguments.start),
    ("stop", |arguments| arguments.stop),
    ("pause", |arguments| arguments.pause),
    ("resume", |arguments| arguments.resume),
    ("delete", |arguments| arguments.delete),
    ("list", |arguments| arguments.list),
    ("describe", |arguments| arguments.describe),
];

fn chosen_actions(arguments: &Arguments) -> Vec<&'static str> {
    let chosen = ACTIONS.iter().filter(|(_, is_chosen)| is_chosen(arguments));
    chosen.map(|(name, _)| *name).collect()
}

fn action(name: &str, arguments: &Arguments) -> std::result::Result<Action, Refusal> {
    let described = Action::Describe { mirror: arguments.mirror.clone(), json: arguments.json };
    match name {
        "list" => return Ok(Action::List),
        "describe" => return Ok(described),
        _ => {}
    }
    let Some(mirror) = arguments.mirror.clone() else {
        return refuse("--mirror must be specified");
    };
    match name {
        "create" => match arguments.mirror_config.clone() {
            Some(config) => Ok(Action::Create { mirror, config }),
            None => refuse("--mirror-config must be specified when creating a mirror"),
        },
        "delete" => Ok(Action::Delete { mirror }),
        "start" => {
            let topics = topics(arguments, "starting")?;
            let exclude = arguments.exclude.as_deref().map(split).unwrap_or_default();
            Ok(Action::Start { mirror, topics, exclude })
        }
        "stop" => Ok(Action::Stop { mirror, topics: topics(arguments, "stopping")? }),
        "pause" => Ok(Action::Pause { mirror, topics: topics(arguments, "pausing")? }),
        _ => Ok(Action::Resume { mirror, topics: topics(arguments, "resuming")? }),
    }
}

fn topics(arguments: &Arguments, doing: &str) -> std::result::Result<TopicArguments, Refusal> {
    let list = arguments.topics.as_deref().map(TopicArguments::parse);
    match list.filter(|topics| *topics != TopicArguments::default()) {
        Some(topics) => Ok(topics),
        None => refuse(format!("--topics must be specified when {doing} mirror topic(s)")),
    }
}

fn split(list: &str) -> Vec<String> {
    let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(str::to_owned).collect()
}

/// Reads a properties file.
pub fn read_properties(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    config::parse_properties(&text).with_context(|| path.display().to_string())
}

/// The client id that `--command-config` sets. What is not built is refused, never ignored.
pub fn client_id(command_config: Option<&Path>) -> Result<String> {
    let mut client_id = "kafka-mirrors".to_owned();
    let Some(path) = command_config else {
        return Ok(client_id);
    };
    for (key, value) in read_properties(path)? {
        match (key.as_str(), value.as_str()) {
            ("client.id", value) => value.clone_into(&mut client_id),
            ("security.protocol", "PLAINTEXT") => {}
            // The option decides, as in Kafka's tools.
            ("bootstrap.servers", _) => {}
            _ => bail!("{}: '{key}' is not built yet: remove it", path.display()),
        }
    }
    Ok(client_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Arguments {
        use clap::FromArgMatches;
        let command = Arguments::augment_args_of_command().no_binary_name(true);
        let matches = command.try_get_matches_from(line.split_whitespace()).unwrap();
        Arguments::from_arg_matches(&matches).unwrap()
    }

    fn refusal(line: &str) -> String {
        plan(&parse(line)).unwrap_err().message
    }

    #[test]
    fn checks_come_in_order() {
        assert_eq!(refusal(""), PURPOSE);
        assert!(refusal("--create --list").contains("exactly one action: --create, --start"));
        assert!(refusal("--bootstrap-server a:1").contains("exactly one"));
        assert_eq!(refusal("--list"), "--bootstrap-server must be specified");
        let with = |rest: &str| refusal(&format!("--bootstrap-server a:1 {rest}"));
        assert_eq!(with("--delete"), "--mirror must be specified");
        let create = "--mirror-config must be specified when creating a mirror";
        assert_eq!(with("--create --mirror m"), create);
        for (action, doing) in [
            ("start", "starting"),
            ("stop", "stopping"),
            ("pause", "pausing"),
            ("resume", "resuming"),
        ] {
            let expected = format!("--topics must be specified when {doing} mirror topic(s)");
            assert_eq!(with(&format!("--{action} --mirror m")), expected);
            assert_eq!(with(&format!("--{action} --mirror m --topics ,")), expected);
        }
        let exclude = "--exclude is only valid with --start";
        assert_eq!(with("--stop --mirror m --topics t --exclude x"), exclude);
        let json = "--json is only supported for describing mirrors";
        assert_eq!(with("--list --json"), json);
        let topics = "--topics is only valid with --start, --stop, --pause and --resume";
        assert_eq!(with("--describe --topics t"), topics);
        assert_eq!(with("--create --mirror m --mirror-config f --topics t"), topics);
        assert!(with("--list --mirror m").starts_with("--mirror is not valid with --list"));
        let config = "--mirror-config is only valid with --create";
        assert_eq!(with("--start --mirror m --topics t --mirror-config f"), config);
    }

    #[test]
    fn names_and_patterns_are_told_apart() {
        let line = "--bootstrap-server a:1,b:2 --start --mirror m --topic orders.eu,pay-.*,x";
        let plan = plan(&parse(line)).unwrap();
        assert_eq!(plan.bootstrap, ["a:1", "b:2"]);
        let topics = TopicArguments {
            literals: vec!["orders.eu".to_owned(), "x".to_owned()],
            patterns: vec!["pay-.*".to_owned()],
        };
        let exclude = Vec::new();
        assert_eq!(plan.action, Action::Start { mirror: "m".to_owned(), topics, exclude });
    }

    #[test]
    fn client_settings_that_are_not_built_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            "bootstrap.servers=a:1\nclient.id=me\nsecurity.protocol=PLAINTEXT\n",
        )
        .unwrap();
        assert_eq!(client_id(Some(file.path())).unwrap(), "me");
        std::fs::write(file.path(), "sasl.mechanism=PLAIN\n").unwrap();
        let message = client_id(Some(file.path())).unwrap_err().to_string();
        assert!(message.contains("sasl.mechanism"), "{message}");
    }
}
