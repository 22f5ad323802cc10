//! The fetching side of a fetch session (KIP-227), shared by replica fetchers and mirror fetchers:
//! which partitions to ask for, and from where. Pure: it sends nothing and keeps no clock.

use std::collections::{BTreeMap, BTreeSet};

use protocol::ids::{LeaderEpoch, Offset, TopicIdPartition, TopicName};
use protocol::messages::FetchRequest;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};

/// Where one partition's next fetch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPosition {
    /// The topic's name, for versions without topic ids.
    pub topic: TopicName,
    /// The leader epoch to fetch under; −1 asks for no check.
    pub leader_epoch: LeaderEpoch,
    /// The first wanted offset: this log's end.
    pub offset: Offset,
    /// Epoch of this log's last batch, −1 when empty (KIP-595).
    pub last_fetched_epoch: LeaderEpoch,
    /// This log's first offset, told to leaders of the own cluster.
    pub log_start: Offset,
}

/// Numbers of a fetch request.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// How long the other side may wait for `min_bytes`, in milliseconds.
    pub wait_max_ms: i32,
    /// Bytes worth an answer.
    pub min_bytes: i32,
    /// Bytes of one response at most (but for one batch that is larger).
    pub response_max_bytes: i32,
    /// Bytes of one partition at most (likewise).
    pub partition_max_bytes: i32,
}

impl From<&config::FetchConfig> for FetchLimits {
    fn from(config: &config::FetchConfig) -> FetchLimits {
        FetchLimits {
            wait_max_ms: config.wait_max_ms,
            min_bytes: config.min_bytes,
            response_max_bytes: config.response_max_bytes,
            partition_max_bytes: config.max_bytes,
        }
    }
}

/// One session with one broker.
#[derive(Debug, Default)]
pub struct FetchSession {
    session_id: i32,
    /// 0 opens a session; incremental requests count from 1.
    epoch: i32,
    positions: BTreeMap<TopicIdPartition, FetchPosition>,
    /// What the other side knows of each partition.
    sent: BTreeMap<TopicIdPartition, FetchPosition>,
    /// Partitions that wait out an error and are not asked for meanwhile.
    held: BTreeSet<TopicIdPartition>,
}

impl FetchSession {
    /// Adds a partition or moves it to another position.
    pub fn set(&mut self, id: TopicIdPartition, position: FetchPosition) {
        self.positions.insert(id, position);
    }

    /// Takes a partition out.
    pub fn remove(&mut self, id: TopicIdPartition) {
        self.positions.remove(&id);
        self.held.remove(&id);
    }

    /// Holds a partition back, or lets it go on.
    pub fn hold(&mut self, id: TopicIdPartition, held: bool) {
        if held {
            self.held.insert(id);
        } else {
            self.held.remove(&id);
        }
    }

    /// The position of a partition.
    pub fn position(&self, id: TopicIdPartition) -> Option<&FetchPosition> {
        self.positions.get(&id)
    }

    /// Whether the other side has a partition in its session, and keeps to itself what it told of
    /// it before.
    pub fn has_sent(&self, id: TopicIdPartition) -> bool {
        self.sent.contains_key(&id)
    }

    /// Every partition of the session.
    pub fn partitions(&self) -> impl Iterator<Item = (&TopicIdPartition, &FetchPosition)> {
        self.positions.iter()
    }

    /// Whether there is nothing to ask for.
    pub fn is_idle(&self) -> bool {
        self.positions.keys().all(|id| self.held.contains(id))
    }

    /// Whether the session holds no partition at all.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Forgets the session: the next request is a full one and opens another.
    pub fn restart(&mut self) {
        self.session_id = 0;
        self.epoch = 0;
        self.sent.clear();
    }

    /// The next request. Marks its content as sent, so every request must get its
    /// [`FetchSession::on_response`] or a [`FetchSession::restart`].
    pub fn next_request(&mut self, limits: FetchLimits) -> FetchRequest {
        let wanted: BTreeMap<TopicIdPartition, FetchPosition> = self
            .positions
            .iter()
            .filter(|(id, _)| !self.held.contains(id))
            .map(|(id, position)| (*id, position.clone()))
            .collect();
        let changed = wanted.iter().filter(|(id, position)| self.sent.get(id) != Some(*position));
        let topics = group(changed.map(|(id, position)| (*id, position.clone())), limits);
        let forgotten: Vec<(TopicIdPartition, TopicName)> = self
            .sent
            .iter()
            .filter(|(id, _)| !wanted.contains_key(id))
            .map(|(id, position)| (*id, position.topic.clone()))
            .collect();
        self.sent = wanted;
        FetchRequest {
            max_wait_ms: limits.wait_max_ms,
            min_bytes: limits.min_bytes,
            max_bytes: limits.response_max_bytes,
            session_id: self.session_id,
            session_epoch: self.epoch,
            topics,
            forgotten_topics_data: group_forgotten(forgotten),
            ..FetchRequest::default()
        }
    }

    /// Takes over the session the other side opened or went on with.
    pub fn on_response(&mut self, session_id: i32) {
        if session_id == 0 {
            // No place in the other side's cache: full requests, each for itself.
            self.restart();
            return;
        }
        self.session_id = session_id;
        self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
    }

    /// The topic names of the session by id, to read a response that has only ids.
    pub fn topic_of(&self, id: TopicIdPartition) -> Option<&TopicName> {
        self.positions.get(&id).map(|position| &position.topic)
    }
}

fn group(
    partitions: impl Iterator<Item = (TopicIdPartition, FetchPosition)>,
    limits: FetchLimits,
) -> Vec<FetchTopic> {
    let mut topics: Vec<FetchTopic> = Vec::new();
    for (id, position) in partitions {
        if topics.last().is_none_or(|topic| topic.topic_id != id.topic_id.0) {
            topics.push(FetchTopic {
                topic: position.topic.to_string(),
                topic_id: id.topic_id.0,
                ..FetchTopic::default()
            });
        }
        let partition = FetchPartition {
            partition: id.partition.0,
            current_leader_epoch: position.leader_epoch.0,
            fetch_offset: position.offset.0,
            last_fetched_epoch: position.last_fetched_epoch.0,
            log_start_offset: position.log_start.0,
            partition_max_bytes: limits.partition_max_bytes,
            ..FetchPartition::default()
        };
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(partition);
        }
    }
    topics
}

fn group_forgotten(forgotten: Vec<(TopicIdPartition, TopicName)>) -> Vec<ForgottenTopic> {
    let mut topics: Vec<ForgottenTopic> = Vec::new();
    for (id, name) in forgotten {
        if topics.last().is_none_or(|topic| topic.topic_id != id.topic_id.0) {
            topics.push(ForgottenTopic {
                topic: name.to_string(),
                topic_id: id.topic_id.0,
                ..ForgottenTopic::default()
            });
        }
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(id.partition.0);
        }
    }
    topics
}

#[cfg(test)]
#[path = "fetch_session_tests.rs"]
mod tests;
