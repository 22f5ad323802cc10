//! The codec's outer ring: every message in every version, against itself, against hostile
//! bytes, against Kafka's own layouts and classes, and against the committed vectors.
//!
//! Two tests need Kafka's jars, which `scripts/kafka.sh fetch` brings.

#[cfg(test)]
mod filling;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod java;
#[cfg(test)]
mod kafka_libs;
#[cfg(test)]
mod layouts;
#[cfg(test)]
mod round_trip;
#[path = "../../generator/schema.rs"]
#[cfg(test)]
mod schema;
#[cfg(test)]
mod vectors;
