//! Settings: Kafka names, types, defaults, validation.
