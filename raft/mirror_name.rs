//! The name of a mirror. Owns its rules (D5); knows nothing of what a mirror is.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest name of a topic or a mirror, in characters.
pub const NAME_LENGTH_MAX: usize = 249;

/// A mirror's name. Cheap to clone. Not validated by itself: names in the log have been.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MirrorName(Arc<str>);

impl MirrorName {
    /// Checks a new mirror's name: a topic's rules, and neither suffix of the desired states.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn validate(name: &str) -> Result<Self, String> {
        if let Some(fault) = name_fault(name) {
            return Err(format!("Mirror name {fault}"));
        }
        for suffix in [".stopped", ".paused"] {
            if name.ends_with(suffix) {
                return Err(format!("Mirror name '{name}' must not end with '{suffix}'"));
            }
        }
        Ok(Self::from(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is wrong with a topic's or mirror's name, to follow the word "name"; `None` if nothing.
pub fn name_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        Some("is illegal, it can't be empty".to_owned())
    } else if name == "." || name == ".." {
        Some(format!("cannot be \".\" or \"..\", but is \"{name}\""))
    } else if name.chars().count() > NAME_LENGTH_MAX {
        Some(format!(
            "is illegal, it can't be longer than {NAME_LENGTH_MAX} characters, but has {}",
            name.chars().count()
        ))
    } else if name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')) {
        None
    } else {
        Some(format!(
            "\"{name}\" is illegal, it contains a character other than ASCII alphanumerics, \
             '.', '_' and '-'"
        ))
    }
}

impl Deref for MirrorName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for MirrorName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for MirrorName {
    fn from(name: &str) -> Self {
        Self(Arc::from(name))
    }
}

impl fmt::Display for MirrorName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Serialize for MirrorName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MirrorName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::from(name.as_str()))
    }
}
