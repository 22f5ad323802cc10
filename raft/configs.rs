//! Changes of configuration: of topics, of brokers and their common default, of mirrors.
//!
//! Owns the operations and which resource takes them. Names, types and values are the config
//! crate's; a value is checked before it is recorded.

use std::collections::BTreeSet;

use config::ChangeScope;
use config::schema::{Key, Kind, split_list};
use protocol::ids::NodeId;
use protocol::messages::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig},
    incremental_alter_configs_response::AlterConfigsResourceResponse,
};

use crate::decision::Decision;
use crate::error::Error;
use crate::image::{MetadataImage, Settings};
use crate::records::{ConfigRecord, MetadataRecord, ResourceKind};

/// What to do with a key (KIP-339).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Set,
    Delete,
    Append,
    Subtract,
}

impl Operation {
    fn from_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(Self::Set),
            1 => Some(Self::Delete),
            2 => Some(Self::Append),
            3 => Some(Self::Subtract),
            _ => None,
        }
    }
}

impl MetadataImage {
    /// A topic's effective settings on a broker whose dynamic ones are in `broker` already.
    ///
    /// # Errors
    /// What is stored is no longer valid.
    pub fn topic_config(
        &self,
        topic: &str,
        broker: &config::BrokerConfig,
    ) -> Result<config::TopicConfig, config::Error> {
        config::TopicConfig::effective(self.configs.topic_settings(topic), broker)
    }

    /// Changes configuration key by key; each resource changes as a whole or not at all.
    pub fn decide_incremental_alter_configs(
        &self,
        request: &IncrementalAlterConfigsRequest,
    ) -> Decision<IncrementalAlterConfigsResponse> {
        let mut seen: BTreeSet<(i8, &str)> = BTreeSet::new();
        let mut records = Vec::new();
        let mut response = IncrementalAlterConfigsResponse::default();
        for resource in &request.resources {
            let outcome = if seen.insert((resource.resource_type, &resource.resource_name)) {
                self.alter_resource(resource)
            } else {
                let reason = "Each resource must appear at most once.".to_owned();
                Err(Error::InvalidRequest { reason })
            };
            let (error_code, error_message) = match outcome {
                Ok(changes) => {
                    records.extend(changes);
                    (0, None)
                }
                Err(error) => (error.code(), Some(error.to_string())),
            };
            response.responses.push(AlterConfigsResourceResponse {
                error_code,
                error_message,
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
            });
        }
        if request.validate_only {
            records.clear();
        }
        Decision::new(records, response)
    }

    fn alter_resource(
        &self,
        resource: &AlterConfigsResource,
    ) -> Result<Vec<MetadataRecord>, Error> {
        let name = resource.resource_name.as_str();
        let kind = self.existing_resource(resource.resource_type, name)?;
        let before = self.configs.settings(kind, name);
        let mut after = before.clone();
        let mut keys: BTreeSet<&str> = BTreeSet::new();
        for entry in &resource.configs {
            if !keys.insert(&entry.name) {
                let reason = format!("The key '{}' appears twice.", entry.name);
                return Err(Error::InvalidRequest { reason });
            }
            alter_key(kind, name, entry, &mut after)?;
        }
        if kind == ResourceKind::Mirror {
            config::MirrorConfig::from_settings(&after)
                .map_err(|error| Error::InvalidConfig { reason: error.to_string() })?;
        }
        Ok(config_changes(kind, name, before, &after))
    }

    fn existing_resource(&self, code: i8, name: &str) -> Result<ResourceKind, Error> {
        let Some(kind) = ResourceKind::from_code(code) else {
            let reason = format!("Configuration of resource type {code} is not served.");
            return Err(Error::InvalidRequest { reason });
        };
        match kind {
            ResourceKind::Topic if self.topics.by_name(name).is_none() => {
                Err(Error::UnknownTopic { topic: name.to_owned() })
            }
            ResourceKind::Broker if !name.is_empty() => {
                let broker = name.parse().map(NodeId).map_err(|_| Error::InvalidRequest {
                    reason: format!("Unexpected broker id, '{name}' is not a number."),
                })?;
                match self.cluster.broker(broker) {
                    Some(_) => Ok(kind),
                    None => Err(Error::UnknownBroker { broker }),
                }
            }
            // The codes of mirroring are not this API's.
            ResourceKind::Mirror if !self.mirror_exists(name) => Err(Error::InvalidRequest {
                reason: format!("Mirror '{name}' does not exist. Create it first."),
            }),
            ResourceKind::Topic | ResourceKind::Broker | ResourceKind::Mirror => Ok(kind),
        }
    }
}

