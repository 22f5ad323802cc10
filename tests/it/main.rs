//! Integration tests: whole clusters, real sockets, temporary folders.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "all of it is tests: what fails here fails a test"
)]

mod cluster;
mod fixture;
mod mirror_commands;

mod first_start;
mod mirror_log_start;
mod mirror_started_again;
mod mirror_supervision;
mod replication;
mod serving;
mod supervision;
mod topics;
