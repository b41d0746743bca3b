"""The command `pyproducer broker`, which runs the embedded broker in the foreground."""

from __future__ import annotations

import argparse
from pathlib import Path

from spark_producer.broker import BrokerSecurity, BrokerSettings, Users, serve
from spark_producer.broker.memory.object_memory import HeapCounts
from spark_producer.broker.memory.plan import SHARES, plan_memory, warnings
from spark_producer.broker.memory.sizes import parse_size
from spark_producer.broker.memory.system_memory import system_memory
from spark_producer.broker.metrics.memory_report import memory_fields, memory_report
from spark_producer.broker.metrics.page import read_metrics_page
from spark_producer.broker.metrics.server import HOST, PATH, fetch_metrics_page
from spark_producer.broker.security.settings import MECHANISMS, PASSWORD_MECHANISMS, PROTOCOLS
from spark_producer.broker.settings import (
    DEFAULT_ENGINE,
    INDEX_ENGINES,
    MAX_PARTITIONS,
    STORAGE_ENGINES,
    TIERED,
    TRANSACTION_VERSIONS,
    with_memory,
)
from spark_producer.broker.storage.engines import WITH_TIERS, chosen_engine, engine_of
from spark_producer.cli.arg_types import between, port, positive
from spark_producer.cli.json_output import add_json, print_json
from spark_producer.cli.renamed_args import add_old_name
from spark_producer.errors import ConfigError
from spark_producer.network import parse_bootstrap_servers


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments to `commands`."""
    defaults = BrokerSettings()
    broker = commands.add_parser(
        "broker",
        description="Run the embedded broker until Ctrl-C: one node without replication, for development, tests and small jobs. "
        f"Limits: {defaults.max_connections:,} connections, {defaults.max_buffered_bytes >> 20} MiB of requests and responses in "
        f"flight, {defaults.max_partitions:,} partitions.",
    )
    broker.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    broker.add_argument(
        "--port", type=port, default=9092, help="port to listen on; 0 takes a free one (default: %(default)s)"
    )
    broker.add_argument(
        "--advertised",
        metavar="HOST:PORT",
        type=_address,
        help="address for clients to connect to (advertised.listeners); needed with --host 0.0.0.0",
    )
    broker.add_argument(
        "--data-dir",
        metavar="DIR",
        type=_directory,
        help="directory of the topics; without it they are deleted at the end",
    )
    _add_storage(broker)
    broker.add_argument(
        "--partitions",
        type=_partitions,
        default=1,
        help="partitions of topics that are created on first use (default: 1)",
    )
    broker.add_argument(
        "--transaction-version",
        metavar="LEVEL",
        type=int,
        choices=TRANSACTION_VERSIONS,
        default=defaults.transaction_version,
        help="level of the feature transaction.version: 2 as in Kafka since 4.0, or 0 as in 3.9 (default: %(default)s)",
    )
    _add_memory(broker)
    _add_security(broker)
    add_json(broker, "one JSON object when the broker is ready, or as the report")
    broker.set_defaults(run=_run, unfinished=None)


def _add_storage(broker: argparse.ArgumentParser) -> None:
    broker.add_argument(
        "--storage",
        choices=STORAGE_ENGINES,
        help="the storage engine: segments, plain files that Kafka's own tools read, or tiered, after Pulsar and BookKeeper, "
        "which writes faster with --sync (default: the engine of the data directory; for a new one "
        f"{DEFAULT_ENGINE}, or {TIERED} with --index rocks, --journal-dir, --ledger-dirs, or --memory-part of a cache)",
    )
    broker.add_argument(
        "--sync",
        action="store_true",
        help="acknowledge a batch only when it is on disk, so that it survives a power failure; without it batches survive the "
        "death of the process, as in Kafka; use it with --storage tiered (BookKeeper: journalSyncData)",
    )
    broker.add_argument(
        "--index",
        choices=INDEX_ENGINES,
        default=BrokerSettings().index_engine,
        help="index of --storage tiered: arrays in memory, or RocksDB, which needs pyproducer[rocksdb] "
        "(default: %(default)s)",
    )
    broker.add_argument(
        "--journal-dir",
        metavar="DIR",
        type=_directory,
        help="empty directory for the journal of --storage tiered, best on a separate disk (BookKeeper: journalDirectories)",
    )
    broker.add_argument(
        "--ledger-dirs",
        metavar="DIR,…",
        type=lambda text: tuple(_directory(each) for each in text.split(",")),
        default=(),
        help="empty directories for the entry logs of --storage tiered, which share the partitions (BookKeeper: "
        "ledgerDirectories); they and their order cannot change later",
    )

    broker.add_argument(
        "--skip-damage",
        action="store_true",
        help="start although stored records are missing or damaged: damaged files are kept, the log reports the skipped records, "
        "and partitions continue with the rest. Read the error of the refused start first, and use this for one start only",
    )


def _add_memory(broker: argparse.ArgumentParser) -> None:
    memory = broker.add_argument_group("memory", "A SIZE is such as 256M, 1G, or a number of bytes.")
    memory.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory for batches: one half for the broker and one for the caches of --storage tiered, each divided as by Pulsar "
        "and BookKeeper; --storage segments uses only the first half",
    )
    part = memory.add_argument(
        "--memory-part",
        metavar="NAME=SIZE",
        action="append",
        default=[],
        type=_named,
        help=f"size of one part of it: {', '.join(share.name for share in SHARES)}, or the name of Pulsar or BookKeeper, in its "
        "unit; all but the publish buffer are for --storage tiered; may be given several times",
    )
    add_old_name(broker, "--set", part)
    memory.add_argument(
        "--metrics-port",
        metavar="PORT",
        type=port,
        default=0,
        help="serve metrics at http://127.0.0.1:PORT/metrics in Prometheus' text format (default: 0, no metrics)",
    )
    memory.add_argument(
        "--report",
        action="store_true",
        help="print how these arguments divide the memory, and exit; with --metrics-port also the memory in use of the broker "
        "that serves its metrics there",
    )


def _partitions(text: str) -> int:
    return between(text, 1, MAX_PARTITIONS)


def _directory(text: str) -> str:
    """Return the name of a directory; an empty one, as of an unset shell variable, would be the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a directory, not ''")
    return text


