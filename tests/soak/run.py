"""One soak: start the streams, do the faults, take samples and balances, come to an end, and judge.

Owns: the order of these, and the record of a run. Must not know: how faults are done, or how a run is drawn.
"""

from __future__ import annotations

import random
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.matrix.clusters import RealCluster, left_open
from tests.matrix.drivers import Drivers
from tests.matrix.faults import Brokers, Fault, proxied_cluster
from tests.matrix.hand import Hand, Pace
from tests.soak.accounting import Balance, Bookkeeper, Place
from tests.soak.faults import OfClusters, OfDisks, OfQueries, tls_options, tls_settings
from tests.soak.samples import Sample, sample
from tests.soak.streams import PLANS, Stream, play_until
from tests.support.certificates import Certificates

PARTITIONS = 3
RETENTION = {
    "min.insync.replicas": "2",
    "retention.ms": "1200000",
    "segment.bytes": "16777216",
    "message.timestamp.type": "LogAppendTime",
}
"""Twenty minutes, for the streams that read: less than a gigabyte with all replicas."""
SETTINGS = {"log.retention.check.interval.ms": "30000", "log.segment.bytes": "16777216"}
FINISH_SECONDS = 300.0
SAMPLE_SECONDS, BALANCE_SECONDS = 5.0, 15.0
OPTIONS = {
    "kafka.reconnect.backoff.max.ms": "500",
    "kafka.retry.backoff.max.ms": "500",
    "kafka.request.timeout.ms": "15000",
}
LANES = ("broker", "driver", "cluster")


@dataclass
class Record:
    """The events of a soak, as JSON values. Times are seconds since its start."""

    seconds: float
    seed: int
    rows: int
    """Rows of a micro-batch of the streams of numbers, one of which begins each second."""
    only: list[str] = field(default_factory=list)
    """The names of its faults; all of them if it is empty."""
    version: str = "4"
    day: str = ""
    faults: list[tuple[float, float, str, str]] = field(default_factory=list)
    """begin, end, what was hit, name"""
    lives: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    samples: list[list[Any]] = field(default_factory=list)
    seen: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """Times, and the rows that the reader had of each stream."""
    balances: int = 0
    """The balances in between."""
    final: dict[str, dict[str, int]] = field(default_factory=dict)
    """The balance of each stream at the end."""
    violations: list[str] = field(default_factory=list)
    loud: str = ""

    @property
    def verdict(self) -> str:
        """`accounted`, `loud` or `violated`."""
        return "violated" if self.violations else "loud" if self.loud else "accounted"


