"""The names of the messages with which values were written, in a task: the driver has sent those of the subject."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from spark_producer.errors import SchemaError
from spark_producer.schemas.protobuf.compiler import MessageNames, compiled, message_names, parse_registered
from spark_producer.schemas.registry import KnownSchemas, SchemaKey
from spark_producer.schemas.writer_schemas import WriterSchemas


class WriterMessages:
    """The names of messages by the ids and GUIDs of their schemas.

    The known ones are pickled with it; the registry is asked for each other one once, and its schema compiled.
    """

    def __init__(self, known: Mapping[SchemaKey, MessageNames], others: WriterSchemas) -> None:
        self._known: dict[SchemaKey, MessageNames | str] = dict(known)
        """The names, or the reason why a schema has none: it is not valid, and not compiled again."""
        self._others = others

    def names(self, key: SchemaKey) -> MessageNames:
        """Return the names of a schema's messages.

        Raises:
            UnknownSchema: there is no such schema, or it is not Protobuf. SchemaError: it is not valid. RegistryError: the
            registry cannot be reached, or refuses. ConfigError: the client of the registry, or the compiler, is not installed.
        """
        found = self._known.get(key)
        if found is None:
            text = self._others.text(key)
            try:
                found = known_names(text, f"schema {key}")
            except SchemaError as error:
                found = str(error)
            self._known[key] = found
        if isinstance(found, str):
            raise SchemaError(found)
        return found


@functools.lru_cache(maxsize=100)
def known_names(text: str, what: str) -> MessageNames:
    """Return the names of the messages of a schema as `Registry` returns it.

    Raises:
        SchemaError, ConfigError: as `compiled`.
    """
    return message_names(compiled(parse_registered(text), what))


def all_names(texts: KnownSchemas) -> dict[SchemaKey, MessageNames]:
    """Return the names of the messages of some schemas by their ids and GUIDs; those that are not valid are left out.

    Raises:
        ConfigError: as `compiled`.
    """
    found: dict[SchemaKey, MessageNames] = {}
    by_text: dict[str, MessageNames] = {}
    for key, text in texts.items():
        try:
            if text not in by_text:
                by_text[text] = known_names(text, f"schema {key}")
            found[key] = by_text[text]
        except SchemaError:  # a value with this id says so, if there is one
            continue
    return found
