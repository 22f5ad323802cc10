//! The rules of cluster mirroring (KIP-1279), pure: what a mirror partition does next, where its
//! log and the source's agree, when an epoch must rise, what a pattern or a name means. Owns
//! decisions; never reads a clock, a file or a socket, and never runs anything.
//!
//! Start with [`machine`]: its table says how a partition gets from PREPARING to STOPPED.

pub mod describe;
pub mod epochs;
#[cfg(test)]
const GOLDEN: golden::Golden = golden::Golden::of(env!("CARGO_MANIFEST_DIR"));
pub mod keys;
pub mod machine;
pub mod names;
pub mod patterns;
pub mod retry;
pub mod states;
pub mod stored;
pub mod truncation;

pub use machine::{
    ControllerRecord, FetchEvent, LeadershipEvent, LogEvent, MirrorEffect, MirrorEvent,
    PartitionMirror, SourceError, SourceEvent, SourceFacts, StopEvent, StoreEvent, WriteAccess,
    next,
};
pub use states::{DesiredState, MirrorState};
pub use stored::{NEVER_COMPARED, StoredState};
