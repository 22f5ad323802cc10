//! Log directories on the real disk, with their writer's thread: read by Kafka's own tool, read
//! while they are truncated, locked, and with few open files.
//!
//! One test needs Kafka's jars, which `scripts/kafka.sh fetch` brings.

#[cfg(test)]
mod directory;
#[cfg(test)]
mod kafka_dump;
#[cfg(test)]
mod readers;
#[cfg(test)]
mod setup;
