//! The compact schema tables, read. Owns the table format (the fields of a line and their
//! order); generates nothing. The build script and the test that compares the tables with
//! Kafka's layouts both read through it.

use std::fmt;

/// A table that cannot be read: where, and what is wrong.
#[derive(Debug)]
pub struct SchemaError {
    pub file: String,
    pub line: usize,
    pub problem: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.problem)
    }
}

impl std::error::Error for SchemaError {}

/// The highest version number there is: the end of `3+`.
pub const VERSION_MAX: i16 = i16::MAX;

/// A range of versions, both ends included; empty when `first > last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub first: i16,
    pub last: i16,
}

impl Versions {
    pub const NONE: Versions = Versions { first: 0, last: -1 };

    pub fn is_empty(self) -> bool {
        self.first > self.last
    }

    pub fn intersect(self, other: Versions) -> Versions {
        let both =
            Versions { first: self.first.max(other.first), last: self.last.min(other.last) };
        if both.is_empty() { Versions::NONE } else { both }
    }

    /// Reads `3+`, `0-12`, `4` or `none`.
    pub fn parse(text: &str) -> Option<Versions> {
        if text == "none" {
            return Some(Versions::NONE);
        }
        if let Some(first) = text.strip_suffix('+') {
            return Some(Versions { first: first.parse().ok()?, last: VERSION_MAX });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(Versions { first: first.parse().ok()?, last: last.parse().ok()? })
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            v if v.is_empty() => write!(f, "none"),
            v if v.last == VERSION_MAX => write!(f, "{}+", v.first),
            v if v.first == v.last => write!(f, "{}", v.first),
            v => write!(f, "{}-{}", v.first, v.last),
        }
    }
}

/// A wire type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Records,
    Struct(String),
    Array(Box<Type>),
}

impl Type {
    fn parse(text: &str) -> Type {
        if let Some(element) = text.strip_prefix("[]") {
            return Type::Array(Box::new(Type::parse(element)));
        }
        match text {
            "bool" => Type::Bool,
            "int8" => Type::Int8,
            "int16" => Type::Int16,
            "uint16" => Type::Uint16,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "float64" => Type::Float64,
            "uuid" => Type::Uuid,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "records" => Type::Records,
            name => Type::Struct(name.to_owned()),
        }
    }

    /// The struct this type holds, as itself or as an array's element.
    pub fn struct_name(&self) -> Option<&str> {
        if let Type::Array(element) = self {
            return element.struct_name();
        }
        if let Type::Struct(name) = self { Some(name) } else { None }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Type::Bool => "bool",
            Type::Int8 => "int8",
            Type::Int16 => "int16",
            Type::Uint16 => "uint16",
            Type::Int32 => "int32",
            Type::Int64 => "int64",
            Type::Float64 => "float64",
            Type::Uuid => "uuid",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Records => "records",
            Type::Struct(name) => name,
            Type::Array(element) => return write!(f, "[]{element}"),
        };
        f.write_str(name)
    }
}

/// One line of a table.
#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    pub kind: Type,
    pub versions: Versions,
    /// Versions in which null may be sent; empty = never.
    pub nullable: Versions,
    pub tag: Option<u32>,
    /// As written; `None` is the type's own zero.
    pub default: Option<String>,
    /// Dropped without an error in a version that cannot say it.
    pub ignorable: bool,
    /// The nested struct's fields, where this line opens one.
    pub fields: Vec<Field>,
}

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Request,
    Response,
    RecordKey,
    RecordValue,
    Data,
}

/// A struct named once and used by several fields.
#[derive(Debug, Clone)]
pub struct CommonStruct {
    pub name: String,
    pub versions: Versions,
    pub fields: Vec<Field>,
}

/// One message of a table file.
#[derive(Debug, Clone)]
pub struct Message {
    pub name: String,
    pub kind: Kind,
    pub key: Option<i16>,
    pub versions: Versions,
    /// Versions with compact lengths and tagged fields.
    pub flexible: Versions,
    /// The first version that Kafka does not serve yet, where there is one.
    pub unstable: Option<i16>,
    pub fields: Vec<Field>,
    pub structs: Vec<CommonStruct>,
}

struct Line<'a> {
    number: usize,
    depth: usize,
    words: Vec<&'a str>,
}

struct Parser<'a> {
    file: &'a str,
    lines: std::iter::Peekable<std::vec::IntoIter<Line<'a>>>,
}

