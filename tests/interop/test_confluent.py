"""confluent-kafka (librdkafka) against the cluster under test."""

import threading

import harness
import pytest
from confluent_kafka import (Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException,
                             Producer, TopicPartition)
from confluent_kafka.admin import (AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions,
                                   NewTopic, OffsetSpec, ResourceType)

COUNT = 500


def create(sut, topic, partitions=3, **config):
    wanted = NewTopic(topic, partitions, sut.replication, config=config)
    admin = harness.admin(sut.bootstrap)
    admin.create_topics([wanted])[topic].result(20)
    return topic


def producer(sut, **settings):
    return Producer({"bootstrap.servers": sut.bootstrap, "acks": "all", "linger.ms": 5,
                     "log_level": 0, **settings})


def consumer(sut, group, **settings):
    return Consumer({"bootstrap.servers": sut.bootstrap, "group.id": group,
                     "auto.offset.reset": "earliest", "enable.auto.commit": False,
                     "log_level": 0, **settings})


def produce(sut, topic, count, prefix="", **settings):
    """Produces and returns {key: (partition, offset)} of what was acknowledged."""
    acknowledged, failed = {}, []

    def delivered(error, message):
        if error:
            failed.append(error)
        else:
            acknowledged[message.key().decode()] = (message.partition(), message.offset())
    client = producer(sut, **settings)
    for i in range(count):
        client.produce(topic, key=f"{prefix}{i}", value=f"value {i}", on_delivery=delivered)
        client.poll(0)
    assert client.flush(30) == 0
    assert not failed, failed[0]
    return acknowledged


def consume(client, count, timeout=30):
    """{key: (partition, offset)} of the next `count` records."""
    seen = {}

    def enough():
        for message in client.consume(1000, 0.2):
            if message.error():
                raise KafkaException(message.error())
            seen[message.key().decode()] = (message.partition(), message.offset())
        return len(seen) >= count
    harness.eventually(enough, timeout, f"{count} records", interval=0)
    return seen


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_produced_records_are_read_back(sut, unique, compression, idempotent):
    topic = create(sut, unique("confluent"))
    settings = {"compression.type": compression, "enable.idempotence": idempotent}
    acknowledged = produce(sut, topic, COUNT, **settings)
    client = consumer(sut, unique("group"))
    client.subscribe([topic])
    assert consume(client, COUNT) == acknowledged
    client.close()


@pytest.mark.parametrize("acks", ["0", "1"])
def test_weaker_acks(sut, unique, acks):
    topic = create(sut, unique("acks"), partitions=1)
    # Without acks nobody learns that a new topic's leader was not there yet: one record waits.
    produce(sut, topic, 1, prefix="first-", acks="1")
    produce(sut, topic, COUNT, acks=acks)
    client = consumer(sut, unique("group"))
    client.subscribe([topic])
    assert len(consume(client, COUNT + 1)) == COUNT + 1
    client.close()


def test_topics_are_created_on_first_use(sut, unique):
    topic = unique("automatic")
    acknowledged = produce(sut, topic, 10)
    client = consumer(sut, unique("group"))
    client.subscribe([topic])
    assert consume(client, 10) == acknowledged
    client.close()


@pytest.mark.quick
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group_rebalances_and_resumes_from_its_commit(sut, unique, strategy):
    topic, group = create(sut, unique("groups"), partitions=4), unique("group")
    first = consumer(sut, group, **{"partition.assignment.strategy": strategy})
    second = consumer(sut, group, **{"partition.assignment.strategy": strategy})
    first.subscribe([topic])
    second.subscribe([topic])

    def shared():
        first.poll(0.1), second.poll(0.1)
        return len(first.assignment()) == 2 and len(second.assignment()) == 2
    harness.eventually(shared, 30, "two members with two partitions each", interval=0)
    second.close()

    def alone():
        first.poll(0.1)
        return len(first.assignment()) == 4
    harness.eventually(alone, 30, "all partitions with the member that stayed", interval=0)
    produce(sut, topic, COUNT)
    consume(first, COUNT)
    first.commit(asynchronous=False)
    first.close()
    later = consumer(sut, group)
    later.subscribe([topic])
    fresh = produce(sut, topic, 20, prefix="later-")
    assert consume(later, 20) == fresh
    later.close()


def test_static_members_and_a_dead_member(sut, unique):
    topic, group = create(sut, unique("static"), partitions=2), unique("group")
    short = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    first = consumer(sut, group, **{"group.instance.id": "one", **short})
    first.subscribe([topic])
    harness.eventually(lambda: first.poll(0.1) or first.assignment(), 20, "an assignment")
    admin = harness.admin(sut.bootstrap)
    described = admin.describe_consumer_groups([group])[group].result(10)
    assert [member.group_instance_id for member in described.members] == ["one"]
    assert described.state.name == "STABLE"
    assert {tp.topic for tp in described.members[0].assignment.topic_partitions} == {topic}
    first.close()


def test_groups_are_listed_and_their_offsets_altered(sut, unique):
    topic, group = create(sut, unique("offsets"), partitions=1), unique("group")
    produce(sut, topic, 100)
    client = consumer(sut, group)
    client.subscribe([topic])
    consume(client, 100)
    client.commit(asynchronous=False)
    client.close()
    admin = harness.admin(sut.bootstrap)
    listed = admin.list_consumer_groups().result(10)
    assert group in {entry.group_id for entry in listed.valid}
    assert not listed.errors
    request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    answer = admin.list_consumer_group_offsets(request)[group].result(10)
    assert answer.topic_partitions[0].offset == 100
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 40)])]
    admin.alter_consumer_group_offsets(wanted)[group].result(10)
    again = consumer(sut, group)
    again.subscribe([topic])
    assert min(offset for _, offset in consume(again, 60).values()) == 40
    again.close()


