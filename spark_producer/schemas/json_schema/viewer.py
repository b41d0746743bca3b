"""Renders values of a topic for readers: JSON in Confluent's wire format without its frame, on one line."""

from __future__ import annotations

from collections.abc import Callable

from spark_producer.common.escape import for_log
from spark_producer.errors import CorruptRecord
from spark_producer.schemas.frames import framed_value
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.json_schema.exact import UnfitValue, parse_text, text_of
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.registry import SchemaKey


class JsonViewer:
    """Renders JSON in Confluent's wire format. `schema_of` returns the text of a schema by its id; it is asked only about values
    that are not JSON, for their format."""

    def __init__(self, schema_of: Callable[[SchemaKey], str]) -> None:
        self._schema_of = schema_of

    def view(self, content: bytes | None, header: HeaderIds | None = None) -> bytes | None:
        """Return JSON in UTF-8, numbers with their digits. Null and values without a frame are returned as they are; a value that
        cannot be read is replaced by the reason.

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
            return text_of(parse_text(payload.decode())).encode()
        except UnicodeDecodeError:
            reason = "it is not JSON: it is not UTF-8"
        except UnicodeEncodeError:
            reason = "it has half of a surrogate pair, which UTF-8 does not have"
        except UnfitValue as error:
            reason = str(error)
        except RecursionError:
            reason = "it is nested too deeply"
        try:
            self._schema_of(schema_id)
        except UnknownSchema as error:
            reason = str(error)
        return f"<schema {schema_id}: {for_log(reason)}>".encode()
