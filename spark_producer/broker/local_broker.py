"""The two ways to run the broker: in a thread of this process (`LocalBroker`), or in the foreground (`serve`)."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import resource
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from spark_producer.broker.context import Context, Endpoint
from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from spark_producer.broker.metrics.page import metrics_page
from spark_producer.broker.metrics.snapshot import MetricsCollector
from spark_producer.broker.security.secure_listener import SecureListener
from spark_producer.broker.security.settings import BrokerSecurity
from spark_producer.broker.server import Server
from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.storage.engines import OpenStorage, open_storage
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConfigError, ConnectionFailed, KafkaTimeout

logger = escaping_logger(__name__)

CALL_TIMEOUT_S: Final = 30.0
"""Maximum wait of another thread for the broker's thread, in seconds; far more than any call takes."""

_BACKLOG: Final = 128
_TEMPORARY: Final = "pyproducer-broker-"
_ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")

Result = TypeVar("Result")


class LocalBroker:
    """A broker in a thread of this process. It serves from construction until `close`; best used in a `with` statement.

    Args:
        data_dir: the directory of the topics; None for a temporary one that `close` removes.
        host: the address to listen on.
        port: the port to listen on; 0 for a free one.
        advertised: the (host, port) in the responses to clients instead of the listening address, e.g. that of a proxy. It is
            required where `host` stands for all addresses.
        default_partitions, auto_create_topics: replace those in `settings`.
        settings: all other settings.
        open_storage: opens the storage engine (`broker.storage`).
        security: TLS, SASL and users; by default everybody may connect, in clear text.
        metrics_port: the port of the metrics page on 127.0.0.1, 0 for a free one (the attribute `metrics_port` has it); None for
            no page.

    Raises:
        ConfigError: `data_dir` cannot be used, or another broker uses it; or a file of `security` cannot be read.
        TlsFailed: a certificate or key of `security` cannot be used.
        ConnectionFailed: the port is taken.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised: tuple[str, int] | None = None,
        default_partitions: int | None = None,
        auto_create_topics: bool | None = None,
        settings: BrokerSettings | None = None,
        open_storage: OpenStorage = open_storage,
        security: BrokerSecurity | None = None,
        metrics_port: int | None = None,
    ) -> None:
        chosen = settings or BrokerSettings()
        if default_partitions is not None:
            chosen = replace(chosen, default_partitions=default_partitions)
        if auto_create_topics is not None:
            chosen = replace(chosen, auto_create_topics=auto_create_topics)
        self._life = contextlib.ExitStack()
        self._process = os.getpid()
        with contextlib.ExitStack() as life:
            if data_dir is None:
                data_dir = life.enter_context(_temporary_directory())
                chosen = _temporary_settings(chosen)
            opened = _open_broker(Path(data_dir), host, port, advertised, chosen, open_storage, security)
            self._topics, self._server, self.address, collector = life.enter_context(opened)
            self.metrics_port = life.enter_context(_metrics(collector, metrics_port))
            self.port = self.address.port
            self.bootstrap_servers = str(Endpoint(*advertised) if advertised else self.address)
            thread = threading.Thread(target=self._server.run, name=f"broker-{self.port}", daemon=True)
            thread.start()
            life.callback(self._stop, thread)
            self._life = life.pop_all()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str | None] | None = None) -> None:
        """Create a topic.

        Raises:
            BrokerError: the topic exists, or its name, partitions or configs are illegal.
        """
        self._call(lambda: self._topics.create(name, partitions, configs))

    def topics(self) -> dict[str, int]:
        """Return the name of every topic with its number of partitions."""
        return self._call(lambda: {topic.name: len(topic.partitions) for topic in self._topics})

    def close(self) -> None:
        """Close all connections, flush the logs and remove the temporary directory. A second call does nothing.

        In a forked child it does nothing, because a child has neither the broker's thread nor its data.
        """
        if os.getpid() == self._process:
            self._life.close()

    def __enter__(self) -> LocalBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LocalBroker({self.bootstrap_servers!r})"

    def _call(self, function: Callable[[], Result]) -> Result:
        try:
            return self._server.call(function).result(CALL_TIMEOUT_S)
        except TimeoutError as error:
            raise KafkaTimeout(f"the broker on {self.address} did not respond within {CALL_TIMEOUT_S:g} s") from error

    def _stop(self, thread: threading.Thread) -> None:
        self._server.stop()
        thread.join(CALL_TIMEOUT_S)
        if thread.is_alive():
            raise KafkaTimeout(f"the broker on {self.address} did not stop within {CALL_TIMEOUT_S:g} s")


def serve(
    host: str,
    port: int,
    data_dir: Path | str | None,
    *,
    advertised: tuple[str, int] | None = None,
    settings: BrokerSettings | None = None,
    security: BrokerSecurity | None = None,
    metrics_port: int | None = None,
    ready: Callable[[str, Path], None] | None = None,
) -> None:
    """Run a broker in this thread, which must be the main one, until SIGINT or SIGTERM; then flush and return.

    A signal counts from the moment of the call, even before the broker is ready; while the broker stops, further signals are
    ignored.

    Args:
        host, port, data_dir, advertised, settings, security, metrics_port: as for `LocalBroker`.
        ready: is called once, with the bootstrap servers and the data directory, when clients can connect.

    Raises:
        ConfigError, TlsFailed: as for `LocalBroker`.
        ConnectionFailed: the port is taken.
    """
    _allow_many_files()
    with _StopSignals() as stop, contextlib.ExitStack() as life:
        chosen = settings or BrokerSettings()
        if data_dir is None:
            data_dir = life.enter_context(tempfile.TemporaryDirectory(prefix=_TEMPORARY))
            chosen = _temporary_settings(chosen)
        directory = Path(data_dir)
        opened = _open_broker(directory, host, port, advertised, chosen, security=security)
        _, server, address, collector = life.enter_context(opened)
        life.enter_context(_metrics(collector, metrics_port))
        stop.server = server
        if stop.is_requested:
            return
        logger.info("broker on %s, data in %s", address, directory)
        if ready is not None:
            ready(str(Endpoint(*advertised) if advertised else address), directory)
        server.run()


class _StopSignals:
    """Handles SIGINT and SIGTERM: they stop `server`, or set `is_requested` while there is none."""

    def __init__(self) -> None:
        self.is_requested = False
        self.server: Server | None = None

    def __enter__(self) -> _StopSignals:
        self._previous = {
            number: signal.signal(number, self._request_stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _request_stop(self, *_: object) -> None:
        self.is_requested = True
        if self.server is not None:
            self.server.stop()


def _temporary_settings(settings: BrokerSettings) -> BrokerSettings:
    """Return the settings for a temporary data directory.

    Raises:
        ConfigError: journal or ledger directories are set, which would outlive it.
    """
    if settings.journal_dir is not None or settings.ledger_dirs:
        raise ConfigError(
            "directories for journal and ledgers need a data directory that is kept. Give one (--data-dir DIR)"
        )
    return replace(settings, sync_on_close=False)


@contextlib.contextmanager
def _temporary_directory() -> Iterator[Path]:
    """Create a directory, and remove it at the end of the `with` block or of this process.

    A forked child does not remove it when it ends, as `TemporaryDirectory` would.
    """
    path, process = Path(tempfile.mkdtemp(prefix=_TEMPORARY)), os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    try:
        yield path
    finally:
        atexit.unregister(remove)
        remove()


def _allow_many_files() -> None:
    """Raise the soft limit of open files to the hard one, because every connection is an open file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def _open_broker(
    data_dir: Path,
    host: str,
    port: int,
    advertised: tuple[str, int] | None,
    settings: BrokerSettings,
    open_storage: OpenStorage = open_storage,
    security: BrokerSecurity | None = None,
) -> Iterator[tuple[TopicStore, Server, Endpoint, MetricsCollector]]:
    """Open the storage, the coordinator and the server of a broker; flush and close them at the end of the `with` block."""
    if advertised is None and host in _ALL_ADDRESSES:
        raise ConfigError(
            f"the broker listens on all addresses ({host}), so it needs the one for clients. Set "
            "advertised=(host, port), or --advertised HOST:PORT"
        )
    secure_listener = (
        SecureListener(security, host) if security is not None and (security.tls or security.sasl) else None
    )
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listen(host, port))
        try:
            topics = TopicStore(data_dir, settings, open_storage)
        except OSError as error:
            raise ConfigError(f"data directory {data_dir} cannot be used: {error}") from error
        stack.callback(topics.close)
        try:
            coordinator = BrokerCoordinator(topics, settings)
        except OSError as error:
            raise ConfigError(f"the coordinator's log in {data_dir} cannot be used: {error}") from error
        stack.callback(coordinator.close)
        coordinator.groups.watch_cursors(
            lambda each, exists: topics.cursor_changed(*each, exists), lambda each: topics.has_partition(*each)
        )
        address = Endpoint(host, listener.getsockname()[1])
        context = Context(topics, settings, Endpoint(*advertised) if advertised else address, coordinator)
        server = Server(context, listener, secure_listener=secure_listener)
        yield topics, server, address, MetricsCollector(context, server)


@contextlib.contextmanager
def _metrics(collector: MetricsCollector, port: int | None) -> Iterator[int | None]:
    """Serve the metrics page during the `with` block, whose value is its port; None for no page."""
    if port is None:
        yield None
        return
    from spark_producer.broker.metrics.server import (
        metrics_server,
    )  # it imports ssl, which a plain broker does not need

    with metrics_server(port, lambda: metrics_page(collector.readings())) as taken:
        yield taken


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        other = "an address of this machine" if error.errno == errno.EADDRNOTAVAIL else "another port"
        raise ConnectionFailed(f"cannot listen on {Endpoint(host, port)}: {_reason(error)}. Use {other}") from error


def _reason(error: OSError) -> str:
    """Return the system's error text: `socket.create_server` appends the address as a Python tuple."""
    number = error.errno
    if number is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(number)
