//! Watches the mirror through DescribeMirrors: the lag going to zero, and then staying there. Owns
//! what is shown while it is watched: a bar on a terminal, lines elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use mirror::MirrorState;

use super::report::thousands;
use crate::cli::mirrors::admin::MirrorAdmin;
use crate::cli::mirrors::render::PartitionRow;
use crate::cli::say;

/// How long the copy may take to catch up.
const CATCH_UP_DEADLINE: Duration = Duration::from_secs(60);
/// Between two looks.
const PERIOD: Duration = Duration::from_millis(50);
/// Between two lines where there is no terminal.
const LINE_PERIOD: Duration = Duration::from_millis(500);

/// A mirrored topic, seen from the standby.
pub struct Watch<'a> {
    admin: &'a MirrorAdmin,
    mirror: &'a str,
    topic: &'a str,
    partitions: usize,
}

/// How the copy caught up.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaughtUp {
    /// Records copied when every partition had been seen without lag.
    pub records: i64,
    /// How long that took, from the first look.
    pub took: Duration,
    /// The largest lag seen, in records.
    pub lag_max: i64,
}

/// How the copy kept up with a steady load.
#[derive(Clone, Debug, Default)]
pub struct KeptUp {
    /// The largest lag seen, in records.
    pub lag_max: i64,
    /// The lag at the last look, in records.
    pub lag: i64,
    /// The end of each partition's copy at the last look.
    pub ends: BTreeMap<i32, i64>,
}

