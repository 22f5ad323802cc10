//! What a setting is: its type, default, valid values, importance, scope, and whether it is
//! built.
//!
//! Owns the vocabulary of the three tables and the parsing of one value. It never decides what a
//! table holds.

use crate::error::Fault;

/// Kafka's type of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// Free text.
    String,
    /// A 32-bit number.
    Int,
    /// A 16-bit number.
    Short,
    /// A 64-bit number.
    Long,
    /// A floating-point number.
    Double,
    /// Comma-separated texts.
    List,
    /// The name of a Java class: never built here.
    Class,
    /// A secret: never shown, logged or dumped.
    Password,
}

impl Kind {
    /// The type's number in DescribeConfigs answers.
    pub const fn id(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Short => 4,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
            Kind::Class => 8,
            Kind::Password => 9,
        }
    }
}

/// How much an operator should care, as Kafka grades it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Importance {
    /// Most operators look at it.
    High,
    /// Some do.
    Medium,
    /// Almost nobody does.
    Low,
}

/// Where a setting may be changed while brokers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Only in the settings a node starts with.
    ReadOnly,
    /// For one broker at run time.
    PerBroker,
    /// For one broker or for the cluster's default at run time.
    ClusterWide,
    /// For the cluster's default at run time only.
    ClusterDefault,
}

/// Whether the setting does anything here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Acted on.
    Built,
    /// Copied from a source's topic, stored and shown; nothing acts on it yet, so that a client
    /// cannot ask for anything but the default.
    Stored,
    /// Known to Kafka, refused here when it asks for anything but the default.
    NotBuilt,
}

/// Which values of the right type are valid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Valid {
    /// All of them.
    Any,
    /// Numbers from the first to the second, both included.
    Between(i64, i64),
    /// The number given, or one between the other two.
    EitherOr(i64, i64, i64),
    /// Fractions from 0 to 1.
    Fraction,
    /// One of these texts; for a list, each entry is one of them.
    OneOf(&'static [&'static str]),
    /// Regular expressions.
    Regex,
    /// Text or list that is not empty.
    NotEmpty,
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Kafka's name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The default as text; `None` is Kafka's null.
    pub default: Option<&'static str>,
    /// Valid values.
    pub valid: Valid,
    /// How important it is.
    pub importance: Importance,
    /// Where it may be changed.
    pub scope: Scope,
    /// Whether it does anything.
    pub function: Function,
    /// For settings that are not acted on: what is the case here anyway, if that is not the
    /// default.
    pub idle: Option<&'static str>,
    /// For topic settings: the broker settings that give its default, first found wins.
    pub synonyms: &'static [&'static str],
    /// What it means, in one or two sentences.
    pub doc: &'static str,
}

impl Key {
    /// A built, read-only setting of medium importance with any value.
    pub const fn new(
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        doc: &'static str,
    ) -> Key {
        Key {
            name,
            kind,
            default,
            valid: Valid::Any,
            importance: Importance::Medium,
            scope: Scope::ReadOnly,
            function: Function::Built,
            idle: None,
            synonyms: &[],
            doc,
        }
    }

    /// Numbers not below `low`.
    pub const fn at_least(mut self, low: i64) -> Key {
        self.valid = Valid::Between(low, i64::MAX);
        self
    }

    /// Restricts the values.
    pub const fn valid(mut self, valid: Valid) -> Key {
        self.valid = valid;
        self
    }

    /// Of high importance.
    pub const fn high(mut self) -> Key {
        self.importance = Importance::High;
        self
    }

    /// Of low importance.
    pub const fn low(mut self) -> Key {
        self.importance = Importance::Low;
        self
    }

    /// Changeable at run time for one broker or all.
    pub const fn cluster_wide(mut self) -> Key {
        self.scope = Scope::ClusterWide;
        self
    }

    /// Changeable at run time for all brokers together, and in no other way.
    pub const fn cluster_default(mut self) -> Key {
        self.scope = Scope::ClusterDefault;
        self
    }

    /// Copied and shown, not acted on.
    pub const fn stored(mut self) -> Key {
        self.function = Function::Stored;
        self
    }

