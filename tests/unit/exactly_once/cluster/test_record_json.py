"""The bytes of the control record: strict, with a version, split if long, and never those of another write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.cluster import Span, TopicPartition, TransactionVersion
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once.cluster.record_json import MAX_BYTES, decode, encode, key_of
from spark_producer.exactly_once.names import control_id, task_id
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status, TaskTransaction

RECORD = ControlRecord(
    "orders",
    "query",
    Status.COMMITTING,
    7,
    6,
    "0f" * 16,
    (
        TaskTransaction(
            task_id("orders", "a" * 32, 0), 4, 1, TransactionVersion.IMPLICIT, (Span("rows", 2, 10, 19, 10),)
        ),
    ),
    (TopicPartition("small", 0), TopicPartition("small", 3)),
    rows=13,
    done_rows=90,
)


def many(count: int) -> ControlRecord:
    [one] = RECORD.transactions
    ids = (task_id("orders", "a" * 32, number) for number in range(count))
    return RECORD._replace(transactions=tuple(one._replace(transactional_id=each) for each in ids))


def round_trip(record: ControlRecord, largest: int) -> ControlRecord:
    written = dict(encode(record, largest))
    return decode(record.sink, written[key_of(record.sink)], written)


@pytest.mark.parametrize("largest", [4096, 900_000])
@pytest.mark.parametrize("count", [0, 1, 500])
def test_a_record_comes_back_as_it_was_in_parts_that_are_small_enough(count: int, largest: int) -> None:
    record = many(count)
    written = encode(record, largest)
    assert round_trip(record, largest) == record
    assert max(len(value) for _, value in written) <= largest
    assert len(written) == (1 if count < 500 or largest > 4096 else 12)
    assert written[-1][0] == b"orders"
    assert len({key for key, _ in written}) == len(written)


def test_parts_of_another_write_are_not_taken() -> None:
    old = dict(encode(many(500), 4096))
    new = dict(encode(many(501), 4096))
    with pytest.raises(ExactlyOnceError, match="parts are those of another record"):
        decode("orders", new[b"orders"], {**new, b"orders#3": old[b"orders#7"]})
    del new[b"orders#2"]
    with pytest.raises(ExactlyOnceError, match="parts are those of another record"):
        decode("orders", new[b"orders"], new)


def test_a_newer_version_is_refused_with_advice() -> None:
    [(key, value)] = encode(RECORD)
    newer = json.dumps({**json.loads(value), "version": 4, "something": "new"}).encode()
    with pytest.raises(
        ExactlyOnceError, match=r"version 4, and this pyproducer knows versions 1 to 3.*newer one wrote it"
    ):
        decode("orders", newer, {key: newer})


@pytest.mark.parametrize("missing", [(), ("rows",), ("done_rows",)])
def test_version_1_which_knows_no_numbers_of_rows_is_read(missing: tuple[str, ...]) -> None:
    """A record of version 2 must say them, be it that they are not known."""
    [(_, value)] = encode(RECORD)
    given = json.loads(value)
    older = {name: given[name] for name in given if name not in ("rows", "done_rows")} | {"version": 1}
    unknown = RECORD._replace(rows=None, done_rows=None)
    assert decode("orders", json.dumps(older).encode(), {}) == unknown
    assert round_trip(unknown, 4096) == unknown
    for name in missing:
        newer = json.dumps({field: given[field] for field in given if field != name}).encode()
        with pytest.raises(ExactlyOnceError, match="its fields are not those"):
            decode("orders", newer, {})


@pytest.mark.parametrize(
    "change",
    [
        {"status": "SOMETHING"},
        {"sink": "others"},
        {"batch": 7.0},
        {"batch": True},
        {"batch": 1 << 63},
        {"token": None},
        {"rows": -1},
        {"done_rows": "90"},
        {"version": 1},
        {"inline": [["small"]]},
        {"inline": {"small": 0}},
        {"parts": 1},
        {"parts": -1},
        {"parts": 1 << 40},
        {"transactions": [["id", 1, 2, 3, []]]},
        {"transactions": [["id", 1, 2, 1, [["rows", 0, 1, 2]]]]},
        {"more": 1},
        {"version": "1"},
        {"version": True},
    ],
)
def test_what_is_no_record_of_ours_is_refused(change: dict[str, Any]) -> None:
    [(_, value)] = encode(RECORD)
    changed = json.dumps({**json.loads(value), **change}).encode()
    with pytest.raises(ExactlyOnceError):
        decode("orders", changed, {})


@pytest.mark.parametrize("missing", ["micro_batch", "done_micro_batch", "earlier", "run"])
def test_a_record_of_version_3_has_all_fields_of_the_micro_batch_or_none(missing: str) -> None:
    [(_, value)] = encode(RECORD, writer=(7, 1))
    given = json.loads(value)
    without = {name: given[name] for name in given if name != missing}
    for changed in (without, given | {missing: -1}, given | {missing: [[1]]}):
        with pytest.raises(ExactlyOnceError, match="no control record"):
            decode("orders", json.dumps(changed).encode(), {})


@pytest.mark.parametrize(
    "transactional_id",
    [
        "payments-1",
        control_id("orders"),
        task_id("orders.eu", "a" * 32, 0),
        task_id("payments", "a" * 32, 0),
        "",
        "\ud800",
    ],
)
def test_a_record_that_names_a_foreign_transaction_is_refused(transactional_id: str) -> None:
    """A program that may write to the control topic must not have the driver commit, or abort, what only the driver may."""
    [one] = RECORD.transactions
    [(_, value)] = encode(RECORD._replace(transactions=()))
    changed = json.dumps({**json.loads(value), "transactions": [[transactional_id, *one[1:]]]}).encode()
    with pytest.raises(ExactlyOnceError, match="no control record"):
        decode("orders", changed, {})


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 1 << 15},
        {"epoch": -1},
        {"producer_id": -1},
        {"spans": [Span("rows", 1 << 31, 0, 0, 1)]},
        {"spans": [Span("rows", 0, -1, 0, 1)]},
        {"spans": [Span("\ud800", 0, 0, 0, 1)]},
        {"spans": [Span("t" * 1001, 0, 0, 0, 1)]},
    ],
)
def test_what_cannot_be_sent_to_a_broker_is_no_record(change: dict[str, Any]) -> None:
    [one] = RECORD.transactions
    [(_, value)] = encode(RECORD._replace(transactions=()))
    changed = json.dumps({**json.loads(value), "transactions": [one._replace(**change)]}).encode()
    with pytest.raises(ExactlyOnceError, match="no control record"):
        decode("orders", changed, {})


def test_a_record_that_names_an_id_twice_is_refused() -> None:
    """Only one of the two would be ended, and its answer be taken for that of both."""
    [one] = RECORD.transactions
    [(_, value)] = encode(RECORD)
    changed = json.dumps({**json.loads(value), "transactions": [one, one]}).encode()
    with pytest.raises(ExactlyOnceError, match="transactional id twice"):
        decode("orders", changed, {})


def test_a_record_that_would_be_refused_is_not_written() -> None:
    [one] = RECORD.transactions
    for some in ((one, one), (one._replace(transactional_id="payments-1"),)):
        with pytest.raises(ExactlyOnceError, match="cannot be written: it names"):
            encode(RECORD._replace(transactions=some))


@pytest.mark.parametrize(
    "value",
    [b"", b"null", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"version":1,"version":1}', b'{"version":NaN}', b"1e5"],
)
def test_damaged_bytes_are_refused(value: bytes) -> None:
    with pytest.raises(ExactlyOnceError, match="no control record"):
        decode("orders", value, {})


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_our_error(value: bytes) -> None:
    with pytest.raises(ExactlyOnceError):
        decode("orders", value, {})


def test_a_record_that_is_too_large_is_not_written() -> None:
    [one] = RECORD.transactions
    spans = (Span("x" * (MAX_BYTES // 4), 0, 0, 0, 1),)
    with pytest.raises(ExactlyOnceError, match="coalesce"):
        encode(RECORD._replace(transactions=(one._replace(spans=spans * 5),)))
    with pytest.raises(ExactlyOnceError, match=r"max\.message\.bytes"):
        encode(RECORD._replace(transactions=(one._replace(spans=spans),)), 2000)
