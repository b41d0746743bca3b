"""The scenes: what the matrix does not have, with the same machinery. Old transactions, thieves, lost answers, changed topics.

    python -m tests.matrix.scenes --help

Owns: which scenes there are, the clusters that they need, and how each must end. Must not know: how they are played.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.matrix import results
from tests.matrix.__main__ import OPTIONS, play
from tests.matrix.cases import all_cases
from tests.matrix.clusters import cluster_of
from tests.matrix.drivers import Drivers
from tests.matrix.play import Case, Fault, Stand
from tests.matrix.rows import Amount

TIMEOUT = ("kafka.transaction.timeout.ms", "5000")
"""Brokers look every 10 s which transactions are late, so that all are when 16 s have passed."""
ALL = ("exactlyOnceMaxInlineBytes", "0")
SHORT_LIVES = {
    "transactional.id.expiration.ms": "4000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}
"""Transactional ids that are not used are forgotten within seconds."""


class Setting(NamedTuple):
    """A cluster that scenes share."""

    cluster: str
    nodes: int = 1
    settings: tuple[tuple[str, str], ...] = ()
    proxied: bool = False


class Scene(NamedTuple):
    """A scene's title, its events, and its expected end. `settings` are the clusters on which it is played."""

    title: str
    faults: tuple[Fault, ...]
    path: str = "B"
    loud: str = ""
    options: tuple[tuple[str, str], ...] = (ALL,)
    copies: int = 3
    settings: tuple[Setting, ...] = (Setting("embedded"), Setting("4", 3), Setting("3.9", 3))
    amount: Amount = Amount()
    loose: bool = False
    """Whether keys may move to another partition."""


_EXPIRING = tuple(Setting(version, 1, tuple(SHORT_LIVES.items())) for version in ("4", "3.9"))
_LOSES_MARKERS = (Setting("4", 3),)
SCENES: tuple[Scene, ...] = (
    Scene(
        "a driver is paused before its commit until all its transactions time out",
        (Fault("commit.voting", "pause 16", 1),),
        options=(ALL, TIMEOUT),
    ),
    Scene(
        "a driver is paused after its commit point until all its transactions time out",
        (Fault("commit.writing", "pause 16", 1),),
        options=(ALL, TIMEOUT),
    ),
    Scene(
        "a driver with few rows is paused within its transaction until it times out",
        (Fault("control.produced", "pause 70", 1),),
        path="A",
        options=(),
        settings=(Setting("4", 3),),
    ),
    Scene(
        "a worker is paused until its transaction times out, with its rows sent",
        (Fault("task.sent", "pause 16", 2),),
        options=(ALL, TIMEOUT),
    ),
    Scene(
        "a worker is paused before its report until its transaction times out",
        (Fault("task.prepared", "pause 16", 2),),
        options=(ALL, TIMEOUT),
    ),
    Scene(
        "another producer takes the ids of the tasks before the commit", (Fault("task.prepared", "hijack tasks", 3),)
    ),
    Scene("another producer takes the ids of the tasks after the vote", (Fault("commit.voting", "hijack tasks", 1),)),
    Scene(
        "another producer takes the ids of the tasks after the commit point",
        (Fault("commit.writing", "hijack tasks", 1),),
    ),
    Scene(
        "another producer takes one id after the commit point",
        (Fault("commit.writing", "hijack one", 1),),
        loud="PARTIAL",
    ),
    Scene("another producer takes the id of the driver after BEGIN", (Fault("begin.listing", "hijack control", 1),)),
    Scene(
        "another producer takes the id of the driver before its commit", (Fault("commit.voting", "hijack control", 1),)
    ),
    Scene(
        "another producer takes the id of the driver during its commit",
        (Fault("control.produced", "hijack control", 1),),
    ),
    Scene(
        "another producer takes the id of a driver with few rows during its commit",
        (Fault("control.produced", "hijack control", 1),),
        path="A",
        options=(),
    ),
    Scene(
        "a driver dies when it has ended one transaction of two",
        (Fault("commit.writing", "end one, driver", 1, "dies"),),
    ),
    Scene(
        "a driver dies when it has ended one transaction of two, and comes back when the other has timed out",
        (Fault("commit.writing", "end one, driver, wait 16", 1, "dies"),),
        loud="PARTIAL",
        options=(ALL, TIMEOUT),
    ),
    Scene(
        "a driver dies after its commit point, and comes back when all transactions have timed out",
        (Fault("commit.writing", "driver, wait 16", 1, "dies"),),
        options=(ALL, TIMEOUT),
    ),
    Scene(
        "a driver dies before it notes that all is done, and comes back when the brokers have forgotten the ids",
        (Fault("commit.finishing.looking", "driver, wait 16", 1, "dies"),),
        settings=_EXPIRING,
    ),
    Scene(
        "the brokers forget the ids between two batches",
        (Fault("begin.taking", "wait 16", 2),),
        settings=_EXPIRING,
    ),
    Scene(
        "the brokers forget the driver's id between BEGIN and commit",
        (Fault("commit.voting", "wait 16", 1),),
        settings=_EXPIRING,
    ),
    Scene(
        "all nodes are down longer than the transactions may be open, and come back with them",
        (Fault("task.prepared", "driver, all nodes down 16", 2),),
        options=(ALL, TIMEOUT),
    ),
    Scene(
        "a partition has no leader when its transactions are ended",
        (Fault("commit.writing", "leader", 1),),
        loud="HUNG or exact",
        copies=1,
        settings=(Setting("4", 3), Setting("3.9", 3)),
    ),
    Scene(
        "a partition has no leader when a driver's orphans time out",
        (Fault("task.prepared", "driver, leader down 12", 2),),
        loud="HUNG or exact",
        copies=1,
        options=(ALL, TIMEOUT),
        settings=(Setting("4", 3), Setting("3.9", 3)),
    ),
    Scene(
        "a driver with few rows dies within its transaction, which is aborted while a partition has no leader",
        (Fault("control.produced", "driver, hijack control without leader", 2, "dies"),),
        path="A",
        loud="HUNG or exact",
        copies=1,
        options=(),
        settings=_LOSES_MARKERS,
    ),
)


