"""Starts what the interop tests talk to: real Kafka clusters, Heliograph, and Kafka's own tools.

Owns the processes it starts (each in a temporary folder, on free local ports, ended by process id)
and never waits by sleeping for a guess: readiness is a client's answer. Knows nothing of pytest.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient

ROOT = Path(__file__).resolve().parents[2]
LIBS = ROOT / ".kafka" / "libs" / "4.4.0"
CLASSES = ROOT / ".kafka" / "classes"
JAVA_SOURCES = Path(__file__).resolve().parent / "java"
TOOLS = "org.apache.kafka.tools."

# Short-lived tools and small brokers start faster so; a benchmark takes Java's own choices.
QUICK_START = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
jvm_flags = QUICK_START

LOG4J = """
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1} %m%n
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
"""


def eventually(check, timeout=30.0, what="the condition", interval=0.05):
    """Calls `check` until it returns something true; false or an exception means not yet."""
    deadline = time.monotonic() + timeout
    last = None
    while True:
        try:
            last = check()
            if last:
                return last
        except Exception as error:  # noqa: BLE001, the last one is reported
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true in {timeout} s; last: {last!r}")
        time.sleep(interval)


def free_ports(count):
    """A run of `count` consecutive ports that nothing listens on, below the ephemeral range."""
    for _ in range(200):
        base = random.randrange(12000, 32000 - count)
        held = []
        try:
            for port in range(base, base + count):
                holder = socket.socket()
                held.append(holder)
                holder.bind(("127.0.0.1", port))
            return list(range(base, base + count))
        except OSError:
            continue
        finally:
            for holder in held:
                holder.close()
    raise RuntimeError("no run of free ports between 12000 and 32000")


def admin(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 5000,
                        "log_level": 0})


def cluster_answers(bootstrap, nodes):
    """True once a Metadata answer lists that many brokers."""
    return len(admin(bootstrap).list_topics(timeout=3).brokers) == nodes


def java_command(*arguments, heap="256m", level="ERROR"):
    config = ROOT / ".kafka" / f"log4j2-{level.lower()}.properties"
    if not config.exists():
        config.write_text(LOG4J.replace("{level}", level))
    classpath = f"{LIBS}/*:{CLASSES}"
    return ["java", f"-Xmx{heap}", *jvm_flags, f"-Dlog4j2.configurationFile={config}",
            "-cp", classpath, *map(str, arguments)]


def java(*arguments, stdin=None, timeout=90, check=True):
    """Runs a Java class to its end and returns what it printed on standard output."""
    done = subprocess.run(java_command(*arguments), input=stdin, text=True,
                          capture_output=True, timeout=timeout)
    if check and done.returncode != 0:
        output = f"{done.stdout}\n{done.stderr}"
        raise AssertionError(f"{arguments[0]} exited {done.returncode}\n{output}")
    return done.stdout if check else done


def tool(name, *arguments, **options):
    """One of Kafka's command line tools, e.g. tool("TopicCommand", "--list", …)."""
    return java(TOOLS + name, *arguments, **options)


def compile_java():
    """Compiles tests/interop/java once per change into .kafka/classes."""
    sources = sorted(JAVA_SOURCES.glob("*.java"))
    stamp = CLASSES / ".stamp"
    if stamp.exists() and all(s.stat().st_mtime < stamp.stat().st_mtime for s in sources):
        return
    CLASSES.mkdir(parents=True, exist_ok=True)
    subprocess.run(["javac", "-nowarn", "-cp", f"{LIBS}/*", "-d", str(CLASSES),
                    *map(str, sources)], check=True, timeout=120)
    stamp.touch()


