"""kafka-python against the cluster under test: a client with a codec of its own."""

import harness
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic


@pytest.fixture
def topic(sut, unique):
    name = unique("pure-python")
    admin = KafkaAdminClient(bootstrap_servers=sut.bootstrap)
    admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=sut.replication)])
    admin.close()
    return name


def consumer(sut, group, **settings):
    return KafkaConsumer(bootstrap_servers=sut.bootstrap, group_id=group,
                         auto_offset_reset="earliest", enable_auto_commit=False, **settings)


def take(client, count):
    seen = {}

    def enough():
        for records in client.poll(timeout_ms=200).values():
            for record in records:
                seen[record.key.decode()] = (record.partition, record.offset)
        return len(seen) >= count
    harness.eventually(enough, 30, f"{count} records", interval=0)
    return seen


@pytest.mark.quick
@pytest.mark.parametrize("idempotent", [False, True])
def test_produced_records_are_read_back(sut, topic, unique, idempotent):
    producer = KafkaProducer(bootstrap_servers=sut.bootstrap, acks="all", linger_ms=5,
                             enable_idempotence=idempotent, compression_type="gzip")
    sent = {str(i): producer.send(topic, key=str(i).encode(), value=b"v" * 100)
            for i in range(300)}
    acknowledged = {}
    for key, future in sent.items():
        metadata = future.get(20)
        acknowledged[key] = (metadata.partition, metadata.offset)
    producer.close()
    client = consumer(sut, unique("group"))
    client.subscribe([topic])
    assert take(client, 300) == acknowledged
    client.commit()
    committed = sum(client.committed(TopicPartition(topic, p)) or 0 for p in range(2))
    assert committed == 300
    client.close()


def test_admin_calls(sut, topic):
    admin = KafkaAdminClient(bootstrap_servers=sut.bootstrap)
    assert topic in admin.list_topics()
    described = admin.describe_topics([topic])[0]
    assert len(described["partitions"]) == 2
    admin.delete_topics([topic])
    harness.eventually(lambda: topic not in admin.list_topics(), 10, "the deletion")
    admin.close()