/// The records that turn one set of settings into another.
pub(crate) fn config_changes(
    resource: ResourceKind,
    name: &str,
    before: &Settings,
    after: &Settings,
) -> Vec<MetadataRecord> {
    let record = |key: &String, value: Option<&String>| {
        MetadataRecord::Config(ConfigRecord {
            resource,
            name: name.to_owned(),
            key: key.clone(),
            value: value.cloned(),
        })
    };
    let set = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let removed = before.keys().filter(|key| !after.contains_key(*key));
    set.map(|(key, value)| record(key, Some(value)))
        .chain(removed.map(|key| record(key, None)))
        .collect()
}

fn alter_key(
    kind: ResourceKind,
    resource: &str,
    entry: &AlterableConfig,
    settings: &mut Settings,
) -> Result<(), Error> {
    let name = entry.name.as_str();
    if kind == ResourceKind::Topic && name == config::MIRROR_NAME {
        let reason = "'mirror.name' is changed by the commands of mirroring only.".to_owned();
        return Err(Error::InvalidRequest { reason });
    }
    let operation = Operation::from_code(entry.config_operation).ok_or_else(|| {
        let reason = format!("Unknown operation {} on '{name}'.", entry.config_operation);
        Error::InvalidRequest { reason }
    })?;
    if operation == Operation::Delete {
        check_known(kind, resource, name, settings)?;
        settings.remove(name);
        return Ok(());
    }
    let Some(given) = &entry.value else {
        let reason = format!("Null value not supported for : {name}");
        return Err(Error::InvalidRequest { reason });
    };
    let value = match operation {
        Operation::Append | Operation::Subtract => {
            edited_list(kind, name, given, operation, settings)?
        }
        Operation::Set | Operation::Delete => given.clone(),
    };
    // What a mirror copied may be said again, though a client could not have asked for it.
    if settings.get(name) != Some(&value) {
        check_value(kind, resource, name, Some(&value))?;
    }
    settings.insert(name.to_owned(), value);
    Ok(())
}

/// A key may be removed if it is one of the resource's, or is set for whatever reason.
fn check_known(
    kind: ResourceKind,
    resource: &str,
    name: &str,
    settings: &Settings,
) -> Result<(), Error> {
    if settings.contains_key(name) || table(kind).iter().any(|key| key.name == name) {
        return Ok(());
    }
    match kind {
        ResourceKind::Broker => check_value(kind, resource, name, None),
        ResourceKind::Topic | ResourceKind::Mirror => {
            Err(Error::InvalidConfig { reason: format!("Unknown setting '{name}'.") })
        }
    }
}

fn check_value(
    kind: ResourceKind,
    resource: &str,
    name: &str,
    value: Option<&str>,
) -> Result<(), Error> {
    let raw = value.unwrap_or_default();
    let checked = match kind {
        ResourceKind::Topic => config::check_topic_setting(name, raw),
        ResourceKind::Mirror => config::check_mirror_change(name, raw),
        ResourceKind::Broker => {
            let scope =
                if resource.is_empty() { ChangeScope::Cluster } else { ChangeScope::Broker };
            config::validate_broker_change(scope, name, value)
        }
    };
    checked.map_err(|fault| Error::InvalidConfig { reason: fault.to_string() })
}

fn edited_list(
    kind: ResourceKind,
    name: &str,
    given: &str,
    operation: Operation,
    settings: &Settings,
) -> Result<String, Error> {
    let key = table(kind).iter().find(|key| key.name == name);
    let Some(key) = key.filter(|key| key.kind == Kind::List) else {
        let verb = if operation == Operation::Append { "APPEND to" } else { "SUBTRACT from" };
        let reason = format!("Can't {verb} key {name} because its type is not LIST.");
        return Err(Error::InvalidConfig { reason });
    };
    let current = settings.get(name).map(String::as_str).or(key.default).unwrap_or_default();
    let mut entries = split_list(current);
    for entry in split_list(given) {
        if operation == Operation::Subtract {
            entries.retain(|known| *known != entry);
        } else if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    Ok(entries.join(","))
}

/// The keys whose types are needed here; a broker's lists cannot change while it runs.
fn table(kind: ResourceKind) -> &'static [Key] {
    match kind {
        ResourceKind::Topic => config::topic_keys(),
        ResourceKind::Mirror => config::mirror_keys(),
        ResourceKind::Broker => &[],
    }
}
