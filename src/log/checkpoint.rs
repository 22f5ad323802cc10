//! Kafka's small text files of a log directory. Owns their formats; never decides when one is
//! written.
//!
//! Checkpoints of offsets (`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
//! `log-start-offset-checkpoint`) and of epochs (`leader-epoch-checkpoint`, see
//! [`crate::epochs`]) share one form: a line with the version 0, a line with the number of
//! entries, and a line for each entry with fields that a space separates. An offset's entry is
//! `topic partition offset`.
//!
//! `partition.metadata` lies in a partition's directory: `version: 0` and `topic_id: <22
//! characters>`.
//!
//! `.kafka_cleanshutdown` is there exactly while the directory is closed cleanly:
//! `{"version":0,"brokerEpoch":<number>}`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::io;
use std::path::Path;

use protocol::ids::{BrokerEpoch, Offset, PartitionIndex, TopicId, TopicName, TopicPartition};

use crate::disk::Disk;
use crate::error::Error;

/// Where recovery of each log begins: what lies before is synced.
pub const RECOVERY_POINT_FILE: &str = "recovery-point-offset-checkpoint";
/// The high watermark of each log.
pub const HIGH_WATERMARK_FILE: &str = "replication-offset-checkpoint";
/// Where each log starts, where that is not the start of its first segment.
pub const LOG_START_FILE: &str = "log-start-offset-checkpoint";
/// The topic id of a partition's directory.
pub const PARTITION_METADATA_FILE: &str = "partition.metadata";
/// The mark of a clean stop.
pub const CLEAN_SHUTDOWN_FILE: &str = ".kafka_cleanshutdown";

const VERSION: &str = "0";

/// One offset per partition, as in the three checkpoints of a log directory.
pub type OffsetCheckpoint = BTreeMap<TopicPartition, Offset>;

/// Reads an offset checkpoint; empty if there is no such file.
///
/// # Errors
/// [`Error::CorruptFile`] where it is not in Kafka's form, [`Error::Io`] where the disk fails.
pub fn read_offsets(disk: &Disk, path: &Path) -> Result<OffsetCheckpoint, Error> {
    let Some(text) = read_text(disk, path)? else {
        return Ok(OffsetCheckpoint::new());
    };
    parse_offsets(&text).map_err(|reason| corrupt(path, reason))
}

/// Replaces an offset checkpoint, atomically.
///
/// # Errors
/// [`Error::Io`] where the disk fails.
pub fn write_offsets(disk: &Disk, path: &Path, offsets: &OffsetCheckpoint) -> Result<(), Error> {
    let lines = offsets.iter().map(|(TopicPartition { topic, partition }, offset)| {
        format!("{topic} {partition} {offset}")
    });
    write(disk, path, &to_text(lines))
}

/// Reads the topic id of a partition's directory; `None` if it has none.
///
/// # Errors
/// [`Error::CorruptFile`] where it is not in Kafka's form, [`Error::Io`] where the disk fails.
pub fn read_topic_id(disk: &Disk, dir: &Path) -> Result<Option<TopicId>, Error> {
    let path = dir.join(PARTITION_METADATA_FILE);
    let Some(text) = read_text(disk, &path)? else {
        return Ok(None);
    };
    parse_topic_id(&text).map(Some).map_err(|reason| corrupt(&path, reason))
}

/// Writes the topic id of a partition's directory, atomically.
///
/// # Errors
/// [`Error::Io`] where the disk fails.
pub fn write_topic_id(disk: &Disk, dir: &Path, topic_id: TopicId) -> Result<(), Error> {
    write(disk, &dir.join(PARTITION_METADATA_FILE), &topic_id_text(topic_id))
}

/// The text of a partition's topic id.
pub(crate) fn topic_id_text(topic_id: TopicId) -> String {
    format!("version: {VERSION}\ntopic_id: {topic_id}")
}

/// Takes the mark of a clean stop away, durably, and tells the broker epoch that stopped. `None`
/// if the last stop was not clean.
///
/// # Errors
/// [`Error::Io`] where the disk fails. A mark that cannot be read counts as none.
pub fn take_clean_shutdown(disk: &Disk, dir: &Path) -> Result<Option<BrokerEpoch>, Error> {
    let path = dir.join(CLEAN_SHUTDOWN_FILE);
    let Some(text) = read_text(disk, &path)? else {
        return Ok(None);
    };
    disk.remove(&path).map_err(|error| Error::io("remove", &path, &error))?;
    disk.sync_dir(dir).map_err(|error| Error::io("sync", dir, &error))?;
    Ok(parse_clean_shutdown(&text))
}

/// Marks a clean stop of the broker registered under `broker_epoch`, durably.
///
/// # Errors
/// [`Error::Io`] where the disk fails.
pub fn mark_clean_shutdown(
    disk: &Disk,
    dir: &Path,
    broker_epoch: BrokerEpoch,
) -> Result<(), Error> {
    let text = format!("{{\"version\":{VERSION},\"brokerEpoch\":{broker_epoch}}}");
    write(disk, &dir.join(CLEAN_SHUTDOWN_FILE), &text)
}

/// The text of a checkpoint with these entries.
pub(crate) fn to_text<L: Display>(lines: impl ExactSizeIterator<Item = L>) -> String {
    let mut text = format!("{VERSION}\n{}\n", lines.len());
    for line in lines {
        writeln!(text, "{line}").expect("a string takes every text");
    }
    text
}

