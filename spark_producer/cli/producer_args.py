"""The arguments of commands that write: producer options, with errors for unknown and unsupported ones."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from spark_producer.cli.arg_types import positive
from spark_producer.cli.connection_args import connection_options
from spark_producer.cli.renamed_args import add_old_name
from spark_producer.config import PRODUCER_NAMES, SINK_NAMES, data_source_name
from spark_producer.config.registry_table import REGISTRY_FIELDS
from spark_producer.config.unsupported import KAFKA_PREFIX, explain_producer_option
from spark_producer.errors import ConfigError

_ARGUMENT = "--producer-config"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,79}")
"""The form of the names of options, columns and headers."""

_SINK_OPTIONS = SINK_NAMES | {name: name for name in REGISTRY_FIELDS}
"""The options of writes from Spark, which no command takes, by their names in lower case."""


def add_producer(command: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that write."""
    option = command.add_argument(
        "--producer-config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a producer option, such as compression.type=zstd; may be given several times",
    )
    add_old_name(command, "--set", option)
    command.add_argument(
        "--timeout",
        type=positive,
        metavar="SECONDS",
        help="maximum wait for the topic (default: 30, and 8 if no broker knows it)",
    )


def named_values(given: list[str], argument: str) -> dict[str, str]:
    """Return the names and values of arguments of the form NAME=VALUE.

    Raises:
        ConfigError: an argument has another form, or a name occurs twice, so that one value would be lost.
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            shown = f", not {name!r} alone" if _NAME.fullmatch(name) else ""  # other text may be a secret
            raise ConfigError(f"{argument} takes NAME=VALUE{shown}")
        if name in found:
            raise ConfigError(f"{argument} has {name!r} twice. Give it once")
        found[name] = value
    return found


def producer_options(chosen: argparse.Namespace, client_id: str) -> dict[str, str]:
    """Return the options of the data source that follow from the arguments of `add_connection` and `add_producer`.

    Raises: as `connection_options` and `named_values`.
        ConfigError: `--producer-config` names an option that the producer does not have.
    """
    given = named_values(chosen.producer_config, _ARGUMENT)
    _check_names(given)
    more = {data_source_name(name.removeprefix(KAFKA_PREFIX)): value for name, value in given.items()}
    return {"kafka.client.id": client_id} | connection_options(chosen, more)


def _check_names(given: Iterable[str]) -> None:
    for name in given:
        bare = name.lower().removeprefix(KAFKA_PREFIX)
        if bare in _SINK_OPTIONS:
            topic = ". The topic is the last argument" if bare == "topic" else ""
            raise ConfigError(
                f"{_ARGUMENT} {_SINK_OPTIONS[bare]}: that is an option of writes from Spark. {_ARGUMENT} takes producer options "
                f"only, such as compression.type=zstd{topic}"
            )
        if bare == "transactional.id":
            raise ConfigError(
                f"{_ARGUMENT} transactional.id: commands write without transactions (docs/transactions.md)"
            )
        if bare not in PRODUCER_NAMES:
            raise ConfigError(f"{_ARGUMENT}: {explain_producer_option(name, PRODUCER_NAMES)}")
