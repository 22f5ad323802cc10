//! A node's directory: how its parts find each other. It holds handles and shared words, starts
//! nothing and decides nothing.
//!
//! Handles are swapped when an actor is restarted, so nobody keeps one for longer than a request.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use log::{LogConfig, LogDir};
use net::ByteBudget;
use parking_lot::RwLock;
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{BrokerEpoch, DirectoryId, NodeId, TopicIdPartition, TopicName};
use raft::{MetadataDelta, MetadataImage};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::admission::{
    AppendBudget, NODE_APPEND_BYTES_MAX, NODE_REQUEST_BYTES_MAX, NODE_RESPONSE_BYTES_MAX,
    ResponseBudget,
};
use crate::clock::Clock;
use crate::connection::fetch_sessions::FetchSessions;
use crate::connection::producer_ids::ProducerIds;
use crate::controller::ControllerHandle;
use crate::coordinators::{CoordinatorsHandle, ShardHandle, ShardId};
use crate::edge::sockets::Sockets;
use crate::entropy::Entropy;
use crate::error::Error;
use crate::mirrors::shared_budget::{NODE_BYTES_MAX, SharedBudget};
use crate::mirrors::{MirrorHandle, MirrorsHandle};
use crate::partition::PartitionHandle;
use crate::peers::Peers;
use crate::replicas::ReplicasHandle;
use crate::replicas::isr_changes::IsrChange;
use crate::runtimes::RuntimeHandles;
use crate::settings::Settings;

/// Who a node is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Name of the cluster within this process; nodes of equal names are peers.
    pub cluster: String,
    /// The node's id.
    pub node_id: NodeId,
    /// Id of its log and metadata directory, made once.
    pub directory_id: DirectoryId,
    /// Logs of partitions lay in its folder when it started: it is not empty, whatever its
    /// metadata store says.
    pub had_logs: bool,
}

/// Everything a node's parts share.
pub struct Directory {
    /// Who this node is.
    pub identity: Identity,
    /// The settings it was started with; [`Directory::settings`] are those in force.
    pub config: Arc<config::BrokerConfig>,
    /// Its clock.
    pub clock: Clock,
    /// Its random numbers.
    pub entropy: Entropy,
    /// Where its work runs.
    pub runtimes: RuntimeHandles,
    /// Cancelled when the node crashes or stops: nothing is restarted after that.
    pub stopped: CancellationToken,
    /// Links to the other nodes of the cluster.
    pub peers: Peers,
    /// Bytes of produced records this node admits at a time.
    pub append_budget: AppendBudget,
    /// Bytes of requests this node reads and works on at a time.
    pub request_budget: ByteBudget,
    /// Bytes of records this node holds until clients have read them.
    pub response_budget: ResponseBudget,
    /// Fetch sessions of clients and followers.
    pub fetch_sessions: FetchSessions,
    /// What fetchers of all mirrors may hold in memory together.
    pub mirror_bytes: SharedBudget,
    /// Producer ids this node may give out.
    pub producer_ids: ProducerIds,
    settings: ArcSwap<Settings>,
    sockets: ArcSwapOption<Sockets>,
    image: ArcSwap<MetadataImage>,
    image_version: AtomicU64,
    /// Not a watch channel: that wakes its waiters in a random order, and no simulation repeats.
    image_changed: Notify,
    log_dir: ArcSwapOption<LogDir>,
    broker_epoch: AtomicI64,
    advertised: ArcSwap<Vec<raft::Listener>>,
    controller: ArcSwapOption<ControllerHandle>,
    parts: RwLock<Parts>,
    partitions: RwLock<BTreeMap<TopicIdPartition, PartitionHandle>>,
    shards: RwLock<BTreeMap<ShardId, ShardHandle>>,
    mirrors: RwLock<BTreeMap<String, MirrorHandle>>,
    isr_changes: mpsc::UnboundedSender<IsrChange>,
}

/// The supervisors that follow the image. Each enters itself before it reads the image for the
/// first time, so that no delta falls between.
#[derive(Debug, Default, Clone)]
pub struct Parts {
    /// Partitions and replica fetchers.
    pub replicas: Option<ReplicasHandle>,
    /// Coordinator shards.
    pub coordinators: Option<CoordinatorsHandle>,
    /// Mirrors.
    pub mirrors: Option<MirrorsHandle>,
}

