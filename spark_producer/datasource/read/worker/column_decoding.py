"""Decodes the columns of a read that have a schema, in a task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from spark_producer.common.cluster import TopicPartition
from spark_producer.schemas.column_reader import Reader
from spark_producer.schemas.header_ids import header_ids


class ColumnDecoding:
    """The decoders of one task, for those of `readers` that are among `names`."""

    def __init__(self, readers: Mapping[str, Reader], names: Collection[str]) -> None:
        self._decoders = {name: (reader, reader.decoder()) for name, reader in readers.items() if name in names}

        self.needed = frozenset(
            {"offset"} | ({"headers"} if any(each.by_header for each, _ in self._decoders.values()) else set())
        )
        """The columns of records that it takes beside those that it decodes: offsets are for messages."""

    def __contains__(self, name: str) -> bool:
        return name in self._decoders

    def column(self, field: pa.Field[Any], topic_partition: TopicPartition, batch: pa.RecordBatch) -> Any:
        """Return the column of `batch`, which also has the columns of `needed`, decoded to the type of `field`.

        Raises:
            RecordError: with the mode FAILFAST, a value cannot be decoded; the message has its offset. RegistryError,
            ConfigError: the registry cannot be asked for a schema.
        """
        reader, decoder = self._decoders[field.name]
        offsets: Any = batch.column("offset")
        column: Any = batch.column(field.name)
        header = header_ids(batch.column("headers"), field.name) if reader.by_header else None
        found: Any = reader.decode(
            decoder, column, lambda row: f"reading {topic_partition} failed at offset {offsets[row].as_py()}", header
        )
        return found if found.type == field.type else found.cast(field.type)
