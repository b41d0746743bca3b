"""The command `pyproducer broker`, which runs the embedded broker in the foreground."""

from __future__ import annotations

import argparse
from pathlib import Path

from spark_producer.broker import BrokerSettings, serve
from spark_producer.cli.numbers import port, positive
from spark_producer.network import parse_bootstrap_servers


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    defaults = BrokerSettings()
    broker = commands.add_parser(
        "broker",
        help="run the embedded broker: one node, for development and tests",
        description="Run the embedded broker until Ctrl-C. One node, no replication: for development, tests, small jobs. "
        f"At most {defaults.max_connections:,} connections, {defaults.max_buffered_bytes >> 20} MiB of requests and answers on "
        f"their way, {defaults.max_partitions:,} partitions.",
    )
    broker.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    broker.add_argument(
        "--port", type=port, default=9092, help="port to listen on; 0 takes a free one (default: %(default)s)"
    )
    broker.add_argument(
        "--advertised",
        metavar="HOST:PORT",
        help="address that clients are told to connect to; needed with --host 0.0.0.0",
    )
    broker.add_argument("--data-dir", help="directory to keep topics in; without it they are deleted at the end")
    broker.add_argument(
        "--partitions", type=positive, default=1, help="partitions of a topic that is created on first use (default: 1)"
    )
    broker.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> None:
    settings = BrokerSettings(default_partitions=chosen.partitions)
    advertised = parse_bootstrap_servers(chosen.advertised)[0] if chosen.advertised else None

    def ready(servers: str, data_dir: Path) -> None:
        kept = "" if chosen.data_dir else " (removed at the end; --data-dir keeps it)"
        print(f"broker on {servers}, data in {data_dir}{kept}. Ctrl-C stops it.", flush=True)

    serve(chosen.host, chosen.port, chosen.data_dir, advertised=advertised, settings=settings, ready=ready)
