"""`heliograph dev`: what it prints and writes, how it ends, what it refuses in one sentence."""

import json
import os
import random
import socket
import subprocess
import time

import harness
import load
import pytest

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
        assert_one_sentence(done, "data")


def test_a_corrupt_store():
    with harness.Heliograph(nodes=1) as cluster:
        cluster.kill()
        stores = [path for path in cluster.folder.rglob("*") if path.is_file()
                  and path.name in ("db", "conf")]
        assert stores, "no store of the metadata log was found"
        for path in stores:
            path.write_bytes(random.Random(7).randbytes(max(4096, path.stat().st_size)))
        done = dev("--nodes", "1", "--port", cluster.ports[0], "--dir", cluster.folder / "data")
        assert_one_sentence(done)


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


def test_it_is_ready_soon():
    times = []
    for _ in range(3):
        with harness.Heliograph(nodes=3) as cluster:
            times.append(cluster.ready["ready_ms"])
            time.sleep(0.1)
    print(f"ready after {times} ms")
