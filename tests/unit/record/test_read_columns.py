"""Reading some columns only: the same rows and errors as with all columns, and where each timestamp comes from."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest

from spark_producer.errors import CorruptRecord
from spark_producer.record.codecs import Codec
from spark_producer.record.decoded_columns import RECORD_SCHEMA, TIMESTAMP_TYPE_FIELD
from spark_producer.record.reading import read_records
from tests.unit.record.messages import message, wrapper
from tests.unit.record.test_damage import LOGS, damaged
from tests.unit.record.test_reading import own_batch, record_bytes

NAMES = [*RECORD_SCHEMA.names, TIMESTAMP_TYPE_FIELD.name]
ALL = frozenset(NAMES)


def read(data: bytes, columns: frozenset[str] | None, *, verify_crc: bool = True) -> tuple[list[pa.RecordBatch], str]:
    batches: list[pa.RecordBatch] = []
    try:
        for batch in read_records(data, verify_crc=verify_crc, limit=100_000, columns=columns):
            batch.validate(full=True)
            batches.append(batch)
    except CorruptRecord as error:
        return batches, str(error)
    return batches, ""


@pytest.mark.covers("RD17")
@pytest.mark.parametrize("name", LOGS)
def test_some_columns_are_those_of_all_columns(name: str) -> None:
    whole, _ = read(b"".join(LOGS[name]), ALL)
    assert [batch.select(RECORD_SCHEMA.names) for batch in whole] == read(b"".join(LOGS[name]), None)[0]
    for count in range(1, len(NAMES)):
        for names in itertools.combinations(NAMES, count):
            assert read(b"".join(LOGS[name]), frozenset(names)) == ([batch.select(names) for batch in whole], "")


@pytest.mark.covers("RD17")
@pytest.mark.parametrize("name", LOGS)
def test_damage_in_fields_that_are_not_read_is_found_too(name: str) -> None:
    chance, log = random.Random(f"columns {name}"), b"".join(LOGS[name])
    errors = 0
    for _ in range(60):
        data = damaged(log, chance)
        whole, error = read(data, None, verify_crc=False)
        errors += bool(error)
        for column in ("offset", "value"):
            expected = [batch.select([column]) for batch in whole]
            assert read(data, frozenset([column]), verify_crc=False) == (expected, error)
    assert errors > 5


@pytest.mark.parametrize("columns", [frozenset(), frozenset(["value", "topic"])])
def test_columns_that_do_not_exist_are_refused(columns: frozenset[str]) -> None:
    with pytest.raises(ValueError, match="Name some of offset, timestamp, key, value, headers, timestamp_type"):
        list(read_records(b"", columns=columns))


@pytest.mark.covers("RD15")
def test_timestamp_types() -> None:
    """Create time 0, log append time 1, none in V0 -1; a wrapper's type holds for the messages in it."""
    inner = message(1, 0, None, b"x", timestamp=7) + message(1, 1, None, b"y", timestamp=8)
    log = [
        own_batch(record_bytes(), attributes=0),
        own_batch(record_bytes() + record_bytes(offset_delta=1), 2, attributes=8),
        message(1, 800, None, b"v"),
        message(1, 801, None, b"v", attributes=8),
        message(0, 802, None, b"v"),
        wrapper(1, 804, inner, Codec.GZIP),
        wrapper(1, 806, inner, Codec.GZIP, attributes=8),
        wrapper(0, 808, message(0, 808, None, b"x"), Codec.GZIP),
    ]
    batches, _ = read(b"".join(log), ALL)
    found = [(row["offset"], row["timestamp_type"]) for batch in batches for row in batch.to_pylist()]
    assert found == [
        (700, 0), (700, 1), (701, 1), (800, 0), (801, 1), (802, -1), (803, 0), (804, 0), (805, 1), (806, 1), (808, -1),
    ]  # fmt: skip
