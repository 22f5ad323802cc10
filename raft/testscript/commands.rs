//! The commands of the scripts: each makes a request, decides, replays and prints.

use std::collections::BTreeMap;

use protocol::ids::{BrokerEpoch, DirectoryId, NodeId, PartitionIndex, TopicId, TopicName};
use protocol::messages::*;
use uuid::Uuid;

use super::arguments::{Arguments, numbers, parse};
use super::{Script, show};
use crate::cluster::RegistrationArgs;
use crate::decision::Decision;
use crate::error::Error;
use crate::features::bootstrap_records;
use crate::image::Settings;
use crate::mirrors::{StartArgs, StateTopicArgs};
use crate::topics::{Authority, CONSUMER_OFFSETS, CreationArgs, InternalTopic, TopicDefaults};

const KEYS: [&str; 25] = [
    "dir",
    "incarnation",
    "epoch",
    "prev",
    "offset",
    "partitions",
    "rf",
    "assign",
    "config",
    "id",
    "as",
    "by",
    "isr",
    "leader_epoch",
    "partition_epoch",
    "epochs",
    "source",
    "include",
    "exclude",
    "pattern",
    "lme",
    "lmo",
    "state_rf",
    "seed",
    "cluster",
];

pub(super) fn run(script: &mut Script, line: &str) -> Vec<String> {
    let args = Arguments::new(line, &KEYS);
    match line.split_whitespace().next().expect("a command has a name") {
        "boot" => script.apply(bootstrap_records("here")),
        "brokers" => brokers(script, &args),
        "register" => register(script, &args),
        "heartbeat" => heartbeat(script, &args),
        "fence" => fence(script, &args),
        "unregister" => {
            let decision = script.image.decide_unregister_broker(NodeId(args.number(0)));
            finish(script, decision, |()| Vec::new())
        }
        "preferred" => {
            let decision = script.image.decide_preferred_leaders(100);
            finish(script, Ok(decision), |moved| vec![format!("= {moved} moved")])
        }
        "leaderless" => {
            let decision = script.image.decide_leaderless_partitions();
            finish(script, Ok(decision), |changed| vec![format!("= {changed} elected")])
        }
        "create" => create(script, &args),
        "offsets-topic" => offsets_topic(script, &args),
        "delete" => delete(script, &args),
        "grow" => grow(script, &args),
        "isr" => isr(script, &args),
        "bump" => bump(script, &args),
        "alter" => alter(script, &args),
        "ids" => producer_ids(script, &args),
        "mirror" => mirror(script, &args),
        "source" => source(script, &args),
        "start" => start(script, &args),
        "stop" => stop(script, &args),
        "stopped" => stopped(script, &args),
        "show" => match args.word(0) {
            "brokers" => show::brokers(&script.image),
            "topics" => show::topics(&script.image),
            "mirrors" => show::mirrors(&script.image),
            other => panic!("nothing to show of '{other}'"),
        },
        other => panic!("no command '{other}'"),
    }
}

fn finish<T>(
    script: &mut Script,
    decision: Result<Decision<T>, Error>,
    answer: impl FnOnce(T) -> Vec<String>,
) -> Vec<String> {
    match decision {
        Err(error) => vec![refused(error.code(), &error.to_string())],
        Ok(decision) => {
            let mut lines = script.apply(decision.records);
            lines.extend(answer(decision.response));
            lines
        }
    }
}

fn refused(code: i16, message: &str) -> String {
    format!("! {code} {message}")
}

fn outcome(name: &str, code: i16, message: Option<&str>) -> String {
    match (code, message) {
        (0, None) => format!("= {name} ok"),
        (0, Some(note)) => format!("= {name} ok: {note}"),
        (code, message) => format!("! {name} {code} {}", message.unwrap_or("")),
    }
}

/// Registers brokers at epochs 100 + id and unfences them, without output.
fn brokers(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    for word in &args.words {
        let id: i64 = parse(word);
        let epoch = 100 + id;
        run(script, &format!("register {id} dir={id} incarnation={epoch} epoch={epoch}"));
        run(script, &format!("heartbeat {id} offset={epoch}"));
    }
    Vec::new()
}