/// Reads a table file.
///
/// # Errors
///
/// The first line that is no comment, message, struct or field, or says something twice.
pub fn parse(file: &str, text: &str) -> Result<Vec<Message>, SchemaError> {
    let lines: Vec<Line<'_>> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
        .map(|(index, line)| Line {
            number: index + 1,
            depth: (line.len() - line.trim_start().len()) / 2,
            words: line.split_whitespace().collect(),
        })
        .collect();
    let mut parser = Parser { file, lines: lines.into_iter().peekable() };
    let mut messages = Vec::new();
    while let Some(line) = parser.lines.next() {
        messages.push(parser.message(&line)?);
    }
    Ok(messages)
}

impl Parser<'_> {
    fn fail<T>(&self, line: &Line<'_>, problem: impl Into<String>) -> Result<T, SchemaError> {
        Err(SchemaError { file: self.file.to_owned(), line: line.number, problem: problem.into() })
    }

    fn versions(&self, line: &Line<'_>, text: Option<&&str>) -> Result<Versions, SchemaError> {
        match text.and_then(|text| Versions::parse(text)) {
            Some(versions) => Ok(versions),
            None => self.fail(line, format!("{text:?} is no version range")),
        }
    }

    fn number<N: std::str::FromStr>(
        &self,
        line: &Line<'_>,
        text: Option<&&str>,
    ) -> Result<N, SchemaError> {
        match text.and_then(|text| text.parse().ok()) {
            Some(number) => Ok(number),
            None => self.fail(line, format!("{text:?} is no number")),
        }
    }

    fn message(&mut self, line: &Line<'_>) -> Result<Message, SchemaError> {
        let [first, name, kind, ..] = line.words[..] else {
            return self.fail(line, "expected `message <name> <kind> …`");
        };
        if first != "message" || line.depth != 0 {
            return self.fail(line, "expected `message` at the start of a line");
        }
        let kind = match kind {
            "request" => Kind::Request,
            "response" => Kind::Response,
            "record-key" => Kind::RecordKey,
            "record-value" => Kind::RecordValue,
            "data" => Kind::Data,
            other => return self.fail(line, format!("{other:?} is no kind of message")),
        };
        let mut message = Message {
            name: name.to_owned(),
            kind,
            key: None,
            versions: Versions::NONE,
            flexible: Versions::NONE,
            unstable: None,
            fields: Vec::new(),
            structs: Vec::new(),
        };
        let mut words = line.words[3..].iter();
        while let Some(word) = words.next() {
            match *word {
                "key" => message.key = Some(self.number(line, words.next())?),
                "versions" => message.versions = self.versions(line, words.next())?,
                "flexible" => message.flexible = self.versions(line, words.next())?,
                "unstable" => message.unstable = Some(self.number(line, words.next())?),
                other => return self.fail(line, format!("{other:?} says nothing of a message")),
            }
        }
        if message.versions.is_empty() {
            return self.fail(line, "a message needs `versions`");
        }
        self.body(&mut message)?;
        Ok(message)
    }

    fn body(&mut self, message: &mut Message) -> Result<(), SchemaError> {
        while let Some(line) = self.lines.next_if(|line| line.depth > 0) {
            if line.words[0] == "struct" {
                let versions = self.versions(&line, line.words.get(2))?;
                let name = line.words[1].to_owned();
                let fields = self.fields(line.depth + 1)?;
                message.structs.push(CommonStruct { name, versions, fields });
            } else {
                let field = self.field(&line)?;
                message.fields.push(field);
            }
        }
        Ok(())
    }

    fn fields(&mut self, depth: usize) -> Result<Vec<Field>, SchemaError> {
        let mut fields = Vec::new();
        while let Some(line) = self.lines.next_if(|line| line.depth >= depth) {
            if line.depth != depth {
                return self.fail(&line, "indented too far");
            }
            fields.push(self.field(&line)?);
        }
        Ok(fields)
    }

    fn field(&mut self, line: &Line<'_>) -> Result<Field, SchemaError> {
        let [name, kind, ..] = line.words[..] else {
            return self.fail(line, "expected `<name> <type> <versions> …`");
        };
        let mut field = Field {
            name: name.to_owned(),
            kind: Type::parse(kind),
            versions: self.versions(line, line.words.get(2))?,
            nullable: Versions::NONE,
            tag: None,
            default: None,
            ignorable: false,
            fields: Vec::new(),
        };
        let mut words = line.words[3..].iter();
        while let Some(word) = words.next() {
            match *word {
                "nullable" => field.nullable = self.versions(line, words.next())?,
                "tag" => field.tag = Some(self.number(line, words.next())?),
                "default" => field.default = words.next().map(|text| (*text).to_owned()),
                "ignorable" => field.ignorable = true,
                other => return self.fail(line, format!("{other:?} says nothing of a field")),
            }
        }
        field.fields = self.fields(line.depth + 1)?;
        if !field.fields.is_empty() && field.kind.struct_name().is_none() {
            return self.fail(line, "only a struct has fields");
        }
        Ok(field)
    }
}
