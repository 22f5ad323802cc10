//! Settings: Kafka's names, types, defaults and ranges; raw text → validated → plain data, once.
//!
//! Owns the tables of broker, topic and mirror settings, their validation, and what
//! DescribeConfigs says of them. It never reads a file, a clock or a global: text comes in, plain
//! data goes out. Unknown keys are refused, a setting whose function is not built is refused, and
//! all faults of one set of settings are reported together.

pub mod schema;

mod broker;
mod broker_keys;
mod broker_not_built;
mod describe;
mod error;
mod host_port;
mod layers;
mod listener;
mod mirror;
mod mirror_keys;
mod properties;
mod timing;
mod topic;
mod topic_keys;

pub use broker::{
    BrokerConfig, ChangeScope, FetchConfig, GroupConfig, MirrorBrokerConfig, NetworkConfig, Roles,
    Voter, describe_broker, validate_broker_change,
};
pub use describe::{Described, Source, Synonym};
pub use error::{Error, Fault};
pub use host_port::HostPort;
pub use layers::Layers;
pub use listener::{Listener, ListenerKind};
pub use mirror::{
    MirrorConfig, check_mirror_change, describe_mirror, mirror_keys, needs_reconnect,
    redacted_mirror_value,
};
pub use properties::{Properties, parse_properties};
pub use timing::{Profile, Timing};
pub use topic::{
    CleanupPolicy, CompressionType, MIRROR_NAME, TimestampType, TopicConfig,
    check_copied_topic_setting, check_topic_setting, describe_topic, topic_keys,
};
