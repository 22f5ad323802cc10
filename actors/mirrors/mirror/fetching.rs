//! Which partition is fetched by which fetcher. Owns the assignments and the fetchers; where a
//! partition's leader is on the source it takes from the last look and from what fetchers met.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mirror::{FetchEvent, SourceError, SourceEvent};
use protocol::ids::{LeaderEpoch, TimestampMs, TopicIdPartition, TopicName};
use ractor::{Actor, ActorRef, RpcReplyPort, SpawnErr, SupervisionEvent};

use super::{MirrorMsg, MirrorState};
use crate::children::{Children, Ended};
use crate::mirrors::handle::SourcePartition;
use crate::mirrors::mirror_fetcher::{
    Assignment, FetcherId, FetcherReport, MirrorFetcher, MirrorFetcherArgs, MirrorFetcherHandle,
    MirrorFetcherMsg,
};
use crate::mirrors::survey::{SourceLeader, TopicFault};
use crate::partition::pending::send;
use crate::supervision::{ChildKind, Verdict};

/// How long a source broker may be away before its partitions are told, where others answer.
const BROKER_DOWN_AFTER_MS: i64 = 5_000;

/// How often it is looked whether another broker leads instead.
const BROKER_DOWN_PAUSE: Duration = Duration::from_secs(1);

/// Everything that is fetched here for one mirror.
#[derive(Debug, Default)]
pub(super) struct Fetching {
    partitions: BTreeMap<TopicIdPartition, Fetched>,
    fetchers: BTreeMap<FetcherId, MirrorFetcherHandle>,
    children: Children<FetcherId>,
    /// Fetchers whose broker does not answer, and since when.
    down: BTreeMap<FetcherId, TimestampMs>,
}

#[derive(Debug)]
struct Fetched {
    partition: SourcePartition,
    /// The leader epoch of the partition here.
    leader_epoch: LeaderEpoch,
    place: Place,
    /// Whether it was told that the source is unreachable, and not yet that it is back.
    told_unreachable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Its leader on the source is not known.
    Sought,
    /// Fetched from that broker, under the source's leader epoch.
    At(FetcherId, LeaderEpoch),
}

impl Fetching {
    /// The topics that are fetched.
    pub(super) fn topics(&self) -> impl Iterator<Item = TopicName> + '_ {
        self.partitions.values().map(|fetched| fetched.partition.topic.clone())
    }

    fn ids(&self) -> Vec<TopicIdPartition> {
        self.partitions.keys().copied().collect()
    }
}

impl MirrorState {
    pub(super) fn on_start_fetching(
        &mut self,
        partition: SourcePartition,
        leader_epoch: LeaderEpoch,
    ) {
        let id = partition.id();
        let before = self.fetching.partitions.remove(&id);
        let place = before.map_or(Place::Sought, |fetched| fetched.place);
        let fetched = Fetched { partition, leader_epoch, place, told_unreachable: false };
        self.fetching.partitions.insert(id, fetched);
        if let Some(since) = self.shared.unreachable_since() {
            self.tell_unreachable(id, since);
        }
        let known = self.asking.survey.as_ref().is_some_and(|survey| {
            self.fetching
                .partitions
                .get(&id)
                .is_some_and(|fetched| survey.leader(&fetched.partition).is_ok())
        });
        if known {
            self.reassign(id, true);
        } else {
            self.seek(id);
            self.want_survey();
        }
    }

    pub(super) fn on_stop_fetching(&mut self, id: TopicIdPartition, reply: RpcReplyPort<()>) {
        self.fetching.partitions.remove(&id);
        self.shared.offsets.release(id);
        // All are asked: one that had the partition before may still append.
        let released: Vec<_> =
            self.fetching.fetchers.values().filter_map(|fetcher| fetcher.release(id)).collect();
        if released.is_empty() {
            return send(reply, ());
        }
        self.spawn(async move {
            // A fetcher that died appends nothing any more.
            let _ = join_all(released).await;
            send(reply, ());
        });
    }