class Soak:
    """A run against a cluster whose clients connect to proxies."""

    def __init__(
        self, brokers: Brokers, drivers: Drivers, home: Path, record: Record, certificates: Certificates, pace: Pace
    ) -> None:
        self.brokers, self.drivers, self.record, self.pace = brokers, drivers, record, pace
        self.cluster = RealCluster(brokers.cluster)
        self.chance = random.Random(f"soak {record.seed}")
        self.begun = time.monotonic()
        servers = {"kafka.bootstrap.servers": brokers.cluster.bootstrap_servers}
        connection = {**OPTIONS, **servers, **tls_options(certificates)}
        self.streams = [Stream(plan, home, drivers, connection, record.rows, lambda: self.now) for plan in PLANS]
        self.topics = [plan.topic for plan in PLANS]
        self._of_queries = OfQueries(self.streams, self.chance)
        nodes = brokers.cluster.nodes
        self._of_clusters = OfClusters(brokers.inner_servers, self.topics, certificates, nodes, self.chance)
        self._due: deque[tuple[str, int, dict[Place, int]]] = deque()
        self._next_sample = self._next_balance = 0.0

    @property
    def now(self) -> float:
        """Seconds since the begin."""
        return round(time.monotonic() - self.begun, 3)

    def can_begin(self, fault: Fault) -> bool:
        """Return whether a fault may begin: all of them may."""
        return True

    def note_fault(self, fault: Fault, begin: float, said: str) -> None:
        """Record a fault that ends now."""
        self.record.faults.append((begin, self.now, said, fault.name))

    def hands(self) -> list[Hand]:
        """Return one hand for each lane that has faults in this run."""
        disks = OfDisks(self.brokers, self.chance)
        known = [*self.brokers.faults(), *disks.faults(), *self._of_queries.faults(), *self._of_clusters.faults()]
        unknown = set(self.record.only) - {fault.name for fault in known}
        if unknown:
            raise ValueError(f"unknown faults {sorted(unknown)}; there are: {', '.join(fault.name for fault in known)}")
        chosen = [fault for fault in known if not self.record.only or fault.name in self.record.only]
        lanes = [[fault for fault in chosen if fault.lane == lane] for lane in LANES]
        return [Hand(self, faults, self.pace) for faults in lanes if faults]

    def play(self) -> None:
        """Faults, then peace, then the balance. What breaks the run itself is in the record too, after hours of faults."""
        try:
            self._play()
        except (OSError, RuntimeError, KafkaException) as error:
            self.record.violations.append(f"{self.now:.0f} s, the run broke: {error!r}")
        for stream in self.streams:
            self.record.lives[stream.plan.name] = [asdict(life) for life in stream.lives]

    def _play(self) -> None:
        for topic in self.topics:
            self.brokers.cluster.create_topic(topic, PARTITIONS, replication_factor=3, config=RETENTION)
        with Bookkeeper(self.brokers.inner_servers, self.topics) as books:
            self.drivers.wait_until_ready()
            self.begun = time.monotonic()
            hands = self.hands()
            while self.now < self.record.seconds and not self._loud() and not self.record.violations:
                for stream in self.streams:
                    stream.turn()
                for hand in hands:
                    hand.turn()
                self._take_samples(books)
                self._balance(books)
                time.sleep(0.05)  # the pace of the turns
            for hand in hands:
                hand.end()
            self.brokers.heal()
            self._finish(books)

    def _loud(self) -> bool:
        self.record.loud = next((f"{each.plan.name}: {each.loud}" for each in self.streams if each.loud), "")
        return bool(self.record.loud)

    def _take_samples(self, books: Bookkeeper) -> None:
        if self.now < self._next_sample:
            return
        self._next_sample = self.now + SAMPLE_SECONDS
        found: list[Sample] = []
        for stream in self.streams:
            if stream.driver is not None:
                found += sample(self.now, stream.plan.name, stream.driver)
        self.record.samples += [list(each) for each in found]
        self.record.seen.append((self.now, {topic: account.seen for topic, account in books.accounts.items()}))

    def _balance(self, books: Bookkeeper) -> None:
        """Note what is committed and where the topics end; judge it when the reader has come so far."""
        while self._due and books.has_passed(self._due[0][2]):
            topic, due, _ = self._due.popleft()
            stream = next(each for each in self.streams if each.plan.topic == topic)
            self._judge(stream, books.accounts[topic].balance(due), books.accounts[topic].first_missing(due))
            self.record.balances += 1
        if self.now < self._next_balance:
            return
        self._next_balance = self.now + BALANCE_SECONDS
        for stream in self.streams:
            if not stream.plan.source:
                try:
                    due = stream.committed()
                    self._due.append((stream.plan.topic, due, books.ends(stream.plan.topic, seconds=2)))
                except KafkaException:  # a node is away: the next time
                    continue

    def _finish(self, books: Bookkeeper) -> None:
        numbers = [stream for stream in self.streams if not stream.plan.source]
        copies = [stream for stream in self.streams if stream.plan.source]
        for group in () if self.record.loud else (numbers, copies):
            for stuck in play_until(group, FINISH_SECONDS):
                self.record.violations.append(f"{stuck.plan.name}: no end within {FINISH_SECONDS:g} s after the faults")
        if self._loud() or self.record.violations:
            return
        ends = {stream.plan.topic: stream.committed() for stream in numbers}
        for stream in self.streams:
            topic = stream.plan.topic
            open_ends, transactions = left_open(_Inner(self.brokers.inner_servers), topic)
            if open_ends or transactions:
                self.record.violations.append(f"{stream.plan.name}: left open {open_ends} {transactions}")
                continue
            books.wait_for(topic, FINISH_SECONDS)
            due, account = ends[stream.plan.source or topic], books.accounts[topic]
            balance = account.balance(due)
            self._judge(stream, balance, account.first_missing(due))
            if stream.plan.once and balance.seen != due:
                self.record.violations.append(f"{stream.plan.name}: {balance.seen} rows were seen of {due}")
            self.record.final[stream.plan.name] = balance._asdict()
        self.record.violations += books.errors

    def _judge(self, stream: Stream, balance: Balance, first: int) -> None:
        """Record what contradicts the stream's guarantee."""
        wrong = {
            f"{balance.missing} of {balance.due} rows are missing, from {first} on": balance.missing,
            f"{balance.strange} rows are not ours": balance.strange,
            f"{balance.repeated} rows were seen more than once": balance.repeated if stream.plan.once else 0,
            # Rows of a key come from several partitions of the source once that has grown.
            f"{balance.out_of_order} rows are out of order": balance.out_of_order
            if stream.plan.once and not stream.plan.source
            else 0,
        }
        self.record.violations += [
            f"{self.now:.0f} s, {stream.plan.name}: {text}" for text, count in wrong.items() if count
        ]


@dataclass(frozen=True)
class _Inner:
    """Addresses without proxies and TLS."""

    bootstrap_servers: str


def play(record: Record, home: Path, pace: Pace) -> None:
    """A run with a cluster of its own."""
    with ExitStack() as stack:
        (home / "certificates").mkdir()
        certificates = Certificates(home / "certificates")
        settings = {**SETTINGS, **tls_settings(certificates)}
        brokers = stack.enter_context(proxied_cluster(record.version, record.seed, settings, frames=False))
        drivers = stack.enter_context(Drivers(home))
        Soak(brokers, drivers, home, record, certificates, pace).play()
