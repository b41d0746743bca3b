"""The soak: its accounts see what is missing, repeated or out of order, its streams are started again, and a sample of it."""

from __future__ import annotations

import json
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka.errors import KafkaConnectionError

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from tests.matrix.faults import Fault
from tests.matrix.hand import Pace
from tests.soak import page, run
from tests.soak.__main__ import arguments, main
from tests.soak.accounting import Account, Bookkeeper
from tests.soak.record import Record
from tests.soak.run import RETENTION_SECONDS, START_SECONDS, Soak, play
from tests.soak.samples import Sample
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
            assert books.trouble() == []


class MadeUpMessage:
    """A row of partition 0 of the topic `a`."""

    def __init__(self, number: int) -> None:
        self._number = number

    def topic(self) -> str:
        return "a"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._number

    def error(self) -> None:
        return None

    def key(self) -> bytes:
        return str(self._number)[-1:].encode()

    def value(self) -> bytes:
        return str(self._number).encode()


def test_rows_are_counted_before_it_is_said_that_they_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    books = Bookkeeper("nowhere:1", ["a"])
    books._consumer = SimpleNamespace(consume=lambda *_, **__: [MadeUpMessage(number) for number in range(3)])  # type: ignore[assignment]
    note, passed = Account.note, []

    def look(found: Account, partition: int, numbers: list[int]) -> None:
        passed.append(books.has_passed({("a", 0): 3}))
        note(found, partition, numbers)

    monkeypatch.setattr(Account, "note", look)
    books._read()
    assert passed == [False]
    assert books.has_passed({("a", 0): 3})
    assert books.accounts["a"].balance(3).missing == 0


