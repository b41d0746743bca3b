"""Play Spark's odd ways of running a write, and put how they ended into docs/exactly_once_matrix.md.

    python -m tests.matrix.oddities --help

Owns: which way is played where, and what readers must see. Must not know: what is odd about it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.matrix import results
from tests.matrix.cases import OPTIONS as PATHS
from tests.matrix.cases import all_cases
from tests.matrix.clusters import Cluster, cluster_of, left_open
from tests.matrix.failing import FOLDER, SITE, VARIABLE
from tests.matrix.odd_lives import FUNCTION, Death
from tests.matrix.odd_ways import TWO_EXECUTORS, WAYS
from tests.matrix.play import PARTITIONS, Result
from tests.matrix.readers import read_later
from tests.matrix.standalone import standalone
from tests.support.class_archives import spark_options
from tests.support.processes import ChildProcess
from tests.support.waiting import poll

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300.0
QUICK = {"kafka.linger.ms": "0", "kafka.batch.size": "1024"}
"""Options that send each batch at once, so that a fault hits a task in the midst of its write."""
FIRST_ROW = {"triggers": 100}
"""The number of the first row that a way writes, where it is not 0."""


def play(cluster: Cluster, name: str, path: str, home: Path) -> Result:
    """Play a way on a cluster, and judge."""
    way, topic = WAYS[name], f"m-{uuid.uuid4().hex[:12]}"
    result = Result(f"{cluster_name(cluster)}/{path}/{way.title}/1", fired=1)
    folder = home / topic
    folder.mkdir(parents=True)
    for each in (topic, f"{topic}-2"):
        cluster.create_topic(each, PARTITIONS)
    begun = time.monotonic()
    with standalone(folder) if way.master == TWO_EXECUTORS else nullcontext(way.master) as master:
        arguments = [name, master, str(folder), cluster.bootstrap_servers, topic]
        outcome = _run(folder, [*arguments, json.dumps({**QUICK, **dict(PATHS[path])})], way.deaths, result)
    if outcome is not None:
        result.reported.append(outcome["reported"])
        for each, count in outcome["topics"].items():
            first = FIRST_ROW.get(name, 0)
            result.violations += judge(cluster, each, range(first, count))
        if way.leaves_more and path == "B":
            seen = sum(map(len, read_later(cluster.bootstrap_servers, topic, "read_uncommitted").values()))
            result.reported.append(f"{seen} rows in the log")
            if seen <= outcome["topics"][topic]:
                result.violations.append("no task was in the midst of a write")
    result.seconds = round(time.monotonic() - begun, 2)
    return result


def cluster_name(cluster: Cluster) -> str:
    """Return the name of the cluster in results."""
    return "embedded" if type(cluster).__name__ == "EmbeddedCluster" else "4"


def _run(folder: Path, arguments: Sequence[str], deaths: Sequence[Death], result: Result) -> dict[str, Any] | None:
    """Play all lives, of which only the last one comes to its end; return its outcome, or None after a violation."""
    deadline = time.monotonic() + SECONDS * (1 + len(deaths))
    for number, death in enumerate(deaths, 1):
        (folder / "plan").write_text(json.dumps({**death._asdict(), "number": number}))
        child = _life(folder, arguments, deadline)
        if child.exit_code != -signal.SIGKILL:
            result.violations.append(f"it was not killed at {death.place}: {child.exit_code}, {child.tail()[-1500:]}")
            child.kill()
            return None
    (folder / "plan").unlink(missing_ok=True)
    child = _life(folder, arguments, deadline)
    if child.exit_code is None:
        child.kill()
        result.violations.append(f"stuck: no end within {SECONDS:g} s")
        return None
    if child.exit_code != 0:
        result.violations.append(f"it ended with {child.exit_code}: {child.tail()[-1500:]}")
        return None
    found: dict[str, Any] = json.loads((folder / "outcome.json").read_text())
    return found


def _life(folder: Path, arguments: Sequence[str], deadline: float) -> ChildProcess:
    """One life of the program: to its end, or to the deadline."""
    environment = {
        FOLDER: str(folder),
        VARIABLE: FUNCTION,
        "SPARK_SUBMIT_OPTS": spark_options(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([SITE, str(ROOT)]),
    }
    child = ChildProcess([sys.executable, "-m", "tests.matrix.odd_ways", *arguments], folder / "log", environment)
    poll(child.has_ended, seconds=deadline - time.monotonic(), pause=0.05)
    return child


def judge(cluster: Cluster, topic: str, wanted: range) -> list[str]:
    """Return one line for each kind of violation: of the committed rows, and of open transactions."""
    lagging, still_open = left_open(cluster, topic)
    seen = Counter(
        int(one.value or b"-1") for rows in read_later(cluster.bootstrap_servers, topic).values() for one in rows
    )
    kinds = {
        "readers are held back": lagging,
        "transactions are open": list(still_open),
        "lost-write": sorted(set(wanted) - seen.keys()),
        "duplicate": sorted(number for number, count in seen.items() if count > 1),
        "foreign": sorted(seen.keys() - set(wanted)),
    }
    return [f"{topic}: {kind}: {len(found)}, e.g. {str(found)[:200]}" for kind, found in kinds.items() if found]


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", nargs="+", choices=("embedded", "4"), default=["embedded", "4"])
    parser.add_argument("--paths", nargs="+", choices=list(PATHS), default=list(PATHS))
    parser.add_argument("--only", default="", help="play the ways whose words have this regular expression in them")
    parser.add_argument("--results", type=Path, default=results.SCENES)
    chosen = parser.parse_args()
    for cluster in chosen.clusters:
        with (
            tempfile.TemporaryDirectory(prefix="oddities-") as folder,
            cluster_of(cluster, Path(folder), nodes=1) as running,
        ):
            for name, way in WAYS.items():
                for path in chosen.paths if re.search(chosen.only, f"{name}: {way.title}") else ():
                    result = play(running, name, path, Path(folder))
                    results.append(chosen.results, result)
                    print(
                        f"{result.name}: {result.verdict}, {result.seconds:5.1f} s",
                        *result.reported,
                        *result.violations,
                        sep="\n    ",
                        flush=True,
                    )
    print(results.write_page(scenes=chosen.results, of=sum(1 for _ in all_cases())))


if __name__ == "__main__":
    main()
