"""One soak: start the streams, do the faults, take samples and balances, come to an end, and judge.

Owns: the order of these. Must not know: how faults are done, or how a run is drawn.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from tests.matrix.clusters import RealCluster, left_open
from tests.matrix.drivers import Drivers
from tests.matrix.faults import Brokers, Fault, proxied_cluster
from tests.matrix.hand import Hand, Pace
from tests.soak.accounting import Balance, Bookkeeper, Place
from tests.soak.faults import OfClusters, OfDisks, OfQueries, tls_options, tls_settings
from tests.soak.record import Record
from tests.soak.samples import Sample, growth, sample
from tests.soak.streams import PLANS, Stream, play_until
from tests.support.certificates import Certificates
from tests.support.waiting import retry

PARTITIONS = 3
RETENTION_SECONDS = 1200
"""Twenty minutes, for the streams that read: less than a gigabyte with all replicas."""
RETENTION = {
    "min.insync.replicas": "2",
    "retention.ms": str(1000 * RETENTION_SECONDS),
    "segment.bytes": "16777216",
    "segment.ms": "60000",  # retention removes whole segments
    "message.timestamp.type": "LogAppendTime",
}
SETTINGS = {"log.retention.check.interval.ms": "30000", "log.segment.bytes": "16777216"}
START_SECONDS = 600.0
FINISH_SECONDS = 300.0
STALLED_SECONDS = 300.0
"""A stream that brings no row for so long hangs: no fault lasts a tenth of that."""
SAMPLE_SECONDS, BALANCE_SECONDS, SAVE_SECONDS = 5.0, 15.0, 60.0
OPTIONS = {
    "kafka.reconnect.backoff.max.ms": "500",
    "kafka.retry.backoff.max.ms": "500",
    "kafka.request.timeout.ms": "15000",
}
PAUSES = {"broker": 1, "driver": 1, "topic": 7, "certificate": 3}
"""The lanes of faults, and by how much their pauses are longer: topics may grow 27 times, which two hours must not use up."""


class Soak:
    """A run against a cluster whose clients connect to proxies."""

    def __init__(
        self, brokers: Brokers, drivers: Drivers, home: Path, record: Record, certificates: Certificates, pace: Pace
    ) -> None:
        self.brokers, self.drivers, self.record, self.pace = brokers, drivers, record, pace
        self.home, self.cluster = home, RealCluster(brokers.cluster)
        self.chance = random.Random(f"soak {record.seed}")
        self.begun = time.monotonic()
        servers = {"kafka.bootstrap.servers": brokers.cluster.bootstrap_servers}
        connection = {**OPTIONS, **servers, **tls_options(certificates)}
        self.streams = [Stream(plan, home, drivers, connection, record.rows, lambda: self.now) for plan in PLANS]
        self.topics = [plan.topic for plan in PLANS]
        self._faults = [
            *brokers.faults(),
            *OfDisks(brokers, self.chance, self.note_effect).faults(),
            *OfQueries(self.streams, self.chance).faults(),
            *OfClusters(brokers, self.topics, certificates, self.chance, self.note_effect).faults(),
        ]
        self._due: deque[tuple[str, int, dict[Place, int]]] = deque()
        self._grown: dict[str, tuple[int, float]] = {}
        """Topic → the rows that the reader had last, and since when; nothing before all are under way."""
        self._next_sample = self._next_balance = self._next_save = 0.0

    @property
    def now(self) -> float:
        """Seconds since the begin."""
        return round(time.monotonic() - self.begun, 3)

    def can_begin(self, fault: Fault) -> bool:
        """Return whether a fault may begin: those of drivers once each stream has one."""
        return fault.lane != "driver" or all(stream.lives for stream in self.streams)

    def note_fault(self, fault: Fault, begin: float, said: str) -> None:
        """Record a fault that ends now."""
        self.record.faults.append((begin, self.now, said, fault.name))

    def note_effect(self, name: str, said: str) -> None:
        """Record what a fault has brought about."""
        self.record.effects.append((self.now, name, said))

    def note_violation(self, said: str) -> None:
        """Record what must not be."""
        self.record.violations.append(f"{self.now:.0f} s, {said}")

    def hands(self) -> list[Hand]:
        """Return one hand for each lane that has faults in this run."""
        known = [fault.name for fault in self._faults]
        unknown = set(self.record.only) - set(known)
        if unknown:
            raise ValueError(f"unknown faults {sorted(unknown)}; there are: {', '.join(known)}")
        hands = []
        for lane, longer in PAUSES.items():
            chosen = [
                fault
                for fault in self._faults
                if fault.lane == lane and (not self.record.only or fault.name in self.record.only)
            ]
            if chosen:
                low, high = self.pace.pause
                hands.append(Hand(self, chosen, self.pace._replace(pause=(longer * low, longer * high))))
        return hands

    def play(self) -> None:
        """Faults, then peace, then the balance. What breaks the run itself is in the record too, after hours of faults."""
        try:
            self._play()
        except (Exception, KeyboardInterrupt) as error:
            self.note_violation(f"the run broke: {error!r}")
        self.record.lasted = self.record.lasted or self.now
        self._save()

    def _play(self) -> None:
        for topic in self.topics:
            self.brokers.cluster.create_topic(topic, PARTITIONS, replication_factor=3, config=RETENTION)
        with Bookkeeper(self.brokers.inner_servers, self.topics) as books:
            self.drivers.wait_until_ready()
            self.begun = time.monotonic()
            self._get_under_way(books)
            begin, hands = self.now, self.hands()
            while self.now < begin + self.record.seconds and self._is_well():
                self._turn(hands, books)
            self.record.lasted = round(self.now - begin, 3)
            for hand in hands:
                hand.end()
            self._look_at_nodes()
            self.brokers.heal()
            self._finish(books)

    def _is_well(self) -> bool:
        return not self._loud() and not self.record.violations

    def _get_under_way(self, books: Bookkeeper) -> None:
        """Play without faults until each stream brings rows and a balance was struck, however slow the machine is."""
        while self._is_well() and not (self.record.balances and all(each.seen for each in books.accounts.values())):
            self._turn([], books)
            if self.now > START_SECONDS:
                self.note_violation(f"not all streams bring rows within {START_SECONDS:g} s")
        self._grown = {topic: (account.seen, self.now) for topic, account in books.accounts.items()}

    def _turn(self, hands: list[Hand], books: Bookkeeper) -> None:
        begin = self.now
        for stream in self.streams:
            stream.turn()
        for hand in hands:
            hand.turn()
        self._look_at_nodes()
        for said in books.trouble():
            self.note_violation(said)
        self._take_samples(books)
        self._balance(books)
        if begin >= self._next_save:
            self._next_save = begin + SAVE_SECONDS
            self._save()
        self.record.slowest_turn = max(self.record.slowest_turn, round(self.now - begin, 3))
        time.sleep(0.05)  # the pace of the turns

    def _save(self) -> None:
        for stream in self.streams:
            stream.close_life()
            self.record.lives[stream.plan.name] = [asdict(life) for life in stream.lives]
        self.record.save(self.home / "record.json")

    def _loud(self) -> bool:
        self.record.loud = next((f"{each.plan.name}: {each.loud}" for each in self.streams if each.loud), "")
        return bool(self.record.loud)

    def _look_at_nodes(self) -> None:
        for node, code in self.brokers.ended().items():
            self.note_violation(f"node {node} has ended with exit code {code}, and no fault is to blame")

    def _take_samples(self, books: Bookkeeper) -> None:
        if self.now < self._next_sample:
            return
        self._next_sample = self.now + SAMPLE_SECONDS
        found: list[Sample] = []
        for stream in self.streams:
            if stream.driver is not None:
                found += sample(self.now, stream.plan.name, stream.driver)
        self.record.samples += [list(each) for each in found]
        seen = {topic: account.seen for topic, account in books.accounts.items()}
        self.record.seen.append((self.now, seen))
        self._look_at_progress(seen)

    def _look_at_progress(self, seen: dict[str, int]) -> None:
        for topic, (before, since) in list(self._grown.items()):
            count = seen[topic]
            if count > before:
                self._grown[topic] = (count, self.now)
            elif self.now - since > STALLED_SECONDS:
                self.note_violation(f"{topic} has brought no row for {self.now - since:.0f} s")

    def _balance(self, books: Bookkeeper) -> None:
        """Note what is committed and where the topics end; judge it when the reader has come so far."""
        while self._due and books.has_passed(self._due[0][2]):
            topic, due, _ = self._due.popleft()
            stream = next(each for each in self.streams if each.plan.topic == topic)
            self._judge(stream, books.accounts[topic].balance(due), books.accounts[topic].first_missing(due))
            self.record.balances += due > 0
        if self.now < self._next_balance:
            return
        self._next_balance = self.now + BALANCE_SECONDS
        for stream in self.streams:
            topic = stream.plan.topic
            if stream.plan.source:  # how far it has come is not recorded, but no row may be there twice
                self._judge(stream, books.accounts[topic].balance(0), 0)
                continue
            try:
                due = stream.committed()
                self._due.append((topic, due, books.ends(topic, seconds=2)))
            except KafkaException:  # a node is away: the next time
                continue

    def _finish(self, books: Bookkeeper) -> None:
        numbers = [stream for stream in self.streams if not stream.plan.source]
        copies = [stream for stream in self.streams if stream.plan.source]
        for group in () if self.record.loud or self.record.violations else (numbers, copies):
            for stuck in play_until(group, FINISH_SECONDS):
                self.note_violation(f"{stuck.plan.name}: no end within {FINISH_SECONDS:g} s after the faults")
        self._look_at_nodes()
        if self._loud() or self.record.violations:
            return
        ends = {stream.plan.topic: stream.committed() for stream in numbers}
        for stream in self.streams:
            self._close(stream, ends[stream.plan.source or stream.plan.topic], books)
        for said in books.trouble():
            self.note_violation(said)
        self.record.seen.append((self.now, {topic: account.seen for topic, account in books.accounts.items()}))
        self._look_back()

    def _close(self, stream: Stream, due: int, books: Bookkeeper) -> None:
        """The last balance of a stream."""
        topic, inner = stream.plan.topic, _Inner(self.brokers.inner_servers)
        failures = (KafkaException, KafkaError, TimeoutError)
        open_ends, transactions = retry(lambda: left_open(inner, topic), failures, f"what {topic} has open")
        if open_ends or transactions:
            self.note_violation(f"{stream.plan.name}: left open {open_ends} {transactions}")
            return
        books.wait_for(topic, FINISH_SECONDS)
        account = books.accounts[topic]
        balance = account.balance(due)
        self._judge(stream, balance, account.first_missing(due))
        if not due:
            self.note_violation(f"{stream.plan.name}: no row was due")
        if stream.plan.once and balance.seen != due:
            self.note_violation(f"{stream.plan.name}: {balance.seen} rows were seen of {due}")
        self.record.final[stream.plan.name] = balance._asdict()
        self.record.first_offsets[topic] = {str(part): first for part, first in books.first_offsets(topic).items()}

    def _look_back(self) -> None:
        """Judge the run as a whole: that there were balances, that retention has removed rows, that no process has grown."""
        record = self.record
        if not record.balances:
            self.note_violation("no balance was struck")
        if record.lasted > 2 * RETENTION_SECONDS:
            for topic, firsts in record.first_offsets.items():
                if not any(firsts.values()):
                    self.note_violation(f"retention has removed nothing of {topic}")
        samples = [Sample(*each) for each in record.samples]
        for plan in PLANS:
            if plan.spared and (grown := growth(samples, plan.name)) is not None:
                record.flat = not grown
                for said in grown:
                    self.note_violation(said)

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
        for text, count in wrong.items():
            if count:
                self.note_violation(f"{stream.plan.name}: {text}")


@dataclass(frozen=True)
class _Inner:
    """Addresses without proxies and TLS."""

    bootstrap_servers: str


def play(record: Record, home: Path, pace: Pace) -> None:
    """A run with a cluster of its own; what breaks it, also at its very begin or end, is in the record.

    `home` has the record of each minute, the folders of drivers with their logs, and at the end the logs of the nodes.
    """
    try:
        with ExitStack() as stack:
            (home / "certificates").mkdir()
            certificates = Certificates(home / "certificates")
            settings = {**SETTINGS, **tls_settings(certificates)}
            brokers = stack.enter_context(proxied_cluster(record.version, record.seed, settings, frames=False))
            stack.callback(_keep_logs, brokers, home)
            drivers = stack.enter_context(Drivers(home))
            Soak(brokers, drivers, home, record, certificates, pace).play()
    except (Exception, KeyboardInterrupt) as error:
        record.violations.append(f"the run broke: {error!r}")
    record.save(home / "record.json")


def _keep_logs(brokers: Brokers, home: Path) -> None:
    """Copy the nodes' logs, whose folders end with the cluster."""
    for node in brokers.cluster.nodes:
        shutil.copy(brokers.cluster.output(node), home / f"node-{node}.log")
