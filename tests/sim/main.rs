//! Whole clusters on one thread, in time that stands still until nothing is left to do: one seed
//! gives one run. Memory for disks, casts for links; no socket, no file, no clock of the machine.
//!
//! `HELIOGRAPH_SIM_SEEDS=100` runs so many seeds instead of the gate's few,
//! `HELIOGRAPH_SIM_SEEDS=7..9` those from 7 on and below 9. A failed run names its seed and shows
//! its last events; with `HELIOGRAPH_SIM_TRACES=<folder>` it leaves its whole trace there.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "all of it is tests: what fails here fails a test"
)]

mod simulation;
mod trace;

mod client;
mod reader;
mod writer;

mod check;
mod nemesis;

mod acknowledged_is_kept;
mod power_loss;
