"""Builders for the tests of MemoryRecordsBuilder.

Owns: how a test asks for one. Must not know: what is tested.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from spark_producer.legacy_formats.batch_format import BatchFormat, BatchProducer
from spark_producer.legacy_formats.builder import MemoryRecordsBuilder
from spark_producer.record.batch_v2 import BatchHeader, TimestampType, read_header
from spark_producer.record.codecs import ONLY_IN_V2, Codec, Compressor

FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec not in ONLY_IN_V2]
every_format = pytest.mark.parametrize(
    ("magic", "codec"), FORMATS, ids=lambda value: getattr(value, "name", str(value))
)
TRANSACTION = BatchProducer(1234, 5, 7, transactional=True)


def buffer(size: int = 1 << 16) -> memoryview:
    return memoryview(bytearray(size))


def builder_of(magic: int = 2, codec: Codec = Codec.NONE, size: int = 1 << 16, **options: Any) -> MemoryRecordsBuilder:
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    fields = {field.name for field in dataclasses.fields(BatchFormat)} & set(options)
    batch_format = BatchFormat(
        **{"magic": magic, "timestamp_type": kind, **{name: options.pop(name) for name in fields}}
    )
    return MemoryRecordsBuilder(buffer(size), batch_format, compressor=Compressor(codec), **options)


def header_of(builder: MemoryRecordsBuilder) -> BatchHeader:
    return read_header(builder.close())
