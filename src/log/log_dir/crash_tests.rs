//! A log against a model of it, through kills, power cuts, failed writes and failed syncs at every
//! place. The model is a list of batches; the promises are that what was acknowledged stays
//! (synced: through anything; otherwise: through a kill), and that no batch is ever torn.

use bytes::Bytes;
use proptest::prelude::*;
use protocol::batch::BatchHeader;
use protocol::ids::{Offset, ProducerEpoch, ProducerId, Sequence};

use super::tests::{Bench, client, read_all, records, replica, small};
use super::*;

#[derive(Debug, Clone)]
enum Step {
    /// Records of each batch.
    Produce(Vec<u8>),
    /// The same, with kept offsets that leave a gap and a rising epoch.
    Copy {
        gap: u8,
        records: u8,
        epoch_rise: u8,
    },
    /// As a part of the log, in 255ths.
    Truncate(u8),
    Reset(u8),
    SetLogStart(u8),
    Tick,
    Kill,
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec(1u8..5, 1..4).prop_map(Step::Produce),
        3 => (0u8..3, 1u8..5, 0u8..2)
            .prop_map(|(gap, records, epoch_rise)| Step::Copy { gap, records, epoch_rise }),
        1 => any::<u8>().prop_map(Step::Truncate),
        1 => (0u8..10).prop_map(Step::Reset),
        1 => any::<u8>().prop_map(Step::SetLogStart),
        1 => Just(Step::Tick),
        1 => Just(Step::Kill),
        1 => Just(Step::Stop),
    ]
}

/// One batch as it must be read back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Batch {
    base: i64,
    next: i64,
    bytes: Bytes,
}

/// What a log is to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    batches: Vec<Batch>,
    start: i64,
    end: i64,
    epoch: i32,
}

impl Model {
    fn read(lease: &Lease) -> Vec<Batch> {
        read_all(lease)
            .into_iter()
            .map(|batch| {
                batch.verify_crc().unwrap();
                Batch {
                    base: batch.header.base_offset.0,
                    next: batch.header.next_offset().0,
                    bytes: batch.bytes,
                }
            })
            .collect()
    }

    /// The batches a reader from `start` sees.
    fn from(&self, start: i64) -> Vec<Batch> {
        self.batches.iter().filter(|batch| batch.next > start).cloned().collect()
    }

    /// A log opened again ends with its last batch, even if it was cut inside a gap behind it.
    fn forget_gap(&mut self) {
        self.end = self.batches.last().map_or(self.start, |batch| batch.next.max(self.start));
    }

    fn push(&mut self, batch: &RecordBatchBytes) {
        self.batches.push(batch.0.clone());
        self.end = batch.0.next;
    }

    fn truncate(&mut self, to: i64) {
        if to >= self.end {
            return;
        }
        let inside = self.batches.iter().find(|batch| batch.base < to && to < batch.next);
        let end = inside.map_or(to, |batch| batch.base).max(self.start);
        self.batches.retain(|batch| batch.base < to && batch.next <= to);
        self.end = end;
        self.epoch = self.batches.last().map_or(0, |_| self.epoch);
    }
}

struct RecordBatchBytes(Batch);

struct Run {
    bench: Bench,
    lease: Lease,
    model: Model,
    config: LogConfig,
    sequence: i32,
    ticks: i64,
}

impl Run {
    fn new(config: LogConfig) -> Self {
        let bench = Bench::new();
        let lease = bench.lease_with(config.clone());
        Self { bench, lease, model: Model::default(), config, sequence: 0, ticks: 0 }
    }

    fn lease_again(&mut self) {
        self.lease = self.bench.lease_with(self.config.clone());
    }

    /// The batches a step appends, placed where they will lie.
    fn placed(&mut self, step: &Step) -> Vec<RecordBatchBytes> {
        let mut next = self.model.end;
        let counts: Vec<u8> = match step {
            Step::Produce(counts) => counts.clone(),
            Step::Copy { records, gap, epoch_rise } => {
                next += i64::from(*gap);
                self.model.epoch += i32::from(*epoch_rise);
                vec![*records]
            }
            Step::Truncate(_)
            | Step::Reset(_)
            | Step::SetLogStart(_)
            | Step::Tick
            | Step::Kill
            | Step::Stop => Vec::new(),
        };
        let epoch = self.model.epoch;
        counts
            .into_iter()
            .map(|count| {
                let sequence = self.sequence;
                self.sequence += i32::from(count);
                let bytes = records(count, 500 + next)
                    .producer(ProducerId(5), ProducerEpoch(0), Sequence(sequence))
                    .base_offset(Offset(next))
                    .leader_epoch(LeaderEpoch(epoch))
                    .build();
                let base = next;
                next += i64::from(count);
                RecordBatchBytes(Batch { base, next, bytes })
            })
            .collect()
    }

