"""Writes to brokers that answer late, as those do that are far away or have no disks: `python -m benchmarks --parts far`.

One producer, without Spark, writes for some seconds to one node of Kafka whose every connection takes a round trip of
`ROUND_TRIP`. One option after the other is changed from the profile `far`; each rate is compared with that of the same node
through the same proxy without the delay, with default options.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa

from benchmarks.part import Options, Part, Results
from spark_producer import Producer
from spark_producer.config.profiles import PROFILES
from tests.support.distance import HOST, far_away
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4
from tests.support.ports import free_ports

ROUND_TRIP = 0.4
PARTITIONS = 32
ROW_BYTES, BATCH_ROWS = 1_000, 2_000
SECONDS = 15.0
"""The time of a write, so that the round trips at its begin and end are a small part of it."""
ROUNDS = 3
MIB = 1 << 20
ENOUGH = 0.8
"""The part of the near broker's rate that the profile must keep."""


class Case(NamedTuple):
    """A line of the table: the option that it changes, its value, and all options."""

    group: str
    value: str
    options: Mapping[str, str]
    near: bool = False
    partitions: int = PARTITIONS


FAR = {"profile": "far"}
PROFILE = "profile `far`"
BASE = Case("near, default options", "", {}, near=True)


def cases() -> list[Case]:
    """Return all cases: near and far by default, the profile, and the profile with one option changed."""
    found = [BASE, Case("far, default options", "", {}), Case(PROFILE, "", FAR), Case(PROFILE, "near", FAR, near=True)]
    found += [
        Case("`buffer.memory`, MiB", str(size), FAR | {"buffer.memory": str(size * MIB)}) for size in (32, 64, 128, 512)
    ]
    found += [Case("`batch.size`", f"{size:,}", FAR | {"batch.size": str(size)}) for size in (16_384, 131_072, 524_288)]
    requests = "max.in.flight.requests.per.connection"
    found += [Case(f"`{requests}`", str(count), FAR | {requests: str(count)}) for count in (1, 2, 3)]
    found += [
        Case("`max.request.size`, MiB", str(size), FAR | {"max.request.size": str(size * MIB)}) for size in (1, 4, 32)
    ]
    found += [Case("partitions of the broker", str(count), FAR, partitions=count) for count in (1, 4, 16)]
    return found


class Stand(NamedTuple):
    """A node: the port where it listens, the one that clients get, and what makes and removes topics."""

    target: int
    port: int
    create_topic: Callable[[str, int], None]
    delete_topic: Callable[[str], None]


@contextmanager
def kafka() -> Iterator[Stand]:
    """Start a node of Kafka, for a `with` block."""
    (port,) = free_ports(1)
    with KafkaCluster(KAFKA_4, advertised_ports=[port]) as cluster:
        yield Stand(cluster.ports[1].client, port, cluster.create_topic, cluster.delete_topic)


def write(servers: str, topic: str, options: Mapping[str, str], seconds: float) -> float:
    """Write for some seconds and wait for all answers; return bytes of values a second."""
    rows = pa.record_batch({"value": pa.array([b"%09d" % row + b"x" * (ROW_BYTES - 9) for row in range(BATCH_ROWS)])})
    sent = 0
    with Producer({"bootstrap.servers": servers, **options}) as producer:
        producer.send(topic, b"first")  # metadata and producer id
        producer.flush()
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            producer.send_batch(rows, topic=topic)
            sent += BATCH_ROWS
        producer.flush()
        return sent * ROW_BYTES / (time.monotonic() - began)


def measure(stand: Stand, chosen: Sequence[Case], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return the rates of each case, in bytes a second, round by round."""
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for place, case in enumerate(chosen):
            topic = f"far-{number}-{place}"
            stand.create_topic(topic, case.partitions)
            with far_away(stand.target, 0.0 if case.near else ROUND_TRIP, stand.port) as port:
                rate = write(f"{HOST}:{port}", topic, case.options, seconds)
            found.setdefault(key(case), []).append(rate)
            stand.delete_topic(topic)
    return found


def key(case: Case) -> str:
    """Return the name of a case in the results."""
    return f"{case.group}={case.value}"


def run(options: Options) -> Results:
    """Measure all cases with a node of Kafka."""
    rounds = ROUNDS if options.repetitions is None else options.repetitions
    with kafka() as stand:
        rates = measure(stand, cases(), rounds, SECONDS)
    return {"rates": rates, "round_trip": ROUND_TRIP, "seconds": SECONDS}


def shares(results: Results) -> dict[str, float]:
    """Return each case's rate as a part of the near one's: medians over the rounds."""
    rates: Mapping[str, Sequence[float]] = results["rates"]
    base = rates[key(BASE)]
    return {name: median(one / near for one, near in zip(values, base, strict=True)) for name, values in rates.items()}


def page(results: Results) -> str:
    """Return the table, and whether the profile keeps enough."""
    rates, found = results["rates"], shares(results)
    kept = found[key(Case(PROFILE, "", FAR))]
    verdict = "at least" if kept >= ENOUGH else "**less than**"
    settings = ", ".join(f"`{setting.option}={setting.value}`" for setting in PROFILES["far"].settings)
    lines = [
        f"A broker that answers {results['round_trip'] * 1000:.0f} ms later gets {kept:.0%} of the rate with the profile `far`, "
        f"{verdict} the {ENOUGH:.0%} that it is for: {settings}.",
        "",
        "A connection has at most `max.in.flight.requests.per.connection` × `max.request.size` bytes in flight, a partition that "
        "many × `batch.size`, and a worker `buffer.memory`. The least of these bounds ÷ the round trip is the rate, so few "
        "partitions are slow with any settings.",
        "",
        "| changed | to | MB/s | of near |",
        "|---|--:|--:|--:|",
    ]
    for case in cases():
        if key(case) in rates:
            lines.append(
                f"| {case.group} | {case.value} | {median(rates[key(case)]) / 1e6:.0f} | {found[key(case)]:.0%} |"
            )
    lines += [
        "",
        f"Values of {ROW_BYTES:,} B to {PARTITIONS} partitions of one node of Kafka through a proxy, for "
        f"{results['seconds']:.0f} s each, with `acks=all`, by one producer in one process. Medians of {len(rates[key(BASE)])} "
        "rounds in which the cases took turns; a part is of the same round. The proxy delays, and has no windows of TCP: over a "
        "real line, let the operating system's limits of socket buffers be above rate × round trip.",
    ]
    return "\n".join(lines)


def draw(results: Results, path: Path) -> None:
    """Draw each option's rates as parts of the near one's, the line of what is enough among them."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pyproducer"
    from matplotlib import pyplot as plt

    found = shares(results)
    there = [case for case in cases() if key(case) in found]
    figure, axis = plt.subplots(figsize=(9, 0.28 * len(there) + 0.8), layout="constrained")
    axis.barh(
        [f"{case.group} {case.value}".strip().replace("`", "") for case in there], [found[key(case)] for case in there]
    )
    axis.axvline(ENOUGH, color="#c62828", linewidth=1)
    axis.invert_yaxis()
    axis.set_xlabel("rate ÷ that of the near broker with default options")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


PART = Part("far", "Brokers that answer late", run, page, draw=draw, sister="benchmarks_far.md")
