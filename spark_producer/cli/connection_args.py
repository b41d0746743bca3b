"""The arguments `--bootstrap-servers` and `--command-config`, and the connection settings from them; for commands and jobs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from spark_producer.admin.client import BlockingClient
from spark_producer.cli.console import print_error
from spark_producer.cli.progress import WaitNotice
from spark_producer.cli.renamed_args import add_old_name
from spark_producer.config import KAFKA_FIELDS, PRODUCER_NAMES, data_source_name, parse_options
from spark_producer.config.option import is_secret
from spark_producer.config.profiles import SUFFIX, profile
from spark_producer.config.references import is_reference
from spark_producer.errors import ConfigError
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers

DEFAULT_SERVERS = "127.0.0.1:9092"
SERVERS = "kafka.bootstrap.servers"

_PREFIX = "kafka."

_OF_OTHERS = frozenset(
    {
        "allow.auto.create.topics", "auto.commit.interval.ms", "auto.offset.reset", "check.crcs", "default.api.timeout.ms",
        "enable.auto.commit", "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.id",
        "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms", "isolation.level",
        "key.deserializer", "key.serializer", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
        "partition.assignment.strategy", "session.timeout.ms", "share.acknowledgement.mode", "value.deserializer",
        "value.serializer",
    }
)  # fmt: skip
"""Options of other clients in a file for all clients: the names of Kafka's ConsumerConfig and AdminClientConfig that its
ProducerConfig lacks, and the serializers. They are ignored with a warning, as by Kafka's own tools. An unknown name may be
misspelt, and is an error."""


def add_connection(
    command: argparse.ArgumentParser, default: str | None = DEFAULT_SERVERS, *, old_name: bool = True
) -> None:
    """Add the arguments of a connection to `command`. `default` is the server if neither of them names one; None for no default.

    With `old_name` the command also takes `--config` for `--command-config`.
    """
    otherwise = f"or else {default}" if default else "which must name them then"
    command.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT,…",
        help=f"brokers to connect to first (default: bootstrap.servers in the file of --command-config, {otherwise})",
    )
    file = command.add_argument(
        "--command-config",
        type=_properties,
        metavar="FILE.properties",
        help="connection settings, as for Kafka's own tools (docs/security.md); put passwords into this file, or refer to them "
        "there: all users of this machine can read command lines",
    )
    if old_name:
        add_old_name(command, "--config", file)
    command.set_defaults(default_servers=default)


def _properties(name: str) -> str:
    if not name.endswith(SUFFIX):
        raise argparse.ArgumentTypeError(f"expected the name of a file that ends in {SUFFIX}, not {name!r}")
    return name


def connection_options(chosen: argparse.Namespace, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the options of the data source that follow from the arguments of `add_connection`, and `more` options.

    `more` comes from other arguments of the command line. It overrides the file, and `--bootstrap-servers` overrides both. Names
    are in lower case. Options of other clients in the file are ignored, with a line on stderr.

    Raises:
        ConfigError: the file cannot be read, or a line of it is not `name=value`; `--bootstrap-servers` is not host:port; the
            file names no servers, and no argument does; `more` has a secret instead of a reference to one.
    """
    options = {} if chosen.command_config is None else _from_file(chosen.command_config)
    for name, value in (more or {}).items():
        _refuse_secret(name.lower(), value)
        options[name.lower()] = value
    if chosen.bootstrap_servers is not None:
        parse_bootstrap_servers(chosen.bootstrap_servers)  # for an empty text the table would explain an option instead
        options[SERVERS] = chosen.bootstrap_servers
    elif chosen.default_servers is not None:
        options.setdefault(SERVERS, chosen.default_servers)
    elif chosen.command_config is not None and SERVERS not in options:
        raise ConfigError(
            f"{chosen.command_config} has no bootstrap.servers. Add it there, or give --bootstrap-servers"
        )
    return options


def _refuse_secret(name: str, value: str) -> None:
    """Refuse a secret, which all users of the machine could read in the list of processes."""
    bare = name.removeprefix(_PREFIX)
    field = KAFKA_FIELDS.get(PRODUCER_NAMES.get(bare, ""))
    if field is not None and is_secret(field) and not is_reference(value):
        raise ConfigError(
            f"{name} is a secret, and all users of this machine can read command lines. Put it into the file of "
            "--command-config, or refer to it, ${env:NAME} or ${file:/path}"
        )


def _from_file(name: str) -> dict[str, str]:
    found = {option.lower().removeprefix(_PREFIX): value for option, value in profile(name).items()}
    others = sorted(found.keys() & _OF_OTHERS)
    if others:
        print_error(f"{name}: {', '.join(others)} are options of other clients, and are ignored")
    return {data_source_name(option): value for option, value in found.items() if option not in _OF_OTHERS}


def connection_settings(servers: str, options: Mapping[str, str] | None = None) -> ConnectionSettings:
    """Return the connection settings for `servers` and further options, which are named as in the data source.

    Raises:
        ConfigError: `servers` names no server, or one that is not host:port; or as `parse_options`.
    """
    parse_bootstrap_servers(servers)
    return settings_of({**(options or {}), SERVERS: servers})


def admin_client(chosen: argparse.Namespace, client_id: str) -> BlockingClient:
    """Return a client for the cluster of `add_connection`'s arguments, which waits for `--timeout` and reports its waits.

    Raises:
        ConfigError: as `connection_options` and `settings_of`.
    """
    settings = settings_of({"kafka.client.id": client_id} | connection_options(chosen))
    return BlockingClient(settings, timeout=chosen.timeout, on_wait=WaitNotice(chosen.timeout))


def settings_of(options: Mapping[str, str]) -> ConnectionSettings:
    """Return the connection settings that options, named as in the data source, give.

    Raises:
        ConfigError: as `parse_options`; or the servers are not host:port.
    """
    config, _ = parse_options(options)
    return ConnectionSettings.from_config(config)