/// What a directory is made from.
#[derive(Debug)]
pub struct DirectoryParts {
    /// See [`Directory::identity`].
    pub identity: Identity,
    /// See [`Directory::config`].
    pub config: Arc<config::BrokerConfig>,
    /// See [`Directory::clock`].
    pub clock: Clock,
    /// See [`Directory::entropy`].
    pub entropy: Entropy,
    /// See [`Directory::runtimes`].
    pub runtimes: RuntimeHandles,
    /// See [`Directory::peers`].
    pub peers: Peers,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Directory {
    /// A directory without any part yet, and the queue of ISR changes that `Replicas` empties. The
    /// queue is bounded by the partitions led: each has one change in it at most.
    pub fn new(parts: DirectoryParts) -> (Directory, mpsc::UnboundedReceiver<IsrChange>) {
        let (isr_changes, changes) = mpsc::unbounded_channel();
        let network = &parts.config.network;
        let request_bytes = network.queued_max_request_bytes.unwrap_or(NODE_REQUEST_BYTES_MAX);
        let request_budget = ByteBudget::new(request_bytes);
        let fetch_sessions = FetchSessions::new(network.fetch_session_slots);
        let settings = Settings::fixed(Arc::clone(&parts.config));
        let directory = Directory {
            identity: parts.identity,
            config: parts.config,
            clock: parts.clock,
            entropy: parts.entropy,
            runtimes: parts.runtimes,
            stopped: CancellationToken::new(),
            peers: parts.peers,
            append_budget: AppendBudget::new(NODE_APPEND_BYTES_MAX),
            request_budget,
            response_budget: ResponseBudget::new(NODE_RESPONSE_BYTES_MAX),
            fetch_sessions,
            mirror_bytes: SharedBudget::new(NODE_BYTES_MAX),
            producer_ids: ProducerIds::default(),
            settings: ArcSwap::from_pointee(settings),
            sockets: ArcSwapOption::empty(),
            image: ArcSwap::from_pointee(MetadataImage::default()),
            image_version: AtomicU64::new(0),
            image_changed: Notify::new(),
            log_dir: ArcSwapOption::empty(),
            broker_epoch: AtomicI64::new(-1),
            advertised: ArcSwap::default(),
            controller: ArcSwapOption::empty(),
            parts: RwLock::default(),
            partitions: RwLock::default(),
            shards: RwLock::default(),
            mirrors: RwLock::default(),
            isr_changes,
        };
        (directory, changes)
    }

    /// This node's id.
    pub fn node_id(&self) -> NodeId {
        self.identity.node_id
    }

    /// The newest image of the cluster this node has.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.image.load_full()
    }

    /// Publishes an image together with what changed in it. `version` is the applied Raft index.
    pub fn publish(&self, image: Arc<MetadataImage>, delta: &Arc<MetadataDelta>, version: u64) {
        if !delta.configs.is_empty() {
            let settings = self.settings.load().after(&image, self.node_id(), &delta.configs);
            self.settings.store(Arc::new(settings));
        }
        // Who is woken by the image finds the settings that belong to it.
        self.image.store(image);
        self.image_version.store(version, Ordering::Release);
        self.image_changed.notify_waiters();
        let parts = self.parts.read().clone();
        if let Some(replicas) = parts.replicas {
            replicas.image_changed(Arc::clone(delta));
        }
        if let Some(coordinators) = parts.coordinators {
            coordinators.image_changed(Arc::clone(delta));
        }
        if let Some(mirrors) = parts.mirrors {
            mirrors.image_changed(Arc::clone(delta));
        }
    }

    /// Lets a supervisor enter itself.
    pub fn set_part(&self, enter: impl FnOnce(&mut Parts)) {
        enter(&mut self.parts.write());
    }

    /// Tells the supervisor of partitions something, if it runs.
    pub fn with_replicas(&self, tell: impl FnOnce(&ReplicasHandle)) {
        let replicas = self.parts.read().replicas.clone();
        if let Some(replicas) = replicas {
            tell(&replicas);
        }
    }

    /// The Raft index of the newest entry the image has.
    pub fn image_version(&self) -> u64 {
        self.image_version.load(Ordering::Acquire)
    }

    /// Waits until the image satisfies `wanted`, at most `deadline` long. False when it did not.
    pub async fn wait_for_image(
        &self,
        deadline: Duration,
        wanted: impl Fn(&MetadataImage) -> bool,
    ) -> bool {
        let wait = async {
            loop {
                let changed = self.image_changed.notified();
                tokio::pin!(changed);
                // From here on no change is missed.
                changed.as_mut().enable();
                if wanted(&self.image()) {
                    return true;
                }
                changed.await;
            }
        };
        tokio::time::timeout(deadline, wait).await.unwrap_or(false)
    }

    /// The log directory.
    ///
    /// # Errors
    /// While it is not open: a partition's storage is away (56).
    pub fn log_dir(&self) -> Result<Arc<LogDir>, Error> {
        self.log_dir.load_full().ok_or_else(|| Error::refused(ErrorCode::KafkaStorageError))
    }

    /// Puts the log directory in, or takes it out.
    pub fn set_log_dir(&self, log_dir: Option<Arc<LogDir>>) {
        self.log_dir.store(log_dir);
    }

