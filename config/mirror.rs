//! A mirror's settings: validation, plain data, what is shown of them.
//!
//! Owns the rules of config resource 64. It never connects anywhere; the settings of security are
//! known and refused until they are built, never ignored.

use std::collections::BTreeMap;

use crate::describe::{Described, Source, Synonym, synonym};
use crate::error::{Error, Fault};
use crate::host_port::HostPort;
use crate::mirror_keys::MIRROR;
use crate::schema::{Function, Key, split_list};

/// A mirror's settings as plain data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorConfig {
    /// `bootstrap.servers`, at least one.
    pub bootstrap_servers: Vec<HostPort>,
    /// `mirror.topics.include`, patterns.
    pub topics_include: Vec<String>,
    /// `mirror.topics.exclude`, patterns; `None` until a user sets them, and then the default
    /// holds.
    pub topics_exclude: Option<Vec<String>>,
    /// `mirror.topic.properties.exclude`, patterns.
    pub topic_properties_exclude: Vec<String>,
}

impl MirrorConfig {
    /// Validates all settings of a mirror; every fault is reported.
    pub fn from_settings(settings: &BTreeMap<String, String>) -> Result<MirrorConfig, Error> {
        let mut faults: Vec<Fault> = settings
            .iter()
            .filter_map(|(name, raw)| check_mirror_setting(name, raw).err())
            .collect();
        if !settings.contains_key("bootstrap.servers") {
            faults.push(Fault::missing(
                "bootstrap.servers",
                "give the addresses of the source cluster, host:port each",
            ));
        }
        let list = |name: &str| settings.get(name).map(|raw| split_list(raw));
        let or_default = |name: &str| {
            list(name).unwrap_or_else(|| {
                split_list(find(name).and_then(|key| key.default).unwrap_or(""))
            })
        };
        let config = MirrorConfig {
            bootstrap_servers: or_default("bootstrap.servers")
                .iter()
                .filter_map(|address| address.parse().ok())
                .collect(),
            topics_include: or_default("mirror.topics.include"),
            topics_exclude: list("mirror.topics.exclude"),
            topic_properties_exclude: or_default("mirror.topic.properties.exclude"),
        };
        Error::from_faults(faults).map(|()| config)
    }
}

/// All settings of a mirror, built or not.
pub fn mirror_keys() -> &'static [Key] {
    MIRROR
}

/// Checks one setting that a client gives a mirror: one that nothing acts on yet may not ask for
/// anything, even where the commands of mirroring keep something in it.
pub fn check_mirror_change(name: &str, raw: &str) -> Result<(), Fault> {
    check_mirror_setting(name, raw)?;
    find(name).map_or(Ok(()), |key| key.refuse_if_not_acted_on(raw))
}

/// Checks one setting of a mirror. A setting that is not built is refused at any value.
fn check_mirror_setting(name: &str, raw: &str) -> Result<(), Fault> {
    let key = find(name).ok_or_else(|| Fault::unknown(name, MIRROR.iter().map(|key| key.name)))?;
    if key.function == Function::NotBuilt {
        return Err(Fault::NotBuilt { name: name.to_owned(), default: None });
    }
    key.parse(raw)?;
    match name {
        "security.protocol" => match raw.trim() {
            "PLAINTEXT" => Ok(()),
            "SSL" | "SASL_PLAINTEXT" | "SASL_SSL" => {
                Err(Fault::invalid(name, raw, "it is not built yet; only PLAINTEXT is"))
            }
            _ => Err(Fault::invalid(name, raw, "it must be PLAINTEXT")),
        },
        "bootstrap.servers" => split_list(raw).iter().try_for_each(|entry| {
            let address: HostPort =
                entry.parse().map_err(|reason: String| Fault::invalid(name, raw, reason))?;
            if address.host.is_empty() || address.port == 0 {
                return Err(Fault::invalid(name, raw, "every address needs a host and a port"));
            }
            Ok(())
        }),
        _ => Ok(()),
    }
}

/// The settings of a mirror as DescribeConfigs shows them: the built ones, and whatever is set.
pub fn describe_mirror(settings: &BTreeMap<String, String>) -> Vec<Described> {
    MIRROR
        .iter()
        .filter(|key| key.function != Function::NotBuilt || settings.contains_key(key.name))
        .map(|key| {
            let own =
                settings.get(key.name).map(|raw| synonym(key.name, raw, Source::DynamicBroker));
            let default = key.default.map(|raw| synonym(key.name, raw, Source::Default));
            let synonyms: Vec<Synonym> = own.into_iter().chain(default).collect();
            Described::new(key, false, synonyms)
        })
        .collect()
}

/// A mirror's value for logs, dumps and errors: secrets and unknown keys are hidden.
pub fn redacted_mirror_value<'a>(name: &str, raw: &'a str) -> &'a str {
    match find(name) {
        Some(key) if !key.is_sensitive() => raw,
        Some(_) | None => "[hidden]",
    }
}

/// True if a change of this setting must close the mirror's connections.
pub fn needs_reconnect(name: &str) -> bool {
    !matches!(
        name,
        "mirror.topics.include"
            | "mirror.topics.exclude"
            | "mirror.groups.include"
            | "mirror.groups.exclude"
            | "mirror.acl.include"
            | "mirror.topic.properties.exclude"
    )
}

fn find(name: &str) -> Option<&'static Key> {
    MIRROR.iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_plain_mirror_is_valid() {
        let config = MirrorConfig::from_settings(&settings(&[
            ("bootstrap.servers", "a:1, b:2"),
            ("security.protocol", "PLAINTEXT"),
        ]))
        .unwrap();
        assert_eq!(config.bootstrap_servers, vec![HostPort::new("a", 1), HostPort::new("b", 2)]);
        assert_eq!(config.topics_exclude, None);
        assert!(config.topic_properties_exclude.contains(&"min.insync.replicas".to_owned()));
    }

    #[test]
    fn all_faults_come_together() {
        let error = MirrorConfig::from_settings(&settings(&[
            ("mirror.topics.include", "a("),
            ("sasl.mechanism", "PLAIN"),
            ("security.protocol", "SASL_SSL"),
            ("ssl.truststore.pasword", "secret"),
        ]))
        .unwrap_err();
        assert_eq!(error.faults().len(), 5, "{error}");
        let text = error.to_string();
        assert!(text.contains("'bootstrap.servers' is required"), "{text}");
        assert!(text.contains("'sasl.mechanism' is not built yet"), "{text}");
        assert!(text.contains("Did you mean 'ssl.truststore.password'?"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn secrets_are_never_described() {
        let shown = describe_mirror(&settings(&[
            ("bootstrap.servers", "a:1"),
            ("ssl.key.password", "hunter2"),
        ]));
        let secret = shown.iter().find(|entry| entry.name == "ssl.key.password").unwrap();
        assert!(secret.sensitive && secret.value.is_none());
        assert!(!format!("{shown:?}").contains("hunter2"));
        assert_eq!(redacted_mirror_value("ssl.key.password", "hunter2"), "[hidden]");
    }
}