_PROXIED = tuple(Setting(version, 1, proxied=True) for version in ("embedded", "4", "3.9"))
_LOST = {
    "InitProducerId": (22, "begin.listing"),
    "the rows of a task": (0, "task.opened"),
    "the control record": (0, "commit.voting"),
    "the end of the driver's transaction": (26, "control.produced"),
    "the end of a task's transaction": (26, "commit.writing"),
}
SCENES += tuple(
    Scene(f"the {what} is lost: {subject}", (Fault(place, f"lose {what} {api}", 1),), settings=_PROXIED)
    for what in ("answer", "request")
    for subject, (api, place) in _LOST.items()
)
SCENES += (
    Scene(
        "the answer is lost to the end of the transaction that has all rows",
        (Fault("control.produced", "lose answer 26", 1),),
        path="A",
        options=(),
        settings=_PROXIED,
    ),
    Scene(
        "the topic gets more partitions in mid-transaction",
        (Fault("task.prepared", "add partitions", 2),),
        settings=(Setting("4", 3), Setting("3.9", 3)),  # the embedded broker's topics stay as they are
        loose=True,
    ),
    Scene(
        "the topic is deleted and created again during a transaction",
        (Fault("task.prepared", "remake topic", 1),),
    ),
    Scene(
        "late copies of all ends of transactions arrive in the midst of the driver's next one",
        (Fault("commit.listing", "keep ends", 1), Fault("control.produced", "send ends", 1)),
        settings=_PROXIED,
    ),
    Scene(
        "the same with few rows, in the next batch",
        (Fault("commit.listing", "keep ends", 0), Fault("control.produced", "send ends", 1)),
        path="A",
        options=(),
        settings=_PROXIED,
    ),
    Scene(
        "the epochs of the driver's id are used up",
        (Fault("begin.taking", "use up epochs"),),
        settings=(Setting("embedded"), Setting("4"), Setting("3.9")),
        amount=Amount(batches=8),
    ),
)

_STOPPED = {
    "as it takes the sink": "begin.taking",
    "before its commit point": "commit.listing",
    "at its commit point": "control.produced",
    "after its commit point": "commit.writing",
}
SCENES += tuple(
    Scene(
        f"the query is stopped {where}, and started again",
        (Fault(place, "stop", 1),),
        path=path,
        options=(ALL,) if path == "B" else (),
        settings=(Setting("embedded"), Setting("4")),
    )
    for where, place in _STOPPED.items()
    for path in ("A", "B")
)


def cases(setting: Setting) -> Iterator[Case]:
    """The scenes on a cluster, as cases."""
    for scene in SCENES:
        if setting in scene.settings:
            yield Case(
                setting.cluster,
                scene.path,
                scene.faults,
                1,
                scene.amount,
                scene.options,
                scene.loud,
                scene.title,
                scene.copies,
                scene.loose,
            )


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="play the scenes whose names have this regular expression in them")
    parser.add_argument("--since", default="", metavar="DAY", help="also those whose result is older, as in 2026-01-31")
    parser.add_argument("--results", type=Path, default=results.SCENES)
    chosen = parser.parse_args()
    for setting in dict.fromkeys(setting for scene in SCENES for setting in scene.settings):
        known = results.load(chosen.results)
        wanted = [case for case in cases(setting) if re.search(chosen.only, case.name)]
        missing = results.missing(wanted, known, chosen.since)
        if missing:
            play_all(setting, missing, chosen.results)
    print(results.write_page(scenes=chosen.results, of=sum(1 for _ in all_cases())))


def play_all(setting: Setting, missing: list[Case], path: Path, options: Mapping[str, str] = OPTIONS) -> None:
    """Scenes on one cluster."""
    with tempfile.TemporaryDirectory(prefix="scenes-") as folder:
        home = Path(folder)
        with (
            cluster_of(
                setting.cluster, home, dict(setting.settings), setting.nodes, proxied=setting.proxied
            ) as running,
            Drivers(home) as drivers,
        ):
            stand = Stand(running, drivers, home, options)
            for case in missing:
                result = play(stand, case)
                results.append(path, result)
                reported = f"{result.seconds:5.1f} s, {result.lives} lives {result.loud}"
                print(f"{case.name}: {result.verdict}, {reported}", *result.violations, sep="\n    ", flush=True)


if __name__ == "__main__":
    main()
