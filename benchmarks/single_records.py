"""Records one by one, against other producers: `python -m benchmarks.single_records`, with one real Kafka broker."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.headlines import Headline
from benchmarks.machine import facts
from benchmarks.pages import folder_of, write_pages
from benchmarks.part import Measured, Options, Part, Results, store
from benchmarks.session import ROOT, SPARK_SINK, broker
from benchmarks.single_contenders import LINGER_MS, PACE, SCENES, TOPIC, VALUE, Figures
from tests.support.kafka_node import KAFKA_4

PAGE = ROOT / "docs" / "benchmarks.md"
ROUNDS = 5
RECORDS = 400_000
"""The records of the scene without a pace."""
PACED_SECONDS = 5.0
PARTITIONS = 4
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
"""The milliseconds that are written at the logarithmic axis."""
SECONDS = 240.0
"""The most seconds for one run of one contender."""
OURS_MANY, OTHER_MANY = "pyproducer, send_many", "confluent-kafka, produce_batch"
OURS, OTHER, OTHER_NATIVE = "pyproducer, futures", "kafka-python, futures", "confluent-kafka, on_delivery"


class Contender(NamedTuple):
    """One producer, used in one way. The records of the scene without a pace are divided by `slower`, so that no run takes
    minutes. With `only_rate` it runs in that scene only, since the other scenes use each producer in one way."""

    label: str
    sender: str
    kernel: str = "compiled"
    slower: int = 1
    only_rate: bool = False


CONTENDERS = (
    Contender(OURS, "pyproducer"),
    Contender("pyproducer, on_delivery", "pyproducer-callbacks", only_rate=True),
    Contender(OURS_MANY, "pyproducer-many", only_rate=True),
    Contender("pyproducer (portable kernel), futures", "pyproducer", "portable"),
    Contender("pyproducer (portable kernel), on_delivery", "pyproducer-callbacks", "portable", only_rate=True),
    Contender(OTHER, "kafka-python", slower=4),
    Contender("confluent-kafka, no callback", "confluent", only_rate=True),
    Contender(OTHER_NATIVE, "confluent-callbacks"),
    Contender(OTHER_MANY, "confluent-many", only_rate=True),
)


def run(contender: Contender, scene: str, servers: str, records: int) -> Figures:
    """Run a contender once, in a process of its own.

    Raises:
        RuntimeError: it failed; the message has its output.
    """
    command = [sys.executable, "-m", "benchmarks.single_contenders", contender.sender, scene, servers, str(records)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYPRODUCER_KERNEL": contender.kernel, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{contender.label}, {scene}: {done.stderr[-2000:]}")
    return Figures(**json.loads(done.stdout))


def measure(servers: str, records: Mapping[str, int], rounds: int, warmups: int) -> dict[str, dict[str, Any]]:
    """Return scene → contender → its runs. In each round every contender runs once in each scene, in a rotated order."""
    found: dict[str, dict[str, Any]] = {scene: {one.label: [] for one in taking_part(scene)} for scene in records}
    for number in range(warmups + rounds):
        for scene, count in records.items():
            contenders = taking_part(scene)
            first = number % len(contenders)
            for contender in contenders[first:] + contenders[:first]:
                figures = run(contender, scene, servers, count // (contender.slower if scene == "rate" else 1))
                if number >= warmups:
                    found[scene][contender.label].append(dataclasses.asdict(figures))
    return found


def taking_part(scene: str) -> list[Contender]:
    """Return the contenders of a scene."""
    return [contender for contender in CONTENDERS if scene == "rate" or not contender.only_rate]


def middle(runs: list[dict[str, float]], name: str) -> float:
    """Return the median of a figure over the runs."""
    return statistics.median(figures[name] for figures in runs)


def headlines(results: Results) -> list[Headline]:
    """Return the rate and the usual latency; the other percentiles are on the part's own page."""
    found = []
    for scene, name, title, unit, scale in (
        ("rate", "rate", "Single records with futures", "records/s", 1.0),
        ("paced", "p50", f"Median wait for one record, at {PACE:,}/s", "ms", 1e3),
    ):
        ours, *others = (
            middle(results[scene][label], name) * scale for label in (OURS, "kafka-python, futures", OTHER_NATIVE)
        )
        named = dict(zip(("kafka-python", "confluent-kafka"), others, strict=True))
        found.append(Headline(title, unit, ours, named, scene != "rate"))
    return found


