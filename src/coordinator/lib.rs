//! Event-sourced machines kept in internal topics, pure: consumer groups in `__consumer_offsets`,
//! mirror states in `__mirror_state`. Owns what a command means and which records it leaves;
//! never reads a clock, appends, waits or talks to anyone.
//!
//! # The contract with the actor that runs a machine
//!
//! One machine serves one partition of an internal topic, on the broker that leads it. The actor
//!
//! 1. makes an empty machine when its broker becomes the leader, reads the partition from its
//!    start to the high watermark and gives each record to [`Machine::replay`], in order; until
//!    then it answers COORDINATOR_LOAD_IN_PROGRESS itself. Then it calls [`Machine::on_loaded`]
//!    once.
//! 2. gives each request to [`Machine::handle`] under an id of its choosing, and carries out the
//!    effects in order. A request is answered by exactly one [`Effect::Reply`], at once or later.
//! 3. appends the records of an [`Effect::Append`] as one batch (more where they are too big for
//!    one), with acks = all, and tells [`Machine::on_appended`] when the batch is committed, that
//!    is below the high watermark, or has failed. Several appends may be under way; they are made
//!    and reported in the order given.
//! 4. keeps the timers: [`Effect::SetTimer`] replaces one of the same name, [`Machine::on_timer`]
//!    says that it went off. A timer that went off late, after `CancelTimer`, does no harm.
//! 5. calls [`Machine::on_resigned`] when its broker ceases to lead, sends the replies it
//!    returns, and drops the machine. Appends under way then are not reported any more.
//!
//! A reply leaves only after the records it depends on are committed. While leading, a machine
//! takes its own records into its state in `on_appended`; `replay` is for loading.

#[cfg(test)]
const GOLDEN: golden::Golden = golden::Golden::of(env!("CARGO_MANIFEST_DIR"));
pub mod groups;
pub mod machine;
pub mod mirror_state;
pub mod partition_for;
mod record_form;

pub use groups::{GroupCommand, GroupConfig, GroupMachine, GroupResponse, GroupTimer};
pub use machine::{Effect, Machine, Record, ReplayError, RequestId, Token};
pub use mirror_state::{MirrorStateCommand, MirrorStateMachine, MirrorStateResponse};
pub use partition_for::partition_for;