@pytest.mark.parametrize("place", ["_assign", "_read"])
def test_a_reader_that_breaks_says_so(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def break_off(_: Bookkeeper) -> None:
        raise ValueError("no such partition")

    monkeypatch.setattr(Bookkeeper, place, break_off)
    with LocalBroker() as broker, Bookkeeper(broker.bootstrap_servers, ["a"]) as books:
        books._thread.join(60)
        assert books.trouble() == ["the reader broke: ValueError('no such partition')", "the reader has ended"]


class MadeUpDriver:
    """Takes queries, and ends them as the test says."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.outcomes: dict[int, dict[str, Any]] = {}
        self.ended = False
        self.killed = False
        self.number = id(self)
        self.process = SimpleNamespace(pid=1, has_ended=lambda: self.ended)

    def give(self, job: dict[str, Any]) -> int:
        self.jobs.append(job)
        return len(self.jobs) - 1

    def kill(self) -> None:
        self.killed = True

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
    assert first.killed  # its JVM and its workers may live on
    assert [life.error for life in query.lives] == ["TimeoutError: late", "the driver died", ""]
    assert first.jobs[0] == second.jobs[0]
    assert first.jobs[0]["options"]["exactlyOnceId"] == PLANS[1].topic
    assert first.jobs[0]["options"]["exactlyOnceMaxInlineBytes"] == "0"
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
    (query.checkpoint / "offsets" / "10").write_text('v1\n{}\n{"offset": 55')
    assert query.committed() == 10 * 500


@pytest.mark.parametrize(
    ("plan", "rows", "said"),
    [
        (0, [0, 10, 10, 0, 20], ["2 of 5 rows"]),
        (1, [0, 1, 2, 3, 4, 4], ["more than once"]),
        (1, [0, 1, 2, 3, 4], []),
        (1, [10, 0, 1, 2, 3, 4], ["out of order"]),
        (2, [10, 0, 1, 2, 3, 4], []),
        (2, [10, 0, 1, 2, 3, 4, 4], ["more than once"]),
    ],
)
def test_each_stream_is_judged_by_its_guarantee(tmp_path: Path, plan: int, rows: list[int], said: list[str]) -> None:
    rows = [*rows, 1, 2] if plan == 0 else rows
    soak = bare_soak(tmp_path)
    found = account(rows)
    due = 5
    soak._judge(stream(tmp_path, [], plan), found.balance(due), found.first_missing(due))
    violations = soak.record.violations
    assert len(violations) == len(said)
    assert all(text in reported for text, reported in zip(said, violations, strict=True))


def bare_soak(home: Path, streams: tuple[Stream, ...] = ()) -> Soak:
    """A run without processes, at its seventh second."""
    soak = Soak.__new__(Soak)
    soak.record, soak.streams, soak.home, soak.begun = Record(60.0, 1, 10), list(streams), home, time.monotonic() - 7
    soak.brokers = SimpleNamespace(ended=dict)  # type: ignore[assignment]
    soak._due, soak._grown = deque(), {}
    soak._next_sample = soak._next_balance = soak._next_save = 0.0
    return soak


def books_of(topics: list[str], rows: list[int]) -> Any:
    """A reader that has these rows of each topic."""
    return SimpleNamespace(
        accounts={topic: account(rows) for topic in topics},
        trouble=list,
        has_passed=lambda ends: True,
        ends=lambda *_, **__: {},
    )


@pytest.mark.parametrize(
    "error",
    [
        KafkaFailed("not within 120 s: the brokers"),
        KafkaConnectionError(),
        json.JSONDecodeError("cut off", "{", 1),
        subprocess.TimeoutExpired("java", 30),
        KeyboardInterrupt(),
    ],
)
def test_a_run_that_breaks_is_in_the_record_with_the_lives_of_its_queries(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(_: Soak) -> None:
        raise error

    query = stream(tmp_path, [MadeUpDriver()])
    query.turn()
    soak = bare_soak(tmp_path, (query,))
    monkeypatch.setattr(Soak, "_play", break_off)
    soak.play()
    record = soak.record
    assert record.verdict == "violated"
    assert f"7 s, the run broke: {type(error).__name__}" in record.violations[0]
    life = record.lives[PLANS[1].name][0]
    assert life["end"] > life["begin"]
    assert json.loads((tmp_path / "record.json").read_text())["verdict"] == "violated"


def test_a_run_that_cannot_even_begin_or_end_has_its_page_and_keeps_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def without_end(*_: object, **__: object) -> Iterator[Any]:
        yield SimpleNamespace(cluster=SimpleNamespace(nodes=[]))
        raise subprocess.TimeoutExpired("java", 30)

    monkeypatch.setattr(run, "proxied_cluster", without_end)
    monkeypatch.setattr(run, "Drivers", nullcontext)
    monkeypatch.setattr(run, "Soak", lambda *_: SimpleNamespace(play=lambda: None))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    out = tmp_path / "soak.md"
    assert main(["--minutes", "3", "--hours", "2", "--out", str(out)]) == 1
    assert "the run broke: TimeoutExpired" in out.read_text(encoding="utf-8")
    kept = Path(capsys.readouterr().out.strip().rpartition("kept: ")[2])
    assert (kept / "record.json").exists()


def test_minutes_stand_for_hours_that_make_gives_too() -> None:
    assert arguments(["--hours", "2", "--minutes", "3"]).minutes == 3


def test_a_turn_sees_a_node_that_has_ended_and_a_reader_that_has_ended(tmp_path: Path) -> None:
    soak, books = bare_soak(tmp_path), books_of([], [])
    soak.brokers = SimpleNamespace(ended=lambda: {2: 134})  # type: ignore[assignment]
    books.trouble = lambda: ["the reader has ended"]
    soak._turn([], books)
    assert [text.partition(", ")[2] for text in soak.record.violations] == [
        "node 2 has ended with exit code 134, and no fault is to blame",
        "the reader has ended",
    ]


def test_no_driver_is_hit_before_each_stream_has_one(tmp_path: Path) -> None:
    first, second = stream(tmp_path, [MadeUpDriver()]), stream(tmp_path, [MadeUpDriver()], 2)
    soak = bare_soak(tmp_path, (first, second))
    of_drivers, of_brokers = (Fault(lane, "killed", lambda: "") for lane in ("driver", "broker"))
    first.turn()
    assert [soak.can_begin(fault) for fault in (of_drivers, of_brokers)] == [False, True]
    second.turn()
    assert soak.can_begin(of_drivers)


def test_a_stream_without_rows_for_five_minutes_is_a_violation(tmp_path: Path) -> None:
    soak = bare_soak(tmp_path)
    soak._look_at_progress({"a": 0, "b": 0})
    soak._grown = {"a": (5, soak.now), "b": (5, soak.now)}
    soak.begun -= 301
    soak._look_at_progress({"a": 6, "b": 5})
    assert len(soak.record.violations) == 1
    assert "b has brought no row for 301 s" in soak.record.violations[0]


def test_faults_begin_when_each_stream_brings_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soak, books = bare_soak(tmp_path), books_of(["a", "b"], [])
    turns: list[int] = []

    def turn(_: Soak, hands: list[Any], books: Any) -> None:
        assert not hands
        turns.append(len(turns))
        books.accounts["ab"[len(turns) % 2]].note(0, [1])
        soak.record.balances = len(turns) // 3

    monkeypatch.setattr(Soak, "_turn", turn)
    soak._get_under_way(books)
    assert len(turns) == 3
    assert set(soak._grown) == {"a", "b"}
    assert soak.record.violations == []
    monkeypatch.setattr(Soak, "_turn", lambda *_: None)
    soak.begun -= START_SECONDS
    soak._get_under_way(books_of(["a"], []))
    assert "not all streams bring rows within 600 s" in soak.record.violations[0]


def test_a_balance_without_rows_counts_for_nothing_and_copies_are_judged_too(tmp_path: Path) -> None:
    soak = bare_soak(tmp_path, (stream(tmp_path, []), stream(tmp_path, [], 2)))
    soak._balance(books_of([PLANS[1].topic, PLANS[2].topic], [0, 1, 1]))
    assert "Kafka to Kafka: 1 rows were seen more than once" in soak.record.violations[0]
    soak._balance(books_of([PLANS[1].topic], []))
    assert soak.record.balances == 0
    soak._look_back()
    assert soak.record.violations[-1].endswith("no balance was struck")


def test_retention_that_removes_nothing_is_a_violation(tmp_path: Path) -> None:
    soak = bare_soak(tmp_path)
    soak.record.balances, soak.record.lasted = 1, 3 * RETENTION_SECONDS
    soak.record.first_offsets = {"a": {"0": 0, "1": 7}, "b": {"0": 0}}
    soak._look_back()
    assert [text.partition(", ")[2] for text in soak.record.violations] == ["retention has removed nothing of b"]


def test_the_page_says_what_was_found_and_has_its_plots(tmp_path: Path) -> None:
    record = Record(7200.0, 1, 500, day="2026-01-31", balances=9, lasted=7201.0)
    record.faults = [(1.0, 2.0, "exactly once", "driver killed"), (3.0, 9.0, "node 1, node 2", "certificates rotated")]
    record.effects = [(9.0, "certificates rotated", "a node shows the new certificate")] * 2
    record.lives = {"exactly once": [{"begin": 0.0, "end": 1.5, "driver": 1, "error": "x"}]}
    record.samples = [list(Sample(5.0, "exactly once", 1, "workers", 2, 300.0, 8, 40))]
    record.seen = [(5.0, {plan.topic: 100 for plan in PLANS})]
    record.final = {"exactly once": account(list(range(10))).balance(10)._asdict()}
    out = tmp_path / "soak.md"
    page.write(json.loads(json.dumps(record.kept())), out)
    text = out.read_text(encoding="utf-8")
    assert "2026-01-31, 2.0 hours on Kafka 4, seed 1: **accounted**." in text
    assert "| exactly once | 1 | 1 | 10 | 10 | 0 | 0 |" in text
    assert "Faults: driver killed 1×, certificates rotated 1×." in text
    assert "Seen after faults: certificates rotated: a node shows the new certificate 2×." in text
    assert "| exactly once | workers | 300 → 300 (300) | 8 → 8 (8) | 40 → 40 (40) |" in text
    for picture in ("soak_events.svg", "soak_processes.svg"):
        assert f"results/{picture}" in text
        assert "<svg" in (tmp_path / "results" / picture).read_text()
    record.lasted, record.violations = 420.0, ["the run broke"]
    assert "7 minutes of 2.0 hours on Kafka 4" in page.render(record.kept(), [], "soak")


def test_the_page_is_in_the_navigation_of_the_site_once(tmp_path: Path) -> None:
    site = tmp_path / "mkdocs.yml"
    site.write_text((page.ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace(page.ENTRY, ""), encoding="utf-8")
    for _ in range(2):
        page.enter(site)
    assert site.read_text(encoding="utf-8").count(page.BEFORE + page.ENTRY) == 1
    assert site.read_text(encoding="utf-8").count("soak.md") == 1


def test_of_each_minute_one_sample_is_kept() -> None:
    record = Record(7200.0, 1, 500)
    for moment in range(0, 7200, 5):
        record.samples.append(list(Sample(float(moment), "exactly once", 1, "JVM", 1, 300.0, 8, 40)))
        record.seen.append((float(moment), {"a": moment}))
    kept = record.kept()
    assert (len(kept["samples"]), len(kept["seen"])) == (120, 120)
    assert len(record.samples) == 1440


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
