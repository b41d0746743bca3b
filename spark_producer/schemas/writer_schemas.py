"""Writers' schemas by their ids, in a task: the driver has sent those of the subject, and the registry has the others."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.common.secret import Secret
from spark_producer.config import RegistryOptions
from spark_producer.errors import RegistryError
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.registry import AVRO, KnownSchemas, Registry, SchemaKey
from spark_producer.security.references import resolve

MAX_UNKNOWN = 1000
"""Maximum ids of one task that the registry does not have: bytes of another format have ids at random, each a request."""

_asked: dict[tuple[str, str, SchemaKey], str] = {}
"""The texts that this process got from registries, by address, format and id or GUID. A registry never changes such a schema."""


class RegistryAccess(NamedTuple):
    """How a process asks the registry. It has secrets, or references to them, which are resolved where it connects.

    Attributes:
        options: The options of the registry.
        allowed: The rules for references, as `resolve`.
        timeout: Seconds for each request.
        kind: The format of the schemas, as in `Registry`.
    """

    options: RegistryOptions
    allowed: tuple[str, ...]
    timeout: float
    kind: str = AVRO

    def connect(self) -> Registry:
        """Return a client, which the caller closes.

        Raises:
            ConfigError: an option is wrong, or the client is not installed.
        """

        def reveal(name: str, secret: Secret) -> str:
            return resolve(secret, self.allowed, name=name)

        return Registry(self.options, reveal, self.timeout, self.kind)


class WriterSchemas:
    """The schemas with which a column's values were written. The known ones are pickled with it; the registry is asked for each
    other one once."""

    def __init__(self, known: KnownSchemas, access: RegistryAccess | None) -> None:
        self._known: dict[SchemaKey, str] = dict(known.items())
        self._access = access
        self._unknown = 0

    def text(self, key: SchemaKey) -> str:
        """Return the schema of an id or GUID.

        Raises:
            UnknownSchema: there is none, or it has another format. RegistryError: the registry cannot be reached, or refuses.
            ConfigError: as `RegistryAccess.connect`.
        """
        if key in self._known:
            return self._known[key]
        if self._access is None:
            raise UnknownSchema(f"schema {key} is not among those given, and there is no registry to ask")
        asked = self._access.options.schema_registry_url, self._access.kind, key
        if asked not in _asked:
            _asked[asked] = self._ask(self._access, key)
        return _asked[asked]

    def _ask(self, access: RegistryAccess, key: SchemaKey) -> str:
        registry = access.connect()
        try:
            return registry.by_id(key)
        except UnknownSchema:
            self._unknown += 1
            if self._unknown > MAX_UNKNOWN:
                raise RegistryError(
                    f"the registry does not have {MAX_UNKNOWN} schema ids of one task. Check schema.registry.url, and that the "
                    "column is in Confluent's wire format"
                ) from None
            raise
        finally:
            registry.close()
