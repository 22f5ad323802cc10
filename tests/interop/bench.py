"""The first figures of a release build, with Apache Kafka beside it in the same run.

Owns the measurements and the bars they are held to. Exit code 1 below half of a bar; a figure
below 80 % of one is marked short. Client and broker share the machine, so MB per CPU second of
the broker is the figure that travels. MB is a million bytes.
"""

import os
import re
import statistics
import sys
import time

import harness
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

RECORD_BYTES = 1024
WARM_UP_RECORDS = 100_000
PRODUCE_RECORDS = int(os.environ.get("BENCH_PRODUCE_RECORDS", 1_000_000))
MIRROR_RECORDS = int(os.environ.get("BENCH_MIRROR_RECORDS", 2_000_000))
STARTS = 5
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process):
    """User and system time of a process so far."""
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def broker(cluster):
    return cluster.process if cluster.name == "heliograph" else cluster.processes[1]


def create(cluster, topic, partitions):
    admin = harness.admin(cluster.bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def perf(cluster, topic, records):
    """Runs ProducerPerformance and returns its seconds."""
    text = harness.java(
        harness.TOOLS + "ProducerPerformance", "--topic", topic, "--num-records", records,
        "--record-size", RECORD_BYTES, "--throughput", -1, "--command-property",
        f"bootstrap.servers={cluster.bootstrap}", "acks=all", "batch.size=131072",
        "linger.ms=5", "buffer.memory=67108864", timeout=300)
    last = [line for line in text.splitlines() if "records sent" in line][-1]
    rate = float(re.search(r"([\d.]+) records/sec", last).group(1))
    return records / rate


def produce(cluster):
    """(MB/s, MB per broker CPU second) at 1 KiB, RF 1, after a warm-up."""
    create(cluster, "warm-up", 1)
    create(cluster, "measured", 1)
    perf(cluster, "warm-up", WARM_UP_RECORDS)
    before = cpu_seconds(broker(cluster))
    seconds = perf(cluster, "measured", PRODUCE_RECORDS)
    used = cpu_seconds(broker(cluster)) - before
    megabytes = PRODUCE_RECORDS * RECORD_BYTES / 1e6
    return megabytes / seconds, megabytes / used


def starts():
    """(median ready_ms, median wall ms from spawn to the ready file, idle bytes)"""
    ready, wall, idle = [], [], []
    for _ in range(STARTS):
        cluster = harness.Heliograph(nodes=3)
        began = time.monotonic()
        cluster.start()
        wall.append((time.monotonic() - began) * 1000)
        ready.append(cluster.ready["ready_ms"])
        time.sleep(1)
        idle.append(cluster.memory())
        cluster.close()
    return statistics.median(ready), statistics.median(wall), statistics.median(idle)


def kafka_start():
    """(ms from spawn to a Metadata answer of three nodes, idle bytes), format included."""
    began = time.monotonic()
    with harness.Kafka(nodes=3) as kafka:
        wall = (time.monotonic() - began) * 1000
        time.sleep(1)
        return wall, kafka.memory()


def mirror_and_fail_over(source):
    """(MB/s, MB per destination CPU second, ms from the order to stop to the first write)"""
    create(source, "mirrored", 4)
    perf(source, "mirrored", MIRROR_RECORDS)
    megabytes = MIRROR_RECORDS * RECORD_BYTES / 1e6
    with harness.Heliograph(nodes=1) as cluster:
        cli = cluster.mirrors()
        cli.create("bench", source.bootstrap)
        before, began = cpu_seconds(cluster.process), time.monotonic()
        cli.start("bench", "mirrored")

        def caught_up():
            rows = cli.describe("bench")
            copied = sum(row["destinationOffset"] for row in rows)
            return copied == MIRROR_RECORDS and all(row["lag"] == 0 for row in rows)
        harness.eventually(caught_up, 240, "lag zero", interval=0.1)
        seconds = time.monotonic() - began
        used = cpu_seconds(cluster.process) - before
        failover = fail_over(source, cluster, cli)
    return megabytes / seconds, megabytes / used, failover


def fail_over(source, cluster, cli):
    """A small topic, its source dead: ms from the order to stop to the first accepted write."""
    create(source, "small", 1)
    perf(source, "small", 1000)
    cli.start("bench", "small")
    cli.wait_state("bench", "small", "MIRRORING", lag=0)
    source.kill()
    client = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0,
                       "retry.backoff.ms": 1, "retry.backoff.max.ms": 10, "log_level": 0})
    client.list_topics("small", timeout=10)
    answers = []
    began = time.monotonic()
    cli.stop("bench", "small")
    while None not in answers:
        client.produce("small", value=b"first", on_delivery=lambda error, _: answers.append(error))
        client.flush(5)
        if time.monotonic() - began > 60:
            raise AssertionError(f"no write in a minute: {answers[-1]}")
    return (time.monotonic() - began) * 1000


class Report:
    def __init__(self):
        self.broken = False

    def line(self, what, value, unit, kafka=None, bar=None, at_most=False):
        """One row. A bar is a least value, or the most one where `at_most`."""
        verdict = ""
        if bar is not None:
            share = bar / value if at_most else value / bar
            verdict = f"{'at most' if at_most else 'at least'} {bar:.0f}: "
            verdict += "ok" if share >= 1 else "nearly" if share >= 0.8 else "SHORT"
            if share < 0.5:
                verdict += ", below half"
                self.broken = True
        beside = "" if kafka is None else f"{kafka:10.1f}"
        print(f"{what:<44} {value:10.1f} {beside:>10} {unit:<14} {verdict}", flush=True)


def main():
    harness.jvm_flags = []
    report = Report()
    print(f"{'':<44} {'Heliograph':>10} {'Kafka 4.4':>10}")
    ready, wall, idle = starts()
    kafka_wall, kafka_idle = kafka_start()
    report.line("three nodes: start to topics creatable", ready, "ms", kafka_wall, 200, True)
    report.line("the same, seen from outside", wall, "ms", kafka_wall)
    report.line("three nodes: idle memory", idle / 1e6, "MB", kafka_idle / 1e6, 80, True)
    with harness.Kafka(nodes=1) as kafka:
        kafka_rate, kafka_cpu = produce(kafka)
    with harness.Heliograph(nodes=1) as cluster:
        rate, per_cpu = produce(cluster)
    report.line("produce 1 KiB, acks=all, RF 1", rate, "MB/s", kafka_rate)
    report.line("produce, per broker CPU second", per_cpu, "MB/CPU s", kafka_cpu, 1.5 * kafka_cpu)
    with harness.Kafka(nodes=1) as source:
        mirrored, mirrored_cpu, failover = mirror_and_fail_over(source)
    report.line("mirroring 1 KiB from Kafka, RF 1", mirrored, "MB/s")
    report.line("mirroring, per destination CPU second", mirrored_cpu, "MB/CPU s", None, 200)
    report.line("failover of 1 topic, source dead", failover, "ms")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