    /// Brings all partitions in line with the last look.
    pub(super) fn reassign_all(&mut self) {
        for id in self.fetching.ids() {
            let covered = match (self.fetching.partitions.get(&id), &self.asking.survey) {
                (Some(fetched), Some(survey)) => survey.covers(&fetched.partition.topic),
                _ => false,
            };
            if covered {
                self.reassign(id, false);
            } else {
                self.want_survey();
            }
        }
        self.judge_down_brokers();
    }

    /// Gives a partition to the fetcher of its leader. `anew` starts over at the log's end even
    /// where nothing changed.
    fn reassign(&mut self, id: TopicIdPartition, anew: bool) {
        let (Some(fetched), Some(survey)) =
            (self.fetching.partitions.get(&id), &self.asking.survey)
        else {
            return;
        };
        let leader = match survey.leader(&fetched.partition) {
            Ok(leader) => leader,
            Err(TopicFault::Failed(error)) => return self.fail(id, error),
            Err(TopicFault::Missing) if self.asking.is_deleted(&fetched.partition.topic) => {
                return self.fail(id, SourceError::TopicDeleted);
            }
            Err(TopicFault::Missing) => return self.look_again_for_missing(),
        };
        match fetched.place {
            // A fetcher has seen a newer leader than this look.
            Place::At(at, epoch) if leader.epoch < epoch => {
                if anew {
                    self.place(id, SourceLeader { broker: Some(at.broker), epoch });
                }
            }
            Place::At(at, epoch)
                if !anew && leader.broker == Some(at.broker) && leader.epoch == epoch => {}
            Place::At(..) | Place::Sought => self.place(id, leader),
        }
    }

    fn place(&mut self, id: TopicIdPartition, leader: SourceLeader) {
        let Some(broker) = leader.broker else {
            self.seek(id);
            let pause = self.directory.config.mirror_fetch.backoff.max(BROKER_DOWN_PAUSE);
            return self.want_survey_in(pause);
        };
        let Some(fetched) = self.fetching.partitions.get_mut(&id) else {
            return;
        };
        let count = self.directory.config.mirror.num_replica_fetchers;
        let fetcher = FetcherId { broker, index: fetcher_index(&fetched.partition, count) };
        let before = std::mem::replace(&mut fetched.place, Place::At(fetcher, leader.epoch));
        let leader_epoch = fetched.leader_epoch;
        let moved_from = match before {
            Place::At(old, epoch) => {
                if leader.epoch > epoch && leader.epoch > LeaderEpoch::NONE {
                    self.tell(id, leader_epoch, FetchEvent::EpochSeen { epoch: leader.epoch });
                }
                (old != fetcher).then_some(old)
            }
            Place::Sought => None,
        };
        if let Some(old) = moved_from.and_then(|old| self.fetching.fetchers.get(&old)) {
            drop(old.release(id));
        }
        self.hand_over(id);
    }

    /// Tells the fetcher of a partition what to fetch, or starts that fetcher.
    fn hand_over(&mut self, id: TopicIdPartition) {
        let Some(fetched) = self.fetching.partitions.get(&id) else {
            return;
        };
        let Place::At(at, source_epoch) = fetched.place else {
            return;
        };
        let assignment = Assignment {
            partition: fetched.partition.clone(),
            leader_epoch: fetched.leader_epoch,
            source_epoch,
        };
        match self.fetching.fetchers.get(&at) {
            Some(fetcher) => fetcher.assign(assignment),
            None if !self.fetching.children.contains(&at) => self.spawn_fetcher(at),
            // It is starting, and gets everything that is its then.
            None => {}
        }
    }

