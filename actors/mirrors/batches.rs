//! What a source's Fetch answer holds of one partition: which bytes are to be appended, where the
//! next fetch begins, and what ends the partition's fetching. Pure; the log checks the CRCs.

use bytes::Bytes;
use mirror::epochs;
use protocol::batch::{self, BatchHeader};
use protocol::ids::{LeaderEpoch, Offset};

/// One partition's records, looked through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Whole batches to append, a slice of the answer.
    pub append: Bytes,
    /// Where the next fetch begins, and the epoch of the batch before it; `None` when nothing is
    /// appended.
    pub next: Option<(Offset, LeaderEpoch)>,
    /// The highest epoch among them; `NONE` when there are none.
    pub epoch: LeaderEpoch,
    /// Why the batches after these are not appended, if there are such.
    pub halt: Option<Halt>,
}

/// What stops a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// A batch's epoch is above our leader epoch.
    EpochTooHigh(LeaderEpoch),
    /// A batch of format v0 or v1.
    OldFormat,
    /// Bytes that are no batch.
    Corrupt(String),
}

/// Looks through the records that answer a fetch at `from`. `own` is our leader epoch.
///
/// The source sends whole segments' slices: the first batches may lie below `from`, and the last
/// one may be cut off. Both are left out here; a batch that reaches over `from` is kept whole, and
/// the log decides whether it may begin there.
pub fn inspect(records: &Bytes, from: Offset, own: LeaderEpoch) -> Inspection {
    let (mut begin, mut at) = (0, 0);
    let mut next = None;
    let mut epoch = LeaderEpoch::NONE;
    let mut halt = None;
    while at < records.len() {
        let header = match BatchHeader::parse(&records[at..]) {
            Ok(header) => header,
            Err(error) => {
                halt = halt_of(&error);
                break;
            }
        };
        let end = at + header.size_in_bytes();
        if end > records.len() {
            break;
        }
        if header.next_offset() <= from {
            begin = end;
            at = end;
            continue;
        }
        if !epochs::may_append(own, header.leader_epoch) {
            halt = Some(Halt::EpochTooHigh(header.leader_epoch));
            break;
        }
        epoch = epoch.max(header.leader_epoch);
        next = Some((header.next_offset(), header.leader_epoch));
        at = end;
    }
    Inspection { append: records.slice(begin..at), next, epoch, halt }
}

fn halt_of(error: &batch::Error) -> Option<Halt> {
    match error {
        batch::Error::Torn { .. } => None,
        batch::Error::OldMagic { .. } => Some(Halt::OldFormat),
        batch::Error::TooSmall { .. }
        | batch::Error::UnknownMagic { .. }
        | batch::Error::WrongChecksum { .. }
        | batch::Error::WrongOffsets { .. }
        | batch::Error::UnknownCompression { .. }
        | batch::Error::Compression { .. }
        | batch::Error::Record { .. } => Some(Halt::Corrupt(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use protocol::batch::HEADER_BYTES;
    use protocol::ids::{ProducerEpoch, ProducerId, Sequence, TimestampMs};

    use super::*;

    /// A batch of `count` offsets with a few bytes in place of records.
    fn batch(base: i64, count: i32, epoch: i32) -> Bytes {
        let payload = [7_u8; 40];
        let header = BatchHeader {
            base_offset: Offset(base),
            batch_length: 49 + 40,
            leader_epoch: LeaderEpoch(epoch),
            crc: 0,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: TimestampMs(1),
            max_timestamp: TimestampMs(1),
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: Sequence::NONE,
            record_count: count,
        };
        let mut bytes = BytesMut::from(&header.to_bytes()[..]);
        bytes.extend_from_slice(&payload);
        bytes.freeze()
    }

    fn join(parts: &[Bytes]) -> Bytes {
        Bytes::from(parts.concat())
    }

    const OWN: LeaderEpoch = LeaderEpoch(9);

    #[test]
    fn whole_batches_from_the_position_on_are_kept() {
        let parts = [batch(0, 5, 1), batch(5, 5, 2), batch(10, 3, 4)];
        let all = join(&parts);
        let seen = inspect(&all, Offset(5), OWN);
        assert_eq!(seen.append, join(&parts[1..]));
        assert_eq!(seen.next, Some((Offset(13), LeaderEpoch(4))));
        assert_eq!((seen.epoch, seen.halt), (LeaderEpoch(4), None));
        // One that reaches over the position stays whole.
        assert_eq!(inspect(&all, Offset(7), OWN).append, join(&parts[1..]));
    }

    #[test]
    fn a_cut_tail_is_left_out() {
        let parts = [batch(0, 5, 1), batch(5, 5, 2)];
        let all = join(&parts);
        for cut in [1, 39, 40, HEADER_BYTES, HEADER_BYTES + 39] {
            let seen = inspect(&all.slice(..all.len() - cut), Offset(0), OWN);
            assert_eq!((seen.append, seen.halt), (parts[0].clone(), None), "{cut}");
        }
        let nothing = inspect(&all.slice(..30), Offset(0), OWN);
        assert_eq!((nothing.append.len(), nothing.next), (0, None));
    }

    #[test]
    fn an_epoch_above_ours_stops_after_what_may_be_appended() {
        let parts = [batch(0, 5, 9), batch(5, 5, 10), batch(10, 5, 9)];
        let seen = inspect(&join(&parts), Offset(0), OWN);
        assert_eq!(seen.append, parts[0]);
        assert_eq!(seen.next, Some((Offset(5), OWN)));
        assert_eq!(seen.halt, Some(Halt::EpochTooHigh(LeaderEpoch(10))));
    }

    #[test]
    fn formats_and_garbage_are_told_apart() {
        let mut old = BytesMut::from(&batch(5, 1, 1)[..]);
        old[16] = 1;
        let seen = inspect(&join(&[batch(0, 5, 1), old.freeze()]), Offset(0), OWN);
        assert_eq!((seen.append.len(), seen.halt), (101, Some(Halt::OldFormat)));
        let garbage = Bytes::from(vec![0xff_u8; 200]);
        assert!(matches!(inspect(&garbage, Offset(0), OWN).halt, Some(Halt::Corrupt(_))));
    }
}
