"""Partitions whose readers an open transaction holds back, in the answers of a cluster that a test scripts."""

from __future__ import annotations

from typing import cast

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.cli import lso_notice
from spark_producer.cli.lso_notice import CHECK_INTERVAL, OpenTransactionNotifier
from spark_producer.cli.record_text import format_open_transaction
from tests.fakes.fake_clock import FakeClock


class ScriptedOffsets:
    """Last stable offsets and ends of the logs, by partition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stable: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.asked = 0
        monkeypatch.setattr(lso_notice, "offsets", self._offsets)

    def _offsets(
        self, _: object, __: str, ___: int, partitions: list[int], *, isolation_level: int = 0
    ) -> dict[int, int]:
        self.asked += 1
        of = self.stable if isolation_level else self.ends
        return {partition: of[partition] for partition in partitions}


def test_a_partition_is_reported_once_and_only_if_its_lso_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, clock = ScriptedOffsets(monkeypatch), FakeClock()
    positions = {0: 4, 1: 10, 2: 3}
    reported: list[tuple[int, ...]] = []
    held = OpenTransactionNotifier(
        cast(BlockingClient, None), "rows", lambda: positions, lambda *found: reported.append(found), clock
    )
    cluster.stable, cluster.ends = {0: 4, 1: 10, 2: 9}, {0: 9, 1: 11, 2: 12}
    held.check_periodically()
    assert cluster.asked == 0
    clock.advance(CHECK_INTERVAL)
    held.check_periodically()
    assert reported == [], "they may be writing just now"
    clock.advance(CHECK_INTERVAL)
    positions[1] = cluster.stable[1] = 12
    cluster.ends[1] = 15
    held.check_periodically()
    assert reported == [(0, 4, 9)], "1 moves"
    held.check()
    assert reported == [(0, 4, 9), (1, 12, 15)], "2 has more to read before"


def test_nothing_is_reported_without_an_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ScriptedOffsets(monkeypatch)
    cluster.stable = cluster.ends = {0: 7}
    reported: list[tuple[int, ...]] = []
    OpenTransactionNotifier(
        cast(BlockingClient, None), "rows", lambda: {0: 7}, lambda *found: reported.append(found)
    ).check()
    assert reported == []


def test_the_line_about_it() -> None:
    assert format_open_transaction("rows", 3, 1016, 1126) == (
        "rows-3: 110 records from offset 1016 on are held back by an open transaction. "
        "`pyproducer txn describe --topic rows` shows its id"
    )
    assert format_open_transaction("rows", 3, 5, 6).startswith("rows-3: the record at offset 5 is held back by")
