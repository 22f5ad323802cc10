//! Which leader epoch begins at which offset of one log, and Kafka's answers from that. Owns the
//! entries and the text of `leader-epoch-checkpoint`; never writes the file and never knows who
//! leads.
//!
//! An entry `epoch start` says: batches from `start` on, up to the next entry's start, were
//! appended by the leader of `epoch` (the last entry reaches to the log's end).

use protocol::ids::{LeaderEpoch, Offset};

use crate::checkpoint;

/// Name of the file in a partition's directory.
pub const LEADER_EPOCH_FILE: &str = "leader-epoch-checkpoint";

/// Where an epoch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// The first offset of it.
    pub start: Offset,
}

/// The epochs of one log.
///
/// Invariant: epochs and starts both rise from entry to entry, and neither is negative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    entries: Vec<EpochStart>,
}

impl Epochs {
    /// No epochs: an empty log.
    #[must_use]
    pub fn new() -> Epochs {
        Epochs::default()
    }

    /// Says that `epoch` begins at `start`, unless it is the newest already. Entries that
    /// contradict it go, as in Kafka. Returns whether anything changed: the file is then to be
    /// written.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        debug_assert!(epoch.0 >= 0 && start.0 >= 0, "epoch {epoch} at {start}");
        let known = self
            .entries
            .last()
            .is_some_and(|newest| newest.epoch == epoch && newest.start <= start);
        if known || epoch.0 < 0 || start.0 < 0 {
            return false;
        }
        while self.entries.last().is_some_and(|last| last.epoch >= epoch || last.start >= start) {
            self.entries.pop();
        }
        self.entries.push(EpochStart { epoch, start });
        self.check_invariants();
        true
    }

    /// The newest epoch; [`LeaderEpoch::NONE`] without one.
    #[must_use]
    pub fn latest(&self) -> LeaderEpoch {
        self.entries.last().map_or(LeaderEpoch::NONE, |entry| entry.epoch)
    }

    /// The entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    /// The epoch of the batch at `offset`; `None` below the first entry.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start <= offset);
        after.checked_sub(1).map(|at| self.entries[at].epoch)
    }

    /// Kafka's answer to OffsetsForLeaderEpoch: the largest epoch not above `asked`, and where
    /// it ends. Below all epochs: `asked` itself, and where the first begins. `None` above the
    /// newest one.
    #[must_use]
    pub fn end_offset_for(
        &self,
        asked: LeaderEpoch,
        log_end: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if asked == LeaderEpoch::NONE {
            return None;
        }
        if asked == self.latest() {
            return Some((asked, log_end));
        }
        let above = self.entries.partition_point(|entry| entry.epoch <= asked);
        let end = self.entries.get(above)?.start;
        let floor = above.checked_sub(1).map_or(asked, |at| self.entries[at].epoch);
        Some((floor, end))
    }

    /// Forgets epochs that begin at or after `end`, where the log now ends. Returns whether
    /// anything changed.
    pub fn truncate_from_end(&mut self, end: Offset) -> bool {
        let kept = self.entries.partition_point(|entry| entry.start < end);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// Forgets epochs that end at or before `start`, where the log now starts; the epoch of
    /// `start` begins there. Returns whether anything changed.
    pub fn truncate_from_start(&mut self, start: Offset) -> bool {
        let begun = self.entries.partition_point(|entry| entry.start <= start);
        let Some(current) = begun.checked_sub(1) else {
            return false;
        };
        if current == 0 && self.entries[0].start == start {
            return false;
        }
        self.entries.drain(..current);
        self.entries[0].start = start;
        self.check_invariants();
        true
    }

    /// Forgets everything: the log is empty and starts anew.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        checkpoint::to_text(
            self.entries.iter().map(|EpochStart { epoch, start }| format!("{epoch} {start}")),
        )
    }

    /// Reads the text of the file, or tells what is wrong with it.
    pub fn parse(text: &str) -> Result<Epochs, String> {
        let mut epochs = Epochs::new();
        for [epoch, start] in checkpoint::parse_text::<2>(text)? {
            let entry = EpochStart {
                epoch: LeaderEpoch(checkpoint::number(epoch)?),
                start: Offset(checkpoint::number(start)?),
            };
            if let Some(before) = epochs.entries.last()
                && (before.epoch >= entry.epoch || before.start >= entry.start)
            {
                return Err(format!(
                    "epoch {} at {} follows epoch {} at {}",
                    entry.epoch, entry.start, before.epoch, before.start
                ));
            }
            epochs.entries.push(entry);
        }
        Ok(epochs)
    }

    /// Panics where the type's invariant is broken; for tests and debug builds.
    pub fn check_invariants(&self) {
        debug_assert!(
            self.entries
                .iter()
                .zip(self.entries.iter().skip(1))
                .all(|(one, next)| one.epoch < next.epoch && one.start < next.start),
            "epochs must rise: {:?}",
            self.entries
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> Epochs {
        let mut epochs = Epochs::new();
        for (epoch, start) in entries {
            assert!(epochs.assign(LeaderEpoch(*epoch), Offset(*start)));
        }
        epochs
    }

    fn pairs(epochs: &Epochs) -> Vec<(i32, i64)> {
        epochs.entries().iter().map(|entry| (entry.epoch.0, entry.start.0)).collect()
    }

    fn end(epochs: &Epochs, asked: i32, log_end: i64) -> Option<(i32, i64)> {
        let (epoch, end) = epochs.end_offset_for(LeaderEpoch(asked), Offset(log_end))?;
        Some((epoch.0, end.0))
    }

    #[test]
    fn lookups_answer_as_kafka_does() {
        let epochs = epochs(&[(2, 10), (5, 20), (7, 30)]);
        assert_eq!(end(&epochs, 7, 44), Some((7, 44)), "the newest ends with the log");
        assert_eq!(end(&epochs, 5, 44), Some((5, 30)));
        assert_eq!(end(&epochs, 6, 44), Some((5, 30)), "the largest below one that is missing");
        assert_eq!(end(&epochs, 1, 44), Some((1, 10)), "below all: where the first begins");
        assert_eq!(end(&epochs, 8, 44), None, "above all");
        assert_eq!(end(&epochs, -1, 44), None);
        assert_eq!(end(&Epochs::new(), 0, 44), None);
        assert_eq!(end(&Epochs::new(), -1, 44), None);
    }

    #[test]
    fn an_epoch_begins_once() {
        let mut epochs = epochs(&[(2, 10)]);
        assert!(!epochs.assign(LeaderEpoch(2), Offset(15)));
        assert!(epochs.assign(LeaderEpoch(2), Offset(5)), "an earlier start counts");
        assert_eq!(pairs(&epochs), [(2, 5)]);
    }

    #[test]
    fn contradicting_entries_go() {
        let mut epochs = epochs(&[(2, 10), (5, 20), (7, 30)]);
        assert!(epochs.assign(LeaderEpoch(5), Offset(25)));
        assert_eq!(pairs(&epochs), [(2, 10), (5, 25)]);
        assert!(epochs.assign(LeaderEpoch(6), Offset(10)));
        assert_eq!(pairs(&epochs), [(6, 10)]);
    }

    #[test]
    fn truncation_keeps_what_the_log_still_holds() {
        let whole = epochs(&[(2, 10), (5, 20), (7, 30)]);
        let mut cut = whole.clone();
        assert!(!cut.truncate_from_end(Offset(31)));
        assert!(cut.truncate_from_end(Offset(30)));
        assert_eq!(pairs(&cut), [(2, 10), (5, 20)]);
        let mut cut = whole.clone();
        assert!(!cut.truncate_from_start(Offset(9)));
        assert!(!cut.truncate_from_start(Offset(10)));
        assert!(cut.truncate_from_start(Offset(25)));
        assert_eq!(pairs(&cut), [(5, 25), (7, 30)]);
        assert!(cut.truncate_from_start(Offset(30)));
        assert_eq!(pairs(&cut), [(7, 30)]);
        assert_eq!(cut.epoch_at(Offset(29)), None);
        assert_eq!(cut.epoch_at(Offset(99)), Some(LeaderEpoch(7)));
    }

    #[test]
    fn the_file_has_kafkas_text() {
        let epochs = epochs(&[(0, 0), (3, 17)]);
        assert_eq!(epochs.to_text(), "0\n2\n0 0\n3 17\n");
        assert_eq!(Epochs::parse(&epochs.to_text()), Ok(epochs));
        assert_eq!(Epochs::parse("0\n0\n"), Ok(Epochs::new()));
        for text in ["", "0\n1\n", "0\n1\n1 -1\n", "0\n2\n3 1\n2 5\n", "0\n2\n3 5\n4 5\n"] {
            assert!(Epochs::parse(text).is_err(), "{text:?}");
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(i32),
        Lead(i32),
        CutEnd(i64),
        CutStart(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..3i32).prop_map(Step::Append),
            1 => (0..2i32).prop_map(Step::Lead),
            1 => (0..40i64).prop_map(Step::CutEnd),
            1 => (0..40i64).prop_map(Step::CutStart),
        ]
    }

    proptest! {
        /// The model is the epoch of every offset.
        #[test]
        fn epochs_are_those_of_the_batches(steps in proptest::collection::vec(step(), 0..40)) {
            let mut epochs = Epochs::new();
            let mut model: Vec<(i64, i32)> = Vec::new();
            let (mut newest, mut log_start, mut log_end) = (0, 0i64, 0i64);
            for step in steps {
                match step {
                    Step::Append(bump) => {
                        newest += bump;
                        epochs.assign(LeaderEpoch(newest), Offset(log_end));
                        model.push((log_end, newest));
                        log_end += 1;
                    }
                    Step::Lead(bump) => {
                        newest += bump;
                        epochs.assign(LeaderEpoch(newest), Offset(log_end));
                    }
                    Step::CutEnd(end) => {
                        log_end = end.clamp(log_start, log_end);
                        epochs.truncate_from_end(Offset(log_end));
                        model.retain(|(offset, _)| *offset < log_end);
                    }
                    Step::CutStart(start) => {
                        log_start = start.clamp(log_start, log_end);
                        epochs.truncate_from_start(Offset(log_start));
                        model.retain(|(offset, _)| *offset >= log_start);
                    }
                }
                epochs.check_invariants();
                prop_assert_eq!(Epochs::parse(&epochs.to_text()), Ok(epochs.clone()));
                for (offset, epoch) in &model {
                    prop_assert_eq!(epochs.epoch_at(Offset(*offset)), Some(LeaderEpoch(*epoch)));
                    let (found, end) = epochs
                        .end_offset_for(LeaderEpoch(*epoch), Offset(log_end))
                        .expect("an epoch in the log has an end");
                    prop_assert_eq!(found.0, *epoch);
                    let last = model.iter().filter(|(_, other)| other == epoch).map(|(at, _)| *at);
                    prop_assert_eq!(Some(end.0 - 1), last.max());
                }
            }
        }
    }
}
