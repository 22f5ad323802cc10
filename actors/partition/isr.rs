//! Who is in sync: the leader's view of its followers, the high watermark they allow, and the
//! changes of the ISR to ask the controller for. Pure: time is an argument.

use std::collections::{BTreeMap, BTreeSet};

use protocol::ids::{BrokerEpoch, NodeId, Offset, TimestampMs};

/// What the leader knows of one follower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowerProgress {
    /// The follower's log end; `None` until it fetched from this leader in this epoch.
    pub log_end: Option<Offset>,
    /// When it last had everything that the leader had at its previous fetch.
    pub caught_up_at: TimestampMs,
    /// The incarnation of the broker, as its last fetch said; the controller checks it.
    pub broker_epoch: BrokerEpoch,
    last_fetch_at: TimestampMs,
    last_fetch_leader_end: Offset,
}

/// The replicas of a partition as its leader sees them.
#[derive(Debug, Clone)]
pub struct ReplicaSet {
    me: NodeId,
    followers: BTreeMap<NodeId, FollowerProgress>,
    /// The ISR the controller has committed.
    isr: BTreeSet<NodeId>,
    /// The ISR asked for and not answered yet. Until it is, both count: a wider set is always
    /// safe.
    asked: Option<BTreeSet<NodeId>>,
}

impl ReplicaSet {
    /// The replicas as the image has them, at the start of a leadership.
    pub fn new(
        me: NodeId,
        replicas: impl IntoIterator<Item = NodeId>,
        isr: BTreeSet<NodeId>,
        now: TimestampMs,
    ) -> ReplicaSet {
        let followers = replicas
            .into_iter()
            .filter(|id| *id != me)
            .map(|id| (id, FollowerProgress::unknown(now)))
            .collect();
        ReplicaSet { me, followers, isr, asked: None }
    }

    /// Takes over what the controller committed. Progress of replicas that stay is kept.
    pub fn on_committed(
        &mut self,
        replicas: impl IntoIterator<Item = NodeId>,
        isr: BTreeSet<NodeId>,
        now: TimestampMs,
    ) {
        let mut followers = BTreeMap::new();
        for id in replicas.into_iter().filter(|id| *id != self.me) {
            let progress =
                self.followers.remove(&id).unwrap_or_else(|| FollowerProgress::unknown(now));
            followers.insert(id, progress);
        }
        self.followers = followers;
        self.isr = isr;
        self.asked = None;
    }

    /// Notes a follower's fetch at `log_end`. False when it is no replica of this partition, or
    /// when a later incarnation of its broker has fetched already: what an earlier one asked may
    /// be read again while it waits.
    pub fn on_fetch(
        &mut self,
        follower: NodeId,
        broker_epoch: BrokerEpoch,
        log_end: Offset,
        leader_end: Offset,
        now: TimestampMs,
    ) -> bool {
        let Some(progress) = self.followers.get_mut(&follower) else {
            return false;
        };
        if BrokerEpoch(0) <= broker_epoch && broker_epoch < progress.broker_epoch {
            return false;
        }
        // As Kafka has it: caught up now if it has all of now, else caught up at the time of its
        // previous fetch if it has all that the leader had then.
        if log_end >= leader_end {
            progress.caught_up_at = now;
        } else if log_end >= progress.last_fetch_leader_end {
            progress.caught_up_at = progress.caught_up_at.max(progress.last_fetch_at);
        }
        progress.log_end = Some(log_end);
        progress.broker_epoch = broker_epoch;
        progress.last_fetch_at = now;
        progress.last_fetch_leader_end = leader_end;
        true
    }

    /// The offset below which every replica that counts has everything. `None` while one of them
    /// has not told its log end yet.
    pub fn committed_end(&self, leader_end: Offset) -> Option<Offset> {
        let mut end = leader_end;
        for (id, progress) in &self.followers {
            let counts = self.isr.contains(id)
                || self.asked.as_ref().is_some_and(|asked| asked.contains(id));
            if counts {
                end = end.min(progress.log_end?);
            }
        }
        Some(end)
    }

    /// Whether every follower in, or asked into, the ISR has told a log end of at most `end`.
    pub fn hold_at_most(&self, end: Offset) -> bool {
        self.followers.iter().all(|(id, progress)| {
            let counts = self.isr.contains(id)
                || self.asked.as_ref().is_some_and(|asked| asked.contains(id));
            !counts || progress.log_end.is_some_and(|held| held <= end)
        })
    }

    /// Whether `follower` may be asked into the ISR: it has the high watermark and at least the
    /// start of this leader's epoch.
    pub fn may_join(&self, follower: NodeId, high_watermark: Offset, epoch_start: Offset) -> bool {
        self.asked.is_none()
            && !self.isr.contains(&follower)
            && self.followers.get(&follower).is_some_and(|progress| {
                progress.log_end.is_some_and(|end| end >= high_watermark && end >= epoch_start)
            })
    }

    /// The members of the ISR that have not been caught up for `lag_max_ms`.
    pub fn lagging(
        &self,
        leader_end: Offset,
        now: TimestampMs,
        lag_max_ms: i64,
    ) -> BTreeSet<NodeId> {
        if self.asked.is_some() {
            return BTreeSet::new();
        }
        self.followers
            .iter()
            .filter(|(id, progress)| {
                self.isr.contains(id)
                    && progress.log_end != Some(leader_end)
                    && now.0 - progress.caught_up_at.0 > lag_max_ms
            })
            .map(|(id, _)| *id)
            .collect()
    }

