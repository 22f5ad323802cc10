//! The columns and the JSON of the mirrors tool. Owns headers, widths and the order of rows;
//! never asks anyone.

use std::fmt::Write;

use anyhow::Result;
use mirror::MirrorState;
use serde::Serialize;

/// A row of `--list`.
pub struct MirrorRow {
    pub mirror: String,
    pub topics: i32,
    pub source_cluster_id: String,
    pub source_bootstrap: String,
}

/// A row of `--describe`. The order of the fields is the order of the JSON's keys.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionRow {
    pub mirror: String,
    pub topic: String,
    pub partition: i32,
    pub source_offset: i64,
    pub destination_offset: i64,
    pub lag: i64,
    pub state: String,
    pub last_mirror_epoch: i32,
    pub attempt: i16,
    pub reason: Option<String>,
    pub last_mirrored_offset: i64,
    pub records_cut: i64,
    pub aborted_producers: Vec<i64>,
    pub lag_ms: i64,
    pub source_offset_age_ms: i64,
}

impl PartitionRow {
    /// Whether the partition is in `state`. The text is the server's, which may know states that
    /// are not known here.
    pub fn is(&self, state: MirrorState) -> bool {
        self.state == state.name()
    }
}

const LIST_WIDTHS: [usize; 4] = [30, 10, 26, 50];
const DESCRIBE_WIDTHS: [usize; 7] = [30, 40, 10, 15, 18, 10, 12];

/// The table of `--list`, sorted by name.
pub fn list(rows: &[MirrorRow]) -> String {
    if rows.is_empty() {
        return "No mirrors found\n".to_owned();
    }
    let mut sorted: Vec<&MirrorRow> = rows.iter().collect();
    sorted.sort_by(|a, b| a.mirror.cmp(&b.mirror));
    let mut out = String::new();
    line(&mut out, &LIST_WIDTHS, &["MIRROR", "TOPICS", "CLUSTER-ID", "BOOTSTRAP-SERVER"]);
    for row in sorted {
        let mirror = cut(&row.mirror, LIST_WIDTHS[0]);
        let bootstrap = cut(or_dash(&row.source_bootstrap), LIST_WIDTHS[3]);
        let topics = row.topics.to_string();
        let cells = [&mirror, &topics, or_dash(&row.source_cluster_id), &bootstrap];
        line(&mut out, &LIST_WIDTHS, &cells);
    }
    out
}

/// The table of `--describe`, sorted by mirror, topic and partition.
pub fn table(rows: &[PartitionRow]) -> String {
    if rows.is_empty() {
        return "No mirror partitions found\n".to_owned();
    }
    let mut out = String::new();
    let header =
        ["MIRROR", "TOPIC", "PARTITION", "SOURCE-OFFSET", "DESTINATION-OFFSET", "LAG", "STATE"];
    line(&mut out, &DESCRIBE_WIDTHS, &header);
    for row in sorted(rows) {
        let numbers = [row.source_offset, row.destination_offset, row.lag].map(known);
        let cells = [
            row.mirror.as_str(),
            &row.topic,
            &row.partition.to_string(),
            &numbers[0],
            &numbers[1],
            &numbers[2],
            &row.state,
        ];
        line(&mut out, &DESCRIBE_WIDTHS, &cells);
    }
    out
}

/// One line of JSON, an array of the rows in the table's order.
pub fn json(rows: &[PartitionRow]) -> Result<String> {
    Ok(serde_json::to_string(&sorted(rows))? + "\n")
}

fn sorted(rows: &[PartitionRow]) -> Vec<&PartitionRow> {
    let mut sorted: Vec<&PartitionRow> = rows.iter().collect();
    let key = |row: &PartitionRow| (row.mirror.clone(), row.topic.clone(), row.partition);
    sorted.sort_by_key(|row| key(row));
    sorted
}

/// Left-aligned cells with one space between; the last one is padded too.
fn line(out: &mut String, widths: &[usize], cells: &[&str]) {
    for (index, (width, cell)) in widths.iter().zip(cells).enumerate() {
        let gap = if index == 0 { "" } else { " " };
        write!(out, "{gap}{cell:<width$}").expect("a string takes all text");
    }
    out.push('\n');
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// −1 stands for "not known".
fn known(number: i64) -> String {
    if number == -1 { "-".to_owned() } else { number.to_string() }
}

/// Keeps the right end of a long value, with `...` in front.
fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(length - (width - 3)).collect();
    format!("...{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(topic: &str, partition: i32, lag: i64) -> PartitionRow {
        PartitionRow {
            mirror: "my-mirror".to_owned(),
            topic: topic.to_owned(),
            partition,
            source_offset: 100,
            destination_offset: 100 - lag,
            lag,
            state: "MIRRORING".to_owned(),
            last_mirror_epoch: 5,
            attempt: 0,
            reason: None,
            last_mirrored_offset: -1,
            records_cut: 0,
            aborted_producers: Vec::new(),
            lag_ms: 0,
            source_offset_age_ms: 12,
        }
    }

    #[test]
    fn nothing_to_show_is_said() {
        assert_eq!(list(&[]), "No mirrors found\n");
        assert_eq!(table(&[]), "No mirror partitions found\n");
        assert_eq!(json(&[]).unwrap(), "[]\n");
    }

    #[test]
    fn list_has_the_kips_columns() {
        let long = format!("{}:9092", "h".repeat(60));
        let mirror = |name: &str, bootstrap: &str| MirrorRow {
            mirror: name.to_owned(),
            topics: 2,
            source_cluster_id: String::new(),
            source_bootstrap: bootstrap.to_owned(),
        };
        let text = list(&[mirror(&"m".repeat(40), &long), mirror("a", "")]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("TOPICS"), Some(31));
        assert_eq!(lines[0].find("CLUSTER-ID"), Some(42));
        assert_eq!(lines[0].find("BOOTSTRAP-SERVER"), Some(69));
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["a", "2", "-", "-"]);
        assert!(lines[2].starts_with(&format!("...{} 2", "m".repeat(27))));
        assert!(lines[2].ends_with("h:9092") && lines[2].contains(" ...hhh"));
    }

    #[test]
    fn describe_is_sorted_and_unknown_offsets_are_dashes() {
        let text = table(&[row("b", 0, 0), row("a", 10, 3), row("a", 2, -1)]);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["my-mirror", "a", "2", "100", "101", "-", "MIRRORING"]);
        assert_eq!(lines[2][1..3], ["a", "10"]);
        assert_eq!(lines[3][1..3], ["b", "0"]);
        assert_eq!(text.lines().next().unwrap().find("STATE"), Some(129));
    }

    #[test]
    fn json_is_one_line_with_the_kips_keys_first() {
        let text = json(&[row("100%", 0, 0)]).unwrap();
        let expected =
            r#"[{"mirror":"my-mirror","topic":"100%","partition":0,"sourceOffset":100,"#;
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains(r#""lag":0,"state":"MIRRORING","lastMirrorEpoch":5,"attempt":0,"#));
        assert_eq!(text.matches('\n').count(), 1);
    }
}