fn register(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let broker_epoch = args.get("epoch").expect("an epoch");
    let request = BrokerRegistrationRequest {
        broker_id: args.number(0),
        cluster_id: args.text("cluster").unwrap_or("here").to_owned(),
        incarnation_id: Uuid::from_u128(args.get("incarnation").expect("an incarnation")),
        listeners: vec![broker_registration_request::Listener {
            name: "PLAINTEXT".to_owned(),
            host: "localhost".to_owned(),
            port: 9092,
            security_protocol: 0,
        }],
        previous_broker_epoch: args.get("prev").unwrap_or(-1),
        ..BrokerRegistrationRequest::default()
    };
    let registration = RegistrationArgs {
        directory_id: DirectoryId(Uuid::from_u128(args.get("dir").expect("a directory"))),
        broker_epoch: BrokerEpoch(broker_epoch),
        session_alive: args.has("alive"),
    };
    let decision = script.image.decide_register_broker(&request, registration);
    let topic = |script: &Script, id| script.image.topics.name_of(id).cloned();
    let names = decision.as_ref().map(|d| {
        let sole = d.response.unclean_sole_member.iter();
        sole.map(|at| {
            let name = topic(script, at.topic_id).expect("it exists");
            format!("= alone in the ISR of {name}-{} after an unclean stop", at.partition)
        })
        .collect::<Vec<_>>()
    });
    let alone = names.unwrap_or_default();
    finish(script, decision, |registered| {
        let mut lines = vec![format!("= epoch {}", registered.response.broker_epoch)];
        lines.extend(alone);
        lines
    })
}

fn heartbeat(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let id = args.number(0);
    let known = script.image.cluster.broker(NodeId(id)).map_or(-1, |broker| broker.epoch.0);
    let request = BrokerHeartbeatRequest {
        broker_id: id,
        broker_epoch: args.get("epoch").unwrap_or(known),
        current_metadata_offset: args.get("offset").unwrap_or(i64::MAX),
        want_fence: args.has("fence"),
        want_shut_down: args.has("shutdown"),
        ..BrokerHeartbeatRequest::default()
    };
    let decision = script.image.decide_heartbeat(&request);
    finish(script, decision, |r| {
        vec![format!(
            "= caught_up={} fenced={} should_shut_down={}",
            r.is_caught_up, r.is_fenced, r.should_shut_down
        )]
    })
}

fn fence(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let id = NodeId(args.number(0));
    let known = script.image.cluster.broker(id).map_or(BrokerEpoch::NONE, |broker| broker.epoch);
    let epoch = args.get("epoch").map_or(known, BrokerEpoch);
    let decision = script.image.decide_fence_broker(id, epoch);
    finish(script, decision, |()| Vec::new())
}

fn create(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let configs = args.texts("config");
    let configs = configs.iter().map(|pair| {
        let (name, value) = pair.split_once(':').expect("config=key:value");
        create_topics_request::CreatableTopicConfig {
            name: name.to_owned(),
            value: Some(value.to_owned()),
        }
    });
    let assignments = args.text("assign").unwrap_or("").split(';').filter(|p| !p.is_empty());
    let assignments = assignments.zip(0..).map(|(brokers, partition_index)| {
        create_topics_request::CreatableReplicaAssignment {
            partition_index,
            broker_ids: numbers(brokers),
        }
    });
    let topic = create_topics_request::CreatableTopic {
        name: String::new(),
        num_partitions: args.get("partitions").unwrap_or(-1),
        replication_factor: args.get("rf").unwrap_or(-1),
        assignments: assignments.collect(),
        configs: configs.collect(),
        mirror_info: args
            .get("id")
            .map(|id| create_topics_request::MirrorInfo { topic_id: Uuid::from_u128(id) }),
    };
    let names = args.words.iter().filter(|word| **word != "validate");
    let request = CreateTopicsRequest {
        topics: names
            .map(|name| create_topics_request::CreatableTopic {
                name: (*name).to_owned(),
                ..topic.clone()
            })
            .collect(),
        validate_only: args.has("validate"),
        ..CreateTopicsRequest::default()
    };
    let topic_ids = script.fresh_ids(request.topics.len());
    let creation = CreationArgs {
        defaults: TopicDefaults { partitions: 1, replication_factor: 3 },
        topic_ids: &topic_ids,
        seed: args.get("seed").unwrap_or(0),
    };
    let decision = script.image.decide_create_topics(&request, creation);
    finish(script, Ok(decision), |response| {
        let result = |t: &create_topics_response::CreatableTopicResult| {
            outcome(&t.name, t.error_code, t.error_message.as_deref())
        };
        response.topics.iter().map(result).collect()
    })
}

