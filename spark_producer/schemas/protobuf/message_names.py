"""The names of the messages with which values were written, in a task: the driver has sent those of the subject."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from spark_producer.errors import SchemaError
from spark_producer.schemas.protobuf.compiler import MessageNames, compiled, message_names, parse_registered
from spark_producer.schemas.writer_schemas import WriterSchemas


class WriterMessages:
    """The names of messages by the ids of their schemas. The known ones are pickled with it; the registry is asked for each other
    id once, and its schema compiled."""

    def __init__(self, known: Mapping[int, MessageNames], others: WriterSchemas) -> None:
        self._known = dict(known)
        self._others = others

    def names(self, schema_id: int) -> MessageNames:
        """Return the names of a schema's messages.

        Raises:
            UnknownSchema: there is no such schema, or it is not Protobuf. SchemaError: it is not valid. RegistryError: the
            registry cannot be reached, or refuses. ConfigError: the client of the registry, or the compiler, is not installed.
        """
        if schema_id not in self._known:
            text = self._others.text(schema_id)
            self._known[schema_id] = known_names(text, f"schema {schema_id}")
        return self._known[schema_id]


@functools.lru_cache(maxsize=100)
def known_names(text: str, what: str) -> MessageNames:
    """Return the names of the messages of a schema as `Registry` returns it.

    Raises:
        SchemaError, ConfigError: as `compiled`.
    """
    return message_names(compiled(parse_registered(text), what))


def all_names(texts: Mapping[int, str]) -> dict[int, MessageNames]:
    """Return the names of the messages of some schemas by their ids; those that are not valid are left out.

    Raises:
        ConfigError: as `compiled`.
    """
    found = {}
    for schema_id, text in texts.items():
        try:
            found[schema_id] = known_names(text, f"schema {schema_id}")
        except SchemaError:  # a value with this id says so, if there is one
            continue
    return found
