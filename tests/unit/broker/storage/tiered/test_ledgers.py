"""When a log begins a new ledger, and which ledgers are deleted."""

from __future__ import annotations

import pytest

from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.tiered.ledgers import Ledger, RollRules, must_roll, with_batches
from spark_producer.broker.storage.tiered.retention import count_expired

RULES = RollRules()
MINUTE = 60_000


def ledger(**fields: int) -> Ledger:
    return Ledger(**{"first_offset": 0, "end_offset": 1, "begun_ms": 0, "written_ms": 0, "entries": 1, **fields})


@pytest.mark.parametrize(
    ("fields", "age_ms", "rolls"),
    [
        ({"entries": 50_000}, 10 * MINUTE, True),
        ({"entries": 50_000}, 10 * MINUTE - 1, False),
        ({"entries": 49_999}, 10 * MINUTE, False),
        ({"bytes": 2 * 1024**3}, 10 * MINUTE, True),
        ({"bytes": 2 * 1024**3 - 1}, 10 * MINUTE, False),
        ({}, 240 * MINUTE, True),
        ({}, 240 * MINUTE - 1, False),
        ({"entries": 0, "bytes": 0}, 10**12, False),
    ],
)
def test_a_ledger_ends_by_the_rules_of_pulsar(fields: dict[str, int], age_ms: int, rolls: bool) -> None:
    settings = TopicSettings(segment_bytes=2**31 - 1 + 2**31)
    assert must_roll(ledger(**fields), 1, -1, settings, RULES, age_ms) is rolls


@pytest.mark.parametrize(
    ("size", "timestamp", "rolls"),
    [(50, 100, False), (51, 100, True), (1, 1100, False), (1, 1101, True), (1, -1, False)],
)
def test_a_ledger_ends_as_a_segment_of_kafka_does(size: int, timestamp: int, rolls: bool) -> None:
    settings = TopicSettings(segment_bytes=100, segment_ms=1000)
    assert must_roll(ledger(bytes=50, first_timestamp=100), size, timestamp, settings, RULES, 0) is rolls


def test_flushed_batches_are_counted_in_the_ledgers_that_they_were_admitted_to() -> None:
    first, second = ledger(), ledger(first_offset=3, begun_ms=7)
    flushed = [Ledger(0, 1, 0, 0, entries=1, bytes=10, first_timestamp=5, max_timestamp=5)]
    found = with_batches(flushed, [(first, 3, 20, 4), (second, 5, 30, 9)])
    assert [(each.first_offset, each.end_offset, each.entries, each.bytes) for each in found] == [
        (0, 3, 2, 30),
        (3, 5, 1, 30),
    ]
    assert [each.max_timestamp for each in found] == [5, 9]
    assert flushed[0].entries == 1, "what was given stays as it is"
    assert with_batches(found, [(second, 5, 30, 9)]) == found, "a batch that was counted is not counted again"


def test_only_ledgers_whose_batches_are_all_confirmed_are_deleted() -> None:
    ledgers = [ledger(end_offset=10, bytes=5), ledger(first_offset=10, end_offset=20, bytes=5)]
    settings = TopicSettings(retention_bytes=0)
    assert [count_expired(ledgers, settings, 0, high_watermark) for high_watermark in (9, 10, 19, 20)] == [0, 1, 1, 2]
