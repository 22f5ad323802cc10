//! The words of a command: plain ones in order, and `key=value` ones by key.

use std::str::FromStr;

pub(super) struct Arguments<'a> {
    pub(super) words: Vec<&'a str>,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Arguments<'a> {
    /// Only keys out of `keys` split a word at `=`, so that settings stay whole words.
    pub(super) fn new(line: &'a str, keys: &[&str]) -> Self {
        let mut words = Vec::new();
        let mut pairs = Vec::new();
        for word in line.split_whitespace().skip(1) {
            match word.split_once('=') {
                Some((key, value)) if keys.contains(&key) => pairs.push((key, value)),
                Some(_) | None => words.push(word),
            }
        }
        Self { words, pairs }
    }

    pub(super) fn word(&self, at: usize) -> &'a str {
        self.words.get(at).copied().unwrap_or_else(|| panic!("word {at} is missing"))
    }

    pub(super) fn number<T: FromStr>(&self, at: usize) -> T {
        parse(self.word(at))
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    pub(super) fn texts(&self, key: &str) -> Vec<String> {
        let values = self.pairs.iter().filter(|(known, _)| *known == key);
        values.map(|(_, value)| (*value).to_owned()).collect()
    }

    pub(super) fn get<T: FromStr>(&self, key: &str) -> Option<T> {
        self.text(key).map(parse)
    }
}

pub(super) fn parse<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("'{text}' is not a number"))
}

pub(super) fn numbers<T: FromStr>(text: &str) -> Vec<T> {
    text.split(',').filter(|part| !part.is_empty()).map(parse).collect()
}