    /// The broker epochs to send with an ISR, the controller's guard against stale members.
    pub fn broker_epoch(&self, follower: NodeId) -> BrokerEpoch {
        self.followers.get(&follower).map_or(BrokerEpoch(-1), |progress| progress.broker_epoch)
    }

    /// Marks a change of the ISR as asked for.
    pub fn ask(&mut self, isr: BTreeSet<NodeId>) {
        self.asked = Some(isr);
    }

    /// The change was refused or lost: it may be asked for again.
    pub fn forget_asked(&mut self) {
        self.asked = None;
    }

    /// The committed ISR.
    pub fn isr(&self) -> &BTreeSet<NodeId> {
        &self.isr
    }

    /// The followers and what is known of them.
    pub fn followers(&self) -> &BTreeMap<NodeId, FollowerProgress> {
        &self.followers
    }

    /// The ISR that was asked for and is neither committed nor refused.
    pub fn asked(&self) -> Option<&BTreeSet<NodeId>> {
        self.asked.as_ref()
    }
}

impl FollowerProgress {
    fn unknown(now: TimestampMs) -> FollowerProgress {
        FollowerProgress {
            log_end: None,
            caught_up_at: now,
            broker_epoch: BrokerEpoch(-1),
            last_fetch_at: now,
            last_fetch_leader_end: Offset(i64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);
    const A: NodeId = NodeId(2);
    const B: NodeId = NodeId(3);
    const EPOCH: BrokerEpoch = BrokerEpoch(9);

    fn set(isr: &[NodeId]) -> ReplicaSet {
        ReplicaSet::new(ME, [ME, A, B], isr.iter().copied().collect(), TimestampMs(0))
    }

    #[test]
    fn nothing_is_committed_before_every_member_told_its_end() {
        let mut replicas = set(&[ME, A, B]);
        assert_eq!(replicas.committed_end(Offset(10)), None);
        replicas.on_fetch(A, EPOCH, Offset(7), Offset(10), TimestampMs(1));
        assert_eq!(replicas.committed_end(Offset(10)), None);
        replicas.on_fetch(B, EPOCH, Offset(5), Offset(10), TimestampMs(1));
        assert_eq!(replicas.committed_end(Offset(10)), Some(Offset(5)));
    }

    #[test]
    fn a_follower_outside_the_isr_holds_nothing_back() {
        let mut replicas = set(&[ME, A]);
        replicas.on_fetch(A, EPOCH, Offset(10), Offset(10), TimestampMs(1));
        replicas.on_fetch(B, EPOCH, Offset(2), Offset(10), TimestampMs(1));
        assert_eq!(replicas.committed_end(Offset(10)), Some(Offset(10)));
    }

    #[test]
    fn a_member_asked_in_counts_already() {
        let mut replicas = set(&[ME, A]);
        replicas.on_fetch(A, EPOCH, Offset(10), Offset(10), TimestampMs(1));
        replicas.on_fetch(B, EPOCH, Offset(8), Offset(10), TimestampMs(1));
        assert!(replicas.may_join(B, Offset(8), Offset(0)));
        replicas.ask([ME, A, B].into());
        assert_eq!(replicas.committed_end(Offset(10)), Some(Offset(8)));
        assert!(!replicas.may_join(B, Offset(8), Offset(0)), "one change at a time");
    }

    #[test]
    fn a_member_asked_out_still_counts_until_committed() {
        let mut replicas = set(&[ME, A, B]);
        replicas.on_fetch(A, EPOCH, Offset(10), Offset(10), TimestampMs(1));
        replicas.on_fetch(B, EPOCH, Offset(3), Offset(10), TimestampMs(1));
        replicas.ask([ME, A].into());
        assert_eq!(replicas.committed_end(Offset(10)), Some(Offset(3)));
        replicas.on_committed([ME, A, B], [ME, A].into(), TimestampMs(2));
        assert_eq!(replicas.committed_end(Offset(10)), Some(Offset(10)));
    }

    #[test]
    fn lag_is_measured_from_the_last_time_caught_up() {
        let mut replicas = set(&[ME, A, B]);
        replicas.on_fetch(A, EPOCH, Offset(10), Offset(10), TimestampMs(900));
        replicas.on_fetch(B, EPOCH, Offset(4), Offset(10), TimestampMs(900));
        assert_eq!(replicas.lagging(Offset(10), TimestampMs(1_200), 1_000), [B].into());
        assert_eq!(replicas.lagging(Offset(10), TimestampMs(900), 1_000), BTreeSet::new());
    }

    #[test]
    fn an_earlier_incarnation_of_a_follower_is_not_heard() {
        let mut replicas = set(&[ME, A]);
        assert!(replicas.on_fetch(A, EPOCH, Offset(7), Offset(10), TimestampMs(1)));
        let earlier = BrokerEpoch(EPOCH.0 - 1);
        assert!(!replicas.on_fetch(A, earlier, Offset(10), Offset(10), TimestampMs(2)));
        assert_eq!(replicas.committed_end(Offset(10)), Some(Offset(7)));
    }

    #[test]
    fn a_follower_one_fetch_behind_is_caught_up_at_its_previous_fetch() {
        let mut replicas = set(&[ME, A]);
        replicas.on_fetch(A, EPOCH, Offset(4), Offset(10), TimestampMs(500));
        replicas.on_fetch(A, EPOCH, Offset(10), Offset(20), TimestampMs(1_000));
        assert_eq!(replicas.followers()[&A].caught_up_at, TimestampMs(500));
    }
}
