//! What a caller sets to start consensus, and how it becomes openraft's configuration. Reads no
//! settings by itself.

use std::path::PathBuf;
use std::time::Duration;

use openraft::{Config, SnapshotPolicy};
use protocol::ids::NodeId;

use super::error::Error;
use super::raft_id::RaftId;
use super::store::memory::MemoryStore;

/// The most bytes one entry may have, as bincode.
pub const ENTRY_BYTES_MAX: usize = 32 << 20;

/// The most bytes of entries in one append call, unless a single entry is larger.
pub const APPEND_BYTES_MAX: usize = 1 << 20;

/// The most bytes a snapshot may have.
pub const SNAPSHOT_BYTES_MAX: usize = 1 << 30;

/// Bytes of a snapshot in one call.
pub const SNAPSHOT_CHUNK_BYTES: usize = 256 << 10;

/// How to start consensus on one node.
#[derive(Clone, Debug)]
pub struct ConsensusOptions {
    /// The member, see [`RaftId::of_directory`].
    pub raft_id: RaftId,
    /// The node the member is now.
    pub node_id: NodeId,
    /// For logs and errors only.
    pub cluster: String,
    /// Where the log, the vote and the snapshots live.
    pub store: Store,
    /// Heartbeats and elections.
    pub timing: Timing,
    /// A snapshot is built after this many entries; at least 1.
    pub snapshot_after_entries: u64,
    /// Entries that stay in the log after they are in a snapshot, for members that lag a little.
    pub keep_entries: u64,
    /// Seeds all randomness (election timeouts, tick phases). None takes the system's randomness;
    /// a simulation sets one, different for each node.
    pub seed: Option<u64>,
}

impl ConsensusOptions {
    /// Options with `dev` timing and the usual log bounds.
    #[must_use]
    pub fn new(raft_id: RaftId, node_id: NodeId, store: Store) -> ConsensusOptions {
        ConsensusOptions {
            raft_id,
            node_id,
            cluster: String::from("heliograph"),
            store,
            timing: Timing::dev(),
            snapshot_after_entries: 2_000,
            keep_entries: 500,
            seed: None,
        }
    }

    pub(crate) fn to_config(&self) -> Result<Config, Error> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let heartbeat = millis(self.timing.heartbeat);
        // openraft's follower waits out the leader's lease, which is its longest election timeout,
        // and then a random timeout: half of our longest silence each.
        let lease = millis(self.timing.election_max) / 2;
        let config = Config {
            cluster_name: self.cluster.clone(),
            heartbeat_interval: heartbeat,
            election_timeout_min: millis(self.timing.election_min)
                .saturating_sub(lease)
                .max(heartbeat.saturating_add(1)),
            election_timeout_max: lease,
            install_snapshot_timeout: millis(self.timing.call_timeout).saturating_mul(60),
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_after_entries),
            max_in_snapshot_log_to_keep: self.keep_entries,
            replication_lag_threshold: self.snapshot_after_entries.saturating_mul(2),
            purge_batch_size: (self.snapshot_after_entries / 8).max(1),
            // A metadata quorum proposes few, large batches: small queues save idle memory.
            api_channel_size: Some(4_096),
            notification_channel_size: Some(4_096),
            state_machine_channel_size: Some(256),
            enable_pre_vote: Some(true),
            // A restarted leader must win an election and apply an entry of its new term, or
            // `Leadership::ready` could be true before the image is complete.
            enable_leader_restore: Some(false),
            backoff: format!("{heartbeat}ms {}ms ..{}ms", heartbeat * 2, heartbeat * 8),
            ..Config::default()
        };
        config.validate().map_err(|error| Error::Options { reason: error.to_string() })
    }
}

/// Where a member keeps its state.
#[derive(Clone, Debug)]
pub enum Store {
    /// sled and snapshot files, on a thread of its own.
    Sled {
        /// The metadata directory.
        dir: PathBuf,
        /// Whether what is acknowledged survives a loss of power too: an fdatasync for each flush.
        /// Without it, it survives the death of every process.
        sync: bool,
    },
    /// In memory, on the caller's thread: deterministic, and able to lose what was not flushed.
    Memory(MemoryStore),
}

/// Heartbeats and elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A leader's interval between heartbeats.
    pub heartbeat: Duration,
    /// The shortest silence of the leader after which a voter stands for election. Never below
    /// half of `election_max` plus one heartbeat, to which smaller values are raised.
    pub election_min: Duration,
    /// The longest such silence; above two heartbeats. For the first half of it no vote is granted
    /// to anybody: that is how long a leader that hears from its quorum is sure to lead.
    pub election_max: Duration,
    /// How long one call with entries or a piece of a snapshot may take.
    pub call_timeout: Duration,
}

impl Timing {
    /// The timing of `dev` and `demo`: a killed leader is replaced in less than 200 ms.
    #[must_use]
    pub const fn dev() -> Timing {
        Timing {
            heartbeat: Duration::from_millis(40),
            election_min: Duration::from_millis(130),
            election_max: Duration::from_millis(180),
            call_timeout: Duration::from_millis(500),
        }
    }

    /// The timing of `server`, near Kafka's election timeout of 1 s: a killed leader is replaced
    /// in less than 2 s.
    #[must_use]
    pub const fn server() -> Timing {
        Timing {
            heartbeat: Duration::from_millis(250),
            election_min: Duration::from_millis(1_100),
            election_max: Duration::from_millis(1_700),
            call_timeout: Duration::from_secs(2),
        }
    }
}
