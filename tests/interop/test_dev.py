"""`heliograph dev`: what it prints and writes, how it ends, what it refuses in one sentence."""

import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess

import harness
import load
import pytest
import wire
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType
from test_confluent import produce

pytestmark = pytest.mark.mirroring


def dev(*arguments, timeout=30):
    command = [harness.heliograph_binary(), "dev", *arguments]
    return subprocess.run([str(part) for part in command], text=True, capture_output=True,
                          timeout=timeout)


def assert_one_sentence(done, *words):
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], lines[0]


def test_ready_file_and_ctrl_c(tmp_path):
    with harness.Heliograph(nodes=3) as cluster:
        ready = cluster.ready
        assert set(ready) >= {"bootstrap", "cluster_id", "nodes", "ready_ms"}
        assert len(ready["bootstrap"].split(",")) == 3 and len(ready["cluster_id"]) == 22
        assert {node["id"] for node in ready["nodes"]} and ready["ready_ms"] < 60_000
        output = cluster.process.log.read_text()
        for node in ready["nodes"]:
            assert node["address"] in output
        assert cluster.process.interrupt(10) == 0


def test_a_temporary_folder_goes_with_it(tmp_path):
    ready = tmp_path / "ready.json"
    log = tmp_path / "log"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = harness.Process([str(harness.heliograph_binary()), "dev", "--port", "0",
                               "--ready-file", str(ready)], log, environment)
    harness.eventually(ready.exists, 30, "the ready file")
    assert json.loads(ready.read_text())["bootstrap"]
    assert process.interrupt(10) == 0
    assert set(os.listdir(tmp_path)) <= {"ready.json", "log"}


