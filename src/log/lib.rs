//! One partition's files and the log directory's writer: std::fs, no async.

pub mod lease;
pub mod log_dir;
pub mod read_view;

pub mod config;
pub mod error;

pub mod aborted;
pub mod checkpoint;
pub mod disk;
pub mod epochs;
pub mod producers;

mod command;
pub mod offset_index;
pub mod time_index;

pub use config::{LogConfig, TimestampKind};
pub use error::Error;
pub use lease::{Append, Appended, Lease, LogId, Origin, Reply, Truncated};
pub use log_dir::{Driver, LogDir};
pub use read_view::{Listener, ReadBatches, ReadMode, ReadUpTo, ReadView, Role, Serving};