class Process:
    """One child process with its output in a file."""

    def __init__(self, command, log, environment=None):
        self.log = Path(log)
        self.output = open(self.log, "ab")
        self.child = subprocess.Popen(command, stdout=self.output, stderr=self.output,
                                      stdin=subprocess.PIPE, env=environment)

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        return self.child.poll() is None

    def kill(self):
        """kill -9, and waits until it is gone."""
        if self.alive():
            self.child.send_signal(signal.SIGKILL)
        self.child.wait(30)
        self.output.close()

    def stop(self, timeout=30):
        """SIGTERM; returns the exit code. kill -9 past the timeout."""
        if self.alive():
            self.child.send_signal(signal.SIGTERM)
        try:
            return self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        finally:
            self.output.close()

    def interrupt(self, timeout=30):
        """Ctrl-C; returns the exit code."""
        self.child.send_signal(signal.SIGINT)
        return self.child.wait(timeout)

    def tail(self, lines=40):
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def memory(self, field="VmRSS"):
        """Bytes of resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"no {field} for process {self.pid}")


class Kafka:
    """A stock Apache Kafka cluster (KRaft, every node controller and broker)."""

    name = "kafka"

    def __init__(self, nodes=1, overrides=None, folder=None):
        self.nodes = nodes
        self.overrides = overrides or {}
        self.own = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="interop-kafka-"))
        ports = free_ports(2 * nodes)
        self.ports = ports[:nodes]
        self.controllers = ports[nodes:]
        self.processes = {}
        self.cluster_id = "".join(random.choices("abcdefghijkmnpqrstuvwxyz", k=21)) + "A"

    @property
    def bootstrap(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def replication(self):
        return min(3, self.nodes)

    def address(self, node):
        return f"127.0.0.1:{self.ports[node - 1]}"

    def data(self, node=1):
        return self.folder / f"node-{node}" / "data"

    def _settings(self, node):
        voters = ",".join(f"{i + 1}@127.0.0.1:{port}" for i, port in enumerate(self.controllers))
        settings = {
            "process.roles": "broker,controller",
            "node.id": node,
            "listeners": f"PLAINTEXT://{self.address(node)},"
                         f"CONTROLLER://127.0.0.1:{self.controllers[node - 1]}",
            "advertised.listeners": f"PLAINTEXT://{self.address(node)}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": self.data(node),
            "offsets.topic.replication.factor": self.replication,
            "offsets.topic.num.partitions": 5,
            "transaction.state.log.replication.factor": self.replication,
            "transaction.state.log.num.partitions": 5,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "controlled.shutdown.enable": "true",
            "num.network.threads": 2,
            "num.io.threads": 2,
        }
        settings.update(self.overrides)
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def start(self):
        for node in range(1, self.nodes + 1):
            folder = self.folder / f"node-{node}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "server.properties").write_text(self._settings(node))
        formats = [subprocess.Popen(
            java_command("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c",
                         self.folder / f"node-{node}" / "server.properties"),
            stdout=subprocess.DEVNULL) for node in range(1, self.nodes + 1)]
        for process in formats:
            if process.wait(60) != 0:
                raise RuntimeError("Kafka's StorageTool could not format a node")
        for node in range(1, self.nodes + 1):
            self.start_node(node, wait=False)
        self.wait_ready()
        return self

    def start_node(self, node, wait=True):
        folder = self.folder / f"node-{node}"
        command = java_command("kafka.Kafka", folder / "server.properties", heap="512m",
                               level="INFO")
        self.processes[node] = Process(command, folder / "server.log")
        if wait:
            self.wait_ready()

    def wait_ready(self, nodes=None, timeout=60):
        wanted = nodes or self.nodes

        def ready():
            for node, process in self.processes.items():
                if not process.alive():
                    raise RuntimeError(f"Kafka node {node} ended:\n{process.tail()}")
            return cluster_answers(self.bootstrap, wanted)
        eventually(ready, timeout, f"a Kafka of {wanted} nodes")

    def kill(self, node=None):
        """kill -9 of one node, or of all."""
        for number in [node] if node else list(self.processes):
            self.processes.pop(number).kill()

    def stop_node(self, node):
        self.processes.pop(node).stop()

    def restart(self):
        """Starts every node that is not running, on the same folders and ports."""
        for node in range(1, self.nodes + 1):
            if node not in self.processes:
                self.start_node(node, wait=False)
        self.wait_ready()

    def memory(self):
        return sum(process.memory() for process in self.processes.values())

    def alive(self):
        return bool(self.processes) and all(p.alive() for p in self.processes.values())

    def close(self):
        self.kill()
        if self.own:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


def heliograph_binary():
    """The binary under test: HELIOGRAPH_BIN, or the newest of the release and debug builds."""
    named = os.environ.get("HELIOGRAPH_BIN")
    if named:
        return Path(named)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [target / profile / "heliograph" for profile in ("release", "debug")]
    built = [path for path in built if path.exists()]
    if not built:
        raise RuntimeError("no heliograph binary: run `cargo build --release` first")
    return max(built, key=lambda path: path.stat().st_mtime)


class Heliograph:
    """`heliograph dev`: a whole cluster in one process."""

    name = "heliograph"

    def __init__(self, nodes=3, overrides=None, folder=None, links=None, environment=None,
                 arguments=(), binary=None):
        self.nodes = nodes
        self.overrides = overrides or {}
        self.own = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="interop-heliograph-"))
        self.ports = free_ports(nodes)
        self.links = links
        self.environment = environment or {}
        self.arguments = list(arguments)
        self.binary = binary or heliograph_binary()
        self.process = None
        self.ready = None

    @property
    def bootstrap(self):
        return self.ready["bootstrap"]

    @property
    def cluster_id(self):
        return self.ready["cluster_id"]

    @property
    def replication(self):
        return min(3, self.nodes)

    def command(self, ready_file):
        command = [self.binary, "dev", "--nodes", self.nodes, "--port", self.ports[0],
                   "--dir", self.folder / "data", "--ready-file", ready_file]
        if self.links:
            command += ["--links", self.links]
        for key, value in self.overrides.items():
            command += ["--override", f"{key}={value}"]
        return [str(part) for part in command + self.arguments]

    def start(self, timeout=60, environment=None):
        ready_file = self.folder / "ready.json"
        ready_file.unlink(missing_ok=True)
        merged = {**os.environ, "RUST_BACKTRACE": "1", **self.environment, **(environment or {})}
        self.process = Process(self.command(ready_file), self.folder / "server.log", merged)

        def ready():
            if not self.process.alive():
                code = self.process.child.returncode
                raise RuntimeError(f"heliograph exited {code}:\n{self.process.tail()}")
            return ready_file.exists() and json.loads(ready_file.read_text())
        deadline = time.monotonic() + timeout
        while True:
            self.ready = ready()
            if self.ready:
                return self
            if time.monotonic() > deadline:
                tail = self.process.tail()
                raise AssertionError(f"heliograph not ready in {timeout} s:\n{tail}")
            time.sleep(0.01)

    def kill(self):
        """kill -9 of the whole cluster."""
        self.process.kill()

    def restart(self, environment=None):
        """Starts again on the same folder and ports."""
        return self.start(environment=environment)

    def order(self, *words, timeout=60):
        """Has a build with fail points do something to itself; see src/cli/dev/orders.rs."""
        line = " ".join(map(str, words))
        position = self.process.log.stat().st_size
        self.process.child.stdin.write(f"{line}\n".encode())
        self.process.child.stdin.flush()

        def answer():
            text = self.process.log.read_bytes()[position:].decode(errors="replace")
            return [entry for entry in text.splitlines(keepends=True) if entry.endswith("\n")
                    and entry.startswith((f"done: {line}", f"refused: {line}"))]
        answers = eventually(answer, timeout, f"the answer to {line}", interval=0.01)
        assert answers[0].startswith("done"), answers[0]

    def data(self, node=None):
        return self.folder / "data"

    def memory(self):
        return self.process.memory()

    def alive(self):
        return self.process is not None and self.process.alive()

    def mirrors(self):
        return Mirrors(self)

    def panics(self):
        text = self.process.log.read_text(errors="replace")
        return [line for line in text.splitlines() if "panicked at" in line]

    def close(self):
        if self.process is not None:
            self.process.kill()
        keep = os.environ.get("INTEROP_KEEP")
        if self.own and not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, _kind, error, _trace):
        """A panic in any node's output fails whatever used the cluster."""
        panics = self.panics()
        self.close()
        if panics and error is not None:
            error.add_note(f"and nodes panicked: {panics}")
        assert error is not None or not panics, panics


