//! The Kafka wire format: bytes in, structs out. No I/O, no async.

pub mod ids;
