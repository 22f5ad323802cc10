//! Reads a cluster's segment files, as they lie on the disk, and compares batches. Owns where a
//! replica's files are and what "equal" means: every byte, and with them offset, epoch and CRC.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use protocol::batch::{self, RecordBatch};

/// What was found equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Equal {
    /// Batches compared.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Equal {
    /// Adds another comparison's.
    pub fn add(&mut self, other: Equal) {
        self.batches += other.batches;
        self.bytes += other.bytes;
    }
}

/// The folders of a partition's replicas under a cluster's folder, in the order of the nodes.
///
/// # Errors
/// The cluster's folder cannot be read.
pub fn replicas(cluster: &Path, topic: &str, partition: i32) -> Result<Vec<PathBuf>> {
    let nodes = fs::read_dir(cluster).with_context(|| cluster.display().to_string())?;
    let mut found = Vec::new();
    for node in nodes {
        let replica = node?.path().join("data").join(format!("{topic}-{partition}"));
        if replica.is_dir() {
            found.push(replica);
        }
    }
    found.sort();
    Ok(found)
}

/// All batches of a replica. A torn tail ends them: the log may be growing.
///
/// # Errors
/// A file cannot be read, or holds what is no batch.
pub fn read(replica: &Path) -> Result<Vec<RecordBatch>> {
    let mut segments: Vec<PathBuf> = fs::read_dir(replica)
        .with_context(|| replica.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    segments.sort();
    let mut batches = Vec::new();
    for segment in segments {
        let bytes = fs::read(&segment).with_context(|| segment.display().to_string())?;
        for batch in batch::split(Bytes::from(bytes)) {
            match batch {
                Ok(batch) => batches.push(batch),
                Err(batch::Error::Torn { .. }) => break,
                Err(error) => bail!("{}: {error}", segment.display()),
            }
        }
    }
    Ok(batches)
}

/// The offset of the last record; -1 of nothing.
pub fn last_offset(batches: &[RecordBatch]) -> i64 {
    batches.last().map_or(-1, |batch| batch.header.last_offset().0)
}

/// Compares the batches up to the offset `last`, which must end one in both.
///
/// # Errors
/// The first difference, in a sentence.
pub fn compare(source: &[RecordBatch], copy: &[RecordBatch], last: i64) -> Result<Equal> {
    let mirrored = |batches: &[RecordBatch]| -> Vec<RecordBatch> {
        let below = batches.iter().take_while(|batch| batch.header.base_offset.0 <= last);
        below.cloned().collect()
    };
    let (source, copy) = (mirrored(source), mirrored(copy));
    for (side, batches) in [("source", &source), ("copy", &copy)] {
        let end = last_offset(batches);
        if end != last {
            bail!("the {side} ends at offset {end}, not at {last}");
        }
    }
    if source.len() != copy.len() {
        bail!("the source has {} batches, the copy {}", source.len(), copy.len());
    }
    let mut equal = Equal::default();
    for (theirs, ours) in source.iter().zip(&copy) {
        if theirs.bytes != ours.bytes {
            bail!("{}", difference(theirs, ours));
        }
        ours.verify_crc()?;
        let bytes = u64::try_from(ours.bytes.len()).unwrap_or(u64::MAX);
        equal.add(Equal { batches: 1, bytes });
    }
    Ok(equal)
}

fn difference(theirs: &RecordBatch, ours: &RecordBatch) -> String {
    let words = |batch: &RecordBatch| {
        let header = &batch.header;
        let (base, last) = (header.base_offset.0, header.last_offset().0);
        let (epoch, crc, bytes) = (header.leader_epoch.0, header.crc, batch.bytes.len());
        format!("offsets {base} to {last}, epoch {epoch}, CRC {crc:08x}, {bytes} bytes")
    };
    format!("a batch differs: source {}; copy {}", words(theirs), words(ours))
}

#[cfg(test)]
mod tests {
    use protocol::batch::BatchBuilder;
    use protocol::ids::{LeaderEpoch, Offset, TimestampMs};

    use super::*;

    fn batch(base: i64, epoch: i32, value: &str) -> RecordBatch {
        BatchBuilder::new()
            .base_offset(Offset(base))
            .leader_epoch(LeaderEpoch(epoch))
            .record(TimestampMs(1), None, Some(value.as_bytes()))
            .record(TimestampMs(2), None, Some(value.as_bytes()))
            .build_batch()
    }

    #[test]
    fn what_lies_above_the_last_mirrored_offset_is_nobodys_business() {
        let source = [batch(0, 1, "a"), batch(2, 1, "b"), batch(4, 1, "lost")];
        let copy = [batch(0, 1, "a"), batch(2, 1, "b"), batch(4, 9, "new")];
        let equal = compare(&source, &copy, 3).unwrap();
        assert_eq!(equal.batches, 2);
        assert_eq!(compare(&[], &[batch(0, 9, "new")], -1).unwrap(), Equal::default());
    }

    #[test]
    fn an_epoch_a_value_or_a_missing_batch_is_a_difference() {
        let source = [batch(0, 1, "a"), batch(2, 1, "b")];
        for copy in [
            vec![batch(0, 1, "a"), batch(2, 2, "b")],
            vec![batch(0, 1, "x"), batch(2, 1, "b")],
            vec![batch(0, 1, "a")],
            vec![batch(2, 1, "b")],
        ] {
            assert!(compare(&source, &copy, 3).is_err(), "{copy:?}");
        }
        let damaged = {
            let mut bytes = source[0].bytes.to_vec();
            *bytes.last_mut().unwrap() ^= 1;
            RecordBatch::parse(Bytes::from(bytes)).unwrap()
        };
        let both = [damaged];
        assert!(compare(&both, &both, 1).is_err(), "equal, but not what the CRC is of");
    }

    #[test]
    fn files_are_read_in_the_order_of_their_offsets_and_a_torn_tail_ends_them() {
        let folder = tempfile::tempdir().unwrap();
        let replica = folder.path().join("node-1/data/t-0");
        fs::create_dir_all(&replica).unwrap();
        fs::create_dir_all(folder.path().join("node-2/data")).unwrap();
        let second = [&batch(2, 1, "b").bytes[..], &batch(4, 1, "c").bytes[..70]].concat();
        fs::write(replica.join("00000000000000000002.log"), second).unwrap();
        fs::write(replica.join("00000000000000000000.log"), &batch(0, 1, "a").bytes).unwrap();
        fs::write(replica.join("00000000000000000000.index"), b"no batches").unwrap();
        let found = replicas(folder.path(), "t", 0).unwrap();
        assert_eq!(found, std::slice::from_ref(&replica));
        let batches = read(&replica).unwrap();
        assert_eq!(batches, [batch(0, 1, "a"), batch(2, 1, "b")]);
        assert_eq!(last_offset(&batches), 3);
    }
}
