//! A node's settings as plain data.
//!
//! Owns the step from layers of raw text to [`BrokerConfig`] and the rules between settings. It
//! never reads a file or the environment, and nothing reads a setting from anywhere else.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::broker_keys;
use crate::describe::{Described, broker_synonyms};
use crate::error::{Error, Fault};
use crate::host_port::HostPort;
use crate::layers::{Layers, Resolved, check, check_scope};
use crate::listener::{Listener, ListenerKind, ListenerSettings, listeners};
use crate::properties::Properties;
use crate::schema::Scope;
use crate::timing::{Profile, Timing};
use crate::topic::TopicConfig;

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// It keeps partitions and serves clients.
    pub broker: bool,
    /// It votes on metadata.
    pub controller: bool,
}

/// One of the controllers that vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter {
    /// Its `node.id`.
    pub node_id: i32,
    /// Where its controller listener is.
    pub address: HostPort,
}

/// Whose setting a run-time change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeScope {
    /// One broker's.
    Broker,
    /// The default of all brokers.
    Cluster,
}

/// A node's settings. Fields carry their setting's name; times are durations, sizes bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerConfig {
    /// `node.id`.
    pub node_id: i32,
    /// `process.roles`.
    pub roles: Roles,
    /// `listeners` with `advertised.listeners` and `controller.listener.names`.
    pub listeners: Vec<Listener>,
    /// `inter.broker.listener.name`, or the first listener that is no controller's.
    pub inter_broker_listener: Option<String>,
    /// `mirror.admin.listeners`; empty means all client listeners.
    pub mirror_admin_listeners: Vec<String>,
    /// `controller.quorum.voters`.
    pub voters: Vec<Voter>,
    /// `log.dirs`, or `log.dir`.
    pub log_dirs: Vec<PathBuf>,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// `controlled.shutdown.enable`.
    pub controlled_shutdown_enable: bool,
    /// Raft's and the broker's clocks, ISR lag and group delay among them.
    pub timing: Timing,
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i32,
    /// `auto.create.topics.enable`.
    pub auto_create_topics_enable: bool,
    /// `delete.topic.enable`.
    pub delete_topic_enable: bool,
    /// What a topic without settings of its own has.
    pub topic_defaults: TopicConfig,
    /// `replica.fetch.*` and `replica.socket.timeout.ms`.
    pub replica_fetch: FetchConfig,
    /// `mirror.fetch.*`.
    pub mirror_fetch: FetchConfig,
    /// `offset*` and `group.*`.
    pub groups: GroupConfig,
    /// Sockets and requests.
    pub network: NetworkConfig,
    /// The rest of `mirror.*`.
    pub mirror: MirrorBrokerConfig,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration: Duration,
    layers: Layers,
}

/// How a follower or a mirror fetches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchConfig {
    /// Bytes per partition.
    pub max_bytes: i32,
    /// Bytes the leader waits for.
    pub min_bytes: i32,
    /// Bytes of one answer.
    pub response_max_bytes: i32,
    /// How long the leader waits, in milliseconds as the request carries it.
    pub wait_max_ms: i32,
    /// Wait after a failure.
    pub backoff: Duration,
    /// Deadline of one request beyond the leader's wait.
    pub request_timeout: Duration,
}

