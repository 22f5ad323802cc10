//! Configuration as it was set, by resource. Owns no default and no type: those are the config
//! crate's.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use protocol::ids::NodeId;

use super::{MetadataImage, edit};
use crate::records::{ConfigRecord, ResourceKind};

/// Keys and values as they were set, in the form the config crate takes.
pub type Settings = BTreeMap<String, String>;

static NOTHING_SET: Settings = Settings::new();

/// Something that has configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    /// What it is.
    pub kind: ResourceKind,
    /// Its name; empty for the default of all brokers.
    pub name: Arc<str>,
}

impl ConfigResource {
    /// A resource of a kind, by name.
    pub fn new(kind: ResourceKind, name: &str) -> Self {
        Self { kind, name: Arc::from(name) }
    }
}

impl fmt::Display for ConfigResource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ResourceKind::Topic => "topic",
            ResourceKind::Broker => "broker",
            ResourceKind::Mirror => "mirror",
        };
        write!(out, "{kind} '{}'", self.name)
    }
}

/// The keys that were set, by resource. A resource without keys is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigsImage {
    resources: OrdMap<ConfigResource, Arc<Settings>>,
}

impl ConfigsImage {
    /// What was set on a resource.
    pub fn of(&self, kind: ResourceKind, name: &str) -> Option<&Arc<Settings>> {
        self.resources.get(&ConfigResource::new(kind, name))
    }

    /// What was set on a resource, empty if nothing was.
    pub fn settings(&self, kind: ResourceKind, name: &str) -> &Settings {
        self.of(kind, name).map_or(&NOTHING_SET, |keys| keys)
    }

    /// What was set on a topic, empty if nothing was.
    pub fn topic_settings(&self, name: &str) -> &Settings {
        self.settings(ResourceKind::Topic, name)
    }

    /// The value set for one key of a resource.
    pub fn get(&self, kind: ResourceKind, name: &str, key: &str) -> Option<&str> {
        self.of(kind, name).and_then(|keys| keys.get(key)).map(String::as_str)
    }

    /// What was set on a topic.
    pub fn topic(&self, name: &str) -> Option<&Arc<Settings>> {
        self.of(ResourceKind::Topic, name)
    }

    /// What was set on a mirror.
    pub fn mirror(&self, name: &str) -> Option<&Arc<Settings>> {
        self.of(ResourceKind::Mirror, name)
    }

    /// What was set on one broker.
    pub fn broker(&self, id: NodeId) -> Option<&Arc<Settings>> {
        self.of(ResourceKind::Broker, &id.to_string())
    }

    /// What was set as the default of all brokers.
    pub fn broker_default(&self) -> Option<&Arc<Settings>> {
        self.of(ResourceKind::Broker, "")
    }

    /// A broker's dynamic value: its own, else the cluster's default.
    pub fn dynamic_broker(&self, id: NodeId, key: &str) -> Option<&str> {
        let own = self.get(ResourceKind::Broker, &id.to_string(), key);
        own.or_else(|| self.get(ResourceKind::Broker, "", key))
    }

    /// Every resource that has a key set, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&ConfigResource, &Arc<Settings>)> {
        self.resources.iter()
    }

    /// The map, for a comparison of two images.
    pub(crate) fn map(&self) -> &OrdMap<ConfigResource, Arc<Settings>> {
        &self.resources
    }
}

impl MetadataImage {
    pub(super) fn replay_config(&mut self, record: &ConfigRecord) {
        let resource = ConfigResource::new(record.resource, &record.name);
        match &record.value {
            Some(value) => {
                let keys = self.configs.resources.entry(resource).or_default();
                edit(keys, |keys| {
                    keys.insert(record.key.clone(), value.clone());
                });
            }
            None => self.forget_config(&resource, &record.key),
        }
    }

    fn forget_config(&mut self, resource: &ConfigResource, key: &str) {
        let Some(keys) = self.configs.resources.get_mut(resource) else { return };
        edit(keys, |keys| {
            keys.remove(key);
        });
        if keys.is_empty() {
            self.configs.resources.remove(resource);
            if resource.kind == ResourceKind::Mirror {
                // A mirror exists as long as it has a key; without one nothing of it may be left
                // for a later mirror of the same name.
                self.mirrors.forget(&resource.name);
            }
        }
    }

    /// A topic's configuration goes with it.
    pub(super) fn forget_topic_configs(&mut self, topic: &str) {
        self.configs.resources.remove(&ConfigResource::new(ResourceKind::Topic, topic));
    }
}
