"""Renders values of a topic for readers: Avro in Confluent's wire format becomes JSON, with schemas from the registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from spark_producer.common.escape import for_log
from spark_producer.errors import CorruptRecord, SchemaError
from spark_producer.schemas.frames import framed_value
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.names import NamedTypes, named_types
from spark_producer.schemas.plan import parse_schema
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.registry import SchemaKey
from spark_producer.schemas.single_value_decoder import read_value
from spark_producer.schemas.types import Schema


class AvroViewer:
    """Renders Avro in Confluent's wire format as JSON. `schema_of` returns the text of a schema by its id or GUID, once for each
    that the registry has."""

    def __init__(self, schema_of: Callable[[SchemaKey], str]) -> None:
        self._schema_of = schema_of
        self._known: dict[SchemaKey, tuple[Schema, NamedTypes]] = {}

    def view(self, content: bytes | None, header: HeaderIds | None = None) -> bytes | None:
        """Return JSON in UTF-8. Null and values in another format are returned as they are; a value that cannot be read, also
        because the registry does not have its schema, is replaced by the reason. `header` has the id that the headers of the
        record hold.

        Raises:
            RegistryError: the registry cannot be reached.
        """
        try:
            framed = None if content is None else framed_value(content, header)
        except CorruptRecord as error:
            return f"<{error}>".encode()
        if framed is None:
            return content
        schema_id, payload = framed
        try:
            if schema_id not in self._known:
                schema = parse_schema(self._schema_of(schema_id), f"schema {schema_id}")
                self._known[schema_id] = schema, named_types(schema)
            schema, named = self._known[schema_id]
            found = read_value(schema, payload, named)
        except (CorruptRecord, SchemaError, UnknownSchema) as error:
            return f"<schema {schema_id}: {for_log(str(error))}>".encode()
        return json.dumps(found, ensure_ascii=False, default=_plain).encode("utf-8", "backslashreplace")


def _plain(value: Any) -> str:
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)
