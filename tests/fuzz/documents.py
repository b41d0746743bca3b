"""Targets: JSON that other programs may have written where ours is expected."""

from __future__ import annotations

import contextlib
import json
from functools import partial

from spark_producer.config.partition_json import numbers_of, partitions_of
from spark_producer.datasource.read.driver.offset_json import from_json
from spark_producer.errors import ConfigError, ExactlyOnceError
from spark_producer.exactly_once.cluster.record_json import decode, encode, key_of, writer_of
from tests.fuzz.formats import JSON_TOKENS
from tests.fuzz.target import single
from tests.unit.exactly_once.cluster.test_record_json import RECORD, many

SINK = RECORD.sink


def _control_records() -> list[bytes]:
    return [dict(encode(each, 900_000))[key_of(SINK)] for each in (RECORD, many(3))]


def _control_record(data: bytes) -> None:
    with contextlib.suppress(ExactlyOnceError):
        decode(SINK, data, {})
    writer_of(data)


def _offsets(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for parse in (lambda: partitions_of("assign", text), lambda: numbers_of("startingOffsets", text, -2, "{}")):
        with contextlib.suppress(ConfigError):
            parse()
    with contextlib.suppress(ConfigError, ValueError, RecursionError):
        from_json(json.loads(text))


TARGETS = (
    single(
        "control-records",
        "records of the control topic",
        _control_records,
        _control_record,
        JSON_TOKENS,
    ),
    single(
        "offsets",
        "offsets in options and in a checkpoint",
        partial(list, [b'{"orders":[0,1]}', b'{"orders":{"0":23,"1":-1},"orders@AAAAAAAAAAAAAAAAAAAAAQ":{}}']),
        _offsets,
        (*JSON_TOKENS, b"@", b'"orders"', b"-2"),
    ),
)
