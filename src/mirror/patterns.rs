//! Which topics a mirror's patterns mean. Owns compilation and matching; never lists topics.

use regex::{Regex, RegexBuilder};

use crate::names;

/// The exclude patterns of a mirror until a user sets others: internal topics stay out.
pub const DEFAULT_EXCLUDE: &str = "__.*";

/// The largest compiled form of one pattern set; a hostile pattern must not cost more memory.
const COMPILED_SIZE_MAX: usize = 1 << 20;

/// Why patterns are refused (INVALID_CONFIG, 40).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A pattern that does not compile. Look-around and back-references are not supported.
    #[error("pattern \"{pattern}\" is not a valid regular expression: {reason}")]
    Invalid {
        /// The refused pattern.
        pattern: String,
        /// The compiler's words, in one line.
        reason: String,
    },
}

/// A set of patterns of which one must match a whole name; the empty set matches nothing.
#[derive(Clone, Debug)]
pub struct PatternSet {
    patterns: Vec<String>,
    regex: Option<Regex>,
}

impl PatternSet {
    /// Compiles patterns into one anchored alternation. Empty strings are left out.
    ///
    /// # Errors
    /// Names the first pattern that is not a regular expression.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<PatternSet, Error> {
        let patterns: Vec<String> = patterns
            .iter()
            .map(|pattern| pattern.as_ref().trim().to_owned())
            .filter(|pattern| !pattern.is_empty())
            .collect();
        for pattern in &patterns {
            compile(pattern, pattern)?;
        }
        if patterns.is_empty() {
            return Ok(PatternSet { patterns, regex: None });
        }
        let alternation =
            patterns.iter().map(|pattern| format!("(?:{pattern})")).collect::<Vec<_>>().join("|");
        let regex = compile(&format!("^(?:{alternation})$"), &patterns.join(","))?;
        Ok(PatternSet { patterns, regex: Some(regex) })
    }

    /// Compiles the comma-separated form that settings use.
    ///
    /// # Errors
    /// As [`PatternSet::new`].
    pub fn from_list(list: &str) -> Result<PatternSet, Error> {
        PatternSet::new(&list.split(',').collect::<Vec<_>>())
    }

    /// Whether one of the patterns matches the whole of `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.regex.as_ref().is_some_and(|regex| regex.is_match(name))
    }

    /// The patterns as given, without empty ones.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Whether the set holds no pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }
}

/// Include and exclude patterns of a mirror: exclusion wins.
#[derive(Clone, Debug)]
pub struct TopicPatterns {
    /// What is wanted.
    pub include: PatternSet,
    /// What is kept out whatever `include` says.
    pub exclude: PatternSet,
}

impl TopicPatterns {
    /// Compiles both sets; `exclude` of `None` means the default, [`DEFAULT_EXCLUDE`].
    ///
    /// # Errors
    /// As [`PatternSet::new`].
    pub fn new<S: AsRef<str>>(
        include: &[S],
        exclude: Option<&[S]>,
    ) -> Result<TopicPatterns, Error> {
        let exclude = match exclude {
            Some(patterns) => PatternSet::new(patterns)?,
            None => PatternSet::new(&[DEFAULT_EXCLUDE])?,
        };
        Ok(TopicPatterns { include: PatternSet::new(include)?, exclude })
    }

    /// Whether a topic is meant.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        self.include.matches(topic) && !self.exclude.matches(topic)
    }
}

/// Whether an argument is one topic's name rather than a pattern.
///
/// A legal topic name is taken literally, so `orders.eu` means that topic and not `ordersXeu`.
#[must_use]
pub fn is_literal(argument: &str) -> bool {
    names::is_topic_name(argument)
}

fn compile(regex: &str, shown: &str) -> Result<Regex, Error> {
    RegexBuilder::new(regex).size_limit(COMPILED_SIZE_MAX).build().map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        let reason = last.trim_start_matches("error: ").trim().to_owned();
        Error::Invalid { pattern: shown.to_owned(), reason }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_must_match_the_whole_name() {
        let set = PatternSet::new(&["orders", "pay.*"]).unwrap();
        assert!(set.matches("orders"));
        assert!(!set.matches("orders-2"));
        assert!(!set.matches("old-orders"));
        assert!(set.matches("payments"));
    }

    #[test]
    fn an_alternation_inside_a_pattern_stays_inside() {
        let set = PatternSet::new(&["a|b", "c"]).unwrap();
        assert!(set.matches("a") && set.matches("b") && set.matches("c"));
        assert!(!set.matches("ac"));
    }

    #[test]
    fn exclusion_wins_and_internal_topics_stay_out_by_default() {
        let patterns = TopicPatterns::new::<&str>(&[".*"], None).unwrap();
        assert!(patterns.matches("orders"));
        assert!(!patterns.matches("__consumer_offsets"));
        let patterns = TopicPatterns::new(&[".*"], Some(&["tmp-.*"])).unwrap();
        assert!(patterns.matches("__consumer_offsets"));
        assert!(!patterns.matches("tmp-1"));
    }

    #[test]
    fn the_empty_set_matches_nothing() {
        let set = PatternSet::from_list(" , ").unwrap();
        assert!(set.is_empty());
        assert!(!set.matches(""));
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let error = PatternSet::new(&["ok", "a["]).unwrap_err();
        assert!(error.to_string().starts_with("pattern \"a[\""), "{error}");
        let error = PatternSet::new(&["(?!x).*"]).unwrap_err();
        assert!(error.to_string().contains("look-around"), "{error}");
        let huge = PatternSet::new(&["(a{1000}){1000}"]).unwrap_err();
        assert!(huge.to_string().contains("size limit"), "{huge}");
    }

    #[test]
    fn unbalanced_groups_do_not_escape_the_alternation() {
        assert!(PatternSet::new(&["a)|(b"]).is_err());
    }

    #[test]
    fn names_are_literal_and_the_rest_are_patterns() {
        assert!(is_literal("orders.eu-1"));
        assert!(!is_literal("orders.*"));
        assert!(!is_literal("."));
        assert!(!is_literal(""));
    }
}
