//! The metadata quorum: elections, the replicated log, and the image it builds, behind one handle.
//! The only part of the workspace that names openraft and sled. Decides nothing about metadata and
//! knows no address.
//!
//! ```text
//! propose ──► proposer ──► openraft ──► log_storage ──► store (sled thread | in place)
//!                             │  ▲
//!            network ◄────────┤  └─────────── server ◄── on_rpc
//!          (Transport)        └──► state_machine ──► published, image
//! ```
//!
//! Everything but a store on disk runs as tasks on the tokio runtime that called
//! [`Consensus::start`]; when that runtime is shut down, the store closes by itself and its
//! [`StoreGuard`] opens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ClientWriteError, InitializeError, RaftError};
use protocol::ids::NodeId;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

mod error;
mod options;
mod raft_id;
mod transport;

mod leadership;
mod metrics;
mod proposer;
mod published;

mod log_storage;
mod network;
mod rpc;
mod runtime;
mod server;
mod snapshot;
mod state_machine;
mod store;
mod type_config;

pub use error::{Error, ProposeError};
pub use leadership::Leadership;
pub use metrics::Metrics;
pub use options::{ConsensusOptions, Store, Timing};
pub use proposer::LogIndex;
pub use published::Published;
pub use raft_id::RaftId;
pub use store::handle::StoreGuard;
pub use store::memory::MemoryStore;
pub use transport::{BoxFuture, Transport, TransportError};

use log_storage::LogStorage;
use network::Network;
use proposer::Proposal;
use published::Publisher;
use server::Server;
use state_machine::StateMachine;
use store::handle::{Abort, StoreHandle};
use type_config::{Raft, RecordBatch, Runtime, TypeConfig};

use crate::{MetadataImage, MetadataRecord};

/// One member of the metadata quorum. A cheap handle; consensus stops when the last one is
/// dropped.
#[derive(Clone)]
pub struct Consensus {
    shared: Arc<Shared>,
}

struct Shared {
    raft_id: RaftId,
    node_id: NodeId,
    raft: Raft,
    server: Server,
    publisher: Arc<Publisher>,
    proposals: mpsc::UnboundedSender<Proposal>,
    leadership: watch::Receiver<Leadership>,
    abort: Abort,
    guard: StoreGuard,
    /// Stops openraft when it is set, or dropped with the last handle.
    stop: watch::Sender<bool>,
}