    /// The epoch of this broker's registration, −1 before the first.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.broker_epoch.load(Ordering::Acquire))
    }

    /// Takes over the epoch of a new registration.
    pub fn set_broker_epoch(&self, epoch: BrokerEpoch) {
        self.broker_epoch.store(epoch.0, Ordering::Release);
    }

    /// Where clients and brokers reach this broker, as its listeners told.
    pub fn advertised(&self) -> Arc<Vec<raft::Listener>> {
        self.advertised.load_full()
    }

    /// Tells where this broker is reached. Registration waits for it by the order of starts.
    pub fn set_advertised(&self, listeners: Vec<raft::Listener>) {
        self.advertised.store(Arc::new(listeners));
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Settings of a topic: its own, else this broker's.
    pub fn topic_config(&self, topic: &str) -> Arc<config::TopicConfig> {
        Arc::clone(self.settings.load().topic(topic))
    }

    /// Settings of a topic's logs: the topic's own, else this broker's.
    pub fn log_config(&self, topic: &TopicName) -> LogConfig {
        self.settings.load().log_config(topic)
    }

    /// min.insync.replicas of a topic.
    pub fn min_insync_replicas(&self, topic: &TopicName) -> usize {
        self.settings.load().topic(topic).min_insync_replicas
    }

    /// The sockets this node has bound; `None` before its edge started.
    pub fn sockets(&self) -> Option<Arc<Sockets>> {
        self.sockets.load_full()
    }

    /// Puts the bound sockets in.
    pub fn set_sockets(&self, sockets: Arc<Sockets>) {
        self.sockets.store(Some(sockets));
    }

    /// Gives the ports back and ends the connections. Returns when the ports may be bound again.
    pub async fn close_sockets(&self) {
        if let Some(sockets) = self.sockets.swap(None) {
            sockets.close().await;
        }
    }

    /// Gives the ports up and ends the connections, without waiting until they have ended.
    pub fn give_up_sockets(&self) {
        if let Some(sockets) = self.sockets.swap(None) {
            sockets.give_up();
        }
    }

    /// Whether a broker may be asked into an ISR: registered, unfenced, not shutting down.
    pub fn may_be_in_sync(&self, node: NodeId) -> bool {
        self.image().cluster.is_active(node)
    }

    /// Queues a change of the ISR for the controller; the answer comes to the partition.
    pub fn ask_isr_change(&self, change: IsrChange) {
        if self.isr_changes.send(change).is_err() {
            tracing::debug!("the node is stopping: no ISR change is asked for");
        }
    }

    /// The running actor of a partition.
    pub fn partition(&self, id: TopicIdPartition) -> Option<PartitionHandle> {
        self.partitions.read().get(&id).cloned()
    }

    /// Every running partition.
    pub fn partitions(&self) -> Vec<PartitionHandle> {
        self.partitions.read().values().cloned().collect()
    }

    /// Swaps the handle of a partition in, or takes it out.
    pub fn set_partition(&self, id: TopicIdPartition, handle: Option<PartitionHandle>) {
        let mut partitions = self.partitions.write();
        match handle {
            Some(handle) => partitions.insert(id, handle),
            None => partitions.remove(&id),
        };
    }

    /// The running coordinator of one partition of an internal topic.
    pub fn shard(&self, id: ShardId) -> Option<ShardHandle> {
        self.shards.read().get(&id).cloned()
    }

    /// Every running coordinator.
    pub fn shards(&self) -> Vec<(ShardId, ShardHandle)> {
        self.shards.read().iter().map(|(id, shard)| (*id, shard.clone())).collect()
    }

    /// Swaps the handle of a coordinator in, or takes it out.
    pub fn set_shard(&self, id: ShardId, handle: Option<ShardHandle>) {
        let mut shards = self.shards.write();
        match handle {
            Some(handle) => shards.insert(id, handle),
            None => shards.remove(&id),
        };
    }

    /// The running actor of a mirror.
    pub fn mirror(&self, name: &str) -> Option<MirrorHandle> {
        self.mirrors.read().get(name).cloned()
    }

    /// Swaps the handle of a mirror in, or takes it out.
    pub fn set_mirror(&self, name: &str, handle: Option<MirrorHandle>) {
        let mut mirrors = self.mirrors.write();
        match handle {
            Some(handle) => mirrors.insert(name.to_string(), handle),
            None => mirrors.remove(name),
        };
    }

    /// This node's controller part.
    ///
    /// # Errors
    /// While it is being restarted: NOT_CONTROLLER, which callers retry.
    pub fn controller(&self) -> Result<Arc<ControllerHandle>, Error> {
        self.controller.load_full().ok_or_else(|| Error::refused(ErrorCode::NotController))
    }

    /// Puts the controller part in, or takes it out.
    pub fn set_controller(&self, controller: Option<Arc<ControllerHandle>>) {
        self.controller.store(controller);
    }

    /// Sends a request to the leader of the quorum, wherever it is, and retries while there is
    /// none.
    ///
    /// # Errors
    /// No leader answered within `deadline`.
    pub async fn call_controller(
        self: &Arc<Self>,
        request: Request,
        deadline: Duration,
    ) -> Result<Response, Error> {
        crate::controller::client::call(self, request, deadline).await
    }
}
