"""`heliograph demo`, from an own primary and a real Kafka: all promises held, nothing left."""

import os
import signal
import subprocess
import time

import harness
import pytest

pytestmark = pytest.mark.mirroring


def demo(tmp_path, *arguments):
    command = [str(harness.heliograph_binary()), "demo", *arguments]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, text=True, capture_output=True, timeout=120, env=environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "BROKEN" not in done.stdout and done.stdout.count("held ") == 5, done.stdout
    assert done.stderr == "", done.stderr
    assert os.listdir(tmp_path) == []
    return done.stdout


def test_an_own_primary_crashes(tmp_path):
    assert "All nodes of the primary crashed" in demo(tmp_path)


def test_the_link_to_a_real_kafka_is_cut(tmp_path, source):
    assert "The link to the source is cut" in demo(tmp_path, "--source", source.bootstrap)
    assert source.alive()
    topics = harness.admin(source.bootstrap).list_topics(timeout=5).topics
    assert not [name for name in topics if name.startswith("heliograph-demo-")], topics


def test_a_source_that_is_not_there(tmp_path):
    """Again and again: what is checked is that no node writes while the folder is removed."""
    port = harness.free_ports(1)[0]
    command = [str(harness.heliograph_binary()), "demo", "--source", f"127.0.0.1:{port}"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    for _ in range(6):
        done = subprocess.run(command, text=True, capture_output=True, timeout=60,
                              env=environment)
        assert done.returncode == 1
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and str(port) in lines[0], done.stderr
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("after_s", [0.2, 3])
def test_it_is_interrupted(tmp_path, after_s):
    command = [str(harness.heliograph_binary()), "demo"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment) as running:
        harness.eventually(lambda: os.listdir(tmp_path), 10, "the folder")
        time.sleep(after_s)
        running.send_signal(signal.SIGINT)
        _, complaints = running.communicate(timeout=60)
    assert running.returncode == 1
    assert complaints == "heliograph demo: it was interrupted\n"
    assert os.listdir(tmp_path) == []
