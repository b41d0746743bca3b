"""The arguments by which a command prints Avro, JSON Schema or Protobuf as JSON: the Schema Registry and its login."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from spark_producer.common.secret import Secret
from spark_producer.config import parse_sink_options
from spark_producer.config.registry_table import REGISTRY_FIELDS
from spark_producer.errors import ConfigError
from spark_producer.record.reading import ConsumerRecord
from spark_producer.schemas.avro_viewer import AvroViewer
from spark_producer.schemas.header_ids import HeaderIds, record_header
from spark_producer.schemas.json_schema.viewer import JsonViewer
from spark_producer.schemas.protobuf.viewer import ProtobufViewer
from spark_producer.schemas.registry import AVRO, JSON, PROTOBUF, Registry, SchemaKey
from spark_producer.security.references import resolve

PREFIX = "kafka."
SECONDS = 10.0
"""Maximum seconds to wait for a response of the registry."""


class Viewer(Protocol):
    """Renders keys and values of one format as JSON."""

    def view(self, content: bytes | None, header: HeaderIds | None = None) -> bytes | None:
        """Return JSON in UTF-8, or the content as it is if it is not in Confluent's wire format. `header` has the id that the
        headers of the record hold."""


FORMATS: dict[str, tuple[str, Callable[[Callable[[SchemaKey], str]], Viewer]]] = {
    "avro": (AVRO, AvroViewer),
    "json-schema": (JSON, JsonViewer),
    "protobuf": (PROTOBUF, ProtobufViewer),
}
"""The registry's name of each format, and its viewer, which gets a function that returns the text of a schema by its id."""


def add_view(command: argparse.ArgumentParser) -> None:
    """Add the arguments for showing values with the id of a schema to `command`."""
    command.add_argument(
        "--format",
        choices=("bytes", *FORMATS),
        default="bytes",
        help="print keys and values with the id of a Schema Registry as JSON; avro and json-schema need pyproducer[schemas], "
        "protobuf pyproducer[protobuf] (default: bytes)",
    )
    command.add_argument(
        "--schema-registry-url",
        metavar="URL",
        help="Schema Registry for --format (default: schema.registry.url in the file of --command-config, which can have "
        "basic.auth.user.info too)",
    )


def take_registry(options: dict[str, str]) -> dict[str, str]:
    """Remove the options of a registry from those of a connection, named as in the data source, and return them."""
    return {name: options.pop(PREFIX + name) for name in REGISTRY_FIELDS if PREFIX + name in options}


@contextmanager
def viewer(chosen: argparse.Namespace, options: dict[str, str], registry: dict[str, str]) -> Iterator[Viewer | None]:
    """Yield the viewer of values in the format that was chosen, or None for bytes.

    Raises:
        ConfigError: an option of the registry is wrong, or its client is not installed.
    """
    if chosen.format == "bytes":
        yield None
        return
    if chosen.schema_registry_url is not None:
        registry = registry | {"schema.registry.url": chosen.schema_registry_url}
    if not registry.get("schema.registry.url"):
        raise ConfigError(
            f"--format {chosen.format} needs --schema-registry-url, or schema.registry.url in the file of --command-config"
        )
    config, _, parsed = parse_sink_options(options | registry | {"valueFormat": "avro"})
    allowed = [rule.strip() for rule in config.secrets_allow.split(",") if rule.strip()]

    def reveal(name: str, secret: Secret) -> str:
        return resolve(secret, allowed, name=name)

    kind, viewer_of = FORMATS[chosen.format]
    client = Registry(parsed, reveal, SECONDS, kind)
    try:
        yield viewer_of(client.by_id)
    finally:
        client.close()


def decoded(record: ConsumerRecord, view: Viewer | None) -> ConsumerRecord:
    """Return a record whose key and value are JSON where they had a schema; without `view` the record itself."""
    if view is None:
        return record
    key, value = record_header(record.headers, "key"), record_header(record.headers, "value")
    return record._replace(key=view.view(record.key, key), value=view.view(record.value, value))