fn offsets_topic(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let topic = InternalTopic {
        name: CONSUMER_OFFSETS,
        partitions: args.get("partitions").unwrap_or(1),
        replication_factor: args.get("rf").unwrap_or(3),
        segment_bytes: Some(104_857_600),
    };
    let id = script.fresh_ids(1)[0];
    let decision = script.image.decide_create_internal_topic(topic, id, 0);
    finish(script, decision, |id| vec![format!("= id {}", show::short(id))])
}

fn delete(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let by_name = args.words.iter().map(|name| delete_topics_request::DeleteTopicState {
        name: Some((*name).to_owned()),
        topic_id: Uuid::nil(),
    });
    let by_id = args.texts("id");
    let by_id = by_id.iter().map(|id| delete_topics_request::DeleteTopicState {
        name: None,
        topic_id: Uuid::from_u128(parse(id)),
    });
    let request =
        DeleteTopicsRequest { topics: by_name.chain(by_id).collect(), ..Default::default() };
    let decision = script.image.decide_delete_topics(&request);
    finish(script, Ok(decision), |response| {
        let result = |t: &delete_topics_response::DeletableTopicResult| {
            let name = t.name.as_deref().unwrap_or("?");
            outcome(name, t.error_code, t.error_message.as_deref())
        };
        response.responses.iter().map(result).collect()
    })
}

fn grow(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let assignments = args.text("assign").map(|text| {
        let lists = text.split(';').map(numbers);
        lists
            .map(|broker_ids| create_partitions_request::CreatePartitionsAssignment { broker_ids })
            .collect()
    });
    let request = CreatePartitionsRequest {
        topics: vec![create_partitions_request::CreatePartitionsTopic {
            name: args.word(0).to_owned(),
            count: args.number(1),
            assignments,
        }],
        ..CreatePartitionsRequest::default()
    };
    let authority =
        if args.text("as") == Some("mirror") { Authority::Mirror } else { Authority::Client };
    let decision = script.image.decide_create_partitions(&request, authority, 0);
    finish(script, Ok(decision), |response| {
        let result = |t: &create_partitions_response::CreatePartitionsTopicResult| {
            outcome(&t.name, t.error_code, t.error_message.as_deref())
        };
        response.results.iter().map(result).collect()
    })
}

fn topic_id(script: &Script, name: &str) -> TopicId {
    script.image.topics.id_of(name).unwrap_or(TopicId(Uuid::from_u128(0xffff)))
}

