//! One partition's files and the log directory's writer: std::fs, no async.
