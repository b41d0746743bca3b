"""The soak: its accounts see what is missing, repeated or out of order, its streams are started again, and a sample of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from tests.matrix.hand import Pace
from tests.soak import page
from tests.soak.accounting import Account, Bookkeeper
from tests.soak.run import Record, Soak, play
from tests.soak.samples import Sample, Trend, trend
from tests.soak.streams import PLANS, Stream
from tests.support.kafka_node import KafkaFailed
from tests.support.waiting import wait_until


def account(*partitions: list[int]) -> Account:
    found = Account()
    for number, rows in enumerate(partitions):
        found.note(number, rows)
    return found


def test_an_account_in_which_every_number_is_there_once() -> None:
    numbers = list(range(100_000))
    balance = account(numbers[::2], numbers[1::2]).balance(100_000)
    assert balance._asdict() == {
        "due": 100_000, "missing": 0, "seen": 100_000, "repeated": 0, "out_of_order": 0, "strange": 0,
    }  # fmt: skip


def test_an_account_shows_what_is_missing_repeated_and_out_of_order() -> None:
    found = account([0, 10, 20, 10], [1, 3])
    balance = found.balance(5)
    assert (balance.missing, balance.repeated, balance.out_of_order) == (2, 1, 1)
    assert found.first_missing(5) == 2
    assert found.balance(200_000).missing == 200_000 - 5


def test_more_repetitions_than_fit_are_still_repetitions() -> None:
    assert account([7] * 300, [7] * 300).balance(0).repeated == 1


def write(producer: Producer, topic: str, numbers: range) -> None:
    texts = [str(number) for number in numbers]
    columns = {"key": [text[-1:] for text in texts], "value": [text.ljust(20) for text in texts]}
    producer.send_batch(pa.record_batch(columns), topic=topic)
    producer.flush()


def test_the_bookkeeper_reads_all_topics_and_partitions_that_are_added() -> None:
    with LocalBroker() as broker:
        for topic in ("a", "b"):
            broker.create_topic(topic, 1)
        servers = broker.bootstrap_servers
        with (
            Producer({"bootstrap.servers": servers, "metadata.max.age.ms": 50}) as producer,
            Bookkeeper(servers, ["a", "b"]) as books,
        ):
            write(producer, "a", range(50))
            books.wait_for("a", 60)
            admin = AdminClient({"bootstrap.servers": servers})
            admin.create_partitions([NewPartitions("a", 4)])["a"].result(60)
            wait_until(lambda: len(books.ends("a")) == 4, "the new partitions")
            write(producer, "a", range(50, 400))
            write(producer, "b", range(10))
            producer.send("b", "not a number", key="x").result(60)
            for topic in ("a", "b"):
                books.wait_for(topic, 60)
            assert books.accounts["a"].balance(400)[:4] == (400, 0, 400, 0)
            assert (books.accounts["b"].balance(10).missing, books.accounts["b"].strange) == (0, 1)
            assert books.errors == []


class MadeUpDriver:
    """Takes queries, and ends them as the test says."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.outcomes: dict[int, dict[str, Any]] = {}
        self.ended = False
        self.process = SimpleNamespace(pid=id(self), has_ended=lambda: self.ended)

    def give(self, job: dict[str, Any]) -> int:
        self.jobs.append(job)
        return len(self.jobs) - 1

    def outcome(self, number: int) -> dict[str, Any] | None:
        return self.outcomes.get(number)


def stream(home: Path, drivers: list[MadeUpDriver], plan: int = 1) -> Stream:
    left = iter(drivers)
    pool: Any = SimpleNamespace(ready=True, take=lambda: next(left))
    return Stream(
        PLANS[plan], home, pool, {"kafka.bootstrap.servers": "nowhere:1"}, 10, clock=iter(range(0, 9000, 10)).__next__
    )


def test_a_query_is_started_again_after_an_error_and_after_the_death_of_its_driver(tmp_path: Path) -> None:
    first, second = MadeUpDriver(), MadeUpDriver()
    query = stream(tmp_path, [first, second])
    query.turn()
    first.outcomes[0] = {"error": "TimeoutError: late"}
    query.turn()
    first.ended = True
    query.turn()
    assert (len(first.jobs), len(second.jobs)) == (2, 1)
    assert [life.error for life in query.lives] == ["TimeoutError: late", "the driver died", ""]
    assert first.jobs[0] == second.jobs[0]
    assert first.jobs[0]["options"]["exactlyOnceId"] == PLANS[1].topic
    second.outcomes[0] = {"error": "the query was stopped"}
    assert query.turn(endless=False) is False
    second.outcomes[1] = {"error": ""}
    assert query.turn(endless=False) is True


def test_what_people_must_mend_ends_the_stream(tmp_path: Path) -> None:
    driver = MadeUpDriver()
    query = stream(tmp_path, [driver])
    query.turn()
    driver.outcomes[0] = {"error": "spark_producer.errors: brokers lost the markers that say so, see repair"}
    query.turn()
    query.turn()
    assert len(driver.jobs) == 1
    assert "lost the markers" in query.loud