/// Group coordinators and the topic they keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`.
    pub min_session_timeout: Duration,
    /// `group.max.session.timeout.ms`.
    pub max_session_timeout: Duration,
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay: Duration,
    /// `group.max.size`.
    pub max_size: usize,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.commit.timeout.ms`.
    pub offsets_commit_timeout: Duration,
    /// `offsets.topic.num.partitions`.
    pub offsets_topic_num_partitions: i32,
    /// `offsets.topic.replication.factor`.
    pub offsets_topic_replication_factor: i32,
    /// `offsets.topic.segment.bytes`.
    pub offsets_topic_segment_bytes: u32,
}

/// Bounds on sockets and requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    /// `socket.request.max.bytes`.
    pub request_max_bytes: usize,
    /// `socket.listen.backlog.size`.
    pub listen_backlog: u32,
    /// `max.connections`.
    pub max_connections: usize,
    /// `connections.max.idle.ms`; `None` is never.
    pub connections_max_idle: Option<Duration>,
    /// `queued.max.request.bytes`; `None` lets the node choose.
    pub queued_max_request_bytes: Option<usize>,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_session_slots: usize,
    /// `fetch.max.bytes`.
    pub fetch_max_bytes: usize,
    /// `request.timeout.ms`.
    pub request_timeout: Duration,
    /// `socket.connection.setup.timeout.ms`.
    pub connection_setup_timeout: Duration,
}

/// Mirroring on this broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorBrokerConfig {
    /// `mirror.topic.num.partitions`.
    pub topic_num_partitions: i32,
    /// `mirror.topic.replication.factor`.
    pub topic_replication_factor: i32,
    /// `mirror.num.replica.fetchers`.
    pub num_replica_fetchers: usize,
    /// `mirror.metadata.refresh.interval.ms`.
    pub metadata_refresh_interval: Duration,
    /// `mirror.failed.retry.initial.backoff.ms`.
    pub failed_retry_initial_backoff: Duration,
    /// `mirror.failed.retry.max.backoff.ms`.
    pub failed_retry_max_backoff: Duration,
    /// `mirror.failed.retry.max.attempts`.
    pub failed_retry_max_attempts: usize,
}

impl BrokerConfig {
    /// From the settings a node is started with.
    pub fn from_settings(settings: Properties, profile: Profile) -> Result<BrokerConfig, Error> {
        BrokerConfig::from_layers(Layers::fixed(settings, profile))
    }

    /// The same node under other dynamic settings: the cluster's defaults and its own.
    pub fn with_dynamic(
        &self,
        cluster: Properties,
        broker: Properties,
    ) -> Result<BrokerConfig, Error> {
        BrokerConfig::from_layers(self.layers.with_dynamic(cluster, broker))
    }

    /// From all layers; every fault is reported.
    pub fn from_layers(layers: Layers) -> Result<BrokerConfig, Error> {
        let (values, mut faults) = layers.resolve();
        let given = |name| values.list(name).unwrap_or(&[]);
        let roles = given("process.roles");
        let roles = Roles {
            broker: roles.iter().any(|role| role == "broker"),
            controller: roles.iter().any(|role| role == "controller"),
        };
        let listeners = listeners(
            &ListenerSettings {
                listeners: given("listeners"),
                advertised: given("advertised.listeners"),
                controller_names: given("controller.listener.names"),
                protocol_map: values.list("listener.security.protocol.map"),
            },
            &mut faults,
        );
        let log_dirs: Vec<PathBuf> = values
            .list("log.dirs")
            .or(values.list("log.dir"))
            .unwrap_or(&[])
            .iter()
            .map(PathBuf::from)
            .collect();
        let config = BrokerConfig {
            node_id: values.int("node.id"),
            roles,
            inter_broker_listener: values
                .text("inter.broker.listener.name")
                .map(|name| name.to_uppercase())
                .or_else(|| first_broker_listener(&listeners)),
            listeners,
            mirror_admin_listeners: upper(given("mirror.admin.listeners")),
            voters: voters(given("controller.quorum.voters"), &mut faults),
            log_dirs,
            rack: values.text("broker.rack"),
            controlled_shutdown_enable: values.boolean("controlled.shutdown.enable"),
            timing: timing(&values),
            num_partitions: values.int("num.partitions"),
            default_replication_factor: values.int("default.replication.factor"),
            auto_create_topics_enable: values.boolean("auto.create.topics.enable"),
            delete_topic_enable: values.boolean("delete.topic.enable"),
            topic_defaults: TopicConfig::defaults(&layers),
            replica_fetch: fetch("replica", values.millis("replica.socket.timeout.ms"), &values),
            mirror_fetch: fetch("mirror", values.millis("request.timeout.ms"), &values),
            groups: groups(&values),
            network: network(&values),
            mirror: mirror(&values),
            producer_id_expiration: values.millis("producer.id.expiration.ms"),
            layers,
        };
        config.check_required(&values, &mut faults);
        config.check_together(&mut faults);
        Error::from_faults(faults).map(|()| config)
    }

    /// The raw settings this came from.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The listener brokers use among themselves.
    pub fn inter_broker(&self) -> Option<&Listener> {
        let name = self.inter_broker_listener.as_ref()?;
        self.listeners.iter().find(|listener| listener.name == *name)
    }

    /// The first listener of the quorum.
    pub fn controller_listener(&self) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.kind == ListenerKind::Controller)
    }

    /// All built settings as a properties text, in order of name.
    pub fn dump(&self) -> String {
        let mut lines: Vec<String> = describe_broker(self)
            .into_iter()
            .filter_map(|entry| Some(format!("{}={}", entry.name, entry.value?)))
            .collect();
        lines.sort();
        lines.into_iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{line}");
            text
        })
    }

    fn check_required(&self, values: &Resolved, faults: &mut Vec<Fault>) {
        if values.optional_number("node.id").is_none()
            && !self.layers.fixed.contains_key("node.id")
        {
            faults.push(Fault::missing("node.id", "give each node of a cluster its own number"));
        }
        if values.list("process.roles").is_none_or(<[String]>::is_empty)
            && !self.layers.fixed.contains_key("process.roles")
        {
            faults.push(Fault::missing("process.roles", "write broker, controller, or both"));
        }
        if self.log_dirs.is_empty() {
            faults.push(Fault::missing("log.dirs", "say where the node keeps its data"));
        }
        if self.roles.controller && self.controller_listener().is_none() {
            faults.push(Fault::missing(
                "controller.listener.names",
                "name the listener in 'listeners' that the quorum uses",
            ));
        }
        if self.voters.is_empty() {
            faults.push(Fault::missing(
                "controller.quorum.voters",
                "list the controllers of the cluster, id@host:port each",
            ));
        }
    }

    fn check_together(&self, faults: &mut Vec<Fault>) {
        let mut conflict = |text: String| faults.push(Fault::conflict(text));
        let ids: BTreeSet<i32> = self.voters.iter().map(|voter| voter.node_id).collect();
        if ids.len() != self.voters.len() {
            conflict("'controller.quorum.voters' lists a node twice".to_owned());
        }
        if !ids.is_empty() && self.roles.controller != ids.contains(&self.node_id) {
            conflict(format!(
                "Node {} must be in 'controller.quorum.voters' exactly if 'process.roles' has \
                 controller",
                self.node_id
            ));
        }
        if self.roles.broker && first_broker_listener(&self.listeners).is_none() {
            conflict("A broker needs a listener that is not the controller's".to_owned());
        }
        if self.roles.broker
            && let Some(name) = &self.inter_broker_listener
            && self.inter_broker().is_none_or(|at| at.kind == ListenerKind::Controller)
        {
            conflict(format!(
                "'inter.broker.listener.name' is {name}, which is no listener for brokers"
            ));
        }
        for name in &self.mirror_admin_listeners {
            if !self.listeners.iter().any(|listener| listener.name == *name) {
                conflict(format!("'mirror.admin.listeners' names {name}, which is no listener"));
            }
        }
        if self.timing.broker_heartbeat * 2 > self.timing.broker_session {
            conflict(
                "'broker.session.timeout.ms' must be at least twice 'broker.heartbeat.interval.ms'"
                    .to_owned(),
            );
        }
        if self.groups.min_session_timeout > self.groups.max_session_timeout {
            conflict(
                "'group.min.session.timeout.ms' must not be above 'group.max.session.timeout.ms'"
                    .to_owned(),
            );
        }
        let wait = Duration::from_millis(u64::from(self.replica_fetch.wait_max_ms.unsigned_abs()));
        if wait > self.timing.replica_lag_time_max {
            conflict(
                "'replica.fetch.wait.max.ms' must not be above 'replica.lag.time.max.ms', or idle \
                 followers leave the in-sync replicas"
                    .to_owned(),
            );
        }
    }
}

/// Checks a run-time change of a broker setting; `None` removes it.
pub fn validate_broker_change(
    scope: ChangeScope,
    name: &str,
    value: Option<&str>,
) -> Result<(), Fault> {
    // What is not built cannot be set at the start either: that comes first.
    value.map_or(Ok(()), |raw| check(name, raw))?;
    check_scope(name, scope == ChangeScope::Broker)
}

/// Every built broker setting with its value and where that comes from.
pub fn describe_broker(config: &BrokerConfig) -> Vec<Described> {
    broker_keys::built()
        .map(|key| {
            let read_only = key.scope == Scope::ReadOnly;
            Described::new(key, read_only, broker_synonyms(key, config.layers()))
        })
        .collect()
}

fn first_broker_listener(listeners: &[Listener]) -> Option<String> {
    listeners
        .iter()
        .find(|listener| listener.kind == ListenerKind::Broker)
        .map(|listener| listener.name.clone())
}

fn upper(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.to_uppercase()).collect()
}

fn voters(entries: &[String], faults: &mut Vec<Fault>) -> Vec<Voter> {
    let name = "controller.quorum.voters";
    let mut voters = Vec::new();
    for entry in entries {
        let parts = entry.split_once('@');
        match parts.and_then(|(id, address)| Some((id.parse::<u16>().ok()?, address))) {
            None => faults.push(Fault::invalid(name, entry, "a voter is written id@host:port")),
            Some((id, address)) => match address.parse() {
                Ok(address) => voters.push(Voter { node_id: i32::from(id), address }),
                Err(reason) => faults.push(Fault::invalid(name, entry, reason)),
            },
        }
    }
    voters
}

fn timing(values: &Resolved) -> Timing {
    Timing {
        broker_heartbeat: values.millis("broker.heartbeat.interval.ms"),
        broker_session: values.millis("broker.session.timeout.ms"),
        replica_lag_time_max: values.millis("replica.lag.time.max.ms"),
        group_initial_rebalance_delay: values.millis("group.initial.rebalance.delay.ms"),
        ..Timing::server()
    }
    .with_election_timeout(values.millis("controller.quorum.election.timeout.ms"))
}

fn fetch(who: &str, request_timeout: Duration, values: &Resolved) -> FetchConfig {
    let int = |what: &str| values.int(&format!("{who}.fetch.{what}"));
    FetchConfig {
        max_bytes: int("max.bytes"),
        min_bytes: int("min.bytes"),
        response_max_bytes: int("response.max.bytes"),
        wait_max_ms: int("wait.max.ms"),
        backoff: values.millis(&format!("{who}.fetch.backoff.ms")),
        request_timeout,
    }
}

fn groups(values: &Resolved) -> GroupConfig {
    GroupConfig {
        min_session_timeout: values.millis("group.min.session.timeout.ms"),
        max_session_timeout: values.millis("group.max.session.timeout.ms"),
        initial_rebalance_delay: values.millis("group.initial.rebalance.delay.ms"),
        max_size: values.size("group.max.size"),
        offset_metadata_max_bytes: values.size("offset.metadata.max.bytes"),
        offsets_commit_timeout: values.millis("offsets.commit.timeout.ms"),
        offsets_topic_num_partitions: values.int("offsets.topic.num.partitions"),
        offsets_topic_replication_factor: values.int("offsets.topic.replication.factor"),
        offsets_topic_segment_bytes: u32::try_from(values.number("offsets.topic.segment.bytes"))
            .expect("the table says INT, at least 1"),
    }
}

fn network(values: &Resolved) -> NetworkConfig {
    let idle = values.number("connections.max.idle.ms");
    NetworkConfig {
        request_max_bytes: values.size("socket.request.max.bytes"),
        listen_backlog: u32::try_from(values.number("socket.listen.backlog.size"))
            .expect("the table says INT, at least 1"),
        max_connections: values.size("max.connections"),
        connections_max_idle: (idle >= 0).then(|| Duration::from_millis(idle.unsigned_abs())),
        queued_max_request_bytes: usize::try_from(values.number("queued.max.request.bytes")).ok(),
        fetch_session_slots: values.size("max.incremental.fetch.session.cache.slots"),
        fetch_max_bytes: values.size("fetch.max.bytes"),
        request_timeout: values.millis("request.timeout.ms"),
        connection_setup_timeout: values.millis("socket.connection.setup.timeout.ms"),
    }
}

fn mirror(values: &Resolved) -> MirrorBrokerConfig {
    MirrorBrokerConfig {
        topic_num_partitions: values.int("mirror.topic.num.partitions"),
        topic_replication_factor: values.int("mirror.topic.replication.factor"),
        num_replica_fetchers: values.size("mirror.num.replica.fetchers"),
        metadata_refresh_interval: values.millis("mirror.metadata.refresh.interval.ms"),
        failed_retry_initial_backoff: values.millis("mirror.failed.retry.initial.backoff.ms"),
        failed_retry_max_backoff: values.millis("mirror.failed.retry.max.backoff.ms"),
        failed_retry_max_attempts: values.size("mirror.failed.retry.max.attempts"),
    }
}

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;
