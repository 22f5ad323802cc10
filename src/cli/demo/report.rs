//! The demo's last words: what was measured, and each promise with what was found. Owns how
//! numbers are written; measures nothing.

use std::io::IsTerminal;
use std::time::Duration;

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};

use super::checks::{Check, Outcome};
use super::segments::Equal;

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Records the source acknowledged, and the bytes of their batches.
    pub acknowledged: (u64, u64),
    /// How long the load ran.
    pub load_took: Duration,
    /// Records copied until the lag was zero for the first time, and how long that took.
    pub caught_up: (i64, Duration),
    /// Largest lag while catching up, largest and last lag under the steady load, in records.
    pub lags: (i64, i64, i64),
    /// What was compared with the source.
    pub equal: Equal,
    /// From the order to stop to the first accepted write, and to one on every partition.
    pub writable_after: (Duration, Duration),
}

impl Figures {
    fn rows(&self) -> Vec<(&'static str, String)> {
        let (records, bytes) = self.acknowledged;
        let (copied, copy_took) = self.caught_up;
        // Batches of the burst weigh a little less a record than those of the steady load.
        let record_bytes = bytes.checked_div(records).unwrap_or(0);
        let copied = u64::try_from(copied).unwrap_or(0);
        let (lag_max, lag_steady, lag_last) = self.lags;
        let (first, all) = self.writable_after;
        let count = |value: u64| thousands(i64::try_from(value).unwrap_or(i64::MAX));
        vec![
            (
                "acknowledged by the source",
                format!("{} records, {}", count(records), rate(bytes, self.load_took)),
            ),
            (
                "copied until the lag was zero",
                format!("{} records, {}", count(copied), rate(copied * record_bytes, copy_took)),
            ),
            ("lag while catching up, at most", format!("{} records", thousands(lag_max))),
            ("lag under steady load, at most", format!("{} records", thousands(lag_steady))),
            ("lag when the source was lost", format!("{} records", thousands(lag_last))),
            (
                "compared with the source",
                format!(
                    "{} batches, {} bytes",
                    count(self.equal.batches),
                    count(self.equal.bytes)
                ),
            ),
            ("from stop to the first accepted write", millis(first)),
            ("from stop to writes on every partition", millis(all)),
        ]
    }
}

/// Both tables, with a newline at the end.
pub fn text(figures: &Figures, checks: &[Check]) -> String {
    let mut measured = table();
    for (what, value) in figures.rows() {
        measured.add_row([Cell::new(what).add_attribute(Attribute::Bold), Cell::new(value)]);
    }
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut promised = table();
    for check in checks {
        let (verdict, colour, found) = match &check.outcome {
            Outcome::Held(found) => ("held", Color::Green, found),
            Outcome::Broken(why) => ("BROKEN", Color::Red, why),
            Outcome::NotChecked(why) => ("NOT CHECKED", Color::Yellow, why),
        };
        let verdict = Cell::new(verdict);
        let verdict = if colours { verdict.fg(colour) } else { verdict };
        promised.add_row([verdict, Cell::new(check.promise), Cell::new(found)]);
    }
    format!("\n{measured}\n\n{promised}\n")
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// A rate in millions of bytes, with one decimal, in whole numbers: nothing is lost in a float.
fn rate(bytes: u64, took: Duration) -> String {
    let millis = took.as_millis().max(1);
    let tenths = u128::from(bytes) / 100 / millis;
    format!("{}.{} MB/s", tenths / 10, tenths % 10)
}

fn millis(span: Duration) -> String {
    let micros = span.as_micros();
    format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100)
}

/// A number with commas.
pub fn thousands(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number < 0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(-1_234_567), "-1,234,567");
        assert_eq!(rate(12_345_678, Duration::from_secs(1)), "12.3 MB/s");
        assert_eq!(rate(0, Duration::ZERO), "0.0 MB/s");
        assert_eq!(millis(Duration::from_micros(12_345)), "12.3 ms");
    }

    #[test]
    fn a_broken_promise_is_seen() {
        let checks = [
            Check { promise: "one", outcome: Outcome::Held("as it should".to_owned()) },
            Check { promise: "two", outcome: Outcome::Broken("a record is not there".to_owned()) },
            Check { promise: "three", outcome: Outcome::NotChecked("it is gone".to_owned()) },
        ];
        let text = text(&Figures::default(), &checks);
        assert!(text.contains("BROKEN") && text.contains("a record is not there"), "{text}");
        assert!(text.contains("NOT CHECKED") && text.contains("it is gone"), "{text}");
    }
}