    /// Takes a partition from its fetcher until its leader is known.
    fn seek(&mut self, id: TopicIdPartition) {
        let Some(fetched) = self.fetching.partitions.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut fetched.place, Place::Sought);
        if let Place::At(at, _) = before
            && let Some(fetcher) = self.fetching.fetchers.get(&at)
        {
            drop(fetcher.release(id));
        }
    }

    /// Ends the fetching of a partition for an error of the source.
    fn fail(&mut self, id: TopicIdPartition, error: SourceError) {
        self.seek(id);
        self.shared.offsets.release(id);
        if let Some(fetched) = self.fetching.partitions.remove(&id) {
            tracing::warn!(
                mirror = %self.shared.name, topic = %fetched.partition.topic,
                partition = %fetched.partition.partition, ?error, "the source refuses"
            );
            self.tell(id, fetched.leader_epoch, SourceEvent::Failed(error));
        }
    }

    pub(super) fn fail_all(&mut self, error: &SourceError) {
        for id in self.fetching.ids() {
            self.fail(id, error.clone());
        }
    }

    /// Ends all fetchers: the source is reached another way from now on.
    pub(super) fn drop_fetchers(&mut self) {
        let children: Vec<FetcherId> = self.fetching.children.keys().copied().collect();
        for id in children {
            self.fetching.children.stop_and_forget(&id);
        }
        self.fetching.fetchers.clear();
        self.fetching.down.clear();
        for fetched in self.fetching.partitions.values_mut() {
            fetched.place = Place::Sought;
        }
    }

    pub(super) fn on_fetcher_reported(&mut self, report: FetcherReport) {
        match report {
            FetcherReport::Moved { partition, leader_epoch, leader } => {
                self.on_moved(partition, leader_epoch, leader);
            }
            FetcherReport::LinkFailed(fetcher, since) => {
                self.fetching.down.entry(fetcher).or_insert(since);
                self.want_survey();
            }
            FetcherReport::Answered(fetcher) => {
                self.fetching.down.remove(&fetcher);
                for id in self.fetching.ids() {
                    let at = self.fetching.partitions.get(&id).map(|fetched| fetched.place);
                    if matches!(at, Some(Place::At(at, _)) if at == fetcher) {
                        self.tell_reached(id);
                    }
                }
            }
        }
    }

    fn on_moved(
        &mut self,
        id: TopicIdPartition,
        leader_epoch: LeaderEpoch,
        leader: Option<SourceLeader>,
    ) {
        let current = self.fetching.partitions.get(&id);
        if current.is_none_or(|fetched| fetched.leader_epoch != leader_epoch) {
            return;
        }
        let known = leader.filter(|leader| {
            leader.broker.is_some_and(|broker| self.client.view().brokers.contains_key(&broker))
        });
        if let Some(leader) = known {
            return self.place(id, leader);
        }
        self.seek(id);
        self.want_survey_in(super::MOVED_PAUSE);
    }

    /// Tells the partitions of brokers that have been away for long, though others answer and
    /// still name them as leaders.
    fn judge_down_brokers(&mut self) {
        let now = self.directory.clock.now();
        for id in self.fetching.ids() {
            let since = match self.fetching.partitions.get(&id).map(|fetched| fetched.place) {
                Some(Place::At(at, _)) => self.fetching.down.get(&at).copied(),
                Some(Place::Sought) | None => None,
            };
            if let Some(since) = since
                && now.0 - since.0 >= BROKER_DOWN_AFTER_MS
            {
                self.tell_unreachable(id, since);
            }
        }
        if !self.fetching.down.is_empty() {
            self.want_survey_in(BROKER_DOWN_PAUSE);
        }
    }

    /// Since when nobody answers, now that a look that began then found nobody.
    pub(super) fn unreachable_since(&self, began: TimestampMs) -> TimestampMs {
        let known = self.shared.unreachable_since().unwrap_or_else(|| {
            self.fetching.down.values().copied().chain([began]).min().unwrap_or(began)
        });
        self.shared.set_unreachable_since(Some(known));
        known
    }

    pub(super) fn tell_all_unreachable(&mut self, since: TimestampMs) {
        for id in self.fetching.ids() {
            self.tell_unreachable(id, since);
        }
    }

    fn tell_unreachable(&mut self, id: TopicIdPartition, since: TimestampMs) {
        let Some(fetched) = self.fetching.partitions.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut fetched.told_unreachable, true) {
            return;
        }
        let leader_epoch = fetched.leader_epoch;
        self.tell(id, leader_epoch, SourceEvent::Failed(SourceError::Unreachable { since }));
    }

    /// The source answers: partitions that were told otherwise hear of it.
    pub(super) fn tell_all_reached(&mut self) {
        for id in self.fetching.ids() {
            self.tell_reached(id);
        }
    }

    fn tell_reached(&mut self, id: TopicIdPartition) {
        let Some(fetched) = self.fetching.partitions.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut fetched.told_unreachable, false) {
            let leader_epoch = fetched.leader_epoch;
            self.tell(id, leader_epoch, SourceEvent::Reached);
        }
    }

    fn spawn_fetcher(&mut self, id: FetcherId) {
        let args = MirrorFetcherArgs {
            directory: Arc::clone(&self.directory),
            shared: Arc::clone(&self.shared),
            mirror: self.myself.clone(),
            client: self.client.clone(),
            id,
        };
        let myself = self.myself.clone();
        self.directory.runtimes.spawn_data(async move {
            let started = Actor::spawn_linked(None, MirrorFetcher, args, myself.get_cell()).await;
            let started = started.map(|(actor, _join)| actor);
            if myself.cast(MirrorMsg::FetcherStarted(id, started)).is_err() {
                tracing::debug!(fetcher = ?id, "the mirror is gone before its fetcher started");
            }
        });
    }

    pub(super) fn on_fetcher_started(
        &mut self,
        id: FetcherId,
        started: Result<ActorRef<MirrorFetcherMsg>, SpawnErr>,
    ) {
        let kind = ChildKind::MirrorFetcher;
        match started {
            Ok(actor) if self.fetching.fetchers.contains_key(&id) => actor.stop(None),
            Ok(actor) => {
                self.fetching.children.on_started(id, kind, actor.get_cell());
                self.fetching.fetchers.insert(id, MirrorFetcherHandle::new(actor));
                for partition in self.fetching.ids() {
                    let place = self.fetching.partitions.get(&partition).map(|f| f.place);
                    if matches!(place, Some(Place::At(at, _)) if at == id) {
                        self.hand_over(partition);
                    }
                }
            }
            Err(error) => {
                let ended = self.fetching.children.on_start_failed(id, kind, &error);
                self.on_fetcher_ended(&ended);
            }
        }
    }

    pub(super) fn on_supervision(&mut self, event: &SupervisionEvent) {
        if let Some(ended) = self.fetching.children.on_event(event) {
            self.on_fetcher_ended(&ended);
        }
    }

    fn on_fetcher_ended(&mut self, ended: &Ended<FetcherId>) {
        let id = ended.key;
        self.fetching.fetchers.remove(&id);
        match ended.verdict {
            Verdict::Restart(delay) => {
                self.myself.send_after(delay, move || MirrorMsg::RestartTimeout(id));
            }
            // Fetchers never give up: only one that was asked to stop stays away.
            Verdict::Stop | Verdict::GiveUp | Verdict::Escalate => {
                self.fetching.children.forget(&id);
            }
        }
    }

    pub(super) fn on_restart_timeout(&mut self, id: FetcherId) {
        let wanted = self.fetching.children.contains(&id);
        if wanted && !self.fetching.fetchers.contains_key(&id) {
            self.spawn_fetcher(id);
        }
    }
}

/// Which of a broker's fetchers gets a partition.
fn fetcher_index(partition: &SourcePartition, count: usize) -> u8 {
    let hash = partition
        .topic
        .bytes()
        .fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)))
        .wrapping_mul(31)
        .wrapping_add(partition.partition.0.unsigned_abs());
    let count = u32::try_from(count).unwrap_or(1).clamp(1, 64);
    u8::try_from(hash % count).unwrap_or(0)
}
