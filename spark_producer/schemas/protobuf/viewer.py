"""Renders values of a topic for readers: Protobuf in Confluent's wire format becomes JSON, with schemas from the registry."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import CorruptRecord, SchemaError
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.protobuf.compiler import compiled, message_at, message_json, parse_registered
from spark_producer.schemas.protobuf.descriptors import FileDescriptor
from spark_producer.schemas.protobuf.frames import frames_of
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.registry import SchemaKey


class ProtobufViewer:
    """Renders Protobuf in Confluent's wire format as JSON. `schema_of` returns the text of a schema by its id."""

    def __init__(self, schema_of: Callable[[SchemaKey], str]) -> None:
        self._schema_of = schema_of
        self._known: dict[SchemaKey, FileDescriptor] = {}
        self._invalid: dict[SchemaKey, SchemaError] = {}
        """The schemas that cannot be compiled: that takes a process, and is not tried again."""

    def view(self, content: bytes | None, header: HeaderIds | None = None) -> bytes | None:
        """Return Protobuf's JSON in UTF-8. Null and values without a frame are returned as they are; a value that cannot be read
        is replaced by the reason.

        Raises:
            RegistryError: the registry cannot be reached. ConfigError: the extra is not installed.
        """
        if content is None:
            return None
        frames = frames_of(pa.array([content], pa.binary()), header)
        if not frames.pairs:
            return content if header is None else f"<{frames.bad[0][1]}>".encode()
        schema_id, indexes = frames.pairs[0]
        try:
            message = message_at(self._file(schema_id), indexes)
            return message_json(message, content[int(frames.heads[0]) :]).encode()
        except (CorruptRecord, SchemaError, UnknownSchema) as error:
            return f"<schema {schema_id}: {for_log(str(error))}>".encode()

    def _file(self, schema_id: SchemaKey) -> FileDescriptor:
        if schema_id in self._invalid:
            raise self._invalid[schema_id]
        if schema_id not in self._known:
            text = self._schema_of(schema_id)
            try:
                self._known[schema_id] = compiled(parse_registered(text), f"schema {schema_id}")
            except SchemaError as error:
                self._invalid[schema_id] = error
                raise
        return self._known[schema_id]