def _address(text: str) -> tuple[str, int]:
    try:
        (found,) = parse_bootstrap_servers(text)
    except (ConfigError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"expected one HOST:PORT, with a port from 1 to 65535, not {text!r}"
        ) from error
    return found


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected NAME=SIZE, not {text!r}")
    return name.strip(), value.strip()


def _add_security(broker: argparse.ArgumentParser) -> None:
    secure = broker.add_argument_group("security", "By default all clients may connect, without TLS and login.")
    secure.add_argument(
        "--security-protocol",
        metavar="PROTOCOL",
        type=str.upper,
        choices=PROTOCOLS,
        default="PLAINTEXT",
        help=f"one of {', '.join(PROTOCOLS)} (default: %(default)s)",
    )
    secure.add_argument("--tls-cert", metavar="FILE", help="PEM file of the broker's certificate and its chain")
    secure.add_argument(
        "--tls-key", metavar="FILE", help="PEM file of its private key (default: in the file of the certificate)"
    )
    secure.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        help="PEM file of the CAs of clients; each client then needs a certificate, whose common name is the user",
    )
    secure.add_argument(
        "--users",
        metavar="FILE",
        help="file with a line NAME=PASSWORD for each user; readable by its owner only (0600)",
    )
    secure.add_argument(
        "--mechanisms",
        metavar="NAME,…",
        type=lambda text: tuple(name.strip().upper() for name in text.split(",") if name.strip()),
        default=(),
        help=f"SASL mechanisms: {', '.join(MECHANISMS)} (default: {','.join(PASSWORD_MECHANISMS)})",
    )
    secure.add_argument(
        "--max-session-ms",
        metavar="MS",
        type=positive,
        default=0,
        help="milliseconds after which clients must re-authenticate (default: never)",
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


def _settings(chosen: argparse.Namespace) -> BrokerSettings:
    """Return the settings from the arguments. Without arguments about memory its limits keep their defaults."""
    settings = BrokerSettings(
        storage_engine=chosen.storage,
        index_engine=chosen.index,
        journal_dir=chosen.journal_dir,
        ledger_dirs=chosen.ledger_dirs,
        skip_damage=chosen.skip_damage,
        default_partitions=chosen.partitions,
        transaction_version=chosen.transaction_version,
        sync_each_append=chosen.sync,
    )
    if chosen.memory is None and not chosen.memory_part:
        return settings
    both = None if chosen.memory is None else parse_size("--memory", chosen.memory)
    plan = plan_memory(both, dict(chosen.memory_part))
    warnings(plan, HeapCounts().bytes, system_memory().available)  # raises if this machine has less memory
    return with_memory(settings, plan)


def _report(settings: BrokerSettings, engine: str, metrics_port: int, *, as_json: bool) -> None:
    metrics = read_metrics_page(fetch_metrics_page(metrics_port)) if metrics_port else None
    if as_json:
        print_json(memory_fields(settings, system_memory(), engine, has_tiers=engine in WITH_TIERS, metrics=metrics))
    else:
        print(memory_report(settings, system_memory(), engine, has_tiers=engine in WITH_TIERS, metrics=metrics))


def _run(chosen: argparse.Namespace) -> None:
    settings = _settings(chosen)
    engine = chosen_engine(None if chosen.data_dir is None else Path(chosen.data_dir), settings)  # before it is created
    if chosen.report:
        _report(settings, engine, chosen.metrics_port, as_json=chosen.json)
        return
    security = _security(chosen)
    if chosen.metrics_port and chosen.metrics_port == chosen.port:
        raise ConfigError(f"--metrics-port and --port are both {chosen.port}. Give the metrics another port")

    def ready(servers: str, data_dir: Path) -> None:
        if chosen.json:
            print_json(
                {
                    "bootstrap_servers": servers,
                    "security_protocol": security.protocol,
                    "data_dir": str(data_dir),
                    "storage": engine_of(data_dir),
                    "keeps_data": chosen.data_dir is not None,
                    "metrics_url": f"http://{HOST}:{chosen.metrics_port}{PATH}" if chosen.metrics_port else None,
                }
            )
            return
        kept = "" if chosen.data_dir is not None else "; deleted at the end, --data-dir keeps it"
        data = f"{data_dir} ({engine_of(data_dir)}{kept})"
        by = f" ({security.protocol})" if security.tls or security.sasl else ""
        shown = f", metrics at http://{HOST}:{chosen.metrics_port}{PATH}" if chosen.metrics_port else ""
        print(f"broker on {servers}{by}, data in {data}{shown}. Ctrl-C stops it.", flush=True)

    address = (chosen.host, chosen.port, chosen.data_dir)
    serve(
        *address,
        advertised=chosen.advertised,
        settings=settings,
        security=security,
        metrics_port=chosen.metrics_port or None,
        ready=ready,
    )