    /// Asks for nothing at this value.
    pub const fn idle_at(mut self, value: &'static str) -> Key {
        self.idle = Some(value);
        self
    }

    /// Refused when changed.
    pub const fn not_built(mut self) -> Key {
        self.function = Function::NotBuilt;
        self
    }

    /// Defaults come from these broker settings.
    pub const fn from_broker(mut self, synonyms: &'static [&'static str]) -> Key {
        self.synonyms = synonyms;
        self
    }

    /// True for secrets.
    pub const fn is_sensitive(&self) -> bool {
        matches!(self.kind, Kind::Password)
    }

    /// Reads a value and checks it against the type and the valid values.
    pub fn parse(&self, raw: &str) -> Result<Value, Fault> {
        let raw = raw.trim();
        let value = self.parse_kind(raw).map_err(|reason| self.invalid(raw, reason))?;
        self.check(&value).map_err(|reason| self.invalid(raw, reason))?;
        Ok(value)
    }

    /// The default as a value; `None` where Kafka's default is null.
    pub fn default_value(&self) -> Option<Value> {
        let raw = self.default?;
        Some(self.parse_kind(raw).expect("a default in the table has the setting's type"))
    }

    /// Refuses a setting that is not built unless it asks for what is the case anyway.
    pub fn refuse_if_not_built(&self, raw: &str) -> Result<(), Fault> {
        match self.function {
            Function::Built | Function::Stored => Ok(()),
            Function::NotBuilt => self.refuse_unless_idle(raw),
        }
    }

    /// Refuses a setting that nothing acts on unless it asks for what is the case anyway.
    pub fn refuse_if_not_acted_on(&self, raw: &str) -> Result<(), Fault> {
        match self.function {
            Function::Built => Ok(()),
            Function::Stored | Function::NotBuilt => self.refuse_unless_idle(raw),
        }
    }

    fn refuse_unless_idle(&self, raw: &str) -> Result<(), Fault> {
        let asked = self.parse_kind(raw.trim()).ok();
        let empty = raw.trim().is_empty() && self.default.unwrap_or("").is_empty();
        let idle = [self.default, self.idle].into_iter().flatten();
        let mut idle = idle.map(|raw| self.parse_kind(raw).ok());
        if empty || (asked.is_some() && idle.any(|value| value == asked)) {
            return Ok(());
        }
        Err(Fault::NotBuilt {
            name: self.name.to_owned(),
            default: self.default.map(str::to_owned),
        })
    }

    fn invalid(&self, raw: &str, reason: String) -> Fault {
        let value = if self.is_sensitive() { "[hidden]" } else { raw };
        Fault::InvalidValue { name: self.name.to_owned(), value: value.to_owned(), reason }
    }

    fn parse_kind(&self, raw: &str) -> Result<Value, String> {
        match self.kind {
            Kind::Boolean if raw.eq_ignore_ascii_case("true") => Ok(Value::Boolean(true)),
            Kind::Boolean if raw.eq_ignore_ascii_case("false") => Ok(Value::Boolean(false)),
            Kind::Boolean => Err("it must be true or false".to_owned()),
            Kind::String | Kind::Class | Kind::Password => Ok(Value::Text(raw.to_owned())),
            Kind::Int => number(raw, i64::from(i32::MIN), i64::from(i32::MAX)),
            Kind::Short => number(raw, i64::from(i16::MIN), i64::from(i16::MAX)),
            Kind::Long => number(raw, i64::MIN, i64::MAX),
            Kind::Double => raw
                .parse::<f64>()
                .ok()
                .filter(|number| number.is_finite())
                .map(Value::Double)
                .ok_or_else(|| "it must be a number".to_owned()),
            Kind::List => Ok(Value::List(split_list(raw))),
        }
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        match (self.valid, value) {
            (Valid::Between(low, high), Value::Number(n)) if *n < low || *n > high => {
                Err(if high == i64::MAX {
                    format!("it must be at least {low}")
                } else {
                    format!("it must be between {low} and {high}")
                })
            }
            (Valid::EitherOr(one, low, high), Value::Number(n))
                if *n != one && (*n < low || *n > high) =>
            {
                Err(format!("it must be {one}, or between {low} and {high}"))
            }
            (Valid::Fraction, Value::Double(n)) if !(0.0..=1.0).contains(n) => {
                Err("it must be between 0 and 1".to_owned())
            }
            (Valid::OneOf(allowed), Value::Text(text)) => one_of(text, allowed),
            (Valid::OneOf(allowed), Value::List(entries)) => {
                entries.iter().try_for_each(|entry| one_of(entry, allowed))
            }
            (Valid::Regex, Value::List(entries)) => {
                entries.iter().try_for_each(|entry| check_regex(entry))
            }
            (Valid::NotEmpty, Value::Text(text)) if text.is_empty() => {
                Err("it must not be empty".to_owned())
            }
            (Valid::NotEmpty, Value::List(entries)) if entries.is_empty() => {
                Err("it needs at least one entry".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// A parsed value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of [`Kind::Boolean`].
    Boolean(bool),
    /// Of [`Kind::Int`], [`Kind::Short`] and [`Kind::Long`].
    Number(i64),
    /// Of [`Kind::Double`].
    Double(f64),
    /// Of [`Kind::String`], [`Kind::Class`] and [`Kind::Password`].
    Text(String),
    /// Of [`Kind::List`].
    List(Vec<String>),
}

/// Splits Kafka's comma-separated list; blanks around entries and empty entries do not count.
pub fn split_list(raw: &str) -> Vec<String> {
    raw.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}

fn number(raw: &str, low: i64, high: i64) -> Result<Value, String> {
    let number: i64 = raw.parse().map_err(|_| "it must be a whole number".to_owned())?;
    if number < low || number > high {
        return Err(format!("it must be between {low} and {high}"));
    }
    Ok(Value::Number(number))
}

fn one_of(text: &str, allowed: &[&str]) -> Result<(), String> {
    if allowed.contains(&text) {
        return Ok(());
    }
    Err(format!("it must be one of {}", allowed.join(", ")))
}

fn check_regex(pattern: &str) -> Result<(), String> {
    // "*" alone is what the ACL rules and several Kafka tools call "everything".
    if pattern == "*" {
        return Ok(());
    }
    match regex::Regex::new(pattern) {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or("it does not parse").trim();
            Err(format!("'{pattern}' is no regular expression ({last})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_know_their_width() {
        let key = Key::new("n", Kind::Short, Some("3"), "").at_least(1);
        assert_eq!(key.parse(" 7 ").unwrap(), Value::Number(7));
        assert!(key.parse("0").unwrap_err().to_string().contains("at least 1"));
        assert!(key.parse("40000").unwrap_err().to_string().contains("32767"));
        assert!(key.parse("seven").is_err());
    }

    #[test]
    fn secrets_stay_out_of_faults() {
        let key = Key::new("p", Kind::Password, None, "").valid(Valid::OneOf(&["x"]));
        let fault = key.parse("hunter2").unwrap_err().to_string();
        assert!(!fault.contains("hunter2"), "{fault}");
    }

    #[test]
    fn unbuilt_settings_pass_only_at_their_default() {
        let key = Key::new("n", Kind::Int, Some("8"), "").not_built();
        assert!(key.refuse_if_not_built(" 8").is_ok());
        assert!(key.refuse_if_not_built("9").is_err());
        let key = Key::new("s", Kind::String, None, "").not_built();
        assert!(key.refuse_if_not_built("").is_ok());
        assert!(key.refuse_if_not_built("x").is_err());
    }

    #[test]
    fn stored_settings_are_for_copies_only() {
        let key = Key::new("n", Kind::Long, Some("8"), "").stored().idle_at("-1");
        assert!(key.refuse_if_not_built("9").is_ok());
        assert!(key.refuse_if_not_acted_on("9").is_err());
        assert!(key.refuse_if_not_acted_on("8").is_ok());
        assert!(key.refuse_if_not_acted_on(" -1 ").is_ok());
        let built = Key::new("n", Kind::Long, Some("8"), "");
        assert!(built.refuse_if_not_acted_on("9").is_ok());
    }
}
