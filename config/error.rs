//! Faults in settings: each a sentence that says what to do, all of one set reported together.
//!
//! Owns the fault enum and the collection. It never maps a fault to a wire code: every one of
//! them is INVALID_CONFIG (40) to a client, except where the caller knows better.

use std::fmt;

/// One thing that is wrong with a set of settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nobody knows this key.
    #[error("Unknown setting '{name}'.{}", hint(suggestion.as_deref()))]
    UnknownKey {
        /// As given.
        name: String,
        /// The known key that is closest, if one is close.
        suggestion: Option<String>,
    },
    /// The value has the wrong type or lies out of range.
    #[error("Invalid value '{value}' for '{name}': {reason}.")]
    InvalidValue {
        /// The key.
        name: String,
        /// As given, or a placeholder for a secret.
        value: String,
        /// What the value must be.
        reason: String,
    },
    /// Kafka has the function, this version does not.
    #[error("'{name}' is not built yet: remove it{}.", leave(default.as_deref()))]
    NotBuilt {
        /// The key.
        name: String,
        /// The only value that is accepted.
        default: Option<String>,
    },
    /// A setting without a default was not given.
    #[error("'{name}' is required: {reason}.")]
    Missing {
        /// The key.
        name: String,
        /// What to give.
        reason: String,
    },
    /// Two settings do not go together.
    #[error("{0}.")]
    Conflict(String),
    /// A start-up setting was to be changed at run time.
    #[error(
        "'{name}' cannot be changed while the broker runs: set it in its settings and restart it."
    )]
    ReadOnly {
        /// The key.
        name: String,
    },
    /// A per-broker setting was to be changed for the whole cluster.
    #[error("'{name}' can only be set for one broker: name the broker.")]
    PerBrokerOnly {
        /// The key.
        name: String,
    },
    /// A setting of the whole cluster was to be set for one broker, or at its start.
    #[error(
        "'{name}' can only be set for all brokers together, while they run (kafka-configs \
         --entity-type brokers --entity-default), or for a topic."
    )]
    ClusterDefaultOnly {
        /// The key.
        name: String,
    },
    /// A line of a properties text does not read as `key=value`.
    #[error("Line {line}: {reason}.")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

impl Fault {
    pub(crate) fn conflict(text: impl Into<String>) -> Fault {
        Fault::Conflict(text.into())
    }

    pub(crate) fn missing(name: &str, reason: &str) -> Fault {
        Fault::Missing { name: name.to_owned(), reason: reason.to_owned() }
    }

    pub(crate) fn invalid(name: &str, value: &str, reason: impl Into<String>) -> Fault {
        Fault::InvalidValue {
            name: name.to_owned(),
            value: value.to_owned(),
            reason: reason.into(),
        }
    }

    pub(crate) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Fault {
        let suggestion = known
            .map(|candidate| (distance(name, candidate), candidate))
            .filter(|(distance, _)| *distance <= 3)
            .min()
            .map(|(_, candidate)| candidate.to_owned());
        Fault::UnknownKey { name: name.to_owned(), suggestion }
    }
}

/// All faults of one set of settings, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    faults: Vec<Fault>,
}

impl Error {
    /// `Ok` when nothing is wrong.
    pub fn from_faults(faults: Vec<Fault>) -> Result<(), Error> {
        if faults.is_empty() { Ok(()) } else { Err(Error { faults }) }
    }

    /// The faults, in the order they were found.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error { faults: vec![fault] }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

fn hint(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!(" Did you mean '{name}'?")).unwrap_or_default()
}

fn leave(default: Option<&str>) -> String {
    match default {
        Some(default) if !default.is_empty() => format!(" or leave it at its default {default}"),
        Some(_) | None => String::new(),
    }
}

/// Edits between two texts, one row at a time.
fn distance(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > 3 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_recognised() {
        let fault = Fault::unknown("num.partition", ["num.partitions", "node.id"].into_iter());
        assert_eq!(
            fault.to_string(),
            "Unknown setting 'num.partition'. Did you mean 'num.partitions'?"
        );
        let fault = Fault::unknown("nonsense", ["num.partitions"].into_iter());
        assert_eq!(fault.to_string(), "Unknown setting 'nonsense'.");
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("abc", "abd"), 1);
        assert_eq!(distance("abc", "ab"), 1);
        assert_eq!(distance("", "ab"), 2);
    }
}
