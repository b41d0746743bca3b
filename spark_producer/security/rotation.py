"""Contexts that follow their files: a connection that is made after a certificate was renewed uses the new one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from spark_producer.common.escape import escaping_logger
from spark_producer.common.secret import Secret
from spark_producer.errors import ConfigError, TlsFailed
from spark_producer.security.contexts import TlsContext, client_context, server_context
from spark_producer.security.settings import Store, TlsSettings
from spark_producer.security.stores import trusted_files

logger = escaping_logger("pyproducer")

_REFERENCED_FILE: Final = re.compile(r"\$\{file:(/[^:}]*)")


class ReloadingContext:
    """One context, built when it is first needed, and anew when one of its files has changed. Its users share one thread.

    If what changed cannot be used, for example because the certificate was replaced and its key not yet, the former context
    stays, with a warning, and the next connection tries again.
    """

    def __init__(self, build: Callable[[], TlsContext], files: Callable[[], Iterator[Path]]) -> None:
        self._build = build
        self._files = files
        self._context: TlsContext | None = None
        self._seen: list[object] = []
        self._complained: list[object] = []

    def current(self) -> TlsContext:
        """Return the context for a new connection. If nothing has changed it costs a few calls of `stat`.

        Raises:
            TlsFailed: the first one cannot be built (fatal).
            ConfigError: as `client_context` does.
        """
        seen: list[object] = [
            _state(path) for path in self._files()
        ]  # before the files are read, so no change is missed
        if self._context is not None and seen == self._seen:
            return self._context
        try:
            self._context = self._build()
        except (TlsFailed, ConfigError) as error:
            if self._context is None:
                raise
            if seen != self._complained:
                logger.warning("Files of TLS have changed and cannot be used; the former ones stay in use: %s", error)
                self._complained = seen
        else:
            if self._seen:
                logger.info("Files of TLS have changed: new connections use the new ones")
            self._seen, self._complained = seen, []
        return self._context


def reloading_client_context(settings: TlsSettings, allowed: Sequence[str]) -> ReloadingContext:
    """Return the context of a client, see `client_context`."""
    return ReloadingContext(
        lambda: client_context(settings, allowed),
        lambda: _files_of(settings.trust, settings.identity),
    )


def reloading_server_context(
    certificate: str, key: str, client_ca: str | None = None, key_password: Secret | None = None
) -> ReloadingContext:
    """Return the context of a listener, see `server_context`."""
    files = [Path(path) for path in (certificate, key, client_ca) if path is not None]
    return ReloadingContext(lambda: server_context(certificate, key, client_ca, key_password), lambda: iter(files))


def _files_of(*stores: Store | None) -> Iterator[Path]:
    for store in filter(None, stores):
        for location in filter(None, (store.location, store.key_location)):
            path = Path(location)
            yield path
            if path.is_dir():
                yield from sorted(trusted_files(path))
        for secret in filter(None, (store.password, store.key_pem, store.key_password)):
            yield from map(Path, _REFERENCED_FILE.findall(secret.reveal()))


def _state(path: Path) -> tuple[str, int, int, int, int] | str:
    """Return what changes with a file's content: links are followed, since Kubernetes replaces the folder behind them."""
    try:
        found = path.stat()
    except OSError:
        return str(path)
    return str(path), found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
