"""The formats of a write's columns: chosen on the driver, which caches a registry's responses, and used in tasks."""

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
from spark_producer.kernel.arrays import ArrowArray, is_valid
from spark_producer.schemas.column_format import Formats, encode_column
from spark_producer.schemas.header_writing import with_schema_headers
from spark_producer.schemas.registry import RegisteredSchema, Registry
from spark_producer.schemas.schema_lookup import SchemaLookup, query_registry
from spark_producer.schemas.schema_selection import column_format
from spark_producer.security.references import resolve

CACHE_SECONDS = 60.0
"""Seconds after its last use for which a response is cached. A query with more frequent micro-batches keeps its schema's id."""


class _CachedSchema(NamedTuple):
    lookup: SchemaLookup
    found: RegisteredSchema
    used: float


_cached: list[_CachedSchema] = []
"""The cached responses of registries in this process. Lookups contain secrets, and so have no hash: they are compared."""


def choose_formats(
    schema: StructType, config: ProducerConfig, sink: SinkOptions, registry: RegistryOptions
) -> Formats | None:
    """Return the formats of a write, or None if no column has one; `schema` is checked already.

    There is at most one request to a registry per column, within `kafka.max.block.ms`.

    Raises:
        ConfigError, SchemaError, RegistryError: as `column_format`.
    """

    def find_schema(lookup: SchemaLookup) -> RegisteredSchema:
        return _cached_lookup(lookup, config)

    chosen = {}
    for column in column_options(sink, registry):
        if column.name in schema.fieldNames():
            kind = arrow_type(schema[column.name].dataType, column.name) if column.encoded else None
            chosen[column.name] = column_format(column, kind, sink.topic, registry, find_schema)
    found = Formats(**chosen)
    return found if found.items() else None


def _cached_lookup(lookup: SchemaLookup, config: ProducerConfig) -> RegisteredSchema:
    now = time.monotonic()
    _cached[:] = [each for each in _cached if now - each.used < CACHE_SECONDS]
    for index, each in enumerate(_cached):
        if each.lookup == lookup:
            _cached[index] = each._replace(used=now)
            return each.found
    allowed = [rule.strip() for rule in config.secrets_allow.split(",") if rule.strip()]

    def reveal(name: str, secret: Secret) -> str:
        return resolve(secret, allowed, name=name)

    registry = Registry(lookup.options, reveal, config.max_block_ms / 1000, lookup.kind)
    try:
        found = query_registry(registry, lookup)
    finally:
        registry.close()
    _cached.append(_CachedSchema(lookup, found, time.monotonic()))
    return found


def encode_piece(piece: pa.RecordBatch, formats: Formats) -> tuple[pa.RecordBatch, MismatchedPiece | None]:
    """Return a piece with encoded columns, and its rows that do not fit their schema, whose values are null in it."""
    columns: dict[str, ArrowArray] = dict(zip(piece.schema.names, piece.columns, strict=True))
    unfit: list[MismatchedColumn] = []
    for name, form in formats.items():
        found = encode_column(form, columns[name])
        if found.column is None:
            unfit.append(MismatchedColumn(name, columns[name], found.unfit, form.name))
            found = encode_column(form, unfit[-1].without_them())
            assert found.column is not None  # a null row cannot be unfit
        columns[name] = found.column
    added = [(form.header, is_valid(columns[name])) for name, form in formats.items() if form.header is not None]
    if added:
        columns["headers"] = with_schema_headers(columns.get("headers"), piece.num_rows, added)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return batch, MismatchedPiece(batch, unfit) if unfit else None
