"""The course of a soak from its begin to its last balance, with an embedded broker and queries that write at once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from tests.matrix.faults import Fault
from tests.matrix.hand import Pace
from tests.soak.record import Record
from tests.soak.run import Soak
from tests.soak.streams import PLANS
from tests.soak.test_soak import write
from tests.support.certificates import Certificates

ROWS = 100


class WritingDriver:
    """Writes the rows of a query when it is given, once; `lost` of the last ones are missing."""

    def __init__(self, producer: Producer, number: int, lost: int) -> None:
        self.number, self._producer, self._lost = number, producer, lost
        self._outcomes: dict[int, dict[str, Any]] = {}
        self._jobs = 0
        self.process = SimpleNamespace(has_ended=lambda: False)

    def give(self, job: dict[str, Any]) -> int:
        checkpoint, topic = Path(job["checkpoint"]), job["options"]["topic"]
        if not checkpoint.exists():
            for folder, text in (("offsets", f'v1\n{{}}\n{{"offset": {ROWS}}}'), ("commits", "v1\n{}")):
                (checkpoint / folder).mkdir(parents=True)
                (checkpoint / folder / "0").write_text(text)
            write(self._producer, topic, range(ROWS - self._lost))
        self._jobs += 1
        if not job["endless"]:
            self._outcomes[self._jobs] = {"error": ""}
        return self._jobs

    def outcome(self, number: int) -> dict[str, Any] | None:
        return self._outcomes.get(number)

    def stop_query(self, number: int) -> None:
        self._outcomes[number] = {"error": "the query was stopped"}

    def processes(self) -> list[int]:
        return []


def played(home: Path, broker: LocalBroker, lost: int) -> Record:
    """A run of one second with one kind of fault."""
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        left = iter(WritingDriver(producer, number, lost) for number in range(len(PLANS)))
        drivers: Any = SimpleNamespace(ready=True, take=lambda: next(left), wait_until_ready=lambda: None)
        cluster = SimpleNamespace(
            bootstrap_servers=broker.bootstrap_servers,
            nodes=[],
            create_topic=lambda topic, partitions, **_: broker.create_topic(topic, partitions),
        )
        brokers: Any = SimpleNamespace(
            cluster=cluster,
            inner_servers=broker.bootstrap_servers,
            ended=dict,
            heal=lambda: None,
            faults=lambda: [Fault("broker", "made up", lambda: "node 1")],
        )
        record = Record(1.0, 1, ROWS, only=["made up"])
        pace = Pace(first=(0, 0), pause=(0.1, 0.1))
        Soak(brokers, drivers, home, record, Certificates(home), pace).play()
    return record


@pytest.mark.parametrize("lost", [0, 3])
def test_a_run_comes_to_its_verdict(tmp_path: Path, lost: int) -> None:
    with LocalBroker() as broker:
        record = played(tmp_path, broker, lost)
    kept = json.loads((tmp_path / "record.json").read_text())
    if lost:
        assert "at least once: 3 of 100 rows are missing, from 97 on" in record.violations[0]
        assert kept["verdict"] == "violated"
        return
    assert record.violations == []
    assert (record.verdict, kept["verdict"]) == ("accounted", "accounted")
    assert record.lasted >= record.seconds
    assert {name for *_, name in record.faults} == {"made up"}
    assert record.balances > 0
    assert {name: (final["due"], final["seen"], final["missing"]) for name, final in record.final.items()} == {
        plan.name: (ROWS, ROWS, 0) for plan in PLANS
    }
    assert kept["seen"][-1][1] == {plan.topic: ROWS for plan in PLANS}
