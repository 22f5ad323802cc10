//! Java properties text: the form of Kafka's settings files.
//!
//! Owns the reading of `key=value` lines with comments, continuation lines and escapes. It never
//! knows what a key means.

use std::collections::BTreeMap;

use crate::error::{Error, Fault};

/// Raw settings by name.
pub type Properties = BTreeMap<String, String>;

/// Reads a properties text. A key given twice is a fault, unlike in Java, where the last one wins
/// silently.
pub fn parse_properties(text: &str) -> Result<Properties, Error> {
    let mut properties = Properties::new();
    let mut faults = Vec::new();
    for (line, logical) in logical_lines(text) {
        let (key, value) = split_entry(&logical);
        let (key, value) = (unescape(key), unescape(value));
        if key.is_empty() {
            faults.push(Fault::Syntax { line, reason: "it has a value but no key".to_owned() });
        } else if properties.insert(key.clone(), value).is_some() {
            faults.push(Fault::Syntax { line, reason: format!("'{key}' was given before") });
        }
    }
    Error::from_faults(faults).map(|()| properties)
}

/// Joins lines that end in an odd number of backslashes, drops blanks and comments.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, raw) in text.lines().enumerate() {
        let content = raw.trim_start();
        if open.is_none() && (content.is_empty() || content.starts_with(['#', '!'])) {
            continue;
        }
        let (line, mut joined) = open.take().unwrap_or((index + 1, String::new()));
        let slashes = content.len() - content.trim_end_matches('\\').len();
        if slashes % 2 == 1 {
            joined.push_str(&content[..content.len() - 1]);
            open = Some((line, joined));
        } else {
            joined.push_str(content.trim_end());
            lines.push((line, joined));
        }
    }
    lines.extend(open);
    lines
}

/// Cuts at the first unescaped `=`, `:` or blank.
fn split_entry(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == '=' || c == ':' || c.is_whitespace() {
            let rest = line[at..].trim_start();
            let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            return (&line[..at], rest.trim_start());
        }
    }
    (line, "")
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                out.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kafka_reads() {
        let text = "# comment\n! too\n\nnode.id=1\n listeners = A://:1,\\\n   B://:2\n\
                    a\\=b: c\\td\nflag\n";
        let read = parse_properties(text).unwrap();
        assert_eq!(read["node.id"], "1");
        assert_eq!(read["listeners"], "A://:1,B://:2");
        assert_eq!(read["a=b"], "c\td");
        assert_eq!(read["flag"], "");
    }

    #[test]
    fn reports_every_bad_line() {
        let error = parse_properties("a=1\na=2\n=3\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "Line 2: 'a' was given before. Line 3: it has a value but no key."
        );
    }
}
