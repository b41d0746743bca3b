"""Random faults against a streaming query on three nodes of Kafka, and the verdict of the same judge as that of the matrix.

    python -m tests.matrix.nemesis --seconds 300 --seed 1 --runs 10

Two hands play at a time, each by the seed: one on the brokers (a node killed or paused, its clients cut, delayed or not answered,
leaders moved), one on the query (driver or a Python worker killed, driver paused, stopped, or replaced while it is paused). Then
all is healed, the query comes to its end, and every row must be there once; or it has ended loudly, with what people must mend.

Owns: which faults, when, and the record of a run. Must not know: how faults are done, or how a run is drawn.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.matrix.clusters import RealCluster
from tests.matrix.drivers import Driver, Drivers
from tests.matrix.faults import Brokers, Fault, proxied_cluster
from tests.matrix.hand import Hand
from tests.matrix.play import LOUD, judge, short_message
from tests.matrix.readers import ConcurrentReader
from tests.matrix.rows import FILES, Amount, expected, write_files
from tests.support.waiting import poll

FOLDER = Path(__file__).resolve().parents[2] / "build" / "nemesis"
PARTITIONS = 3
AMOUNT = Amount(batches=0, rows=2_000, uneven=True)
INLINE_BYTES = 30_000
"""Less than a large file, more than a small one."""
LAGGING = 4
"""Maximum batches that wait, so that the end does not take long."""
FINISH_SECONDS = 240.0
OPTIONS = {
    "kafka.reconnect.backoff.max.ms": "500",
    "kafka.retry.backoff.max.ms": "500",
    "kafka.request.timeout.ms": "10000",
}
ONCE = {"exactlyOnceMaxInlineBytes": str(INLINE_BYTES), "kafka.transaction.timeout.ms": "30000"}


@dataclass
class Record:
    """The events of a run. Times are seconds since its start."""

    seed: int
    version: str
    seconds: float
    once: bool = True
    faults: list[tuple[float, float, str, str]] = field(default_factory=list)
    """begin, end, lane, words"""
    lives: list[tuple[float, float]] = field(default_factory=list)
    """Start and end of each driver."""
    visible: list[tuple[float, int]] = field(default_factory=list)
    """Times and counts of the rows that the reader had."""
    reported: list[tuple[float, str]] = field(default_factory=list)
    """Times and errors of the query."""
    batches: int = 0
    rows: int = 0
    violations: list[str] = field(default_factory=list)
    loud: str = ""

    @property
    def verdict(self) -> str:
        """`exact`, `loud` or `violated`."""
        return "violated" if self.violations else "loud" if self.loud else "exact"


class Run:
    """One run against a cluster whose clients connect to proxies."""

    def __init__(self, brokers: Brokers, drivers: Drivers, home: Path, record: Record, topic: str) -> None:
        self.brokers, self.drivers, self.home, self.record, self.topic = brokers, drivers, home, record, topic
        self.cluster = RealCluster(brokers.cluster)
        self.chance = random.Random(f"nemesis {record.seed}")
        self.begun = time.monotonic()
        self.driver: Driver | None = None
        self.number = 0
        self.paused: Driver | None = None
        self.replaced: list[Driver] = []
        """Drivers that go on with the same query, beside the one that replaced them."""
        self.written = 0
        self._sampled = 0.0
        self._endless = True

    @property
    def now(self) -> float:
        """Seconds since the begin."""
        return round(time.monotonic() - self.begun, 3)

    def play(self) -> None:
        """Faults, then peace, then the verdict."""
        self.cluster.create_topic(self.topic, PARTITIONS)
        with ConcurrentReader(self.brokers.inner_servers, self.topic) as reader:
            self.drivers.wait_until_ready()
            self.begun = time.monotonic()
            hands = [Hand(self, self.brokers.faults()), Hand(self, self.query_faults())]
            while self.now < self.record.seconds and not self.record.loud:
                self.turn(reader)
                for hand in hands:
                    hand.turn()
                time.sleep(0.02)  # the pace of the turns
            for hand in hands:
                hand.end()
            self.brokers.heal()
            self._finish(reader)
            self._amount = AMOUNT._replace(batches=self.written)
            self.record.batches, self.record.rows = self.written, len(expected(self._amount))
            if not self.record.violations:
                whole = not self.record.loud
                self.record.violations = judge(self.cluster, self.topic, expected(self._amount), reader, whole=whole)

    def turn(self, reader: ConcurrentReader) -> None:
        """New rows, a driver where there is none, a sample."""
        if self.written - self._committed() < LAGGING:
            write_files(self.home / "rows", AMOUNT, range(self.written, self.written + 1))
            self.written += 1
        self.live(endless=True)
        if self.now > self._sampled + 0.25:
            self._sampled = self.now
            self.record.visible.append((self.now, reader.count))

    def live(self, endless: bool) -> bool:
        """Start the query if it does not run; whether it has ended well."""
        if self.driver is not None:
            outcome = self.driver.outcome(self.number)
            died = self.driver.process.exit_code is not None
            if outcome is None and not died:
                return False
            self._note_end(outcome)
            if outcome is not None and not outcome["error"] and not self._endless:
                return True
            if died:
                self.driver = None
        if self.driver is None:
            if not self.drivers.ready:
                return False
            self.driver = self.drivers.take()
        self.number, self._endless = self.driver.give(self._job(endless)), endless
        self.record.lives.append((self.now, self.now))
        return False

    def _note_end(self, outcome: dict[str, Any] | None) -> None:
        begin, _ = self.record.lives[-1]
        self.record.lives[-1] = (begin, self.now)
        if outcome is not None and outcome["error"]:
            reported = short_message(outcome["error"])
            self.record.reported.append((self.now, reported))
            loud = [status for status, text in LOUD.items() if text in outcome["error"]]
            if loud:
                self.record.loud = f"{loud[0]}: {reported}"

    def _finish(self, reader: ConcurrentReader) -> None:
        """Let the query write all rows without faults."""
        deadline = time.monotonic() + FINISH_SECONDS
        for other in self.replaced:
            other.kill()
        if self.record.loud:
            return
        if self.driver is not None:  # else the last fault has taken it, and no other was begun yet
            self.driver.stop_query(self.number)
            driver, number = self.driver, self.number
            poll(lambda: driver.outcome(number) is not None or driver.process.has_ended(), seconds=FINISH_SECONDS)
        while not self.live(endless=False) and not self.record.loud:
            if time.monotonic() > deadline:
                self.record.violations.append(f"stuck: no end within {FINISH_SECONDS:g} s after the last fault")
                break
            time.sleep(0.02)  # the pace of the turns
        self.record.visible.append((self.now, reader.count))

    def _job(self, endless: bool) -> dict[str, Any]:
        options = {
            **OPTIONS,
            **({**ONCE, "exactlyOnceId": self.topic} if self.record.once else {}),
            "kafka.bootstrap.servers": self.brokers.cluster.bootstrap_servers,
            "topic": self.topic,
        }
        return {
            "rows": str(self.home / "rows"),
            "checkpoint": str(self.home / "checkpoint"),
            "files": FILES,
            "format": "pyproducer",
            "options": options,
            "endless": endless,
        }

    def _committed(self) -> int:
        return len(list((self.home / "checkpoint" / "commits").glob("[0-9]*")))

    def can_begin(self, fault: Fault) -> bool:
        """Return whether a fault has something to hit: a driver that has not begun yet is let begin."""
        driver = self.driver
        return fault.lane != "driver" or (
            driver is not None and driver.process.exit_code is None and self.record.lives[-1][0] + 2 < self.now
        )

    def note_fault(self, fault: Fault, begin: float, said: str) -> None:
        """Record a fault that ends now."""
        self.record.faults.append((begin, self.now, said if fault.lane == "broker" else fault.lane, fault.name))

    def query_faults(self) -> list[Fault]:
        """Return the faults that can happen to the query."""
        return [
            Fault("driver", "killed", self._kill_driver),
            Fault("driver", "worker killed", self._kill_worker),
            Fault("driver", "query stopped", self._stop_query),
            Fault("driver", "paused", self._pause, self._resume),
            Fault("driver", "replaced while paused", self._replace, self._resume),
        ]

    def _kill_driver(self) -> str:
        assert self.driver is not None
        self.driver.kill()
        return ""

    def _kill_worker(self) -> str | None:
        assert self.driver is not None
        workers = self.driver.workers()
        if not workers:
            return None
        self.driver.signal([self.chance.choice(workers)], "KILL")
        return f"{len(workers)} there"

    def _stop_query(self) -> str:
        assert self.driver is not None
        self.driver.stop_query(self.number)
        return ""

    def _pause(self) -> str:
        assert self.driver is not None
        self.paused = self.driver
        self.paused.signal(self.paused.processes(), "STOP")
        return ""

    def _replace(self) -> str:
        self._pause()
        begin, _ = self.record.lives[-1]
        self.record.lives[-1] = (begin, self.now)
        self.replaced.append(self._paused_driver())
        self.driver = None
        return ""

    def _resume(self) -> None:
        paused = self._paused_driver()
        paused.signal(paused.processes(), "CONT")

    def _paused_driver(self) -> Driver:
        assert self.paused is not None
        return self.paused


def main() -> None:
    """Play runs with seeds one after the other, and keep their records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--version", choices=("3.9", "4"), default="4")
    parser.add_argument(
        "--at-least-once", action="store_true", help="without exactlyOnceId: the judge must see duplicates"
    )
    parser.add_argument("--again", action="store_true", help="also seeds that have a record")
    chosen = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        path = FOLDER / f"{chosen.version}-{seed}.json"
        if path.exists() and not chosen.again:
            continue
        record = Record(seed, chosen.version, chosen.seconds, not chosen.at_least_once)
        play_one(record)
        path.write_text(json.dumps(asdict(record)))
        reported = [f"{len(record.faults)} faults", f"{record.batches} batches", f"{record.rows} rows", record.loud]
        print(
            f"seed {seed} on {chosen.version}: {record.verdict}",
            *reported,
            *record.violations,
            sep="\n    ",
            flush=True,
        )
    from tests.matrix.nemesis_page import write  # which draws the recorded runs

    write()


def play_one(record: Record) -> None:
    """A run with a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="nemesis-") as folder:
        home = Path(folder)
        with proxied_cluster(record.version, record.seed) as brokers, Drivers(home) as drivers:
            Run(brokers, drivers, home, record, f"n-{record.version.replace('.', '')}-{record.seed}").play()


if __name__ == "__main__":
    main()