    /// Runs one step; an error is what the log answered.
    fn run(&mut self, step: &Step, placed: &[RecordBatchBytes]) -> Result<(), Error> {
        match step {
            Step::Produce(_) => {
                for batch in placed {
                    let append = Append {
                        leader_epoch: LeaderEpoch(self.model.epoch),
                        origin: crate::Origin::Coordinator,
                        ..client(batch.0.bytes.clone())
                    };
                    self.bench.append(&self.lease, append)?;
                    self.model.push(batch);
                }
            }
            Step::Copy { .. } => {
                for batch in placed {
                    self.bench.append(&self.lease, replica(batch.0.bytes.clone()))?;
                    self.model.push(batch);
                }
            }
            Step::Truncate(part) => {
                let to = self.part(*part);
                self.bench.truncate(&self.lease, to)?;
                self.model.truncate(to);
            }
            Step::Reset(beyond) => {
                let start = self.model.end + i64::from(*beyond);
                self.bench.reset(&self.lease, start)?;
                let epoch = self.model.epoch;
                self.model = Model { batches: Vec::new(), start, end: start, epoch };
            }
            Step::SetLogStart(part) => {
                let to = self.part(*part);
                let (incarnation, view) = (self.lease.incarnation, &self.lease.view);
                view.advance_high_watermark(incarnation, Offset(self.model.end));
                self.bench.set_log_start(&self.lease, to)?;
                self.model.start = self.model.start.max(to);
            }
            Step::Tick => {
                // Long enough for the checkpoints to be due, too short for producers to expire.
                self.ticks += 1;
                let now = self.ticks * 10_000;
                super::tests::ask(&self.bench.dir, |reply| {
                    self.bench.dir.tick(TimestampMs(now), reply);
                })?;
            }
            Step::Kill => {
                self.bench.kill();
                self.lease_again();
                self.model.forget_gap();
            }
            Step::Stop => {
                self.bench.stop_and_start();
                self.lease_again();
                self.model.forget_gap();
            }
        }
        Ok(())
    }

    fn part(&self, part: u8) -> i64 {
        self.model.start + (self.model.end - self.model.start) * i64::from(part) / 255
    }

    fn check(&self) {
        let start = self.model.start;
        assert_eq!(self.lease.view.log_start(), Offset(start));
        assert_eq!(self.lease.view.log_end(), Offset(self.model.end));
        assert_eq!(Model::read(&self.lease), self.model.from(start));
        if let Some(last) = self.model.from(start).last() {
            let header = BatchHeader::parse(&last.bytes).unwrap();
            assert_eq!(self.lease.view.last_epoch(), header.leader_epoch);
            let producers = self.lease.view.producers();
            assert_eq!(producers[0].1.last_sequence(), header.last_sequence());
        }
        for batch in self.model.from(start) {
            let found = super::tests::read(&self.lease, (batch.next - 1).max(start)).unwrap();
            assert!(found.bytes.starts_with(&batch.bytes), "offset {} reads else", batch.next - 1);
        }
    }
}

#[test]
fn records_are_synced_when_as_many_as_flush_messages_wait() {
    for (appends, kept) in [(2, 0), (3, 3), (5, 3), (6, 6)] {
        let mut run = Run::new(LogConfig { flush_messages: 3, ..small() });
        for _ in 0..appends {
            let step = Step::Produce(vec![1]);
            let placed = run.placed(&step);
            run.run(&step, &placed).unwrap();
        }
        run.bench.cut_power();
        run.lease_again();
        assert_eq!(Model::read(&run.lease).len(), kept, "of {appends} appends");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn kills_and_stops_lose_nothing_written(steps in proptest::collection::vec(step(), 1..40)) {
        let mut run = Run::new(small());
        for step in &steps {
            let placed = run.placed(step);
            run.run(step, &placed).unwrap();
            run.check();
        }
    }

    #[test]
    fn a_power_cut_at_any_sync_keeps_what_was_acknowledged(
        steps in proptest::collection::vec(step(), 1..25),
        nth in 1u64..80,
    ) {
        let mut run = Run::new(LogConfig { flush_messages: 1, ..small() });
        run.bench.disk.halt_at_sync(nth);
        // What the last acknowledged append left: later cuts may be undone by the crash.
        let mut durable = Model::default();
        let mut pending = Vec::new();
        for step in steps.iter().filter(|step| !matches!(step, Step::Kill | Step::Stop)) {
            pending = run.placed(step);
            match run.run(step, &pending) {
                Ok(()) if !pending.is_empty() => durable = run.model.clone(),
                Ok(()) => {}
                Err(_) => break,
            }
        }
        run.bench.cut_power();
        run.lease_again();
        let found = Model::read(&run.lease);
        let start = run.lease.view.log_start().0;
        let mut with_pending = run.model.clone();
        for one in pending.iter().filter(|one| one.0.base >= run.model.end) {
            with_pending.push(one);
        }
        // A cut may have been undone, a raised start forgotten; nothing acknowledged may be gone.
        let visible = start.max(run.model.start);
        let kept: Vec<Batch> = found.iter().filter(|one| one.next > visible).cloned().collect();
        let at_least = run.model.from(visible);
        prop_assert!(kept.starts_with(&at_least), "acknowledged {at_least:?}, found {kept:?}");
        prop_assert!(
            [&durable, &with_pending].iter().any(|one| one.from(start).starts_with(&found)),
            "found {found:?}, durable {durable:?}, pending {with_pending:?}"
        );
    }

    #[test]
    fn a_failed_write_at_any_place_is_recovered_from(
        steps in proptest::collection::vec(step(), 1..25),
        nth in 1u64..60,
    ) {
        let mut run = Run::new(small());
        run.bench.disk.fail_write(nth);
        for step in steps.iter().filter(|step| !matches!(step, Step::Kill | Step::Stop)) {
            let before = run.model.clone();
            let placed = run.placed(step);
            if run.run(step, &placed).is_err() {
                run.lease_again();
                let found = Model::read(&run.lease);
                let start = run.lease.view.log_start().0;
                let mut whole = run.model.clone();
                placed.iter().filter(|one| one.0.base >= whole.end).for_each(|one| {
                    whole.batches.push(one.0.clone());
                });
                let fits = if matches!(step, Step::Truncate(_) | Step::Reset(_)) {
                    before.from(start).starts_with(&found)
                } else {
                    found.starts_with(&run.model.from(start))
                        && whole.from(start).starts_with(&found)
                };
                prop_assert!(fits, "{step:?} left {found:?} of {before:?}");
                run.model.batches = found;
                run.model.start = start;
                run.model.end = run.lease.view.log_end().0;
            }
            run.check();
        }
    }
}