fn isr(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let (id, index) = (topic_id(script, args.word(0)), PartitionIndex(args.number(1)));
    let topic = script.image.topics.by_id(id);
    let image = topic.and_then(|topic| topic.partitions.get(&index)).cloned();
    let broker: i32 = args.get("by").expect("by=broker");
    let registered =
        |id: i32| script.image.cluster.broker(NodeId(id)).map_or(-1, |broker| broker.epoch.0);
    let isr: Vec<i32> = numbers(args.text("isr").expect("isr=ids"));
    let epochs: Vec<i64> = match args.text("epochs") {
        Some(text) => numbers(text),
        None => isr.iter().map(|id| registered(*id)).collect(),
    };
    let states = isr.iter().zip(epochs).map(|(broker_id, broker_epoch)| {
        alter_partition_request::BrokerState { broker_id: *broker_id, broker_epoch }
    });
    let partition = alter_partition_request::PartitionData {
        partition_index: index.0,
        leader_epoch: args
            .get("leader_epoch")
            .unwrap_or_else(|| image.as_ref().map_or(0, |p| p.leader_epoch.0)),
        new_isr_with_epochs: states.collect(),
        partition_epoch: args
            .get("partition_epoch")
            .unwrap_or_else(|| image.as_ref().map_or(0, |p| p.partition_epoch.0)),
        ..Default::default()
    };
    let request = AlterPartitionRequest {
        broker_id: broker,
        broker_epoch: args.get("epoch").unwrap_or_else(|| registered(broker)),
        topics: vec![alter_partition_request::TopicData {
            topic_id: id.0,
            partitions: vec![partition],
        }],
    };
    let decision = script.image.decide_alter_partition(&request);
    finish(script, decision, |response| {
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        let line = |p: &alter_partition_response::PartitionData| {
            if p.error_code != 0 {
                return format!("! {}", p.error_code);
            }
            format!("= isr={:?} epoch={}/{}", p.isr, p.leader_epoch, p.partition_epoch)
        };
        partitions.map(line).collect()
    })
}

fn bump(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let request = BumpLeaderEpochsRequest {
        topics: vec![bump_leader_epochs_request::BumpTopic {
            topic_id: topic_id(script, args.word(0)).0,
            partitions: vec![bump_leader_epochs_request::BumpPartition {
                partition_index: args.number(1),
                min_leader_epoch: args.number(2),
            }],
        }],
    };
    let decision = script.image.decide_bump_leader_epochs(&request);
    finish(script, Ok(decision), |response| {
        let line = |t: &bump_leader_epochs_response::BumpTopicResult| {
            format!("= '{}' {}", t.topic_name, t.partitions[0].error_code)
        };
        response.topics.iter().map(line).collect()
    })
}

fn alter(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let resource_type = match args.word(0) {
        "topic" => 2,
        "broker" => 4,
        "mirror" => 64,
        other => parse(other),
    };
    let name = if args.word(1) == "default" { "" } else { args.word(1) };
    let entry = |word: &&str| {
        let (operation, rest) = word.split_once(':').expect("operation:key=value");
        let (key, value) = rest.split_once('=').map_or((rest, None), |(k, v)| (k, Some(v)));
        let codes = ["set", "delete", "append", "subtract"];
        let code = codes.iter().position(|known| *known == operation).unwrap_or(9);
        incremental_alter_configs_request::AlterableConfig {
            name: key.to_owned(),
            config_operation: i8::try_from(code).expect("a small number"),
            value: value.map(str::to_owned),
        }
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![incremental_alter_configs_request::AlterConfigsResource {
            resource_type,
            resource_name: name.to_owned(),
            configs: args.words[2..].iter().map(entry).collect(),
        }],
        validate_only: false,
    };
    let decision = script.image.decide_incremental_alter_configs(&request);
    finish(script, Ok(decision), |response| {
        let result = |r: &incremental_alter_configs_response::AlterConfigsResourceResponse| {
            outcome(&r.resource_name, r.error_code, r.error_message.as_deref())
        };
        response.responses.iter().map(result).collect()
    })
}

fn producer_ids(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let broker_id = args.number(0);
    let known = script.image.cluster.broker(NodeId(broker_id)).map_or(-1, |b| b.epoch.0);
    let broker_epoch = args.get("epoch").unwrap_or(known);
    let request = AllocateProducerIdsRequest { broker_id, broker_epoch };
    let decision = script.image.decide_allocate_producer_ids(&request);
    finish(script, decision, |r| {
        vec![format!("= {} ids from {}", r.producer_id_len, r.producer_id_start)]
    })
}

