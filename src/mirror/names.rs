//! What a mirror may be called. Owns the rule and its messages; never looks at existing mirrors.

/// The longest mirror name, in characters (the limit of topic names).
pub const MIRROR_NAME_MAX_LENGTH: usize = 249;

/// Suffixes that the view `mirror.name` of a topic's desired state uses.
const RESERVED_SUFFIXES: [&str; 2] = [".paused", ".stopped"];

/// Why a mirror name is refused (INVALID_MIRROR_NAME, 135).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The name is the empty string.
    #[error("a mirror name must not be empty")]
    Empty,
    /// The name is `.` or `..`.
    #[error("a mirror name must not be \"{name}\"")]
    Dots {
        /// The refused name.
        name: String,
    },
    /// The name is too long.
    #[error(
        "mirror name is {length} characters long, at most {MIRROR_NAME_MAX_LENGTH} are allowed"
    )]
    TooLong {
        /// Its length in characters.
        length: usize,
    },
    /// A character outside `[a-zA-Z0-9._-]`.
    #[error(
        "mirror name \"{name}\" holds \"{character}\"; only letters, digits, '.', '_' and '-' \
         are allowed"
    )]
    Character {
        /// The refused name.
        name: String,
        /// The first character that is not allowed.
        character: char,
    },
    /// The name ends with a suffix that marks a desired state.
    #[error("mirror name \"{name}\" must not end with \"{suffix}\"")]
    Suffix {
        /// The refused name.
        name: String,
        /// The reserved ending.
        suffix: &'static str,
    },
}

/// Checks a mirror name: the rules of topic names, and neither `.paused` nor `.stopped` at its
/// end.
///
/// # Errors
/// Says which rule the name breaks.
pub fn validate_mirror_name(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::Empty);
    }
    if name == "." || name == ".." {
        return Err(Error::Dots { name: name.to_owned() });
    }
    let length = name.chars().count();
    if length > MIRROR_NAME_MAX_LENGTH {
        return Err(Error::TooLong { length });
    }
    if let Some(character) = name.chars().find(|c| !is_name_character(*c)) {
        return Err(Error::Character { name: name.to_owned(), character });
    }
    match RESERVED_SUFFIXES.into_iter().find(|suffix| name.ends_with(suffix)) {
        Some(suffix) => Err(Error::Suffix { name: name.to_owned(), suffix }),
        None => Ok(()),
    }
}

/// Whether a string is a legal topic name.
#[must_use]
pub fn is_topic_name(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name != ".."
        && name.chars().count() <= MIRROR_NAME_MAX_LENGTH
        && name.chars().all(is_name_character)
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_pass() {
        for name in ["m", "dr-east.1", "a_b", &"x".repeat(249), "paused", "stopped.x"] {
            assert_eq!(validate_mirror_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn each_rule_is_named() {
        assert_eq!(validate_mirror_name(""), Err(Error::Empty));
        assert_eq!(validate_mirror_name("."), Err(Error::Dots { name: ".".into() }));
        assert_eq!(validate_mirror_name(".."), Err(Error::Dots { name: "..".into() }));
        assert_eq!(validate_mirror_name(&"x".repeat(250)), Err(Error::TooLong { length: 250 }));
        assert_eq!(
            validate_mirror_name("a/b"),
            Err(Error::Character { name: "a/b".into(), character: '/' })
        );
        assert_eq!(
            validate_mirror_name("m.stopped"),
            Err(Error::Suffix { name: "m.stopped".into(), suffix: ".stopped" })
        );
        assert_eq!(
            validate_mirror_name("m.paused"),
            Err(Error::Suffix { name: "m.paused".into(), suffix: ".paused" })
        );
    }
}
