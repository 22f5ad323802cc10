//! What the demo promises, checked: each check is a sentence and what was found. Owns the decision
//! what counts as lost, as missing and as equal; asks nobody, what it looks at was read before.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use protocol::batch::RecordBatch;

use super::load::{Acknowledged, hash};

/// One promise and whether it was held.
#[derive(Debug)]
pub struct Check {
    /// The promise.
    pub promise: &'static str,
    /// What came of it.
    pub outcome: Outcome,
}

/// What a check came to.
#[derive(Debug)]
pub enum Outcome {
    /// The promise was held; what was found.
    Held(String),
    /// What is wrong.
    Broken(String),
    /// Nothing is known, because what had to be read could not be; why.
    NotChecked(String),
}

impl From<Result<String>> for Outcome {
    /// Of a check that could be made.
    fn from(found: Result<String>) -> Outcome {
        match found {
            Ok(found) => Outcome::Held(found),
            Err(error) => Outcome::Broken(format!("{error:#}")),
        }
    }
}

/// What all checks together come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every promise was held.
    Held,
    /// None was found broken, and not all could be checked.
    NotChecked,
    /// One was broken.
    Broken,
}

impl Verdict {
    /// The worst of the checks.
    pub fn of(checks: &[Check]) -> Verdict {
        let any = |which: fn(&Outcome) -> bool| checks.iter().any(|check| which(&check.outcome));
        if any(|outcome| matches!(outcome, Outcome::Broken(_))) {
            Verdict::Broken
        } else if any(|outcome| matches!(outcome, Outcome::NotChecked(_))) {
            Verdict::NotChecked
        } else {
            Verdict::Held
        }
    }
}

/// What one partition of the standby holds: the hash of each value by its offset.
pub type Held = BTreeMap<i64, u64>;

/// The values in the batches that are not control batches.
///
/// # Errors
/// A batch that cannot be read.
pub fn held(batches: &[RecordBatch]) -> Result<Held> {
    let mut held = Held::new();
    for batch in batches.iter().filter(|batch| !batch.header.is_control()) {
        for record in batch.records()? {
            let record = record?;
            held.insert(record.offset.0, hash(record.value.as_deref().unwrap_or_default()));
        }
    }
    Ok(held)
}

/// Of the acknowledged records, exactly those above the last mirrored offset are missing: the
/// others are there, each at its own offset, and none of the missing ones is anywhere.
///
/// # Errors
/// The first record that is not where it should be.
pub fn exactly_the_tail_is_missing(
    acknowledged: &Acknowledged,
    standby: &BTreeMap<i32, Held>,
    last_mirrored: &BTreeMap<i32, i64>,
) -> Result<String> {
    let (mut kept, mut missing) = (0_u64, 0_u64);
    for (partition, records) in acknowledged {
        let (Some(held), Some(last)) = (standby.get(partition), last_mirrored.get(partition))
        else {
            bail!("partition {partition} was not read");
        };
        let values: BTreeSet<u64> = held.values().copied().collect();
        for (offset, hash) in records {
            if offset > last {
                missing += 1;
                if values.contains(hash) {
                    bail!(
                        "{partition}: offset {offset} is above {last} and was found all the same"
                    );
                }
            } else {
                kept += 1;
                if held.get(offset) != Some(hash) {
                    bail!("{partition}: the record of offset {offset} is not there, below {last}");
                }
            }
        }
    }
    Ok(format!("{kept} of {} are there, {missing} are missing", kept + missing))
}

/// Nothing that was shown as mirrored before the source was lost lies above the last mirrored
/// offset.
///
/// # Errors
/// The first partition that lost some of it.
pub fn nothing_shown_is_lost(
    shown: &BTreeMap<i32, i64>,
    last_mirrored: &BTreeMap<i32, i64>,
) -> Result<String> {
    for (partition, end) in shown {
        let last = last_mirrored.get(partition).copied().unwrap_or(-1);
        if last + 1 < *end {
            bail!("{partition}: it had been copied up to {end}, and ends at {last}");
        }
    }
    Ok(format!("{} partitions end where they were shown to, or later", shown.len()))
}

/// What was written to the standby after the failover is read back from where it was acknowledged,
/// behind what was mirrored.
///
/// # Errors
/// The first write that is not there.
pub fn new_writes_are_kept(
    written: &BTreeMap<i32, (i64, u64)>,
    standby: &BTreeMap<i32, Held>,
    last_mirrored: &BTreeMap<i32, i64>,
) -> Result<String> {
    for (partition, (offset, hash)) in written {
        let last = last_mirrored.get(partition).copied().unwrap_or(-1);
        if *offset <= last {
            bail!("{partition}: a write was acknowledged at {offset}, not above {last}");
        }
        if standby.get(partition).and_then(|held| held.get(offset)) != Some(hash) {
            bail!("{partition}: the write acknowledged at {offset} is not there");
        }
    }
    Ok(format!("{} partitions were written to", written.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one<T>(value: T) -> BTreeMap<i32, T> {
        BTreeMap::from([(0, value)])
    }

    #[test]
    fn what_could_not_be_checked_is_neither_held_nor_broken() {
        let check = |outcome| Check { promise: "a promise", outcome };
        let held = || check(Outcome::from(Ok("found".to_owned())));
        let broken = || check(Outcome::from(Err(anyhow::anyhow!("not found"))));
        let unknown = || check(Outcome::NotChecked("the source does not answer".to_owned()));
        assert_eq!(Verdict::of(&[held(), held()]), Verdict::Held);
        assert_eq!(Verdict::of(&[held(), unknown()]), Verdict::NotChecked);
        assert_eq!(Verdict::of(&[broken(), unknown()]), Verdict::Broken);
    }

    #[test]
    fn the_tail_and_only_the_tail_may_be_missing() {
        let acknowledged = one(vec![(0, 10), (1, 11), (2, 12), (3, 13)]);
        let held = one(Held::from([(0, 10), (1, 11), (4, 99)]));
        let found = exactly_the_tail_is_missing(&acknowledged, &held, &one(1)).unwrap();
        assert_eq!(found, "2 of 4 are there, 2 are missing");
        assert!(exactly_the_tail_is_missing(&acknowledged, &held, &one(2)).is_err());
        let moved = one(Held::from([(0, 10), (1, 11), (4, 12)]));
        assert!(exactly_the_tail_is_missing(&acknowledged, &moved, &one(1)).is_err());
        let swapped = one(Held::from([(0, 11), (1, 10)]));
        assert!(exactly_the_tail_is_missing(&acknowledged, &swapped, &one(1)).is_err());
    }

    #[test]
    fn what_was_shown_must_be_there() {
        assert!(nothing_shown_is_lost(&one(5), &one(4)).is_ok());
        assert!(nothing_shown_is_lost(&one(6), &one(4)).is_err());
        assert!(nothing_shown_is_lost(&one(1), &BTreeMap::new()).is_err());
    }

    #[test]
    fn new_writes_lie_behind_what_was_mirrored() {
        let held = one(Held::from([(7, 70)]));
        assert!(new_writes_are_kept(&one((7, 70)), &held, &one(4)).is_ok());
        assert!(new_writes_are_kept(&one((7, 71)), &held, &one(4)).is_err());
        assert!(new_writes_are_kept(&one((7, 70)), &held, &one(7)).is_err());
    }
}
