"""The argument `--bootstrap-servers`, and the connection settings that it and further options give; for commands and for jobs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from spark_producer.config import parse_options
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers

DEFAULT_SERVERS = "127.0.0.1:9092"


def add_bootstrap_servers(command: argparse.ArgumentParser) -> None:
    """Add the argument to `command`, with a broker on this machine as the default."""
    command.add_argument(
        "--bootstrap-servers", default=DEFAULT_SERVERS, metavar="HOST:PORT,…", help="(default: %(default)s)"
    )


def connection_settings(servers: str, options: Mapping[str, str] | None = None) -> ConnectionSettings:
    """Return the connection settings that `--bootstrap-servers` and further options, named as in the data source, give.

    Raises:
        ConfigError: `servers` names no server, or one that is not host:port; or as `parse_options`.
    """
    parse_bootstrap_servers(servers)  # for an empty text the table would explain an option instead
    config, _ = parse_options({**(options or {}), "kafka.bootstrap.servers": servers})
    return ConnectionSettings.from_config(config)