/// The entries of a checkpoint's text, each split into `N` fields; or what is wrong.
pub(crate) fn parse_text<const N: usize>(text: &str) -> Result<Vec<[&str; N]>, String> {
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default().trim();
    if version != VERSION {
        return Err(format!("version {version:?}, not {VERSION}"));
    }
    let count = lines.next().unwrap_or_default().trim();
    let count: usize = count.parse().map_err(|_| format!("{count:?} entries"))?;
    let entries: Vec<[&str; N]> = lines.map(fields).collect::<Result<_, String>>()?;
    if entries.len() == count {
        return Ok(entries);
    }
    Err(format!("{} entries, the second line says {count}", entries.len()))
}

fn fields<const N: usize>(line: &str) -> Result<[&str; N], String> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    <[&str; N]>::try_from(fields).map_err(|_| format!("line {line:?} has not {N} fields"))
}

/// One field of a checkpoint's entry as a number from 0.
pub(crate) fn number<T: std::str::FromStr + PartialOrd + Default>(
    field: &str,
) -> Result<T, String> {
    field
        .parse()
        .ok()
        .filter(|number| *number >= T::default())
        .ok_or_else(|| format!("{field:?} is no number from 0"))
}

fn parse_offsets(text: &str) -> Result<OffsetCheckpoint, String> {
    let mut offsets = OffsetCheckpoint::new();
    for [topic, partition, offset] in parse_text::<3>(text)? {
        let partition = PartitionIndex(number(partition)?);
        let at = TopicPartition { topic: TopicName::from(topic), partition };
        offsets.insert(at, Offset(number(offset)?));
    }
    Ok(offsets)
}

fn parse_topic_id(text: &str) -> Result<TopicId, String> {
    let mut topic_id = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match line.split_once(':').map(|(name, value)| (name.trim(), value.trim())) {
            Some(("version", VERSION)) => {}
            Some(("topic_id", value)) => {
                topic_id = Some(value.parse::<TopicId>().map_err(|error| error.to_string())?);
            }
            _ => return Err(format!("line {line:?}")),
        }
    }
    match topic_id {
        Some(topic_id) if !topic_id.is_zero() => Ok(topic_id),
        Some(_) | None => Err("no topic id".to_owned()),
    }
}

fn parse_clean_shutdown(text: &str) -> Option<BrokerEpoch> {
    let (_, rest) = text.split_once("\"brokerEpoch\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let end = rest.find(|digit: char| !digit.is_ascii_digit() && digit != '-')?;
    rest[..end].parse().ok().map(BrokerEpoch)
}

fn read_text(disk: &Disk, path: &Path) -> Result<Option<String>, Error> {
    match disk.read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| corrupt(path, "bytes that are no text".to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, &error)),
    }
}

fn write(disk: &Disk, path: &Path, text: &str) -> Result<(), Error> {
    disk.write_atomically(path, text.as_bytes()).map_err(|error| Error::io("write", path, &error))
}

fn corrupt(path: &Path, reason: String) -> Error {
    Error::CorruptFile { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> (Disk, &'static Path) {
        let disk = Disk::memory();
        let dir = Path::new("/logs");
        disk.create_dir(dir).unwrap();
        (disk, dir)
    }

    #[test]
    fn offset_checkpoints_have_kafkas_text() {
        let (disk, dir) = dir();
        let path = dir.join(RECOVERY_POINT_FILE);
        assert!(read_offsets(&disk, &path).unwrap().is_empty());
        let offsets = OffsetCheckpoint::from([
            (TopicPartition::new("b", 0), Offset(7)),
            (TopicPartition::new("a", 12), Offset(0)),
        ]);
        write_offsets(&disk, &path, &offsets).unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"0\n2\na 12 0\nb 0 7\n");
        assert_eq!(read_offsets(&disk, &path).unwrap(), offsets);
    }

    #[test]
    fn damaged_checkpoints_are_told() {
        let (disk, dir) = dir();
        let path = dir.join(HIGH_WATERMARK_FILE);
        let texts =
            ["", "1\n0\n", "0\n", "0\nx\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 -1\n"];
        for text in texts {
            disk.write_atomically(&path, text.as_bytes()).unwrap();
            let read = read_offsets(&disk, &path);
            assert!(matches!(read, Err(Error::CorruptFile { .. })), "{text:?}");
        }
    }

    #[test]
    fn partition_metadata_has_kafkas_text() {
        let (disk, dir) = dir();
        assert_eq!(read_topic_id(&disk, dir).unwrap(), None);
        let id: TopicId = "_-7dzLuqmYh3ZlVEMyIRAA".parse().unwrap();
        write_topic_id(&disk, dir, id).unwrap();
        let path = dir.join(PARTITION_METADATA_FILE);
        assert_eq!(disk.read(&path).unwrap(), b"version: 0\ntopic_id: _-7dzLuqmYh3ZlVEMyIRAA");
        assert_eq!(read_topic_id(&disk, dir).unwrap(), Some(id));
        for text in ["", "version: 1\ntopic_id: _-7dzLuqmYh3ZlVEMyIRAA", "topic_id: x"] {
            disk.write_atomically(&path, text.as_bytes()).unwrap();
            assert!(read_topic_id(&disk, dir).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_clean_stop_is_told_once() {
        let (disk, dir) = dir();
        mark_clean_shutdown(&disk, dir, BrokerEpoch(42)).unwrap();
        let path = dir.join(CLEAN_SHUTDOWN_FILE);
        assert_eq!(disk.read(&path).unwrap(), br#"{"version":0,"brokerEpoch":42}"#);
        assert_eq!(take_clean_shutdown(&disk, dir).unwrap(), Some(BrokerEpoch(42)));
        assert_eq!(take_clean_shutdown(&disk, dir).unwrap(), None);
    }
}
