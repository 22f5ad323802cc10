//! The layers a broker setting can come from, and the values they give together.
//!
//! Owns precedence (one broker's dynamic value, the cluster's dynamic default, the start
//! settings, the profile, the table) and the check of every given value. It never knows what a
//! setting does.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::broker_keys;
use crate::describe::Source;
use crate::error::Fault;
use crate::properties::Properties;
use crate::schema::{Key, Scope, Value};
use crate::timing::Profile;

/// Raw broker settings by where they come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layers {
    /// What the node was started with.
    pub fixed: Properties,
    /// The cluster's dynamic defaults (config resource BROKER with an empty name).
    pub cluster: Properties,
    /// This broker's dynamic settings.
    pub broker: Properties,
    /// Which defaults apply.
    pub profile: Profile,
}

impl Layers {
    /// Only start settings.
    pub fn fixed(fixed: Properties, profile: Profile) -> Layers {
        Layers { fixed: canonical(fixed), profile, ..Layers::default() }
    }

    /// The same start settings under other dynamic ones.
    pub fn with_dynamic(&self, cluster: Properties, broker: Properties) -> Layers {
        Layers {
            fixed: self.fixed.clone(),
            cluster: canonical(cluster),
            broker: canonical(broker),
            profile: self.profile,
        }
    }

    /// Where the setting is set, nearest first.
    pub(crate) fn set(&self, name: &str) -> impl Iterator<Item = (Source, &str)> {
        let layers = [
            (Source::DynamicBroker, &self.broker),
            (Source::DynamicDefaultBroker, &self.cluster),
            (Source::StaticBroker, &self.fixed),
        ];
        let found: Vec<(Source, &str)> = layers
            .into_iter()
            .filter_map(|(source, layer)| Some((source, layer.get(name)?.as_str())))
            .collect();
        found.into_iter()
    }

    /// The value's text, without the table's default.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        self.set(name).next().map(|(_, raw)| raw).or_else(|| self.profile.default_of(name))
    }

    /// Checks every given value and resolves all built settings.
    pub(crate) fn resolve(&self) -> (Resolved, Vec<Fault>) {
        let mut faults = Vec::new();
        for (name, raw) in &self.fixed {
            faults.extend(check(name, raw).and_then(|()| check_start(name, raw)).err());
        }
        for (name, raw) in &self.cluster {
            faults.extend(check_scope(name, false).and_then(|()| check(name, raw)).err());
        }
        for (name, raw) in &self.broker {
            faults.extend(check_scope(name, true).and_then(|()| check(name, raw)).err());
        }
        let values = broker_keys::built()
            .filter_map(|key| {
                let given = self.given(key.name).and_then(|raw| key.parse(raw).ok());
                Some((key.name, given.or_else(|| key.default_value())?))
            })
            .collect();
        (Resolved { values }, faults)
    }
}

/// Checks one broker setting's name and value.
pub(crate) fn check(name: &str, raw: &str) -> Result<(), Fault> {
    let key = broker_keys::find(name).ok_or_else(|| Fault::unknown(name, broker_keys::names()))?;
    key.refuse_if_not_built(raw)?;
    key.parse(raw).map(|_| ())
}

/// Checks that a known setting may be among those that a node starts with.
fn check_start(name: &str, raw: &str) -> Result<(), Fault> {
    let asks = |key: &&Key| key.parse(raw).ok() != key.default_value();
    match broker_keys::find(name).filter(asks).map(|key| key.scope) {
        Some(Scope::ClusterDefault) => Err(Fault::ClusterDefaultOnly { name: name.to_owned() }),
        Some(Scope::ReadOnly | Scope::PerBroker | Scope::ClusterWide) | None => Ok(()),
    }
}

/// Checks that the setting may change at run time, for one broker or for all.
pub(crate) fn check_scope(name: &str, one_broker: bool) -> Result<(), Fault> {
    let key = broker_keys::find(name).ok_or_else(|| Fault::unknown(name, broker_keys::names()))?;
    match key.scope {
        Scope::ClusterWide => Ok(()),
        Scope::ClusterDefault if !one_broker => Ok(()),
        Scope::ClusterDefault => Err(Fault::ClusterDefaultOnly { name: name.to_owned() }),
        Scope::PerBroker if one_broker => Ok(()),
        Scope::PerBroker => Err(Fault::PerBrokerOnly { name: name.to_owned() }),
        Scope::ReadOnly => Err(Fault::ReadOnly { name: name.to_owned() }),
    }
}

/// Other names under which a later revision of the mirroring proposal knows a setting.
fn canonical(mut properties: Properties) -> Properties {
    let aliases = [
        ("mirror.state.topic.num.partitions", "mirror.topic.num.partitions"),
        ("mirror.state.topic.replication.factor", "mirror.topic.replication.factor"),
    ];
    for (alias, name) in aliases {
        if !properties.contains_key(name)
            && let Some(value) = properties.remove(alias)
        {
            properties.insert(name.to_owned(), value);
        }
    }
    properties
}

/// The parsed value of every built setting that has one.
pub(crate) struct Resolved {
    values: BTreeMap<&'static str, Value>,
}

impl Resolved {
    pub fn boolean(&self, name: &str) -> bool {
        match self.values.get(name) {
            Some(Value::Boolean(value)) => *value,
            other => unreachable!("{name} is no boolean with a default: {other:?}"),
        }
    }

    pub fn optional_number(&self, name: &str) -> Option<i64> {
        match self.values.get(name) {
            None => None,
            Some(Value::Number(value)) => Some(*value),
            other => unreachable!("{name} is no number: {other:?}"),
        }
    }

    /// Zero stands in for a number without a default that was not given; its absence is a fault.
    pub fn number(&self, name: &str) -> i64 {
        self.optional_number(name).unwrap_or_default()
    }

    pub fn int(&self, name: &str) -> i32 {
        i32::try_from(self.number(name)).expect("the table says INT or SHORT")
    }

    pub fn size(&self, name: &str) -> usize {
        usize::try_from(self.number(name)).expect("the table says it is not negative")
    }

    pub fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(self.number(name).max(0).unsigned_abs())
    }

    pub fn text(&self, name: &str) -> Option<String> {
        match self.values.get(name) {
            None => None,
            Some(Value::Text(value)) => Some(value.clone()),
            other => unreachable!("{name} is no text: {other:?}"),
        }
    }

    pub fn list(&self, name: &str) -> Option<&[String]> {
        match self.values.get(name) {
            None => None,
            Some(Value::List(value)) => Some(value),
            other => unreachable!("{name} is no list: {other:?}"),
        }
    }
}
