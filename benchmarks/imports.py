"""The cost of a new Python process before its first row: `python -m benchmarks.imports`.

Every case runs in new interpreters, and all cases take turns. A difference between cases is the median of those of each round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.part import Options, Part, Results

ROOT = Path(__file__).parent.parent
ROUNDS = 15
SECONDS = 60
_PEAK = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
"""Code that prints the peak memory in KiB; `getrusage` would count the process that started this one too."""
_SPARK = "import pyspark.worker, pyspark.sql.datasource, pyspark.sql.types, numpy, pyarrow"


class Case(NamedTuple):
    """The imports of an interpreter; `without` is the case with those of its imports that are not the package's own."""

    name: str
    code: str
    without: str = ""


CASES = (
    Case("Python alone", "pass"),
    Case("numpy and pyarrow", "import numpy, pyarrow"),
    Case("`spark_producer.producer`", "import spark_producer.producer", "numpy and pyarrow"),
    Case("PySpark's worker, numpy and pyarrow", _SPARK),
    Case(
        "PySpark's worker and `spark_producer.datasource.write.planning`: planner and commit process of a write",
        f"{_SPARK}; import spark_producer.datasource.write.planning",
        "PySpark's worker, numpy and pyarrow",
    ),
    Case(
        "PySpark's worker and `spark_producer.datasource.write.worker.task`: task",
        f"{_SPARK}; import spark_producer.datasource.write.worker.task",
        "PySpark's worker, numpy and pyarrow",
    ),
    Case("numpy, pyarrow and pyarrow.compute", "import numpy, pyarrow.compute"),
    Case("numpy, pyarrow and pandas", "import numpy, pyarrow, pandas"),
)


def start(code: str) -> tuple[float, float]:
    """Return the milliseconds of a new interpreter that runs `code`, and its peak memory in MiB."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    command = [sys.executable, "-c", f"{code}\n{_PEAK}"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=True)
    return (time.perf_counter() - began) * 1e3, int(done.stdout) / 1024


def run(options: Options) -> Results:
    """Measure all cases."""
    return measure(CASES, options)


def measure(cases: Sequence[Case], options: Options) -> Results:
    """Measure some cases, after one round that writes the compiled modules."""
    rounds = ROUNDS if options.repetitions is None else options.repetitions
    taken: dict[str, list[tuple[float, float]]] = {case.name: [] for case in cases}
    for number in range(rounds + 1):
        for case in cases:
            found = start(case.code)
            if number:
                taken[case.name].append(found)
    return {"cases": {name: [list(found) for found in values] for name, values in taken.items()}}


def page(results: Results) -> str:
    """Return the table."""
    taken = results["cases"]
    lines = [
        f"Medians of {len(next(iter(taken.values())))} fresh interpreters each, with bytecode. *Own* is the difference to the "
        "case without the package in the same round; MiB is the peak. A write never loads pandas.",
        "",
        "| imported | ms | own ms | MiB | own MiB |",
        "|---|--:|--:|--:|--:|",
    ]
    for case in CASES:
        if case.name in taken:
            milliseconds, mebibytes = (statistics.median(values) for values in zip(*taken[case.name], strict=True))
            own = [f"{value:.0f}" for value in own_share(results, case)] if case.without else ["", ""]
            lines.append(f"| {case.name} | {milliseconds:.0f} | {own[0]} | {mebibytes:.0f} | {own[1]} |")
    return "\n".join(lines)


def own_share(results: Results, case: Case) -> tuple[float, float]:
    """Return the milliseconds and MiB that a case takes more than the one without the package."""
    pairs = zip(results["cases"][case.name], results["cases"][case.without], strict=True)
    differences = [(whole[0] - other[0], whole[1] - other[1]) for whole, other in pairs]
    milliseconds, mebibytes = (statistics.median(values) for values in zip(*differences, strict=True))
    return milliseconds, mebibytes


PART = Part("imports", "Imports: what a new Python process pays", run, page)


def main(given: list[str]) -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.imports", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measured rounds")
    print(page(run(Options(repetitions=parser.parse_args(given).rounds))))


if __name__ == "__main__":
    main(sys.argv[1:])
