"""Two drivers of one query at once, on one checkpoint or each with a copy of it: who has begun last may write, and no row is
doubled.

    python -m tests.matrix.duel --help

Owns: how two drivers are driven. Must not know: what is right; the judge is that of the matrix.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.matrix import results
from tests.matrix.__main__ import OPTIONS
from tests.matrix.cases import OPTIONS as PATHS
from tests.matrix.cases import all_cases
from tests.matrix.clusters import NAMES, cluster_of
from tests.matrix.drivers import Driver, Drivers
from tests.matrix.play import PARTITIONS, Case, Play, Result, Stand, judge, short_message
from tests.matrix.readers import ConcurrentReader
from tests.matrix.rows import Amount, expected, write_files
from tests.support.waiting import wait_until

AMOUNT = Amount(batches=8)
SECONDS = 240.0
REWOUND = "the checkpoint was rewound or is a copy of an older one"
LIVES = 24
"""Maximum lives of both together: each takes the sink away from the other, again and again, until one has written all."""


def fight(stand: Stand, case: Case, *, copied: bool) -> Result:
    """Two drivers write what is there until both have come to its end.

    With a checkpoint each, one driver may be overtaken by several batches. It is refused then, for good, since its checkpoint
    looks like one that was rewound.
    """
    topic = f"m-{uuid.uuid4().hex[:12]}"
    scene = Play(stand, case, topic)
    job = scene.job()
    result = scene.result
    begun = time.monotonic()
    stand.cluster.create_topic(topic, PARTITIONS)
    with ConcurrentReader(stand.cluster.bootstrap_servers, topic) as reader:
        write_files(scene.home / "rows", AMOUNT, range(1))
        first = stand.ready_driver()
        _wait(first, first.give(job), begun + SECONDS)
        second = _warm(stand, job, f"{topic}-warm", begun + SECONDS)
        write_files(scene.home / "rows", AMOUNT, range(1, AMOUNT.batches))
        jobs = [job, dict(job)]
        if copied:
            jobs[1]["checkpoint"] += "-copy"
            shutil.copytree(job["checkpoint"], jobs[1]["checkpoint"])
        fighters = [first, second]
        numbers = [driver.give(reported) for driver, reported in zip(fighters, jobs, strict=True)]
        left = {0, 1}
        while left and result.lives < LIVES and time.monotonic() < begun + SECONDS:
            for place in sorted(left):
                outcome = fighters[place].outcome(numbers[place])
                if outcome is not None and (not outcome["error"] or (copied and REWOUND in outcome["error"])):
                    left.discard(place)
                    result.lives += bool(outcome["error"])
                elif outcome is not None:
                    result.lives += 1
                    result.reported.append(short_message(outcome["error"]))
                    numbers[place] = fighters[place].give(jobs[place])
            time.sleep(0.02)  # the pace of the turns
        result.faults, result.fired = 1, min(1, result.lives)  # without a driver that lost the sink there was no duel
        if left:
            result.violations.append(
                f"stuck: {len(left)} of two drivers did not come to the end, {result.reported[-2:]}"
            )
        fighters[1].kill()
        if left:
            fighters[0].kill()
            stand.driver = None
        together = {} if copied else micro_batches(Path(job["checkpoint"]))
        result.violations += judge(stand.cluster, topic, expected(AMOUNT), reader, together=together)
    result.seconds = round(time.monotonic() - begun, 2)
    return result


def micro_batches(checkpoint: Path) -> dict[int, int]:
    """The micro-batch in which each batch of files was read, by a query's checkpoint.

    One who takes over finds files noted as read that are in no micro-batch yet, and reads them together with the next ones.
    """
    ends = {
        int(file.name): json.loads(file.read_text().splitlines()[-1])["logOffset"]
        for file in _logged(checkpoint / "offsets")
    }
    found = {}
    for file in _logged(checkpoint / "sources" / "0"):
        for line in file.read_text().splitlines()[1:]:
            entry = json.loads(line)
            batch = int(Path(entry["path"]).name.partition("-")[0])
            found[batch] = min((number for number, end in ends.items() if entry["batchId"] <= end), default=batch)
    return found


def _logged(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.name.partition(".")[0].isdigit()]


def _warm(stand: Stand, job: Mapping[str, Any], topic: str, deadline: float) -> Driver:
    """Another driver, which has written to a topic of its own: the first query of a driver takes longer than a duel."""
    driver = stand.drivers.take()
    stand.cluster.create_topic(topic, PARTITIONS)
    options = {**job["options"], "topic": topic, "exactlyOnceId": topic}
    _wait(driver, driver.give({**job, "checkpoint": f"{job['checkpoint']}-warm", "options": options}), deadline)
    return driver


def _wait(driver: Driver, number: int, deadline: float) -> None:
    process, seconds = driver.process, deadline - time.monotonic()
    outcome = wait_until(
        lambda: driver.outcome(number),
        "the first batch is written",
        seconds=seconds,
        more=process.tail,
        ended=process.has_ended,
    )
    if outcome["error"]:
        raise RuntimeError(outcome["error"])


def main() -> None:
    """Fight and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--results", type=Path, default=results.SCENES)
    chosen = parser.parse_args()
    for cluster in chosen.clusters:
        with tempfile.TemporaryDirectory(prefix="duel-") as folder:
            home = Path(folder)
            with cluster_of(cluster, home) as running, Drivers(home) as drivers:
                stand = Stand(running, drivers, home, OPTIONS)
                for path, options in PATHS.items():
                    for copied in (False, True):
                        title = "two drivers at once, " + (
                            "each with a copy of one checkpoint" if copied else "on one checkpoint"
                        )
                        case = Case(cluster, path, (), 1, AMOUNT, options, title=title)
                        result = fight(stand, case, copied=copied)
                        results.append(chosen.results, result)
                        reported = f"{result.seconds:5.1f} s, {result.lives} lives"
                        print(
                            f"{case.name}: {result.verdict}, {reported}", *result.violations, sep="\n    ", flush=True
                        )
    print(results.write_page(scenes=chosen.results, of=sum(1 for _ in all_cases())))


if __name__ == "__main__":
    main()
