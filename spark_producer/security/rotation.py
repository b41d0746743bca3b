"""TLS contexts that reload their files, so that new connections use a renewed certificate."""

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
    """A context that is built on demand, and again after one of its files has changed. Its users share one thread.

    If the changed files cannot be used, for example because the certificate was replaced and its key not yet, the previous
    context stays in use, with a warning, and the next connection tries again.
    """

    def __init__(self, build: Callable[[], TlsContext], files: Callable[[], Iterator[Path]]) -> None:
        self._build = build
        self._files = files
        self._context: TlsContext | None = None
        self._file_states: list[object] = []
        self._warned_about: list[object] = []

    def current(self) -> TlsContext:
        """Return the context for a new connection. Without a change it costs a few calls of `stat`.

        Raises:
            TlsFailed: the first context cannot be built (fatal).
            ConfigError: as `client_context` does.
        """
        states: list[object] = [
            _state(path) for path in self._files()
        ]  # before the files are read, so that no change is missed
        if self._context is not None and states == self._file_states:
            return self._context
        try:
            self._context = self._build()
        except (TlsFailed, ConfigError) as error:
            if self._context is None:
                raise
            if states != self._warned_about:
                logger.warning("TLS files have changed and cannot be used; the previous ones stay in use: %s", error)
                self._warned_about = states
        else:
            if self._file_states:
                logger.info("TLS files have changed; new connections use the new ones")
            self._file_states, self._warned_about = states, []
        return self._context


def reloading_client_context(settings: TlsSettings, allowed: Sequence[str]) -> ReloadingContext:
    """Return the reloading context of a client; see `client_context`."""
    return ReloadingContext(
        lambda: client_context(settings, allowed),
        lambda: _files_of(settings.trust, settings.identity),
    )


def reloading_server_context(
    certificate: str, key: str, client_ca: str | None = None, key_password: Secret | None = None
) -> ReloadingContext:
    """Return the reloading context of a listener; see `server_context`."""
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
    """Return values that change with a file's content. Links are followed, since Kubernetes replaces their target directories."""
    try:
        found = path.stat()
    except OSError:
        return str(path)
    return str(path), found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
