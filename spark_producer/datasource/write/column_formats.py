"""The formats of a write's columns: chosen on the driver, where a registry's answers are kept for a while, and used in tasks."""

from __future__ import annotations

import time
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_producer.common.secret import Secret
from spark_producer.config import ProducerConfig, RegistryOptions, SinkOptions
from spark_producer.config.registry_table import column_options
from spark_producer.datasource.arrow_types import arrow_type
from spark_producer.datasource.write.schema_mismatch import MismatchedColumn, MismatchedPiece
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas.column_format import Formats, encode_column
from spark_producer.schemas.registry import RegisteredSchema, Registry
from spark_producer.schemas.schema_selection import SchemaLookup, answer, column_format
from spark_producer.security.references import resolve

KEEP_SECONDS = 60.0
"""The seconds after its last use for which an answer is kept. A query that has micro-batches more often keeps its schema's id."""


class _Kept(NamedTuple):
    question: SchemaLookup
    found: RegisteredSchema
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

    def ask(question: SchemaLookup) -> RegisteredSchema:
        return _remembered(question, config)

    chosen = {}
    for wish in column_options(sink, registry):
        if wish.column in schema.fieldNames():
            kind = arrow_type(schema[wish.column].dataType, wish.column) if wish.avro else None
            chosen[wish.column] = column_format(wish, kind, sink.topic, registry, ask)
    found = Formats(**chosen)
    return found if found.items() else None


def _remembered(question: SchemaLookup, config: ProducerConfig) -> RegisteredSchema:
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


def encode_piece(piece: pa.RecordBatch, formats: Formats) -> tuple[pa.RecordBatch, MismatchedPiece | None]:
    """Return a piece with its columns in their formats, and its rows that do not fit their schema, which are null there."""
    columns: dict[str, ArrowArray] = dict(zip(piece.schema.names, piece.columns, strict=True))
    unfit: list[MismatchedColumn] = []
    for name, form in formats.items():
        found = encode_column(form, columns[name])
        if found.column is None:
            unfit.append(MismatchedColumn(name, columns[name], found.unfit))
            found = encode_column(form, unfit[-1].without_them())
            assert found.column is not None  # a null row has no value that could be unfit
        columns[name] = found.column
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return batch, MismatchedPiece(batch, unfit) if unfit else None