def test_a_port_in_use(tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", harness.free_ports(1)[0]))
        holder.listen()
        port = holder.getsockname()[1]
        done = dev("--nodes", "1", "--port", port, "--dir", tmp_path / "data")
        assert_one_sentence(done, str(port))


def test_a_locked_folder():
    with harness.Heliograph(nodes=1) as cluster:
        done = dev("--nodes", "1", "--port", "0", "--dir", cluster.folder / "data")
        assert_one_sentence(done, f"{cluster.folder / 'data'}", "is locked by another process",
                            "stop that one or use another folder")


def test_a_corrupt_store():
    with harness.Heliograph(nodes=1) as cluster:
        cluster.kill()
        stores = [path for path in cluster.folder.rglob("*") if path.is_file()
                  and path.name in ("db", "conf")]
        assert stores, "no store of the metadata log was found"
        for path in stores:
            path.write_bytes(random.Random(7).randbytes(max(4096, path.stat().st_size)))
        done = dev("--nodes", "1", "--port", cluster.ports[0], "--dir", cluster.folder / "data")
        folder = cluster.folder / "data" / "node-1" / "metadata"
        assert_one_sentence(done, f"the metadata store in {folder} is damaged",
                            "move the directory away and start again", "restore a backup")


@pytest.mark.parametrize("override", ["no.such.setting=1", "log.segment.bytes=many",
                                      "listeners=SASL_SSL://127.0.0.1:0", "nonsense"])
def test_a_setting_that_cannot_be_kept(override):
    done = dev("--nodes", "1", "--port", "0", "--override", override)
    assert_one_sentence(done, override.split("=")[0])


@pytest.mark.parametrize("override", ["default.replication.factor=5", "min.insync.replicas=4"])
def test_more_replicas_than_nodes(override):
    key, value = override.split("=")
    done = dev("--nodes", "3", "--port", "0", "--override", override)
    assert_one_sentence(done, key, f"is {value}", "3 node(s)")


def test_a_nodes_folder_was_taken_away(tmp_path):
    for node in (1, 3):
        (tmp_path / f"node-{node}").mkdir()
    done = dev("--nodes", "3", "--port", "0", "--dir", tmp_path)
    assert_one_sentence(done, "node-1, node-3, but not node-2", "bring node-2's folder back")


@pytest.mark.parametrize("links", ["local", "tcp"])
def test_both_kinds_of_link_serve(links, unique):
    from test_confluent import create, produce
    with harness.Heliograph(nodes=3, links=links) as cluster:
        topic = create(cluster, unique("linked"))
        assert len(produce(cluster, topic, 200)) == 200


def test_it_mirrors_at_once(source, unique):
    from test_mirror import create_topic, produce, wait_equal
    topic = create_topic(source, unique("at-once"), 2)
    produce(source, topic, 50)
    arguments = ["--mirror-from", source.bootstrap, "--topics", topic]
    with harness.Heliograph(nodes=3, arguments=arguments) as cluster:
        wait_equal(source, cluster, topic, 2)


def test_a_restart_leaves_a_failover_alone_and_needs_no_source(unique):
    from test_mirror import create_topic, produce, wait_equal
    with harness.Kafka(nodes=1) as source:
        over, going = (create_topic(source, unique(name), 1) for name in ("over", "going"))
        produce(source, over, 50), produce(source, going, 50)
        pattern = f"{over[:4]}-.*|{going[:5]}-.*"
        arguments = ["--mirror-from", source.bootstrap, "--topics", pattern]
        with harness.Heliograph(nodes=3, arguments=arguments) as cluster:
            wait_equal(source, cluster, over, 1)
            wait_equal(source, cluster, going, 1)
            cluster.mirrors().stop("source", over)
            produce(cluster, over, 20)
            cluster.process.interrupt()
            cluster.restart()
            harness.eventually(lambda: "goes on with 2 topic(s)" in cluster.process.tail())
            assert f"left as they are: [{over}]" in cluster.process.tail()
            cluster.mirrors().wait_state("source", going, "MIRRORING", lag=0)
            cluster.process.interrupt()
            source.kill()
            cluster.restart()
            produce(cluster, over, 20)
            rows = cluster.mirrors().rows("source", over)
            assert [row["state"] for row in rows] == ["STOPPED"]
            assert len(load.read_all(cluster.bootstrap, over, 1)) == 90
            assert cluster.alive()


def test_a_source_that_does_not_answer_is_waited_for():
    port = harness.free_ports(1)[0]
    arguments = ["--mirror-from", f"127.0.0.1:{port}", "--topics", "late-.*"]
    with harness.Heliograph(nodes=1, arguments=arguments) as cluster:
        harness.eventually(lambda: "it is tried again every 5 s" in cluster.process.tail())
        assert cluster.alive()
        refused = harness.Heliograph(nodes=1, arguments=arguments[:3] + ["late-("])
        with pytest.raises(RuntimeError, match="not a valid regular expression"):
            refused.start()
        refused.close()


def replicas(bootstrap, topic):
    """Of each partition of the topic, how many replicas it has."""
    found = harness.admin(bootstrap).list_topics(topic, timeout=10).topics[topic].partitions
    return [len(partition.replicas) for partition in found.values()]


def create_now(bootstrap, topic, partitions=1):
    """Creates a topic in one attempt, at the cluster's defaults."""
    admin = harness.admin(bootstrap)
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(10)


def test_ready_means_that_topics_can_be_created(tmp_path):
    """Again and again: the first request after the file appears is not refused and not retried."""
    for turn in range(3):
        with harness.Heliograph(nodes=3) as cluster:
            with wire.Connection(cluster.bootstrap.split(",")[turn]) as connection:
                error, _, message = wire.create_topic(connection, "at-once", 2, 3)
            assert error == 0, (error, message)
            assert len(replicas(cluster.bootstrap, "at-once")) == 2


@pytest.mark.parametrize("nodes, expected", [(1, 1), (2, 2), (5, 3)])
def test_topics_get_as_many_replicas_as_there_are_nodes_up_to_three(nodes, expected):
    with harness.Heliograph(nodes=nodes) as cluster:
        produce(cluster, "automatic", 10)
        assert set(replicas(cluster.bootstrap, "automatic")) == {expected}
        create_now(cluster.bootstrap, "made")
        assert replicas(cluster.bootstrap, "made") == [expected]
        assert re.search(rf"replication +{expected} ", cluster.process.log.read_text())


def test_overrides_take_effect():
    overrides = {"message.max.bytes": "2000", "num.partitions": "4"}
    with harness.Heliograph(nodes=3, overrides=overrides) as cluster:
        admin = harness.admin(cluster.bootstrap)
        for node in cluster.ready["nodes"]:
            broker = ConfigResource(ResourceType.BROKER, str(node["id"]))
            entries = admin.describe_configs([broker])[broker].result(10)
            assert {key: entries[key].value for key in overrides} == overrides
        produce(cluster, "overridden", 10)
        assert len(replicas(cluster.bootstrap, "overridden")) == 4
        topic = ConfigResource(ResourceType.TOPIC, "overridden")
        assert admin.describe_configs([topic])[topic].result(10)["max.message.bytes"].value == \
            "2000"
        errors = []
        client = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for size in (1000, 5000):
            client.produce("overridden", b"v" * size, on_delivery=lambda e, _: errors.append(e))
            assert client.flush(20) == 0
        assert errors[0] is None and errors[1].code() == KafkaError.MSG_SIZE_TOO_LARGE, errors


@contextlib.contextmanager
def running(tmp_path, *arguments, binary=None, environment=None):
    """`heliograph dev` as a user calls it, in a temporary folder under tmp_path."""
    ready = tmp_path / "ready.json"
    ready.unlink(missing_ok=True)
    command = [binary or harness.heliograph_binary(), "dev", "--ready-file", ready, *arguments]
    merged = {**os.environ, "TMPDIR": str(tmp_path), **(environment or {})}
    process = harness.Process([str(part) for part in command], tmp_path / "log", merged)
    try:
        harness.eventually(lambda: ready.exists() or not process.alive(), 60, "the ready file")
        assert process.alive(), process.tail()
        yield json.loads(ready.read_text()), process
    finally:
        process.kill()


def test_the_default_ports_are_kafkas(tmp_path):
    ports = (9092, 9093, 9094)
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                pytest.skip(f"the default ports are taken by somebody else: {port}")
    with running(tmp_path) as (ready, process):
        assert ready["bootstrap"] == ",".join(f"127.0.0.1:{port}" for port in ports)
        brokers = harness.admin("127.0.0.1:9094").list_topics(timeout=10).brokers.values()
        assert sorted(broker.port for broker in brokers) == list(ports)
        assert process.interrupt(10) == 0


def test_the_table_and_the_commands_it_says_to_try(tmp_path):
    with running(tmp_path, "--port", "0") as (ready, process):
        harness.eventually(lambda: "Ctrl-C stops it." in process.tail(), 10, "the whole table")
        printed = process.log.read_text()
        for node in ready["nodes"]:
            assert f" {node['id']}  {node['address']} " in printed
        assert re.search(rf"cluster +{ready['cluster_id']} ", printed)
        assert re.search(r"replication +3 ", printed) and "(temporary)" in printed
        shown = int(re.search(r"ready in +(\d+) ms", printed)[1])
        assert abs(shown - ready["ready_ms"]) <= 1, (shown, ready)
        commands = printed.split("Try:\n")[1].split("Ctrl-C")[0].splitlines()
        tried = [shlex.split(command) for command in commands]
        assert len(tried) == 2, printed
        done = subprocess.run(tried[0], text=True, capture_output=True, timeout=30)
        assert (done.returncode, done.stdout) == (0, "No mirrors found\n"), done
        assert tried[1][:2] == ["kcat", "-b"] and tried[1][3:] == ["-L"]
        if shutil.which("kcat"):
            done = subprocess.run(tried[1], text=True, capture_output=True, timeout=30)
            assert done.returncode == 0 and "3 brokers" in done.stdout, done
        else:  # what kcat is made of
            assert harness.cluster_answers(tried[1][2], 3)


FAILPOINTS = os.environ.get("HELIOGRAPH_FAILPOINTS_BIN")


@pytest.mark.skipif(not FAILPOINTS, reason="HELIOGRAPH_FAILPOINTS_BIN names no binary")
def test_a_second_ctrl_c_ends_it_at_once(tmp_path):
    """The orderly end is held, so that without the second signal it would never come."""
    held = {"FAILPOINTS": "dev-end-in-order=return(hold)"}
    with running(tmp_path, "--port", "0", binary=FAILPOINTS, environment=held) as (_, process):
        process.child.send_signal(signal.SIGINT)
        harness.eventually(lambda: "reached: dev-end-in-order" in process.log.read_text(), 10,
                           "the orderly end")
        with pytest.raises(subprocess.TimeoutExpired):
            process.child.wait(1)
        assert process.interrupt(5) == 130
        assert set(os.listdir(tmp_path)) <= {"ready.json", "log"}, "the temporary folder stays"
    with running(tmp_path, "--port", "0", binary=FAILPOINTS) as (_, process):
        assert process.interrupt(10) == 0, "not held, the first is enough"
