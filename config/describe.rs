//! What DescribeConfigs says of a setting.
//!
//! Owns the entry and the numbers of its sources. It never chooses which settings are shown;
//! secrets have no value here.

use crate::layers::Layers;
use crate::schema::{Key, Kind};

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Set on the topic.
    DynamicTopic,
    /// Set at run time on one broker, or on a mirror.
    DynamicBroker,
    /// Set at run time for all brokers.
    DynamicDefaultBroker,
    /// In the settings the broker was started with.
    StaticBroker,
    /// Nobody set it.
    Default,
}

impl Source {
    /// The source's number on the wire.
    pub const fn id(self) -> i8 {
        match self {
            Source::DynamicTopic => 1,
            Source::DynamicBroker => 2,
            Source::DynamicDefaultBroker => 3,
            Source::StaticBroker => 4,
            Source::Default => 5,
        }
    }
}

/// One place that gives the setting a value, in order of precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synonym {
    /// The setting's name there.
    pub name: String,
    /// Its value there; `None` for a secret or null.
    pub value: Option<String>,
    /// Where that is.
    pub source: Source,
}

/// One setting as DescribeConfigs shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Kafka's name.
    pub name: &'static str,
    /// The value in force; `None` for a secret or null.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: Source,
    /// True if it cannot be changed at run time.
    pub read_only: bool,
    /// True for secrets.
    pub sensitive: bool,
    /// Its type; `kind.id()` is the wire's number.
    pub kind: Kind,
    /// What it means.
    pub documentation: &'static str,
    /// All places that give it a value, nearest first.
    pub synonyms: Vec<Synonym>,
}

impl Described {
    /// From the places that give it a value, nearest first.
    pub(crate) fn new(key: &Key, read_only: bool, mut synonyms: Vec<Synonym>) -> Described {
        if key.is_sensitive() {
            synonyms.iter_mut().for_each(|synonym| synonym.value = None);
        }
        let (value, source) = match synonyms.first() {
            Some(first) => (first.value.clone(), first.source),
            None => (None, Source::Default),
        };
        Described {
            name: key.name,
            value,
            source,
            read_only,
            sensitive: key.is_sensitive(),
            kind: key.kind,
            documentation: key.doc,
            synonyms,
        }
    }
}

/// The places that give a broker setting a value, nearest first.
pub(crate) fn broker_synonyms(key: &Key, layers: &Layers) -> Vec<Synonym> {
    let mut synonyms: Vec<Synonym> =
        layers.set(key.name).map(|(source, raw)| synonym(key.name, raw, source)).collect();
    if let Some(raw) = layers.profile.default_of(key.name).or(key.default) {
        synonyms.push(synonym(key.name, raw, Source::Default));
    }
    synonyms
}

pub(crate) fn synonym(name: &str, raw: &str, source: Source) -> Synonym {
    Synonym { name: name.to_owned(), value: Some(raw.trim().to_owned()), source }
}
