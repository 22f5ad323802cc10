//! Lists of patterns: compiled as one, anchored; added and removed as Start asks (D6).
//!
//! Owns how a list of regular expressions is read. Looks at no source.

use config::schema::split_list;
use regex::Regex;

use crate::error::Error;
use crate::image::{MetadataImage, Settings};

const INCLUDE: &str = "mirror.topics.include";
const EXCLUDE: &str = "mirror.topics.exclude";

/// A list of patterns; a name matches if one of them matches all of it. An empty list matches
/// nothing.
#[derive(Debug)]
pub(super) struct Patterns(Option<Regex>);

impl Patterns {
    /// # Errors
    /// A pattern is no regular expression, or has a comma and so fits no list (40).
    pub(super) fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self, Error> {
        let invalid = |reason: String| Error::InvalidConfig { reason };
        let mut parts = Vec::with_capacity(patterns.len());
        for pattern in patterns.iter().map(AsRef::as_ref) {
            if pattern.contains(',') {
                let reason = format!("The pattern '{pattern}' has a comma: use two patterns.");
                return Err(invalid(reason));
            }
            if let Err(error) = Regex::new(pattern) {
                let last = error.to_string().lines().last().unwrap_or_default().to_owned();
                let reason = format!("'{pattern}' is no regular expression ({}).", last.trim());
                return Err(invalid(reason));
            }
            parts.push(format!("(?:{pattern})"));
        }
        if parts.is_empty() {
            return Ok(Self(None));
        }
        let whole = Regex::new(&format!("^(?:{})$", parts.join("|")))
            .map_err(|error| invalid(error.to_string()))?;
        Ok(Self(Some(whole)))
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|whole| whole.is_match(name))
    }
}

impl MetadataImage {
    /// The mirror's settings with the patterns of a Start stored: each include pattern joins the
    /// include list and leaves the exclude list, and the reverse. The default of the exclude list
    /// holds until a request changes it.
    pub(super) fn with_patterns(
        &self,
        mirror: &str,
        include: &[String],
        exclude: &[String],
    ) -> Settings {
        let mut settings =
            self.configs.mirror(mirror).map_or_else(Settings::new, |s| (**s).clone());
        let default = |name: &str| {
            let keys = config::mirror_keys().iter();
            keys.filter(|key| key.name == name).find_map(|key| key.default).unwrap_or_default()
        };
        for (name, added, removed) in [(INCLUDE, include, exclude), (EXCLUDE, exclude, include)] {
            let stored = settings.get(name).map_or_else(|| default(name), String::as_str);
            let before = split_list(stored);
            let mut after = before.clone();
            after.retain(|pattern| !removed.contains(pattern));
            for pattern in added {
                if !after.contains(pattern) {
                    after.push(pattern.clone());
                }
            }
            if after != before {
                settings.insert(name.to_owned(), after.join(","));
            }
        }
        settings
    }
}
