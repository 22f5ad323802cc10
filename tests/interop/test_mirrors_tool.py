"""The texts, columns, checks and exit codes of `heliograph kafka-mirrors`."""

import json
import os
import subprocess

import harness
import pytest
from test_mirror import create_topic, produce

pytestmark = pytest.mark.mirroring


def run_as(path, *arguments):
    return subprocess.run([str(path), *map(str, arguments)], text=True, capture_output=True,
                          timeout=30)


@pytest.fixture(scope="module")
def cli(destination):
    return destination.mirrors()


def refused(cli, *arguments, code=None):
    """Runs what must fail; `code` is the name and number of Kafka's or mirroring's error."""
    done = cli.run(*arguments)
    assert done.returncode == 1, done.stdout
    assert done.stderr.strip(), "no message"
    if code is not None:
        name, number = code
        assert f"{name} ({number}): " in done.stderr, done.stderr
    return done.stderr


INVALID_CONFIG = "INVALID_CONFIG", 40
INVALID_MIRROR_NAME = "INVALID_MIRROR_NAME", 135
MIRROR_ALREADY_EXISTS = "MIRROR_ALREADY_EXISTS", 136
UNKNOWN_MIRROR = "UNKNOWN_MIRROR", 137
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION", 3


def test_an_empty_cluster_has_nothing_to_show(cli):
    assert cli.must("--list") == "No mirrors found\n"
    assert cli.must("--describe") == "No mirror partitions found\n"
    assert cli.must("--describe", "--json") == "[]\n"


def test_the_tool_answers_under_its_other_names(tmp_path):
    for name in ("kafka-mirrors", "kafka-mirrors.sh"):
        link = tmp_path / name
        os.symlink(harness.heliograph_binary(), link)
        done = run_as(link, "--help")
        assert done.returncode == 0 and "--mirror-config" in done.stdout, done.stderr
        assert run_as(link).returncode == 1


def test_checks_come_in_order(cli, tmp_path):
    binary = harness.heliograph_binary()
    bare = run_as(binary, "kafka-mirrors")
    assert bare.returncode == 1
    assert "Create cluster mirrors and manage mirrored topics." in bare.stderr + bare.stdout
    for arguments, message in [
        ((), "--create, --start, --stop, --pause, --resume, --delete, --list, --describe"),
        (("--create", "--list"), "exactly one"),
        (("--create",), "--mirror must be specified"),
        (("--create", "--mirror", "m"),
         "--mirror-config must be specified when creating a mirror"),
        (("--start", "--mirror", "m"),
         "--topics must be specified when starting mirror topic(s)"),
        (("--stop", "--mirror", "m"),
         "--topics must be specified when stopping mirror topic(s)"),
        (("--stop", "--mirror", "m", "--topics", "t", "--exclude", "x"),
         "--exclude is only valid with --start"),
        (("--list", "--json"), "--json is only supported for describing mirrors"),
    ]:
        assert message in refused(cli, *arguments), arguments
    alone = run_as(binary, "kafka-mirrors", "--list")
    assert alone.returncode == 1 and "--bootstrap-server must be specified" in alone.stderr


def test_create_refuses_what_it_cannot_keep(cli, source, destination, tmp_path):
    def create(name, code, *words, **settings):
        file = tmp_path / "mirror.properties"
        file.write_text("".join(f"{key.replace('_', '.')}={value}\n"
                                for key, value in settings.items()))
        message = refused(cli, "--create", "--mirror", name, "--mirror-config", file, code=code)
        assert all(word in message for word in words), message
    there = {"bootstrap_servers": source.bootstrap}
    create("no-bootstrap", INVALID_CONFIG, "'bootstrap.servers' is required")
    create("unknown-key", INVALID_CONFIG, "'no.such.key'", **there, no_such_key="1")
    create("not-built", INVALID_CONFIG, "'security.protocol'", "not built yet", **there,
           security_protocol="SASL_SSL")
    create("itself", INVALID_CONFIG, "this cluster itself",
           bootstrap_servers=destination.bootstrap)
    for name in ("a/b", ".", "x" * 250, "m.paused", "m.stopped"):
        create(name, INVALID_MIRROR_NAME, **there)
    assert cli.must("--list") == "No mirrors found\n"


