//! Tests of broker and topic settings: what is accepted, what is refused, what is shown.

use std::collections::BTreeMap;

use crate::*;

fn settings(pairs: &[(&str, &str)]) -> Properties {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn minimal(more: &[(&str, &str)]) -> Properties {
    let mut all = settings(&[
        ("node.id", "1"),
        ("process.roles", "broker,controller"),
        ("listeners", "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"),
        ("controller.listener.names", "CONTROLLER"),
        ("controller.quorum.voters", "1@127.0.0.1:0"),
        ("log.dirs", "/tmp/a,/tmp/b"),
    ]);
    all.extend(settings(more));
    all
}

fn broker(more: &[(&str, &str)]) -> BrokerConfig {
    BrokerConfig::from_settings(minimal(more), Profile::Server).unwrap()
}

#[test]
fn defaults_are_kafkas() {
    let config = broker(&[]);
    assert_eq!(
        config.timing,
        Timing { raft_heartbeat: config.timing.raft_heartbeat, ..Timing::server() }
    );
    assert_eq!(config.topic_defaults, TopicConfig::default());
    assert_eq!(config.network.request_max_bytes, 104_857_600);
    assert_eq!(config.groups.offsets_topic_num_partitions, 50);
    assert_eq!(config.mirror.topic_num_partitions, 50);
    assert_eq!(config.inter_broker_listener.as_deref(), Some("PLAINTEXT"));
    assert_eq!(config.controller_listener().unwrap().name, "CONTROLLER");
}

#[test]
fn topic_defaults_equal_the_table() {
    let all: BTreeMap<String, String> = topic_keys()
        .iter()
        .filter_map(|key| Some((key.name.to_owned(), key.default?.to_owned())))
        .collect();
    let config = TopicConfig::effective(&all, &broker(&[])).unwrap();
    assert_eq!(config, TopicConfig::default());
}

#[test]
fn the_dev_profile_is_the_dev_timing() {
    let config = BrokerConfig::from_settings(minimal(&[]), Profile::Dev).unwrap();
    assert_eq!(config.timing, Timing::dev());
}

#[test]
fn the_sample_file_is_valid() {
    let sample = parse_properties(include_str!("dev.properties")).unwrap();
    let config = BrokerConfig::from_settings(sample, Profile::Server).unwrap();
    assert_eq!(config.timing, Timing::dev());
    assert_eq!(config.voters.len(), 3);
}

#[test]
fn every_fault_is_reported_at_once() {
    let error = BrokerConfig::from_settings(
        settings(&[
            ("process.roles", "broker"),
            ("listeners", "PLAINTEXT://:9092,INTERNAL://:9093"),
            ("num.partition", "3"),
            ("min.insync.replicas", "0"),
            ("log.retention.hours", "24"),
            ("ssl.keystore.password", "hunter2"),
        ]),
        Profile::Server,
    )
    .unwrap_err();
    let text = error.to_string();
    for part in [
        "Did you mean 'num.partitions'?",
        "Invalid value '0' for 'min.insync.replicas': it must be at least 1.",
        "'log.retention.hours' is not built yet: remove it or leave it at its default 168.",
        "'ssl.keystore.password' is not built yet: remove it.",
        "Listener INTERNAL has no security protocol",
        "'node.id' is required",
        "'log.dirs' is required",
        "'controller.quorum.voters' is required",
    ] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    assert_eq!(error.faults().len(), 8, "{text}");
    assert!(!text.contains("hunter2"));
}

#[test]
fn a_kafka_file_with_defaults_spelled_out_is_accepted() {
    broker(&[
        ("num.network.threads", "3"),
        ("log.retention.hours", "168"),
        ("log.cleanup.policy", "delete"),
        ("sasl.enabled.mechanisms", "GSSAPI"),
    ]);
}

#[test]
fn secure_listeners_are_refused() {
    let text = BrokerConfig::from_settings(
        minimal(&[("listeners", "SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0")]),
        Profile::Server,
    )
    .unwrap_err()
    .to_string();
    assert!(text.contains("Listener SSL asks for SSL, which is not built yet"), "{text}");
}

#[test]
fn dynamic_values_come_before_static_ones() {
    let config = broker(&[("message.max.bytes", "2000")]);
    let config = config
        .with_dynamic(
            settings(&[("message.max.bytes", "3000"), ("log.segment.bytes", "2097152")]),
            settings(&[("message.max.bytes", "4000")]),
        )
        .unwrap();
    assert_eq!(config.topic_defaults.max_message_bytes, 4000);
    assert_eq!(config.topic_defaults.segment_bytes, 2_097_152);
    let shown = describe_broker(&config);
    let entry = shown.iter().find(|entry| entry.name == "message.max.bytes").unwrap();
    assert_eq!((entry.value.as_deref(), entry.source), (Some("4000"), Source::DynamicBroker));
    let sources: Vec<i8> = entry.synonyms.iter().map(|synonym| synonym.source.id()).collect();
    assert_eq!(sources, [2, 3, 4, 5]);
}

#[test]
fn start_settings_cannot_change_at_run_time() {
    let fault = validate_broker_change(ChangeScope::Broker, "node.id", Some("2")).unwrap_err();
    assert!(matches!(fault, Fault::ReadOnly { .. }));
    let fault = validate_broker_change(ChangeScope::Broker, "log.retention.ms", Some("5"));
    assert!(matches!(fault, Err(Fault::NotBuilt { .. })), "{fault:?}");
    assert!(validate_broker_change(ChangeScope::Cluster, "message.max.bytes", Some("1")).is_ok());
    assert!(validate_broker_change(ChangeScope::Cluster, "message.max.bytes", None).is_ok());
    assert!(validate_broker_change(ChangeScope::Cluster, "message.max.bytes", Some("x")).is_err());
    assert!(validate_broker_change(ChangeScope::Cluster, "nonsense", None).is_err());
}

#[test]
fn unclean_elections_are_allowed_for_all_brokers_or_none() {
    let name = "unclean.leader.election.enable";
    assert!(validate_broker_change(ChangeScope::Cluster, name, Some("true")).is_ok());
    let fault = validate_broker_change(ChangeScope::Broker, name, Some("true")).unwrap_err();
    assert!(matches!(fault, Fault::ClusterDefaultOnly { .. }), "{fault}");
    let start = |value| BrokerConfig::from_settings(minimal(&[(name, value)]), Profile::Server);
    assert!(start("false").is_ok());
    assert!(start("true").is_err());
    assert!(check_topic_setting(name, "true").is_ok());
}

#[test]
fn topic_settings_are_checked_one_by_one() {
    assert!(check_topic_setting("retention.ms", "-1").is_ok());
    assert!(check_topic_setting("retention.ms", "604800000").is_ok());
    assert!(check_topic_setting("cleanup.policy", "delete").is_ok());
    assert!(check_topic_setting("remote.storage.enable", "false").is_ok());
    for (name, value) in [
        ("retention.ms", "-2"),
        ("cleanup.policy", "shred"),
        ("segment.bytes", "14"),
        ("remote.storage.enable", "true"),
        ("no.such.key", "1"),
        ("compression.gzip.level", "0"),
    ] {
        assert!(check_topic_setting(name, value).is_err(), "{name}={value}");
        assert!(check_copied_topic_setting(name, value).is_err(), "{name}={value}");
    }
}

#[test]
fn what_nothing_acts_on_is_copied_from_a_source_and_refused_to_clients() {
    for (name, value) in [
        ("cleanup.policy", "compact,delete"),
        ("compression.gzip.level", "2"),
        ("file.delete.delay.ms", "1"),
        ("flush.ms", "1000"),
        ("min.cleanable.dirty.ratio", "0.1"),
        ("retention.bytes", "1000"),
        ("retention.ms", "3600000"),
        ("segment.jitter.ms", "1"),
    ] {
        assert!(check_copied_topic_setting(name, value).is_ok(), "{name}={value}");
        let fault = check_topic_setting(name, value).unwrap_err();
        assert!(matches!(fault, Fault::NotBuilt { .. }), "{fault}");
    }
}

#[test]
fn a_topic_shows_where_its_values_come_from() {
    let config = broker(&[("log.segment.bytes", "2097152"), ("log.roll.hours", "2")]);
    let own = settings(&[("retention.ms", "1000")]);
    let shown = describe_topic(&own, &config);
    let find = |name: &str| shown.iter().find(|entry| entry.name == name).unwrap();
    let retention = find("retention.ms");
    assert_eq!(
        (retention.value.as_deref(), retention.source),
        (Some("1000"), Source::DynamicTopic)
    );
    let segment = find("segment.bytes");
    assert_eq!(
        (segment.value.as_deref(), segment.source),
        (Some("2097152"), Source::StaticBroker)
    );
    assert_eq!(segment.synonyms[0].name, "log.segment.bytes");
    assert_eq!(find("segment.ms").value.as_deref(), Some("7200000"));
    assert_eq!(find("flush.ms").value.as_deref(), Some("9223372036854775807"));
    assert_eq!(find("flush.ms").source, Source::Default);
    let effective = TopicConfig::effective(&own, &config).unwrap();
    assert_eq!(effective.segment_ms, 7_200_000);
}

#[test]
fn the_dump_reads_back() {
    let config = broker(&[("message.max.bytes", "2000")]);
    let again =
        BrokerConfig::from_settings(parse_properties(&config.dump()).unwrap(), Profile::Server)
            .unwrap();
    assert_eq!(again.topic_defaults, config.topic_defaults);
    assert_eq!(again.listeners, config.listeners);
}

#[test]
fn every_default_in_the_tables_is_of_its_type() {
    for name in crate::broker_keys::names() {
        let key = crate::broker_keys::find(name).unwrap();
        let _ = key.default_value();
    }
    for key in topic_keys().iter().chain(mirror_keys()) {
        let _ = key.default_value();
        for synonym in key.synonyms {
            assert!(crate::broker_keys::find(synonym).is_some(), "{synonym}");
        }
    }
}