fn mirror(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let config = args.words[1..].iter().map(|word| {
        let (name, value) = word.split_once('=').expect("key=value");
        create_mirror_request::CreatableMirrorConfig {
            name: name.to_owned(),
            value: Some(value.to_owned()),
        }
    });
    let request = CreateMirrorRequest {
        mirror_name: args.word(0).to_owned(),
        config: config.collect(),
        source_cluster_id: args.text("source").map(str::to_owned),
    };
    let state = StateTopicArgs {
        partitions: 2,
        replication_factor: args.get("state_rf").unwrap_or(3),
        topic_id: TopicId(Uuid::from_u128(900)),
        seed: 0,
    };
    let decision = script.image.decide_create_mirror(&request, state);
    finish(script, decision, |_| vec!["= created".to_owned()])
}

fn source(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let request = RecordSourceClusterIdRequest {
        mirror: args.word(0).to_owned(),
        cluster_id: args.word(1).to_owned(),
    };
    let decision = script.image.decide_record_source_cluster_id(&request);
    finish(script, decision, |_| vec!["= known".to_owned()])
}

/// `start MIRROR NAME[:ID[:PARTITIONS]]… [config=NAME:KEY:VALUE]`.
fn start(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let topics = args.words[1..].iter().map(|word| {
        let mut parts = word.split(':');
        start_mirror_topics_request::StartMirrorTopic {
            topic_name: parts.next().unwrap_or_default().to_owned(),
            topic_id: Uuid::from_u128(parts.next().map_or(0, parse)),
            num_partitions: parts.next().map_or(1, parse),
        }
    });
    let request = StartMirrorTopicsRequest {
        mirror_name: args.word(0).to_owned(),
        topics: topics.collect(),
        include_patterns: args.texts("include"),
        exclude_patterns: args.texts("exclude"),
        ..StartMirrorTopicsRequest::default()
    };
    let mut configs: BTreeMap<TopicName, Settings> = BTreeMap::new();
    for text in args.texts("config") {
        let parts: Vec<&str> = text.split(':').collect();
        let settings = configs.entry(TopicName::from(parts[0])).or_default();
        settings.insert(parts[1].to_owned(), parts[2].to_owned());
    }
    let topic_ids = script.fresh_ids(request.topics.len());
    let args = StartArgs {
        replication_factor: args.get("rf").unwrap_or(2),
        topic_ids: &topic_ids,
        configs: &configs,
        seed: 0,
    };
    let decision = script.image.decide_start_mirror_topics(&request, args);
    finish(script, decision, |response| {
        let result = |t: &start_mirror_topics_response::MirrorTopicResult| {
            outcome(&t.name, t.error_code, t.error_message.as_deref())
        };
        response.topics.iter().map(result).collect()
    })
}

fn stop(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let topics = args.words[1..].iter().map(|name| stop_mirror_topics_request::StopMirrorTopic {
        topic_id: Uuid::nil(),
        topic_name: (*name).to_owned(),
    });
    let request = StopMirrorTopicsRequest {
        mirror_name: args.word(0).to_owned(),
        topics: topics.collect(),
        patterns: args.texts("pattern"),
    };
    let decision = script.image.decide_stop_mirror_topics(&request);
    finish(script, decision, |response| {
        let result = |t: &stop_mirror_topics_response::MirrorTopicResult| {
            outcome(&t.name, t.error_code, t.error_message.as_deref())
        };
        response.topics.iter().map(result).collect()
    })
}

fn stopped(script: &mut Script, args: &Arguments<'_>) -> Vec<String> {
    let (id, partition) = (topic_id(script, args.word(1)), args.number(2));
    let request = RecordMirrorStopsRequest {
        mirror: args.word(0).to_owned(),
        topics: vec![record_mirror_stops_request::StoppedTopic {
            topic_id: id.0,
            partitions: vec![record_mirror_stops_request::StoppedPartition {
                partition,
                leader_epoch: args.get("epoch").unwrap_or(0),
                last_mirror_epoch: args.get("lme").unwrap_or(-1),
                last_mirrored_offset: args.get("lmo").unwrap_or(-1),
            }],
        }],
    };
    let decision = script.image.decide_record_mirror_stops(&request);
    finish(script, decision, |response| {
        vec![format!("= {}", response.topics[0].partitions[0].error_code)]
    })
}
