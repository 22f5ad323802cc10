//! Everything that runs: the actors of a node and the server side of a connection.
//!
//! This is the only crate that names ractor. Decisions live in the pure crates; the actors here
//! translate, execute and wait. The tree, from the process down:
//!
//! ```text
//! Process
//! └─ Cluster(name)
//!    └─ Node(id)
//!       ├─ Storage        the log directory
//!       ├─ Controller     Raft handle, ControllerLeader while leading, MetadataPublisher
//!       ├─ Lifecycle      registration and heartbeats of the broker
//!       ├─ Replicas       Partition, ReplicaFetcher
//!       ├─ Coordinators   CoordinatorShard
//!       ├─ Mirrors        Mirror, MirrorFetcher
//!       └─ Edge           Listener; connections are tasks it owns
//! ```

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the wire's enums have a hundred variants, of which a handler means one; the rule \
              binds where our own machines are: in mirror, raft and log"
)]

pub mod dev;

pub mod process;

pub mod cluster;

pub mod node;

pub mod directory;

pub mod storage;

pub mod controller;

pub mod lifecycle;

pub mod replicas;

pub mod partition;

pub mod coordinators;

pub mod mirrors;

pub mod connection;

pub mod edge;

pub mod peers;

pub mod fetch_session;

pub mod admission;

pub mod supervision;

pub mod children;

pub mod settings;

pub mod crash_point;

#[cfg(feature = "failpoints")]
pub mod chaos;

pub mod clock;

pub mod entropy;

pub mod runtimes;

pub mod error;

pub use error::Error;
