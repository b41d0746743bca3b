"""The catalog: the logs of a data directory, each with its start offset and ledgers. `catalog_file` stores it on the disk.

No two logs of a directory ever have the same id, so remains of a deleted topic are never considered records of a new one with its
name. The journal, the entry logs and the index have only the ids.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.stored_format import refuse_newer_format
from spark_producer.broker.storage.tiered.catalog_file import CatalogFile, missing_catalog
from spark_producer.broker.storage.tiered.ledgers import Ledger
from spark_producer.errors import CorruptRecord

_FORMAT: Final = 2
_WITHOUT_DIRECTORIES: Final = 1
"""Format of earlier versions, without external directories for the journal and the entry logs."""


class ExternalDirectories(NamedTuple):
    """The directories of an engine outside its data directory: None and empty by default."""

    journal: str | None = None
    ledgers: tuple[str, ...] = ()


@dataclass(frozen=True)
class CatalogEntry:
    """A log, up to its last flushed batch.

    start_offset: log start offset; records before it are deleted.
    is_lost: its records belonged to no topic when a topic of its name was created. They are kept, but cannot be read.
    is_compacted: compaction has rewritten batches of it, so its batches in a file may be unneeded although their offsets exist.
    """

    log_id: int
    topic: str
    partition: int
    start_offset: int = 0
    ledgers: tuple[Ledger, ...] = ()
    is_lost: bool = False
    is_compacted: bool = False

    @property
    def flushed_end(self) -> int:
        """The offset after the last flushed batch."""
        return max(self.start_offset, self.ledgers[-1].end_offset if self.ledgers else 0)

    def holds(self, first_offset: int, end_offset: int) -> bool:
        """Return whether any batch with these offsets was flushed, and is not deleted."""
        return first_offset < self.flushed_end and end_offset > self.start_offset


class Catalog:
    """The catalog in a directory. Any thread may use it; `store` alone calls the disk.

    Changes are on the disk after the next `store`.

    Raises:
        CorruptRecord: a newer version wrote the file, or it is damaged.
        OSError: the disk refused.
    """

    def __init__(self, files: FileOps, directory: Path) -> None:
        self._file = CatalogFile(files, directory)
        self.path = self._file.path
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._next_log_id = 0
        self._entries: dict[int, CatalogEntry] = {}
        self._ids: dict[tuple[str, int], int] = {}
        self._index_bytes: dict[int, int] = {}
        self.is_new = True
        """Whether there was no catalog on the disk."""
        self.identity = uuid.uuid4().hex
        """Unique id of this data directory."""
        self.external: ExternalDirectories | None = None
        """The external directories that belong to this data directory; None until they are set."""
        self._changes, self._stored = (
            1,
            0,
        )  # the loaded catalog may not be on the disk, if the last run could not sync it
        self._changed: set[int] = set()
        """The ids of logs that were changed or removed since the catalog was stored."""
        self._load()

    def _load(self) -> None:
        try:
            for stored in self._file.load():
                self._take(stored)
                self.is_new = False
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptRecord(
                f"{self.path} cannot be read as a broker's catalog: {error}. Restore it from a backup of the whole data directory"
            ) from error

    def _take(self, stored: dict[str, Any]) -> None:
        """Apply stored content: the whole catalog, or later changes."""
        refuse_newer_format(self.path, stored["format"], _FORMAT)
        if stored["format"] not in (_WITHOUT_DIRECTORIES, _FORMAT):
            raise ValueError(f"it has format {stored['format']!r}, and this pyproducer knows formats up to {_FORMAT}")
        self._next_log_id = stored["next_log_id"]
        if stored["format"] == _WITHOUT_DIRECTORIES:
            self._index_bytes, self.external = {0: stored["index_bytes"]}, ExternalDirectories()
        else:
            self._index_bytes, self.identity = dict(enumerate(stored["index_bytes"])), stored["identity"]
            external = stored["outside"]
            self.external = (
                None if external is None else ExternalDirectories(external["journal"], tuple(external["ledgers"]))
            )
        for log_id in stored.get("removed", ()):
            self._drop(log_id)
        for fields in stored["logs"]:
            ledgers = tuple(Ledger(*ledger) for ledger in fields.pop("ledgers"))
            self._drop(fields["log_id"])
            self._put(CatalogEntry(**fields, ledgers=ledgers))

    def _put(self, entry: CatalogEntry) -> None:
        self._entries[entry.log_id] = entry
        if not entry.is_lost:
            self._ids[entry.topic, entry.partition] = entry.log_id
        self._changed.add(entry.log_id)

    def _drop(self, log_id: int) -> None:
        entry = self._entries.pop(log_id, None)
        if entry is not None and self._ids.get((entry.topic, entry.partition)) == log_id:
            del self._ids[entry.topic, entry.partition]
        self._changed.add(log_id)

    def check_new(self, traces: Iterable[str]) -> None:
        """Check that there are no `traces` of an earlier catalog, if there is none now.

        Raises:
            CorruptRecord: there are traces.
        """
        trace = next(iter(traces), None) if self.is_new else None
        if trace is not None:
            raise CorruptRecord(missing_catalog(self.path, trace))

    @property
    def next_log_id(self) -> int:
        """The id of the next log. All logs, also deleted ones, have smaller ids."""
        return self._next_log_id

    def adopt(self, log_id: int) -> CatalogEntry:
        """Add a log with batches and an unknown name: its records are kept, but cannot be read."""
        with self._lock:
            entry = CatalogEntry(log_id, f"unknown-{log_id}", 0, is_lost=True)
            self._next_log_id = max(self._next_log_id, log_id + 1)
            self._put(entry)
            self._changes += 1
            return entry

    def index_bytes(self, directory: int) -> int:
        """Return the number of index bytes in the ledger directory of that number that were certainly on the disk when the
        catalog was stored."""
        return self._index_bytes.get(directory, 0)

    def set_external(self, external: ExternalDirectories) -> None:
        """Set the external directories of this data directory."""
        with self._lock:
            self.external = external
            self._changes += 1

    def entries(self) -> list[CatalogEntry]:
        """Return all logs, including lost ones."""
        with self._lock:
            return list(self._entries.values())

    def get(self, log_id: int) -> CatalogEntry | None:
        """Return the log of an id, None if there is none."""
        with self._lock:
            return self._entries.get(log_id)

    def find(self, topic: str, partition: int) -> CatalogEntry | None:
        """Return the log of a partition, None if it has none."""
        with self._lock:
            log_id = self._ids.get((topic, partition))
            return None if log_id is None else self._entries[log_id]

    def add(self, topic: str, partition: int) -> CatalogEntry:
        """Add a log with a new id for a partition that has none."""
        with self._lock:
            entry = CatalogEntry(self._next_log_id, topic, partition)
            self._next_log_id += 1
            self._put(entry)
            self._changes += 1
            return entry

    def remove(self, log_id: int) -> None:
        """Remove a log."""
        with self._lock:
            self._drop(log_id)
            self._changes += 1

    def set_aside(self, log_id: int) -> None:
        """Mark a log as lost, since its records belong to no topic; its partition has no log then."""
        with self._lock:
            entry = self._entries[log_id]
            self._ids.pop((entry.topic, entry.partition), None)
            self._put(replace(entry, is_lost=True))
            self._changes += 1

    def set_start(self, log_id: int, start_offset: int) -> None:
        """Set the log start offset, if it is larger than before."""
        with self._lock:
            entry = self._entries.get(log_id)
            if entry is not None and start_offset > entry.start_offset:
                kept = tuple(ledger for ledger in entry.ledgers if ledger.end_offset > start_offset)
                self._put(replace(entry, start_offset=start_offset, ledgers=kept))
                self._changes += 1

    def set_compacted(self, log_id: int, sizes: Mapping[int, tuple[int, int]]) -> None:
        """Mark a log as compacted, with (number of batches, bytes) of its changed ledgers by first offset."""
        with self._lock:
            entry = self._entries.get(log_id)
            if entry is not None:
                ledgers = tuple(
                    replace(ledger, entries=sizes[ledger.first_offset][0], bytes=sizes[ledger.first_offset][1])
                    if ledger.first_offset in sizes
                    else ledger
                    for ledger in entry.ledgers
                )
                self._put(replace(entry, is_compacted=True, ledgers=ledgers))
                self._changes += 1

    def set_ledgers(self, ledgers: Mapping[int, Sequence[Ledger]]) -> None:
        """Set the ledgers of logs after a flush. Deleted logs and deleted ledgers are ignored."""
        with self._lock:
            for log_id, some in ledgers.items():
                entry = self._entries.get(log_id)
                if entry is not None:
                    kept = tuple(ledger for ledger in some if ledger.end_offset > entry.start_offset)
                    self._put(replace(entry, ledgers=kept))
            self._changes += 1

    def set_index_bytes(self, directory: int, size: int) -> None:
        """Set the number of index bytes in a ledger directory that are certainly on the disk."""
        with self._lock:
            self._index_bytes[directory] = size
            self._changes += 1

    @property
    def is_stored(self) -> bool:
        """Whether all changes are on the disk."""
        return self._stored == self._changes

    def store(self) -> None:
        """Store all changes on the disk.

        Raises:
            OSError: the disk refused; a crash then leaves either the old or the new catalog.
        """
        with self._storing:
            with self._lock:
                changes = self._changes
                if changes == self._stored:
                    return
                changed, is_whole = self._changed, self._file.must_replace
                known = self._entries.values() if is_whole else filter(None, map(self._entries.get, changed))
                content = self._content(
                    known, [] if is_whole else [each for each in changed if each not in self._entries]
                )
                self._changed = set()  # from here on a failure makes the next store a whole one
            if is_whole:
                self._file.replace(content)
            else:
                self._file.append(content)
            self._stored = changes

    def _content(self, entries: Iterable[CatalogEntry], removed: Sequence[int]) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "next_log_id": self._next_log_id,
            "identity": self.identity,
            "outside": None if self.external is None else self.external._asdict(),
            "index_bytes": [self.index_bytes(number) for number in range(max(self._index_bytes, default=-1) + 1)],
            "removed": removed,
            "logs": [{**_fields(entry), "ledgers": [astuple(ledger) for ledger in entry.ledgers]} for entry in entries],
        }


def _fields(entry: CatalogEntry) -> dict[str, object]:
    return {
        "log_id": entry.log_id,
        "topic": entry.topic,
        "partition": entry.partition,
        "start_offset": entry.start_offset,
        "is_lost": entry.is_lost,
        **(
            {"is_compacted": True} if entry.is_compacted else {}
        ),  # omitted otherwise, so that earlier versions can read the entry
    }