class Mirrors:
    """`heliograph kafka-mirrors` against one cluster."""

    def __init__(self, cluster):
        self.cluster = cluster

    def run(self, *arguments, timeout=60):
        command = [self.cluster.binary, "kafka-mirrors", "--bootstrap-server",
                   self.cluster.bootstrap, *arguments]
        return subprocess.run([str(part) for part in command], text=True, capture_output=True,
                              timeout=timeout)

    def must(self, *arguments, timeout=60):
        done = self.run(*arguments, timeout=timeout)
        assert done.returncode == 0, (
            f"kafka-mirrors {arguments} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
            f"\n--- server ---\n{self.cluster.process.tail()}")
        return done.stdout

    def create(self, mirror, source_bootstrap, **settings):
        lines = {"bootstrap.servers": source_bootstrap, **settings}
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
            file.writelines(f"{key}={value}\n" for key, value in lines.items())
            file.flush()
            return self.must("--create", "--mirror", mirror, "--mirror-config", file.name)

    def start(self, mirror, *topics):
        return self.must("--start", "--mirror", mirror, "--topics", ",".join(topics))

    def stop(self, mirror, *topics):
        return self.must("--stop", "--mirror", mirror, "--topics", ",".join(topics))

    def describe(self, mirror=None):
        """The rows of `--describe --json`."""
        arguments = ["--mirror", mirror] if mirror else []
        return json.loads(self.must("--describe", "--json", *arguments))

    def rows(self, mirror, topic):
        return [row for row in self.describe(mirror) if row["topic"] == topic]

    def wait_state(self, mirror, topic, state, partitions=None, lag=None, timeout=40):
        """Waits until every partition of the topic is in the state (and has the lag)."""
        def reached():
            rows = self.rows(mirror, topic)
            assert rows, "no rows"
            assert partitions is None or len(rows) == partitions, rows
            assert all(row["state"] == state for row in rows), rows
            assert lag is None or all(row["lag"] == lag for row in rows), rows
            return rows
        return eventually(reached, timeout, f"{topic} in {state}", interval=0.1)