def test_only_rows_of_committed_micro_batches_are_due(tmp_path: Path) -> None:
    query = stream(tmp_path, [])
    assert query.committed() == 0
    for folder in ("offsets", "commits"):
        (query.checkpoint / folder).mkdir(parents=True)
    for batch in (9, 10, 11):
        offset = json.dumps({"offset": (batch + 1) * 500, "timestamp": 0})
        (query.checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offset}")
    for batch in (9, 10):
        (query.checkpoint / "commits" / str(batch)).write_text("v1\n{}")
    assert query.committed() == 11 * 500


@pytest.mark.parametrize(
    ("plan", "rows", "said"),
    [
        (0, [0, 10, 10, 0, 20], ["2 of 5 rows"]),
        (1, [0, 1, 2, 3, 4, 4], ["more than once"]),
        (1, [0, 1, 2, 3, 4], []),
        (1, [10, 0, 1, 2, 3, 4], ["out of order"]),
        (2, [10, 0, 1, 2, 3, 4], []),
    ],
)
def test_each_stream_is_judged_by_its_guarantee(tmp_path: Path, plan: int, rows: list[int], said: list[str]) -> None:
    rows = [*rows, 1, 2] if plan == 0 else rows
    record: Any = SimpleNamespace(violations=[])
    soak: Any = SimpleNamespace(record=record, now=1.0)
    found = account(rows)
    due = 5
    Soak._judge(soak, stream(tmp_path, [], plan), found.balance(due), found.first_missing(due))
    assert len(record.violations) == len(said)
    assert all(text in reported for text, reported in zip(said, record.violations, strict=True))


def test_a_run_that_breaks_is_in_the_record_with_the_lives_of_its_queries(tmp_path: Path) -> None:
    def break_off() -> None:
        raise KafkaFailed("not within 120 s: the brokers")

    record, query = Record(60.0, 1, 10), stream(tmp_path, [MadeUpDriver()])
    query.turn()
    soak: Any = SimpleNamespace(_play=break_off, record=record, now=7.0, streams=[query])
    Soak.play(soak)
    assert record.verdict == "violated"
    assert "7 s, the run broke: KafkaFailed" in record.violations[0]
    assert len(record.lives[PLANS[1].name]) == 1


def test_the_trend_is_that_of_the_longest_life() -> None:
    samples = [Sample(moment, "s", 1, "JVM", 1, 100.0 + moment, 5, 7) for moment in range(100)]
    samples += [Sample(100.0 + moment, "s", 2, "JVM", 1, 900.0, 5, 7) for moment in range(3)]
    assert trend(samples, "s", "JVM", "MiB") == Trend(112.0, 187.0, 900.0)
    assert trend(samples, "s", "JVM", "threads") == Trend(5, 5, 5)
    assert trend(samples, "s", "workers", "MiB") is None


def test_the_page_says_what_was_found_and_has_its_plots(tmp_path: Path) -> None:
    record = Record(7200.0, 1, 500, day="2026-01-31", balances=9)
    record.faults = [(1.0, 2.0, "exactly once", "driver killed"), (3.0, 9.0, "node 2", "paused")]
    record.lives = {"exactly once": [{"begin": 0.0, "end": 1.5, "driver": 1, "error": "x"}]}
    record.samples = [list(Sample(5.0, "exactly once", 1, "workers", 2, 300.0, 8, 40))]
    record.seen = [(5.0, {plan.topic: 100 for plan in PLANS})]
    record.final = {"exactly once": account(list(range(10))).balance(10)._asdict()}
    out = tmp_path / "soak.md"
    kept = json.loads(json.dumps(asdict(record) | {"verdict": record.verdict}))
    page.write(kept, out)
    text = out.read_text(encoding="utf-8")
    assert "2026-01-31, 2.0 hours on Kafka 4, seed 1: **accounted**." in text
    assert "| exactly once | 1 | 1 | 10 | 10 | 0 | 0 |" in text
    assert "Faults: driver killed 1×, paused 1×." in text
    assert "| exactly once | workers | 300 → 300 (300) | 8 → 8 (8) | 40 → 40 (40) |" in text
    for picture in ("soak_events.svg", "soak_processes.svg"):
        assert f"results/{picture}" in text
        assert "<svg" in (tmp_path / "results" / picture).read_text()


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(1500)  # every wait within has its own deadline
def test_every_row_is_accounted_after_a_driver_was_killed(tmp_path: Path) -> None:
    record = Record(75.0, 1, 200, only=["driver killed"])
    play(record, tmp_path, Pace(first=(25, 30), pause=(60, 60)))
    assert (record.violations, record.loud) == ([], "")
    assert [name for *_, name in record.faults] == ["driver killed"]
    assert all(balance["due"] > 0 for balance in record.final.values())
    assert set(record.final) == {plan.name for plan in PLANS}
    assert record.balances > 0
