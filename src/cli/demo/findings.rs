//! What was seen while the demo ran, and what both sides hold in the end, brought together for the
//! checks. Owns what is read from where: segment files of our own clusters, Fetch of a source that
//! runs elsewhere and of every client's view; decides nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use protocol::batch::RecordBatch;

use super::checks::{self, Check, Held, Outcome};
use super::failover::Failover;
use super::load::Acknowledged;
use super::segments::{self, Equal};
use super::stage::Stage;
use super::topic::Topic;
use super::watch::KeptUp;

/// How long a follower may take to have what its leader has.
const REPLICAS_DEADLINE: Duration = Duration::from_secs(10);
/// Between two looks at a follower's files.
const PAUSE: Duration = Duration::from_millis(50);

/// What was seen on the way.
#[derive(Debug)]
pub struct Seen {
    /// What the load wrote and the source acknowledged.
    pub acknowledged: Acknowledged,
    /// Whether a write was refused while the topic was mirrored.
    pub read_only: Result<()>,
    /// What was shown as mirrored before the source was lost.
    pub kept_up: KeptUp,
    /// What the failover came to.
    pub failover: Failover,
}

impl Seen {
    /// Reads both sides and checks every promise.
    ///
    /// # Errors
    /// A side cannot be read at all; a promise that was broken is a check's outcome.
    pub async fn check(
        &self,
        stage: &Stage,
        source: &Topic,
        standby: &Topic,
    ) -> Result<(Equal, Vec<Check>)> {
        let last_mirrored = self.failover.last_mirrored();
        let compared = compare(stage, source, standby, &last_mirrored).await;
        let equal = match &compared {
            Ok(Ok(equal)) => *equal,
            Ok(Err(_)) | Err(_) => Equal::default(),
        };
        let held = read_back(standby).await?;
        let checks = vec![
            Check {
                promise: "a mirrored topic takes no write of a client",
                outcome: Outcome::from(match &self.read_only {
                    Ok(()) => Ok("every partition refused with code 44".to_owned()),
                    Err(error) => Err(anyhow!("{error:#}")),
                }),
            },
            Check {
                promise: "every mirrored batch equals the source's",
                outcome: match compared {
                    Ok(found) => Outcome::from(
                        found.map(|equal| format!("{} batches are the same bytes", equal.batches)),
                    ),
                    Err(unread) => Outcome::NotChecked(format!("{unread:#}")),
                },
            },
            Check {
                promise: "nothing shown as mirrored is lost",
                outcome: Outcome::from(checks::nothing_shown_is_lost(
                    &self.kept_up.ends,
                    &last_mirrored,
                )),
            },
            Check {
                promise: "only what was not mirrored is missing",
                outcome: Outcome::from(checks::exactly_the_tail_is_missing(
                    &self.acknowledged,
                    &held,
                    &last_mirrored,
                )),
            },
            Check {
                promise: "the standby keeps what it accepts",
                outcome: Outcome::from(checks::new_writes_are_kept(
                    &self.failover.written,
                    &held,
                    &last_mirrored,
                )),
            },
        ];
        Ok((equal, checks))
    }
}

/// Everything a client of the standby reads.
async fn read_back(standby: &Topic) -> Result<BTreeMap<i32, Held>> {
    let mut held = BTreeMap::new();
    for partition in standby.partitions() {
        let end = standby.end(partition).await?;
        let batches = standby.read(partition, end).await.context("reading the standby back")?;
        held.insert(partition, checks::held(&batches)?);
    }
    Ok(held)
}

/// Compares every partition up to its last mirrored offset: the files of all replicas with those
/// of the source, or what both sides answer to Fetch where the source runs elsewhere. The inner
/// result is the first difference, the outer one why nothing could be compared.
async fn compare(
    stage: &Stage,
    source: &Topic,
    standby: &Topic,
    last_mirrored: &BTreeMap<i32, i64>,
) -> Result<Result<Equal>> {
    let mut equal = Equal::default();
    for (partition, last) in last_mirrored {
        let (partition, last) = (*partition, *last);
        let context = || format!("partition {partition}");
        match stage.primary_folder() {
            Some(primary) => {
                let theirs = longest(&primary, source.name(), partition)?;
                let replicas =
                    segments::replicas(&stage.standby_folder(), standby.name(), partition)?;
                if replicas.is_empty() {
                    let missing = "has no replica on the standby's disks";
                    return Ok(Err(anyhow!("partition {partition} {missing}")));
                }
                for replica in replicas {
                    let ours = read_up_to(&replica, last).await;
                    let found = ours.and_then(|ours| segments::compare(&theirs, &ours, last));
                    match found.with_context(|| replica.display().to_string()) {
                        Ok(found) => equal.add(found),
                        Err(difference) => return Ok(Err(difference)),
                    }
                }
            }
            None => {
                let theirs = source.read(partition, last + 1).await.with_context(context)?;
                let ours = standby.read(partition, last + 1).await.with_context(context)?;
                match segments::compare(&theirs, &ours, last).with_context(context) {
                    Ok(found) => equal.add(found),
                    Err(difference) => return Ok(Err(difference)),
                }
            }
        }
    }
    Ok(Ok(equal))
}

/// The batches of the replica that has most of them: when all nodes crash at once, a follower may
/// not have written what its leader had.
fn longest(cluster: &Path, topic: &str, partition: i32) -> Result<Vec<RecordBatch>> {
    let mut longest = Vec::new();
    for replica in segments::replicas(cluster, topic, partition)? {
        let batches = segments::read(&replica)?;
        if segments::last_offset(&batches) > segments::last_offset(&longest) {
            longest = batches;
        }
    }
    Ok(longest)
}

/// The batches of a replica once it has the offset `last`.
async fn read_up_to(replica: &Path, last: i64) -> Result<Vec<RecordBatch>> {
    let began = Instant::now();
    loop {
        let batches = segments::read(replica)?;
        if segments::last_offset(&batches) >= last || began.elapsed() > REPLICAS_DEADLINE {
            return Ok(batches);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