impl Consensus {
    /// Opens the store, restores the image, and starts to take part: as what the log says, or
    /// waiting to be initialised or added.
    ///
    /// # Errors
    /// [`Error::InUse`] while the previous owner's guard is closed, [`Error::Corrupt`],
    /// [`Error::ForeignStore`], [`Error::Io`], [`Error::Options`], [`Error::Stopped`].
    pub async fn start(
        options: ConsensusOptions,
        transport: Arc<dyn Transport>,
    ) -> Result<Consensus, Error> {
        let seed = options.seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().1);
        // openraft draws its random numbers from the task's seed, and its tasks inherit it.
        Runtime::scope(seed, Consensus::start_seeded(options, transport)).await
    }

    async fn start_seeded(
        options: ConsensusOptions,
        transport: Arc<dyn Transport>,
    ) -> Result<Consensus, Error> {
        let config = Arc::new(options.to_config()?);
        let dir = match &options.store {
            Store::Sled { dir, sync: _ } => dir.clone(),
            Store::Memory(_) => PathBuf::from("memory"),
        };
        let (store, guard, abort) = StoreHandle::open(&options.store).await?;
        let log = LogStorage::open(store.clone(), options.raft_id, dir.clone()).await?;
        let publisher = Arc::new(Publisher::new());
        let state_machine = StateMachine::new(Arc::clone(&publisher), store);
        let network =
            Network { own: options.raft_id, transport, call_timeout: options.timing.call_timeout };
        let started = Raft::new(options.raft_id, config, network, log, state_machine);
        // What openraft cannot read back at a start is damage: no peer is involved yet.
        let raft = Box::pin(started)
            .await
            .map_err(|fatal| Error::Corrupt { dir, reason: fatal.to_string() })?;
        let metrics = raft.metrics();
        let (leadership_sender, leadership) =
            watch::channel(Leadership::from_metrics(&metrics.borrow_watched()));
        let (proposals, queue) = mpsc::unbounded_channel();
        let (stop, stopping) = watch::channel(false);
        let patience = options.timing.election_max;
        tokio::spawn(leadership::follow(raft.clone(), leadership_sender, stopping, patience));
        tokio::spawn(proposer::serve(raft.clone(), queue));
        let server = Server::new(options.raft_id, raft.clone());
        let (raft_id, node_id) = (options.raft_id, options.node_id);
        let shared = Shared {
            raft_id,
            node_id,
            raft,
            server,
            publisher,
            proposals,
            leadership,
            abort,
            guard,
            stop,
        };
        Ok(Consensus { shared: Arc::new(shared) })
    }

    /// This member.
    #[must_use]
    pub fn raft_id(&self) -> RaftId {
        self.shared.raft_id
    }

    /// This node.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        self.shared.node_id
    }

    /// Forms the cluster of `members`, this node among them, and stands for election at once. To
    /// be called on one node, and only when every member's store is empty.
    ///
    /// # Errors
    /// [`Error::AlreadyInitialised`], [`Error::NotAMember`], [`Error::Stopped`].
    pub async fn initialise(&self, members: BTreeMap<RaftId, NodeId>) -> Result<(), Error> {
        let initialised = self.unless_crashed(self.shared.raft.initialize(members)).await?;
        initialised.map_err(|error| match error {
            RaftError::APIError(InitializeError::NotAllowed(_)) => Error::AlreadyInitialised,
            RaftError::APIError(InitializeError::NotInMembers(_)) => {
                Error::NotAMember { own: self.shared.raft_id }
            }
            RaftError::Fatal(fatal) => stopped(&fatal),
        })
    }

    /// Whether this member is part of a cluster: it has log entries or a vote.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn is_initialised(&self) -> Result<bool, Error> {
        let initialised = self.unless_crashed(self.shared.raft.is_initialized()).await?;
        initialised.map_err(|fatal| stopped(&fatal))
    }

    /// Proposes one batch as one entry. The batch is queued when this returns, behind all earlier
    /// ones; the future resolves when the entry is applied to this node's image. A leader cut off
    /// from its quorum answers only once it learns of another leader: set a deadline.
    ///
    /// # Errors
    /// See [`ProposeError`].
    pub fn propose(
        &self,
        records: Vec<MetadataRecord>,
    ) -> impl Future<Output = Result<LogIndex, ProposeError>> + Send + use<> {
        proposer::propose(&self.shared.proposals, RecordBatch::new(records), None)
    }

    /// As [`Consensus::propose`], but refused unless this node still leads in `term`: what was
    /// decided on an earlier leadership's image must not reach the log of a later one.
    ///
    /// # Errors
    /// See [`ProposeError`].
    pub fn propose_in_term(
        &self,
        term: u64,
        records: Vec<MetadataRecord>,
    ) -> impl Future<Output = Result<LogIndex, ProposeError>> + Send + use<> {
        proposer::propose(&self.shared.proposals, RecordBatch::new(records), Some(term))
    }

    /// Who leads.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.shared.leadership.clone()
    }

    /// The image as of the last applied entry.
    #[must_use]
    pub fn image(&self) -> Arc<MetadataImage> {
        self.shared.publisher.image()
    }

    /// The cell that always holds the image, for readers on hot paths.
    #[must_use]
    pub fn image_cell(&self) -> Arc<ArcSwap<MetadataImage>> {
        self.shared.publisher.image_cell()
    }

    /// Every change from now on, after a first [`Published`] that holds all of the image. There is
    /// one subscriber: an earlier receiver ends.
    #[must_use]
    pub fn published(&self) -> mpsc::UnboundedReceiver<Published> {
        self.shared.publisher.subscribe()
    }

    /// Where the member stands.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::from_raft(&self.shared.raft.metrics().borrow_watched())
    }

    /// Adds a member that gets the log but has no vote; nothing if it is one. Leader only. Returns
    /// when the change is committed, not when the member has caught up: see [`Metrics::matched`].
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Membership`], [`Error::Stopped`].
    pub async fn add_learner(&self, member: RaftId, node: NodeId) -> Result<(), Error> {
        let added = self.unless_crashed(self.shared.raft.add_learner(member, node, false));
        Box::pin(added).await?.map(|_response| ()).map_err(membership_error)
    }

    /// Makes `voters` the voters; each must be a member already. Former voters stay as learners if
    /// `keep_removed`, and leave otherwise. Leader only. Returns when the change is committed.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Membership`], [`Error::Stopped`].
    pub async fn change_membership(
        &self,
        voters: BTreeSet<RaftId>,
        keep_removed: bool,
    ) -> Result<(), Error> {
        let change = self.shared.raft.change_membership(voters, keep_removed);
        let changed = Box::pin(self.unless_crashed(change)).await?;
        changed.map(|_response| ()).map_err(membership_error)
    }

    /// Removes learners. Leader only. Returns when the change is committed.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::Membership`], [`Error::Stopped`].
    pub async fn remove_learners(&self, members: BTreeSet<RaftId>) -> Result<(), Error> {
        let change = ChangeMembers::RemoveNodes(members);
        let change = self.shared.raft.change_membership(change, false);
        let changed = Box::pin(self.unless_crashed(change)).await?;
        changed.map(|_response| ()).map_err(membership_error)
    }

    /// Hands the leadership to a voter, if this node leads; returns before it happens.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn transfer_leadership(&self, to: RaftId) -> Result<(), Error> {
        let trigger = self.shared.raft.trigger();
        let asked = self.unless_crashed(trigger.transfer_leader(to)).await?;
        asked.map_err(|fatal| stopped(&fatal))
    }

    /// Builds a snapshot now; returns before it is built.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn build_snapshot(&self) -> Result<(), Error> {
        let asked = self.unless_crashed(self.shared.raft.trigger().snapshot()).await?;
        asked.map_err(|fatal| stopped(&fatal))
    }

    /// Answers another member's call, the bytes its [`Transport`] was given.
    pub async fn on_rpc(&self, request: Bytes) -> Bytes {
        let answered = Box::pin(self.unless_crashed(self.shared.server.on_rpc(&request))).await;
        answered.unwrap_or_else(|error| server::refusal(error.to_string()))
    }

    /// Lets go of a call into openraft when this member crashes: openraft panics in a call that
    /// waits for its core while the core's runtime goes away.
    async fn unless_crashed<T>(&self, call: impl Future<Output = T>) -> Result<T, Error> {
        let mut stop = self.shared.stop.subscribe();
        tokio::select! {
            biased;
            _set = stop.wait_for(|stop| *stop) => {
                Err(Error::Stopped { reason: "this member crashes".to_owned() })
            }
            answer = call => Ok(answer),
        }
    }

    /// Opens when the store is closed and the directory may be opened again. Take it at the start:
    /// it works after a crash too.
    #[must_use]
    pub fn guard(&self) -> StoreGuard {
        self.shared.guard.clone()
    }

    /// Stops taking part; what was acknowledged is on disk. Await the guard before opening the
    /// directory again.
    pub async fn shutdown(&self) -> StoreGuard {
        if let Err(error) = self.shared.raft.shutdown().await {
            tracing::warn!(%error, "the Raft core ended abnormally");
        }
        self.guard()
    }

    /// Stops as a crash does: nothing that is queued for the store is written any more. Works
    /// after the runtime was shut down too. Await the guard before opening the directory again.
    pub fn crash(&self) -> StoreGuard {
        self.shared.abort.set();
        self.shared.stop.send_replace(true);
        self.guard()
    }
}

impl std::fmt::Debug for Consensus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Consensus(member {}, node {})", self.raft_id(), self.node_id())
    }
}

fn stopped(fatal: &openraft::errors::Fatal<TypeConfig>) -> Error {
    Error::Stopped { reason: fatal.to_string() }
}

fn membership_error(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> Error {
    match error {
        RaftError::APIError(
            ClientWriteError::ForwardToLeader(forward)
            | ClientWriteError::LogEntryDiscarded(forward),
        ) => Error::NotLeader { leader: forward.leader_node },
        RaftError::APIError(ClientWriteError::ChangeMembershipError(refused)) => {
            Error::Membership { reason: refused.to_string() }
        }
        RaftError::APIError(ClientWriteError::PreconditionFailed(refused)) => {
            Error::Membership { reason: refused.to_string() }
        }
        RaftError::Fatal(fatal) => stopped(&fatal),
    }
}

#[cfg(test)]
mod cluster_test;
#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod suite_test;
#[cfg(test)]
mod test_cluster;
