"""The catalog: which logs a data directory has, where each begins, and its ledgers. `catalog_file` keeps it on the disk.

A log has an id that no other log of the directory ever has, so what is left of a deleted topic is never taken for records of a
new one with its name. The journal, the entry logs and the index know the ids alone.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.catalog_file import CatalogFile, missing_catalog
from spark_producer.broker.storage.tiered.ledgers import Ledger
from spark_producer.errors import CorruptRecord

_FORMAT: Final = 2
_WITHOUT_DIRECTORIES: Final = 1
"""The format of data directories from before a journal and entry logs could be elsewhere."""


class ExternalDirectories(NamedTuple):
    """The directories that an engine uses outside of its data directory; none where they are inside, as they are by default."""

    journal: str | None = None
    ledgers: tuple[str, ...] = ()


@dataclass(frozen=True)
class CatalogEntry:
    """A log, as far as it was flushed.

    start_offset: records before it are deleted.
    is_lost: its records belonged to no topic when a topic of its name was created. They are kept, and nobody reads them.
    is_compacted: compaction has rewritten batches of it, so that files may have offsets of it and yet nothing that is needed.
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
        """The offset behind the last batch that was flushed."""
        return max(self.start_offset, self.ledgers[-1].end_offset if self.ledgers else 0)

    def holds(self, first_offset: int, end_offset: int) -> bool:
        """Return whether a file with these offsets may be needed: any of them was flushed, and is not deleted."""
        return first_offset < self.flushed_end and end_offset > self.start_offset


class Catalog:
    """The catalog in a directory. Any thread may use it; `store` alone calls the disk.

    What is changed is on the disk after the next `store` that has returned.

    Raises:
        CorruptRecord: the file is not what a broker of this version wrote.
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
        """Whether there was none on the disk."""
        self.identity = uuid.uuid4().hex
        """What tells this data directory from all others."""
        self.external: ExternalDirectories | None = None
        """The directories outside that belong to this one; None as long as it has not been settled which they are."""
        self._changes, self._stored = (
            1,
            0,
        )  # what can be read need not be on the disk, if the last life could not sync it
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
                f"{self.path} is not a broker's catalog ({error}); restore it from a backup of the whole data directory"
            ) from error

    def _take(self, stored: dict[str, Any]) -> None:
        """Take what was stored: the whole catalog, or what has changed since."""
        if stored["format"] not in (_WITHOUT_DIRECTORIES, _FORMAT):
            raise ValueError("unknown format")
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
        """Check that there are no `traces` of a life with a catalog, if there is none.

        Raises:
            CorruptRecord: there are.
        """
        trace = next(iter(traces), None) if self.is_new else None
        if trace is not None:
            raise CorruptRecord(missing_catalog(self.path, trace))

    @property
    def next_log_id(self) -> int:
        """No log of this id or a larger one was ever noted."""
        return self._next_log_id

    def adopt(self, log_id: int) -> CatalogEntry:
        """Note a log of which there are batches, and whose name nobody knows: its records are kept, and nobody reads them."""
        with self._lock:
            entry = CatalogEntry(log_id, f"unknown-{log_id}", 0, is_lost=True)
            self._next_log_id = max(self._next_log_id, log_id + 1)
            self._put(entry)
            self._changes += 1
            return entry

    def index_bytes(self, directory: int) -> int:
        """Return the bytes of the index in a ledger directory, by its number, that were on the disk for certain when the catalog
        was stored."""
        return self._index_bytes.get(directory, 0)

    def set_external(self, external: ExternalDirectories) -> None:
        """Note which directories outside belong to this one."""
        with self._lock:
            self.external = external
            self._changes += 1

    def entries(self) -> list[CatalogEntry]:
        """Return all logs, also lost ones."""
        with self._lock:
            return list(self._entries.values())

    def get(self, log_id: int) -> CatalogEntry | None:
        """Return the log of an id, None if there is none or it was deleted."""
        with self._lock:
            return self._entries.get(log_id)

    def find(self, topic: str, partition: int) -> CatalogEntry | None:
        """Return the log of a partition, None if it has none."""
        with self._lock:
            log_id = self._ids.get((topic, partition))
            return None if log_id is None else self._entries[log_id]

    def add(self, topic: str, partition: int) -> CatalogEntry:
        """Note a new log, with a new id, for a partition that has none."""
        with self._lock:
            entry = CatalogEntry(self._next_log_id, topic, partition)
            self._next_log_id += 1
            self._put(entry)
            self._changes += 1
            return entry

    def remove(self, log_id: int) -> None:
        """Note that a log was deleted."""
        with self._lock:
            self._drop(log_id)
            self._changes += 1

    def set_aside(self, log_id: int) -> None:
        """Note that the records of a log belong to no topic; its partition has no log then."""
        with self._lock:
            entry = self._entries[log_id]
            self._ids.pop((entry.topic, entry.partition), None)
            self._put(replace(entry, is_lost=True))
            self._changes += 1

    def set_start(self, log_id: int, start_offset: int) -> None:
        """Note that the records of a log before an offset are deleted."""
        with self._lock:
            entry = self._entries.get(log_id)
            if entry is not None and start_offset > entry.start_offset:
                kept = tuple(ledger for ledger in entry.ledgers if ledger.end_offset > start_offset)
                self._put(replace(entry, start_offset=start_offset, ledgers=kept))
                self._changes += 1

    def set_compacted(self, log_id: int, sizes: Mapping[int, tuple[int, int]]) -> None:
        """Note that a log was compacted, with (batches, bytes) of those of its ledgers, by first offset, that have changed."""
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
        """Note the ledgers of logs after a flush. Logs that were deleted, and ledgers that were, are left out."""
        with self._lock:
            for log_id, some in ledgers.items():
                entry = self._entries.get(log_id)
                if entry is not None:
                    kept = tuple(ledger for ledger in some if ledger.end_offset > entry.start_offset)
                    self._put(replace(entry, ledgers=kept))
            self._changes += 1

    def set_index_bytes(self, directory: int, size: int) -> None:
        """Note how many bytes of the index in a ledger directory are on the disk for certain."""
        with self._lock:
            self._index_bytes[directory] = size
            self._changes += 1

    @property
    def is_stored(self) -> bool:
        """Whether all changes are on the disk."""
        return self._stored == self._changes

    def store(self) -> None:
        """Put all changes on the disk.

        Raises:
            OSError: the disk refused; after a crash, either the old or the new catalog is there.
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
        **({"is_compacted": True} if entry.is_compacted else {}),  # so that earlier versions can read the others
    }
