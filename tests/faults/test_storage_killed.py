"""Both storage engines below foreign clients, killed again and again: nothing acknowledged is lost, and nothing comes twice.

The lives force each append to the disk and do not, by turns, on the same directory.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.settings import STORAGE_ENGINES
from tests.faults.steady_clients import NumberingProducer, Partition, ReadingGroup, number_of
from tests.support.campaigns import sample_and_campaign
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.read_back import read_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

SECONDS = 60.0
MAX_REPORTS, FADING = "kept", "fading"
PARTITIONS: list[Partition] = [(topic, number) for topic in (MAX_REPORTS, FADING) for number in range(2)]
FADES: dict[str, str | None] = {"retention.bytes": "200000"}
RECORDS_OF_A_LIFE = 400


class Doomed:
    """One life of the broker."""

    def __init__(self, home: Path, port: int, sync: bool, life: int, engine: str) -> None:
        command = [sys.executable, "-m", "tests.faults.doomed_broker", str(home / "data"), str(port)]
        self._process = ChildProcess([*command, "sync" if sync else "unsynced", engine], home / f"{life}.log")
        self.until(lambda: bool(self._lines("ready")))

    def until(self, condition: Any) -> None:
        """Wait until it is so, while the broker lives."""
        process = self._process
        wait_until(condition, "this life's work", seconds=SECONDS, more=process.tail, ended=process.has_ended)

    def recovered(self) -> dict[Partition, int]:
        """The high watermark of each partition when the broker began to serve."""
        return {(topic, int(partition)): int(end) for topic, partition, end in self._lines("recovered")}

    def kill(self) -> Counter[str]:
        """SIGKILL; what was done in this life."""
        self._process.kill()
        return self.done()

    def done(self) -> Counter[str]:
        """Return the work that was counted in this life."""
        did = self._lines("did")
        return (
            Counter(dict(zip(("flushes", "deleted", "compacted"), map(int, did[-1]), strict=True)))
            if did
            else Counter()
        )

    def _lines(self, what: str) -> list[list[str]]:
        text = self._process.output.read_text()
        lines = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line[1:] for line in lines if line[:1] == [what]]


def live(
    home: Path, port: int, life: int, engine: str, producer: NumberingProducer, group: ReadingGroup
) -> Counter[str]:
    """A life of the broker under load, to its death."""
    acknowledged, seen = Counter(producer.acknowledged), Counter(group.seen)
    broker = Doomed(home, port, life % 2 == 0, life, engine)
    recovered = broker.recovered()
    for partition in PARTITIONS:
        assert recovered[partition] >= max(acknowledged[partition], seen[partition]), f"life {life}, {partition}"
    if life == 0:
        producer.start()
        group.start()
    written, read = producer.total, group.total
    enough = RECORDS_OF_A_LIFE
    broker.until(lambda: producer.errors or group.errors or (producer.total > written + enough and group.total > read))
    time.sleep(random.Random(life).uniform(0, 0.3))  # a random moment to die
    done = broker.kill()
    assert not producer.errors, (life, producer.errors[:5])
    assert not group.errors, (life, group.errors[:5])
    return done


@pytest.mark.covers("W7")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("engine", STORAGE_ENGINES)
@pytest.mark.parametrize("lives", sample_and_campaign([3, 200]))
def test_foreign_clients_find_everything_after_every_death(tmp_path: Path, lives: int, engine: str) -> None:
    port = free_ports(1)[0]
    with LocalBroker(tmp_path / "data", port=port, settings=BrokerSettings(storage_engine=engine)) as first:
        first.create_topic(MAX_REPORTS, 2)
        first.create_topic(FADING, 2, FADES)
        address = first.bootstrap_servers
        producer, group = NumberingProducer(address, PARTITIONS), ReadingGroup(address, [MAX_REPORTS, FADING], FADING)
    done: Counter[str] = Counter()
    for life in range(lives):
        done += live(tmp_path, port, life, engine, producer, group)
    last = Doomed(tmp_path, port, True, lives, engine)
    last.until(lambda: engine != "tiered" or last.done()["compacted"] > 0)
    producer.end()
    group.read_to(producer.written)
    group.close()
    assert (producer.errors, group.errors) == ([], [])
    assert producer.acknowledged == producer.written
    starts = {topic: check(address, topic, producer.written) for topic in (MAX_REPORTS, FADING)}
    done += last.kill()
    assert starts[MAX_REPORTS] == [0, 0]
    assert min(starts[FADING]) > 0, "retention had something to delete"
    print(f"{lives} deaths: {producer.total:,} records acknowledged, {group.total:,} read, {dict(done)}")


def check(address: str, topic: str, ends: Counter[Partition]) -> list[int]:
    """Read a topic from its first to its last record, with another client; the offset of the first of each partition."""
    rows = read_topic(address, topic, client="confluent")
    assert all(number_of(row.value) == row.offset for row in rows)
    starts = []
    for partition in range(2):
        offsets = [row.offset for row in rows if row.partition == partition]
        starts.append(offsets[0])
        assert offsets == list(range(offsets[0], ends[topic, partition]))
    return starts
