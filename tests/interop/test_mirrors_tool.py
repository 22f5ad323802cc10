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


def refused(cli, *arguments):
    done = cli.run(*arguments)
    assert done.returncode == 1, done.stdout
    assert done.stderr.strip(), "no message"
    return done.stderr


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
    def create(name, **settings):
        file = tmp_path / "mirror.properties"
        file.write_text("".join(f"{key.replace('_', '.')}={value}\n"
                                for key, value in settings.items()))
        return refused(cli, "--create", "--mirror", name, "--mirror-config", file)
    create("no-bootstrap")
    create("unknown-key", bootstrap_servers=source.bootstrap, no_such_key="1")
    create("not-built", bootstrap_servers=source.bootstrap, security_protocol="SASL_SSL")
    create("itself", bootstrap_servers=destination.bootstrap)
    for name in ("a/b", ".", "x" * 250, "m.paused", "m.stopped"):
        create(name, bootstrap_servers=source.bootstrap)
    assert cli.must("--list") == "No mirrors found\n"


def test_list_and_describe_have_their_columns(cli, source, unique):
    topic = create_topic(source, unique("columns"), 2)
    produce(source, topic, 10)
    cli.create("columns", source.bootstrap)
    assert "exists" in refused(cli, "--create", "--mirror", "columns", "--mirror-config",
                               _config(source)).lower()
    cli.start("columns", topic)
    cli.wait_state("columns", topic, "MIRRORING", partitions=2, lag=0)

    header, row = cli.must("--list").splitlines()
    assert header == f"{'MIRROR':<30} {'TOPICS':<10} {'CLUSTER-ID':<26} {'BOOTSTRAP-SERVER':<50}"\
        .rstrip() or header.split() == ["MIRROR", "TOPICS", "CLUSTER-ID", "BOOTSTRAP-SERVER"]
    assert row.split() == ["columns", "1", source.cluster_id, source.bootstrap]
    assert row.index("1") == 31 and row.index(source.cluster_id) == 42

    header, *rows = cli.must("--describe", "--mirror", "columns").splitlines()
    assert header.split() == ["MIRROR", "TOPIC", "PARTITION", "SOURCE-OFFSET",
                              "DESTINATION-OFFSET", "LAG", "STATE"]
    assert header.index("TOPIC") == 31 and header.index("STATE") == 129
    assert [line.split()[2] for line in rows] == ["0", "1"]
    assert all(line.split()[5:] == ["0", "MIRRORING"] for line in rows)

    text = cli.must("--describe", "--mirror", "columns", "--json")
    assert text.count("\n") == 1
    first = json.loads(text)[0]
    assert list(first)[:8] == ["mirror", "topic", "partition", "sourceOffset",
                               "destinationOffset", "lag", "state", "lastMirrorEpoch"]


def _config(source):
    file = harness.ROOT / ".kafka" / "columns.properties"
    file.write_text(f"bootstrap.servers={source.bootstrap}\n")
    return file


def test_what_does_not_exist_is_an_error(cli, source):
    assert "no-such-mirror" in refused(cli, "--describe", "--mirror", "no-such-mirror")
    refused(cli, "--start", "--mirror", "no-such-mirror", "--topics", "t")
    refused(cli, "--stop", "--mirror", "no-such-mirror", "--topics", "t")
    cli.create("alone", source.bootstrap)
    refused(cli, "--start", "--mirror", "alone", "--topics", "no-such-topic")


def test_an_unreachable_source_does_not_stop_create(cli):
    port = harness.free_ports(1)[0]
    cli.create("far-away", f"127.0.0.1:{port}")
    row = next(line for line in cli.must("--list").splitlines() if line.startswith("far-away"))
    assert row.split()[2] == "-"
    refused(cli, "--start", "--mirror", "far-away", "--topics", "t.*")


def test_unserved_actions_say_so(cli, source):
    for action in ("--pause", "--resume"):
        assert "UNSUPPORTED_VERSION" in refused(cli, action, "--mirror", "alone", "--topics", "t")
    assert "UNSUPPORTED_VERSION" in refused(cli, "--delete", "--mirror", "alone")


def test_a_server_that_is_not_there(tmp_path):
    port = harness.free_ports(1)[0]
    done = run_as(harness.heliograph_binary(), "kafka-mirrors", "--bootstrap-server",
                  f"127.0.0.1:{port}", "--list")
    assert done.returncode == 1 and str(port) in done.stderr
