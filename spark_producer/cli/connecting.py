"""`--bootstrap-servers` and options → how to reach the cluster; for the commands and for jobs.

Owns: the argument, and that it goes through the table of options. Must not know: who connects.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from spark_producer.config import parse_options
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers

DEFAULT_SERVERS = "127.0.0.1:9092"


def add_bootstrap_servers(command: argparse.ArgumentParser) -> None:
    """The argument, with a default for a broker on this machine."""
    command.add_argument(
        "--bootstrap-servers", default=DEFAULT_SERVERS, metavar="HOST:PORT,…", help="(default: %(default)s)"
    )


def connection_settings(servers: str, options: Mapping[str, str] | None = None) -> ConnectionSettings:
    """What `--bootstrap-servers` and further options of the data source, under their own names, say.

    Raises:
        ConfigError: `servers` names no server or one that is not host:port, or as `parse_options`.
    """
    parse_bootstrap_servers(servers)  # of an empty text the table would say how to set an option instead
    config, _ = parse_options({**(options or {}), "kafka.bootstrap.servers": servers})
    return ConnectionSettings.from_config(config)