LIST = (("MIRROR", 30), ("TOPICS", 10), ("CLUSTER-ID", 26), ("BOOTSTRAP-SERVER", 50))
DESCRIBE = (("MIRROR", 30), ("TOPIC", 40), ("PARTITION", 10), ("SOURCE-OFFSET", 15),
            ("DESTINATION-OFFSET", 18), ("LAG", 10), ("STATE", 12))


def line(columns, values):
    """A line of a table: to the left in columns of those widths, one space in between."""
    return " ".join(str(value).ljust(width)
                    for (_, width), value in zip(columns, values, strict=True))


def header(columns):
    return line(columns, [name for name, _ in columns])


def test_list_and_describe_have_their_columns(cli, source, unique):
    topic = create_topic(source, unique("columns"), 2)
    produce(source, topic, 10)
    cli.create("columns", source.bootstrap)
    refused(cli, "--create", "--mirror", "columns", "--mirror-config", _config(source),
            code=MIRROR_ALREADY_EXISTS)
    cli.start("columns", topic)
    offsets = [row["sourceOffset"] for row in
               cli.wait_state("columns", topic, "MIRRORING", partitions=2, lag=0)]
    assert sum(offsets) == 10

    assert cli.must("--list").splitlines() == [
        header(LIST), line(LIST, ["columns", 1, source.cluster_id, source.bootstrap])]
    assert cli.must("--describe", "--mirror", "columns").splitlines() == [
        header(DESCRIBE), *(line(DESCRIBE, ["columns", topic, partition, offset, offset, 0,
                                            "MIRRORING"])
                            for partition, offset in enumerate(offsets))]

    text = cli.must("--describe", "--mirror", "columns", "--json")
    assert text.count("\n") == 1
    first = json.loads(text)[0]
    assert list(first)[:8] == ["mirror", "topic", "partition", "sourceOffset",
                               "destinationOffset", "lag", "state", "lastMirrorEpoch"]


def _config(source):
    file = harness.ROOT / ".kafka" / "columns.properties"
    file.write_text(f"bootstrap.servers={source.bootstrap}\n")
    return file


def test_what_is_too_long_keeps_its_right_end(cli):
    name = "left-end-" + "m" * 40 + "-right-end"
    ports = harness.free_ports(5)
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    cli.create(name, bootstrap)
    lines = cli.must("--list").splitlines()
    assert line(LIST, ["..." + name[-27:], 0, "-", "..." + bootstrap[-47:]]) in lines


def test_what_does_not_exist_is_an_error(cli, source):
    assert "no-such-mirror" in refused(cli, "--describe", "--mirror", "no-such-mirror",
                                       code=UNKNOWN_MIRROR)
    refused(cli, "--start", "--mirror", "no-such-mirror", "--topics", "t", code=UNKNOWN_MIRROR)
    refused(cli, "--stop", "--mirror", "no-such-mirror", "--topics", "t", code=UNKNOWN_MIRROR)
    cli.create("alone", source.bootstrap)
    for action in ("--start", "--stop"):
        assert "Topic no-such-topic failed: " in refused(
            cli, action, "--mirror", "alone", "--topics", "no-such-topic", code=UNKNOWN_TOPIC)


def test_an_unreachable_source_does_not_stop_create(cli):
    port = harness.free_ports(1)[0]
    cli.create("far-away", f"127.0.0.1:{port}")
    assert line(LIST, ["far-away", 0, "-", f"127.0.0.1:{port}"]) in (
        cli.must("--list").splitlines())
    refused(cli, "--start", "--mirror", "far-away", "--topics", "t.*",
            code=("BROKER_NOT_AVAILABLE", 8))


def test_unserved_actions_say_so(cli, source):
    for action in ("--pause", "--resume"):
        assert "UNSUPPORTED_VERSION" in refused(cli, action, "--mirror", "alone", "--topics", "t")
    assert "UNSUPPORTED_VERSION" in refused(cli, "--delete", "--mirror", "alone")


def test_a_server_that_is_not_there(tmp_path):
    port = harness.free_ports(1)[0]
    done = run_as(harness.heliograph_binary(), "kafka-mirrors", "--bootstrap-server",
                  f"127.0.0.1:{port}", "--list")
    assert done.returncode == 1 and str(port) in done.stderr