impl<'a> Watch<'a> {
    /// Of a topic with so many partitions.
    pub fn new(
        admin: &'a MirrorAdmin,
        mirror: &'a str,
        topic: &'a str,
        partitions: usize,
    ) -> Watch<'a> {
        Watch { admin, mirror, topic, partitions }
    }

    /// Looks until every partition has been seen without lag.
    ///
    /// # Errors
    /// A partition failed, or it takes longer than a minute.
    pub async fn until_caught_up(&self) -> Result<CaughtUp> {
        let began = Instant::now();
        let mut shown = Shown::new();
        let mut caught: BTreeMap<i32, i64> = BTreeMap::new();
        let mut lag_max = 0;
        loop {
            let rows = self.look().await?;
            let lag = lag_of(&rows);
            lag_max = lag_max.max(lag.unwrap_or(0));
            shown.show(lag, lag_max, &rows);
            for row in rows.iter().filter(|row| row.is(MirrorState::Mirroring) && row.lag == 0) {
                caught.insert(row.partition, row.destination_offset);
            }
            if caught.len() == self.partitions {
                shown.finish();
                let records = rows.iter().map(|row| row.destination_offset.max(0)).sum();
                return Ok(CaughtUp { records, took: began.elapsed(), lag_max });
            }
            if began.elapsed() > CATCH_UP_DEADLINE {
                bail!("the copy did not catch up within {CATCH_UP_DEADLINE:?}: {}", words(&rows));
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Looks for as long as `span`.
    ///
    /// # Errors
    /// A partition is not mirroring any more.
    pub async fn steady(&self, span: Duration) -> Result<KeptUp> {
        let began = Instant::now();
        let mut kept = KeptUp::default();
        let mut next_line = LINE_PERIOD;
        while began.elapsed() < span {
            let rows = self.look().await?;
            if let Some(row) = rows.iter().find(|row| !row.is(MirrorState::Mirroring)) {
                bail!("partition {} left MIRRORING: {}", row.partition, words(&rows));
            }
            kept.lag = lag_of(&rows).unwrap_or(kept.lag);
            kept.lag_max = kept.lag_max.max(kept.lag);
            kept.ends = rows.iter().map(|row| (row.partition, row.destination_offset)).collect();
            if began.elapsed() >= next_line {
                next_line += LINE_PERIOD;
                say(&format!("  lag {} records\n", thousands(kept.lag)));
            }
            tokio::time::sleep(PERIOD).await;
        }
        Ok(kept)
    }

    /// Looks until every partition is STOPPED, and returns the rows then.
    ///
    /// # Errors
    /// Not within `deadline`.
    pub async fn until_stopped(&self, deadline: Duration) -> Result<Vec<PartitionRow>> {
        let began = Instant::now();
        loop {
            let rows = self.rows().await?;
            if rows.len() == self.partitions && rows.iter().all(|row| row.is(MirrorState::Stopped))
            {
                return Ok(rows);
            }
            if began.elapsed() > deadline {
                bail!("not all partitions are STOPPED after {deadline:?}: {}", words(&rows));
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn look(&self) -> Result<Vec<PartitionRow>> {
        let rows = self.rows().await?;
        match rows.iter().find(|row| row.is(MirrorState::Failed)) {
            None => Ok(rows),
            Some(row) => {
                let reason = row.reason.as_deref().unwrap_or("no reason is given");
                bail!("partition {} FAILED: {reason}", row.partition)
            }
        }
    }

    async fn rows(&self) -> Result<Vec<PartitionRow>> {
        let mut rows = self.admin.describe(Some(self.mirror)).await?;
        rows.retain(|row| row.topic == self.topic);
        Ok(rows)
    }
}

/// The lag of all partitions together, once every one's is known.
fn lag_of(rows: &[PartitionRow]) -> Option<i64> {
    let known = !rows.is_empty() && rows.iter().all(|row| row.lag >= 0);
    known.then(|| rows.iter().map(|row| row.lag).sum())
}

fn words(rows: &[PartitionRow]) -> String {
    let row = |row: &PartitionRow| {
        let reason = row.reason.as_deref().map(|reason| format!(" ({reason})"));
        format!("{} {} lag {}{}", row.partition, row.state, row.lag, reason.unwrap_or_default())
    };
    if rows.is_empty() {
        return "the mirror has no partition of the topic".to_owned();
    }
    rows.iter().map(row).collect::<Vec<_>>().join(", ")
}

/// The lag on its way down.
enum Shown {
    Bar(ProgressBar),
    Lines { last: Option<Instant> },
}

impl Shown {
    fn new() -> Shown {
        if !std::io::stderr().is_terminal() {
            return Shown::Lines { last: None };
        }
        let template = "  copied {bar:40} lag {msg} records";
        let style = ProgressStyle::with_template(template).expect("the template is fixed");
        Shown::Bar(ProgressBar::new(1).with_style(style))
    }

    fn show(&mut self, lag: Option<i64>, lag_max: i64, rows: &[PartitionRow]) {
        let text = match lag {
            Some(lag) => thousands(lag),
            None => "unknown".to_owned(),
        };
        match self {
            Shown::Bar(bar) => {
                let copied = lag_max.saturating_sub(lag.unwrap_or(lag_max));
                bar.set_length(u64::try_from(lag_max).unwrap_or(0).max(1));
                bar.set_position(u64::try_from(copied).unwrap_or(0));
                bar.set_message(text);
            }
            Shown::Lines { last } => {
                let due = last.is_none_or(|last| last.elapsed() >= LINE_PERIOD);
                if due || lag == Some(0) {
                    *last = Some(Instant::now());
                    let copied = rows.iter().map(|row| row.destination_offset.max(0)).sum();
                    say(&format!("  lag {text} records, {} copied\n", thousands(copied)));
                }
            }
        }
    }

    fn finish(self) {
        match self {
            Shown::Bar(bar) => bar.finish(),
            Shown::Lines { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(partition: i32, lag: i64) -> PartitionRow {
        PartitionRow {
            mirror: "m".to_owned(),
            topic: "t".to_owned(),
            partition,
            source_offset: 10,
            destination_offset: 10 - lag,
            lag,
            state: "MIRRORING".to_owned(),
            last_mirror_epoch: 0,
            attempt: 0,
            reason: None,
            last_mirrored_offset: -1,
            records_cut: 0,
            aborted_producers: Vec::new(),
            lag_ms: -1,
            source_offset_age_ms: -1,
        }
    }

    #[test]
    fn a_lag_is_known_when_every_partitions_is() {
        assert_eq!(lag_of(&[]), None);
        assert_eq!(lag_of(&[row(0, 3), row(1, 4)]), Some(7));
        assert_eq!(lag_of(&[row(0, 3), row(1, -1)]), None);
        assert_eq!(words(&[row(0, 3)]), "0 MIRRORING lag 3");
    }
}
