"""The comparison of the partitioners: `python -m benchmarks.partitioning simulate|real|spread|keys`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.partitioning.real import VARIANTS, slow_broker, spreads
from benchmarks.partitioning.simulation.plots import (
    draw_kip_480,
    draw_kip_794,
    draw_slow_broker,
    kip_480_table,
    kip_794_table,
    slow_broker_table,
    spread_table,
)
from benchmarks.partitioning.simulation.recorded import SPREADS_FILE, Measured, Spread, slow_broker_file
from benchmarks.partitioning.simulation.scenes import kip_480, kip_794
from spark_producer.kernel import BinaryColumn
from spark_producer.partitioner.key_hash import LIBRDKAFKA

RECORDED = Path(__file__).with_name("simulation") / "measured"
"""The folder of the figures of real runs, for pages and notebooks."""


def simulate(megabytes: float, out: Path | None) -> None:
    """Run both comparisons with a fixed seed, print the tables, and write plots into `out`."""
    outcomes, comparisons = kip_794(megabytes), list(kip_480())
    print(f"KIP-794, {megabytes:g} MB/s, 20 ms per answer of one of three brokers\n\n{kip_794_table(outcomes)}")
    print(f"KIP-480, three producers, round robin → sticky\n\n{kip_480_table(comparisons)}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        draw_kip_794(outcomes, out / "kip-794.svg")
        draw_kip_480(comparisons, out / "kip-480.svg")


def real(seconds: float, megabytes: float, only: list[str], out: Path | None) -> None:
    """Measure the slow broker on a real cluster, ours beside Java's. With `out` a plot is written, and the figures are kept."""
    runs = []
    for run in slow_broker(seconds, megabytes, only):
        runs.append(run)
        print(run, flush=True)
    print(slow_broker_table(runs))
    if out is not None:
        keep(slow_broker_file(megabytes), runs)
        out.mkdir(parents=True, exist_ok=True)
        draw_slow_broker(runs, (out / slow_broker_file(megabytes)).with_suffix(".svg"))


def spread(seconds: float, rate: float, write: bool) -> None:
    """Measure round robin and sticky on real nodes, ours beside Java's."""
    runs = []
    for run in spreads(seconds, rate):
        runs.append(run)
        print(run, flush=True)
    print(spread_table(runs))
    if write:
        keep(SPREADS_FILE, runs)


def keep(name: str, runs: Sequence[Measured] | Sequence[Spread]) -> None:
    """Write the runs to a file, one line each."""
    lines = ",\n".join(json.dumps(run) for run in runs)
    (RECORDED / name).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def keys(count: int) -> None:
    """Print the keys per second of each hash: for keys of 9 bytes, then with one key of 1 MB among them."""
    plain = np.char.add("k", np.char.zfill(np.arange(count).astype("U8"), 8)).tolist()
    for label, values in (("9 bytes", plain), ("and one of 1 MB", [*plain[:-1], "x" * (1 << 20)])):
        column = BinaryColumn(pa.array(values, pa.binary()))
        for name in ("murmur2_random", "consistent_random", "fnv1a_random"):
            best = min(_seconds(name, column) for _ in range(5))
            print(f"{name:18} {label:16} {count / best / 1e6:6.1f} M keys/s")


def _seconds(name: str, column: BinaryColumn) -> float:
    fresh = BinaryColumn(column.array)  # its lengths are not known yet
    begun = time.perf_counter()
    LIBRDKAFKA[name].partitions(fresh, np.int32(12))
    return time.perf_counter() - begun


def main() -> None:
    """Parse the arguments and run the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitioning", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    simulated = commands.add_parser("simulate", help="seconds, no Kafka")
    simulated.add_argument("--megabytes", type=float, default=1.0, help="per second, in the scene of KIP-794")
    simulated.add_argument("--out", type=Path, help="folder for the plots")
    measured = commands.add_parser("real", help="three Kafka nodes and a proxy, minutes")
    measured.add_argument("--seconds", type=float, default=30.0, help="of each of the ten runs")
    measured.add_argument("--megabytes", type=float, default=1.0, help="per second")
    measured.add_argument("--only", action="append", default=[], choices=[variant.name for variant in VARIANTS])
    measured.add_argument("--out", type=Path, help="folder for the plot; the figures are kept in the package")
    spreading = commands.add_parser("spread", help="three Kafka nodes, minutes")
    spreading.add_argument("--seconds", type=float, default=6.0, help="of each of the 24 runs")
    spreading.add_argument("--rate", type=float, default=5000.0, help="records per second")
    spreading.add_argument("--write", action="store_true", help="keep the figures in the package")
    hashed = commands.add_parser("keys", help="hashes of keys, by the column")
    hashed.add_argument("--count", type=int, default=1_000_000)
    given = parser.parse_args()
    if given.command == "simulate":
        simulate(given.megabytes, given.out)
    elif given.command == "real":
        real(given.seconds, given.megabytes, given.only, given.out)
    elif given.command == "spread":
        spread(given.seconds, given.rate, given.write)
    else:
        keys(given.count)


if __name__ == "__main__":
    main()
