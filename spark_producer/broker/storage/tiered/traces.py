"""Traces of an earlier run in the directories of an engine: they prove that a missing catalog existed.

The catalog is written before the data that it describes. So if there are batches, or a mark, there was a catalog, even after a
crash. A directory without such traces is new, or its first start was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.entry_log_format import ids_in as entry_logs_in
from spark_producer.broker.storage.tiered.entry_log_format import name_of as entry_log_name
from spark_producer.broker.storage.tiered.journal import JournalReader, journal_ids
from spark_producer.broker.storage.tiered.journal.mark import NAME as MARK
from spark_producer.broker.storage.tiered.location_index.arrays import NAME as INDEX


def traces(files: FileOps, journal: Path, ledgers: tuple[Path, ...]) -> Iterator[str]:
    """Yield descriptions of the files in these directories that prove that there was a catalog, with their paths.

    Raises:
        OSError: the disk refused.
    """
    for directory in ledgers:
        yield from _of_ledgers(files, directory)
    yield from _of_journal(files, journal)


def _names(files: FileOps, directory: Path) -> list[str]:
    try:
        return files.names(directory)
    except FileNotFoundError:
        return []


def _of_ledgers(files: FileOps, directory: Path) -> Iterator[str]:
    names = _names(files, directory)
    if MARK in names:
        yield str(directory / MARK)
    if names and (ids := entry_logs_in(directory, files)):
        yield f"{len(ids)} entry logs such as {directory / entry_log_name(ids[0])}"
    if INDEX in names and (size := len(files.read_file(directory / INDEX))):
        yield f"{directory / INDEX} with {size} bytes"


def _of_journal(files: FileOps, directory: Path) -> Iterator[str]:
    for file_id in journal_ids(directory, files) if _names(files, directory) else ():
        with closing(JournalReader(directory, file_id, files)) as reader:
            records = reader.after_damage(0).records
        if records:
            yield f"{reader.path} with {records} batches"
