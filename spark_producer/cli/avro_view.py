"""The arguments by which a command prints Avro as JSON: the Schema Registry and its login."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from spark_producer.common.secret import Secret
from spark_producer.config import parse_sink_options
from spark_producer.config.registry_table import REGISTRY_FIELDS
from spark_producer.errors import ConfigError
from spark_producer.record.reading import ConsumerRecord
from spark_producer.schemas.avro_viewer import AvroViewer
from spark_producer.schemas.registry import Registry
from spark_producer.security.references import resolve

PREFIX = "kafka."
SECONDS = 10.0
"""Maximum seconds to wait for a response of the registry."""


def add_view(command: argparse.ArgumentParser) -> None:
    """Add the arguments for showing Avro values to `command`."""
    command.add_argument(
        "--format",
        choices=("bytes", "avro"),
        default="bytes",
        help="avro: print keys and values with the id of a Schema Registry as JSON; needs pyproducer[schemas] (default: bytes)",
    )
    command.add_argument(
        "--schema-registry-url",
        metavar="URL",
        help="Schema Registry for --format avro (default: schema.registry.url in the file of --command-config, which can have "
        "basic.auth.user.info too)",
    )


def take_registry(options: dict[str, str]) -> dict[str, str]:
    """Remove the options of a registry from those of a connection, named as in the data source, and return them."""
    return {name: options.pop(PREFIX + name) for name in REGISTRY_FIELDS if PREFIX + name in options}


@contextmanager
def viewer(
    chosen: argparse.Namespace, options: dict[str, str], registry: dict[str, str]
) -> Iterator[AvroViewer | None]:
    """Yield the viewer of Avro values, or None without `--format avro`.

    Raises:
        ConfigError: an option of the registry is wrong, or its client is not installed.
    """
    if chosen.format != "avro":
        yield None
        return
    if chosen.schema_registry_url is not None:
        registry = registry | {"schema.registry.url": chosen.schema_registry_url}
    if not registry.get("schema.registry.url"):
        raise ConfigError(
            "--format avro needs --schema-registry-url, or schema.registry.url in the file of --command-config"
        )
    config, _, parsed = parse_sink_options(options | registry | {"valueFormat": "avro"})
    allowed = [rule.strip() for rule in config.secrets_allow.split(",") if rule.strip()]

    def reveal(name: str, secret: Secret) -> str:
        return resolve(secret, allowed, name=name)

    client = Registry(parsed, reveal, SECONDS)
    try:
        yield AvroViewer(client.by_id)
    finally:
        client.close()


def decoded(record: ConsumerRecord, view: AvroViewer | None) -> ConsumerRecord:
    """Return a record whose key and value are JSON where they were Avro; without `view` the record itself."""
    return record if view is None else record._replace(key=view.view(record.key), value=view.view(record.value))