def page(results: Results) -> str:
    """Return the page: the rates, and two tables of latencies."""
    rounds = len(results["rate"][OURS])
    made = (
        f"Values of {len(VALUE)} bytes, keys of 9, {PARTITIONS} partitions, acks=all, other settings by default. Each run is a "
        f"process of its own, and warms up with a fifth of its records. Medians of {rounds} rounds. CPU is the client's, in µs a "
        "record. `send_many` and `produce_batch` begin with a list of keys: the dictionaries of `produce_batch` are made in the "
        "measured time."
    )
    lines = [
        f"## As fast as they go, linger.ms={LINGER_MS}, flush included", "",
        "| | records/s | × kafka-python | CPU µs |", "|---|--:|--:|--:|",
    ]  # fmt: skip
    rates = results["rate"]
    base = middle(rates[OTHER], "rate")
    lines += [
        f"| {label} | {middle(runs, 'rate'):,.0f} | {middle(runs, 'rate') / base:.2f} | {middle(runs, 'cpu'):.1f} |"
        for label, runs in rates.items()
    ]
    for scene, title in (
        ("paced", f"{PACE:,} records a second, linger.ms=0: from the call to the callback"),
        ("one by one", "One after the other, linger.ms=0: each is waited for before the next is sent"),
    ):
        lines += ["", f"## {title}", "", "| | p50 ms | p95 ms | p99 ms | CPU µs |", "|---|--:|--:|--:|--:|"]
        lines += [_latencies(label, runs) for label, runs in results[scene].items()]
    return "\n".join([*lines, "", "## How it is made", "", made]) + "\n"


def _latencies(label: str, runs: list[dict[str, float]]) -> str:
    shown = " | ".join(f"{middle(runs, name) * 1e3:.2f}" for name in ("p50", "p95", "p99"))
    return f"| {label} | {shown} | {middle(runs, 'cpu'):.0f} |"


def draw(results: Results, path: Path) -> None:
    """Draw the rates, with a dot for each run, and the percentiles of the paced scene."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pyproducer"
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained", sharey=True)
    labels = list(reversed(results["rate"]))
    colours = ["tab:blue" if label.startswith("pyproducer") else "tab:gray" for label in labels]
    rates = results["rate"]
    left.barh(labels, [middle(rates[label], "rate") / 1e3 for label in labels], color=colours, alpha=0.6)
    for label in labels:
        left.plot([one["rate"] / 1e3 for one in rates[label]], [label] * len(rates[label]), ".", color="black")
    left.set_title(f"thousand records per second (linger {LINGER_MS} ms)")
    for name, marker in (("p50", "o"), ("p95", "s"), ("p99", "D")):
        shown = [(label, colour) for label, colour in zip(labels, colours, strict=True) if label in results["paced"]]
        found = [middle(results["paced"][label], name) * 1e3 for label, _ in shown]
        right.scatter(found, [one[0] for one in shown], marker=marker, c=[one[1] for one in shown], label=name)
    right.set_xscale("log")
    right.set_xticks(_TICKS, map(str, _TICKS))
    right.minorticks_off()
    right.grid(axis="x", alpha=0.4)
    right.set_title(f"ms to the callback ({PACE:,} a second, linger 0)")
    right.legend()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def run_part(options: Options, records: int = RECORDS, seconds: float = PACED_SECONDS) -> Results:
    """Run all scenes, with a broker of their own."""
    paced = int(PACE * seconds)
    counts = dict(zip(SCENES, (records, paced, paced // 4), strict=True))
    warmups = 1 if options.warmups is None else options.warmups
    with broker() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        return measure(cluster.bootstrap_servers, counts, options.repetitions or ROUNDS, warmups)


PART = Part("single", "Single records", run_part, page, headlines, draw, sister="benchmarks_single.md")


def main(given: list[str]) -> None:
    """Measure this part alone, and write the pages."""
    from benchmarks.parts import PARTS  # it imports this module

    parser = argparse.ArgumentParser(prog="python -m benchmarks.single_records", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measured rounds (%(default)s)")
    parser.add_argument("--records", type=int, default=RECORDS, help="of the scene without a pace (%(default)s)")
    parser.add_argument("--seconds", type=float, default=PACED_SECONDS, help="of the paced scene (%(default)s)")
    parser.add_argument("--out", type=Path, default=PAGE, help="the main page; the others lie beside it")
    options = parser.parse_args(given)
    began_with = facts(KAFKA_4, SPARK_SINK)
    results = run_part(Options(repetitions=options.rounds), options.records, options.seconds)
    store(folder_of(options.out), PART.name, Measured(began_with, results))
    print(page(results))
    for written in write_pages(PARTS, options.out):
        print(written)


if __name__ == "__main__":
    main(sys.argv[1:])
