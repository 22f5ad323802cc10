//! One partition's files and the log directory's writer: std::fs, no async.
//!
//! Read it in this order: [`LogDir`] takes commands and gives out leases; its writer runs them on
//! the logs; [`ReadView`] is what everyone else reads. Beside those: the files of a log, the disk
//! they lie on, and the rules of producers and epochs.

pub mod lease;
pub mod log_dir;
pub mod read_view;

pub mod config;
pub mod error;

mod command;
mod partition_log;
mod syncer;
mod writer;

mod active_segment;
pub mod offset_index;
mod scan;
mod segment;
pub mod time_index;

pub mod aborted;
pub mod checkpoint;
mod checkpoints;
pub mod epochs;
pub mod producers;

pub mod disk;
pub mod open_files;

pub use config::{LogConfig, TimestampKind};
pub use disk::{Disk, MemoryDisk, ReadMode};
pub use error::Error;
pub use lease::{Append, Appended, Lease, LogId, Origin, Reply, Truncated};
pub use log_dir::{Driver, LogDir, LogDirOptions};
pub use open_files::OpenFiles;
pub use read_view::{Listener, ReadBatches, ReadUpTo, ReadView, Role, Serving, TimestampedOffset};