def test_offsets_by_time_and_watermarks(sut, unique):
    topic = create(sut, unique("times"), partitions=1)
    client = producer(sut)
    for i in range(100):
        client.produce(topic, key=str(i), value="x", timestamp=1_700_000_000_000 + i * 1000)
    assert client.flush(20) == 0
    reader = consumer(sut, unique("group"))
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 100)
    asked = TopicPartition(topic, 0, 1_700_000_000_000 + 41_500)
    assert reader.offsets_for_times([asked], timeout=10)[0].offset == 42
    later = TopicPartition(topic, 0, 1_900_000_000_000)
    assert reader.offsets_for_times([later], timeout=10)[0].offset in (-1, 100)
    reader.close()
    admin = harness.admin(sut.bootstrap)
    for spec, offset in ((OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 100),
                         (OffsetSpec.max_timestamp(), 99)):
        found = admin.list_offsets({TopicPartition(topic, 0): spec})
        assert list(found.values())[0].result(10).offset == offset


@pytest.mark.quick
def test_admin_calls(sut, unique):
    admin = harness.admin(sut.bootstrap)
    topic = create(sut, unique("admin"), partitions=2, **{"max.message.bytes": "123456"})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(10)
    described = harness.eventually(
        lambda: (found := list(admin.list_topics(topic, timeout=10).topics.values())[0])
        and len(found.partitions) == 4 and found, 10, "four partitions")
    assert all(len(p.replicas) == sut.replication for p in described.partitions.values())
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(10)
    assert entries["max.message.bytes"].value == "123456"
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[
        ConfigEntry("segment.ms", "777777", incremental_operation=AlterConfigOpType.SET)])
    admin.incremental_alter_configs([change])[change].result(10)
    harness.eventually(lambda: admin.describe_configs([resource])[resource].result(10)
                       ["segment.ms"].value == "777777", 10, "the altered config")
    cluster = admin.describe_cluster().result(10)
    assert len(cluster.nodes) == sut.nodes and cluster.cluster_id == sut.cluster_id
    admin.delete_topics([topic])[topic].result(10)
    harness.eventually(lambda: topic not in admin.list_topics(timeout=5).topics, 10, "deletion")


NOT_ACTED_ON = {"cleanup.policy": "compact", "retention.ms": "60000", "retention.bytes": "1",
                "flush.ms": "5", "file.delete.delay.ms": "1", "compression.gzip.level": "2",
                "remote.storage.enable": "true", "delete.retention.ms": "5"}
WHAT_IS_THE_CASE = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1",
                    "file.delete.delay.ms": "0", "remote.storage.enable": "false"}


@pytest.mark.quick
def test_settings_that_nothing_acts_on_are_refused(sut, unique):
    """What they ask for would silently not happen: neither a new nor an old topic gets them."""
    if sut.name == "kafka":
        pytest.skip("Kafka acts on them")
    admin = harness.admin(sut.bootstrap)
    old = create(sut, unique("old"), partitions=1, **WHAT_IS_THE_CASE)
    for key, value in NOT_ACTED_ON.items():
        name = unique("new")
        with pytest.raises(KafkaException) as made:
            admin.create_topics([NewTopic(name, 1, config={key: value})])[name].result(10)
        change = ConfigResource(ResourceType.TOPIC, old, incremental_configs=[
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)])
        with pytest.raises(KafkaException) as altered:
            admin.incremental_alter_configs([change])[change].result(10)
        for refused in (made, altered):
            error = refused.value.args[0]
            assert error.code() == KafkaError.INVALID_CONFIG, (key, error)
            assert f"'{key}' is not built yet" in error.str(), error


def test_bad_writes_get_kafkas_codes(sut, unique):
    topic = create(sut, unique("small"), partitions=1, **{"max.message.bytes": "2000"})
    errors = []
    client = producer(sut, **{"message.max.bytes": 1_000_000})
    client.produce(topic, value=b"x" * 10_000, on_delivery=lambda e, _: errors.append(e))
    client.flush(20)
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_an_offset_out_of_range_resets(sut, unique):
    topic = create(sut, unique("range"), partitions=1)
    produce(sut, topic, 10)
    reader = consumer(sut, unique("group"))
    reader.assign([TopicPartition(topic, 0, 5000)])
    assert len(consume(reader, 10)) == 10
    reader.close()
    strict = consumer(sut, unique("group"), **{"auto.offset.reset": "error"})
    strict.assign([TopicPartition(topic, 0, 5000)])
    message = harness.eventually(lambda: strict.poll(0.2), 20, "an error for a bad offset")
    assert message.error().code() in (KafkaError._AUTO_OFFSET_RESET,
                                      KafkaError.OFFSET_OUT_OF_RANGE)
    strict.close()


def test_a_long_poll_wakes_up_at_once(sut, unique):
    topic = create(sut, unique("wakes"), partitions=1)
    reader = consumer(sut, unique("group"), **{"fetch.wait.max.ms": 10_000})
    reader.assign([TopicPartition(topic, 0, 0)])
    reader.poll(1.0)
    threading.Timer(1.0, lambda: produce(sut, topic, 1)).start()
    assert reader.poll(6.0) is not None
    reader.close()
