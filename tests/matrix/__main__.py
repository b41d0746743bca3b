"""Play the failure matrix, or the rest of it, and write it to docs/exactly_once_matrix.md: `python -m tests.matrix --help`.

A result is kept as soon as it is there (`--results`), and a run plays what has none yet, or none since a day (`--since`). The
cases of a cluster are played in one go: cluster and drivers are started once.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.matrix import results
from tests.matrix.cases import all_cases
from tests.matrix.clusters import NAMES, cluster_of
from tests.matrix.drivers import Drivers
from tests.matrix.play import Case, Play, Result, Stand

ID = "m-{topic}"
OPTIONS = {"exactlyOnceId": ID, "kafka.reconnect.backoff.max.ms": "500", "kafka.retry.backoff.max.ms": "200"}


def main() -> None:
    """Play and print."""
    chosen = _arguments()
    known = results.load(chosen.results)
    cases = [case for case in all_cases() if case.cluster in chosen.clusters and re.search(chosen.only, case.name)]
    missing = results.missing(cases, known, chosen.since)[: chosen.most]
    deadline = time.monotonic() + chosen.minutes * 60
    for cluster in chosen.clusters:
        of_cluster = [case for case in missing if case.cluster == cluster]
        if of_cluster and time.monotonic() < deadline:
            _play_all(cluster, of_cluster, chosen, deadline)
    print(results.write_page(chosen.results, of=sum(1 for _ in all_cases())))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--only", default="", help="play the cases whose names have this regular expression in them")
    parser.add_argument("--most", type=int, help="maximum number of cases")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="begin no case after this many minutes")
    parser.add_argument("--since", default="", metavar="DAY", help="also those whose result is older, as in 2026-01-31")
    parser.add_argument(
        "--results", type=Path, default=results.MATRIX, help="file of the results (default: %(default)s)"
    )
    return parser.parse_args()


def _play_all(cluster: str, cases: Sequence[Case], chosen: argparse.Namespace, deadline: float) -> None:
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        home = Path(folder)
        deadly = any("driver" in fault.victim for case in cases for fault in case.faults)
        with cluster_of(cluster, home) as running, Drivers(home, ahead=deadly) as drivers:
            stand = Stand(running, drivers, home, OPTIONS)
            for number, case in enumerate(cases, 1):
                if time.monotonic() > deadline:
                    break
                result = play(stand, case)
                results.append(chosen.results, result)
                reported = f"{result.seconds:5.1f} s, {result.lives} lives"
                print(
                    f"{number}/{len(cases)} {case.name}: {result.verdict}, {reported}",
                    *result.violations,
                    sep="\n    ",
                    flush=True,
                )


def play(stand: Stand, case: Case) -> Result:
    """A case with a topic, and so an id, of its own. If all is well, the topic goes, since a node that starts reads all logs."""
    topic = f"m-{uuid.uuid4().hex[:12]}"
    result = Play(stand, case, topic).run()
    if not result.violations:
        stand.cluster.delete_topic(topic)
    return result


if __name__ == "__main__":
    main()
