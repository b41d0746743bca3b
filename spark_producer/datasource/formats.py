"""The formats of a write's columns: chosen on the driver, where a registry's answers are kept for a while, and used in tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_producer.config import ProducerConfig, RegistryOptions, SinkOptions
from spark_producer.config.registry_table import wishes
from spark_producer.datasource.arrow_types import arrow_type
from spark_producer.datasource.slicing import pieces
from spark_producer.errors import RecordError
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas.choosing import Question, answer, column_format
from spark_producer.schemas.formats import Formats, encode_column
from spark_producer.schemas.registry import Found, Registry
from spark_producer.secret import Secret
from spark_producer.security.references import resolve

KEEP_SECONDS = 60.0
"""The seconds after its last use for which an answer is kept. A query that has micro-batches more often keeps its schema's id."""


class _Kept(NamedTuple):
    question: Question
    found: Found
    used: float


_kept: list[_Kept] = []
"""The answers of registries in this process. The questions hold secrets, and so have no hash: they are compared."""


def choose_formats(
    schema: StructType, config: ProducerConfig, sink: SinkOptions, registry: RegistryOptions
) -> Formats | None:
    """Return the formats of a write, None if no column has one; `schema` was checked.

    A registry is asked at most once for each column, within `kafka.max.block.ms`.

    Raises:
        ConfigError, SchemaError, RegistryError: as `column_format`.
    """

    def ask(question: Question) -> Found:
        return _remembered(question, config)

    chosen = {}
    for wish in wishes(sink, registry):
        if wish.column in schema.fieldNames():
            kind = arrow_type(schema[wish.column].dataType, wish.column) if wish.avro else None
            chosen[wish.column] = column_format(wish, kind, sink.topic, registry, ask)
    found = Formats(**chosen)
    return found if found.items() else None


def _remembered(question: Question, config: ProducerConfig) -> Found:
    now = time.monotonic()
    _kept[:] = [each for each in _kept if now - each.used < KEEP_SECONDS]
    for place, each in enumerate(_kept):
        if each.question == question:
            _kept[place] = each._replace(used=now)
            return each.found
    allowed = [rule.strip() for rule in config.secrets_allow.split(",") if rule.strip()]

    def reveal(name: str, secret: Secret) -> str:
        return resolve(secret, allowed, name=name)

    registry = Registry(question.options, reveal, config.max_block_ms / 1000)
    try:
        found = answer(registry, question)
    finally:
        registry.close()
    _kept.append(_Kept(question, found, time.monotonic()))
    return found


def encoded(batches: Iterator[pa.RecordBatch], formats: Formats | None) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task with their columns in their formats, cut so that what is copied stays small.

    Raises:
        RecordError: A row does not fit its schema; the text names the row and the field.
    """
    if formats is None:
        yield from batches
        return
    row = 0
    for piece in pieces(batches):
        yield _encoded(piece, formats, row)
        row += piece.num_rows
        del piece


def _encoded(piece: pa.RecordBatch, formats: Formats, first_row: int) -> pa.RecordBatch:
    columns: dict[str, ArrowArray] = dict(zip(piece.schema.names, piece.columns, strict=True))
    for name, form in formats.items():
        found = encode_column(form, columns[name])
        if found.column is None:
            first = min(found.unfit, key=lambda each: int(each.rows[0]))
            raise RecordError(
                f"row {first_row + int(first.rows[0])} of the task does not fit its Avro schema: field {first.path!r}: "
                f"{first.reason}; fill or drop such rows, or let the schema take them"
            )
        columns[name] = found.column
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
