"""The command `pyproducer broker`, which runs the embedded broker in the foreground."""

from __future__ import annotations

import argparse
from pathlib import Path

from spark_producer.broker import BrokerSecurity, BrokerSettings, Users, serve
from spark_producer.broker.security.settings import MECHANISMS, PASSWORD_MECHANISMS, PROTOCOLS
from spark_producer.broker.settings import TRANSACTION_VERSIONS
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
    broker.add_argument(
        "--transaction-version",
        metavar="LEVEL",
        type=int,
        choices=TRANSACTION_VERSIONS,
        default=defaults.transaction_version,
        help="the feature transaction.version: 2 as Kafka since 4.0, or 0 to speak transactions as 3.9 (default: %(default)s)",
    )
    _add_security(broker)
    broker.set_defaults(run=_run)


def _add_security(broker: argparse.ArgumentParser) -> None:
    secure = broker.add_argument_group("security", "By default everybody may connect, in clear.")
    secure.add_argument(
        "--security-protocol",
        metavar="PROTOCOL",
        type=str.upper,
        choices=PROTOCOLS,
        default="PLAINTEXT",
        help=f"one of {', '.join(PROTOCOLS)} (default: %(default)s)",
    )
    secure.add_argument("--tls-cert", metavar="FILE", help="PEM file of the broker's certificate, and those above it")
    secure.add_argument(
        "--tls-key", metavar="FILE", help="PEM file of its private key, if that is not in the file of the certificate"
    )
    secure.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        help="PEM file of the CAs of clients: then each needs a certificate, and its common name is the user's name",
    )
    secure.add_argument(
        "--users",
        metavar="FILE",
        help="file with a line NAME=PASSWORD for each who may log in; for its owner only (0600)",
    )
    secure.add_argument(
        "--mechanisms",
        metavar="NAME,…",
        type=lambda text: tuple(name.strip().upper() for name in text.split(",") if name.strip()),
        default=(),
        help=f"of {', '.join(MECHANISMS)} (default: {','.join(PASSWORD_MECHANISMS)})",
    )
    secure.add_argument(
        "--max-session-ms",
        metavar="MS",
        type=positive,
        default=0,
        help="clients must log in again after so many milliseconds (default: never)",
    )


def _security(chosen: argparse.Namespace) -> BrokerSecurity:
    return BrokerSecurity(
        chosen.security_protocol,
        certificate=chosen.tls_cert,
        key=chosen.tls_key,
        client_ca=chosen.tls_client_ca,
        users=Users.read(chosen.users) if chosen.users else None,
        mechanisms=chosen.mechanisms,
        max_session_ms=chosen.max_session_ms,
    )


def _run(chosen: argparse.Namespace) -> None:
    settings = BrokerSettings(default_partitions=chosen.partitions, transaction_version=chosen.transaction_version)
    security = _security(chosen)
    advertised = parse_bootstrap_servers(chosen.advertised)[0] if chosen.advertised else None

    def ready(servers: str, data_dir: Path) -> None:
        kept = "" if chosen.data_dir else " (removed at the end; --data-dir keeps it)"
        by = f" ({security.protocol})" if security.tls or security.sasl else ""
        print(f"broker on {servers}{by}, data in {data_dir}{kept}. Ctrl-C stops it.", flush=True)

    address = (chosen.host, chosen.port, chosen.data_dir)
    serve(*address, advertised=advertised, settings=settings, security=security, ready=ready)
