"""The storage of the tiered engine: all logs of a data directory, with one journal, one write cache and common entry logs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from spark_producer.broker.counters import MetricReading
from spark_producer.broker.log_quoting import first_few
from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.base import Recovered, UnreadableLog
from spark_producer.broker.storage.directory_lock import DirectoryLock
from spark_producer.broker.storage.disk import make_private_directory
from spark_producer.broker.storage.file_ops import FileOps, SystemFiles, UnforcedFiles
from spark_producer.broker.storage.state_file import StateFile
from spark_producer.broker.storage.tiered.catalog_file import NAME as CATALOG
from spark_producer.broker.storage.tiered.catalog_file import missing_catalog
from spark_producer.broker.storage.tiered.directories import check_new_engine
from spark_producer.broker.storage.tiered.engine import Engine
from spark_producer.broker.storage.tiered.log import TieredLog
from spark_producer.broker.storage.tiered.log_recovery import visit
from spark_producer.broker.storage.tiered.log_state import LogState
from spark_producer.broker.storage.tiered.operations import LogOperations
from spark_producer.broker.storage.tiered.options import TieredOptions, options_for
from spark_producer.broker.storage.tiered.skipped_damage import skip_lost_batches
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, CorruptRecord, PyProducerError

NAME: Final = "tiered"
"""Name of its directory in a data directory. No partition can have that name, because partition names end in `-` and a number."""

logger = escaping_logger(__name__)


def holds_tiers(data_dir: Path) -> bool:
    """Return whether a data directory has a directory of this engine."""
    return (data_dir / NAME).is_dir()


class TieredStorage:
    """A `Storage` with the memory design of Pulsar's broker and BookKeeper's bookie, in the directory `tiered` of the data
    directory.

    A batch is confirmed when it was written to the journal or, with `sync_each_append`, forced. Without `sync_on_close` and
    `sync_each_append` the data is temporary, and no call waits for the disk.
    """

    name = NAME

    def __init__(
        self,
        data_dir: Path,
        settings: BrokerSettings,
        *,
        options: TieredOptions | None = None,
        files: FileOps | None = None,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """Recover the data of earlier runs, and start the engine.

        Raises:
            ConfigError: the external directories have changed, or are in use.
            CorruptRecord: the catalog cannot be read.
            BrokerError: the journal has lost acknowledged records (KAFKA_STORAGE_ERROR); the message says what to do.
            OSError: the disk refused.
        """
        self._is_kept = settings.sync_on_close or settings.sync_each_append
        options = options or options_for(settings)
        with contextlib.ExitStack() as resources:
            if files is None:  # a simulated disk is not shared
                files = SystemFiles() if self._is_kept else UnforcedFiles()
                resources.callback(files.release)
                _check_catalog(data_dir, skip_damage=settings.skip_damage)
                check_new_engine(files, data_dir / NAME, options)
                _lock_external_directories(options, resources)
            self.engine = Engine(data_dir / NAME, files, options, sync=settings.sync_each_append, clock_ms=clock_ms)
            if options.skip_damage:
                self._skip_lost_batches()
            self.engine.start()
            if isinstance(files, SystemFiles):
                directories = self.engine.directories
                for path in (data_dir, data_dir / NAME, directories.journal, *directories.ledgers):
                    files.hold(path)
            self._resources = resources.pop_all()

    def _skip_lost_batches(self) -> None:
        try:
            skip_lost_batches(self.engine)
        except OSError:
            self.engine.close(flush=False)
            raise

    def watch(self, confirmed: Callable[[str, int], None], space_freed: Callable[[], None]) -> None:
        """See `Storage.watch`. A batch is reported when it is written, and with `sync_each_append` again when it is confirmed."""
        self.engine.write_path.notify_log, self.engine.write_path.notify_space = confirmed, space_freed

    def has_space(self, size: int) -> bool:
        """See `Storage.has_space`. A request larger than half of the write cache waits until a half is free."""
        return self.engine.write_path.has_space(size)

    def check_largest_batch(self, size: int) -> None:
        """See `Storage.check_largest_batch`: a batch must fit in half of the write cache."""
        self.engine.write_path.limit.check_setting(size)

    def cursor_changed(self, topic: str, partition: int, exists: bool) -> None:
        """See `Storage.cursor_changed`: the tail cache takes batches only of partitions with a cursor."""
        state = self.engine.find(topic, partition)
        if state is not None:
            self.engine.read_path.cursor_changed(state.log_id, exists)

    def readings(self) -> Iterable[MetricReading]:
        """See `Storage.readings`: all counters of all tiers."""
        return self.engine.readings()

    def orphaned(self, topics: Mapping[str, int]) -> list[str]:
        """See `Storage.orphaned`: the names of partitions in the catalog."""
        return sorted(
            entry_state.name
            for entry_state in self.engine.states_with_records()
            if entry_state.partition >= topics.get(entry_state.topic, 0)
        )

    def partitions(self) -> list[str]:
        """Return the names of the partitions in the catalog."""
        known = (each for each in self.engine.catalog.entries() if not each.is_lost)
        return sorted(f"{each.topic}-{each.partition}" for each in known)

    def recover(self, topics: Mapping[str, int]) -> None:
        """Warn of records that belong to no topic. The start of the engine has completed interrupted operations."""
        orphaned = self.orphaned(topics)
        if orphaned:
            logger.warning(
                "%s: %d logs hold records of no topic (%s), after an incomplete deletion, or a change of broker.json. They stay "
                "until a topic of that name is created; then they are set aside in %s, and kept",
                *(self.engine.directory, len(orphaned), first_few(orphaned), self.engine.catalog.path),
            )

    def open(self, topic: str, partition: int, settings: TopicSettings, recovered: Recovered) -> TieredLog:
        """Open the log of a partition, which is created if it is not in the catalog."""
        state = self.engine.find(topic, partition) or self.engine.add(topic, partition)
        if state.damage is not None:
            raise _unreadable(state, state.damage)
        try:
            visit(state, self.engine, recovered)
        except (PyProducerError, OSError) as error:
            raise _unreadable(state, str(error)) from error
        return self._log(state, settings)

    def create(self, topic: str, partition: int, settings: TopicSettings) -> TieredLog:
        """Create a log with a new id. The catalog on the disk has it before its first batch is admitted."""
        state = self.engine.find(topic, partition)
        if state is not None and state.has_records:
            self.engine.set_aside(state)
            logger.warning(
                "topic %s: its partition had records of no topic; they are kept as log %d of %s",
                *(topic, state.log_id, self.engine.catalog.path),
            )
        elif state is not None:
            self.engine.remove(state)
        return self._log(self.engine.add(topic, partition), settings)

    def delete(self, partitions: Collection[tuple[str, int]]) -> None:
        """Delete logs. Garbage collection removes their batches from the entry logs later."""
        for topic, partition in partitions:
            state = self.engine.find(topic, partition)
            if state is not None:
                self.engine.remove(state)
        self.engine.catalog.store()

    def _log(self, state: LogState, settings: TopicSettings) -> TieredLog:
        engine = self.engine
        return TieredLog(
            state,
            settings,
            write_path=engine.write_path,
            read_path=engine.read_path,
            write_cache=engine.write_cache,
            index=engine.ledgers.of(state.log_id).index,
            catalog=engine.catalog,
            closed=self._log_closed,
            operations=LogOperations(engine),
        )

    def _log_closed(self, discard: bool) -> None:
        """Force all confirmed batches to the disk.

        Raises:
            OSError: the disk refused.
        """
        if discard or not self._is_kept or self.engine.write_path.failure is not None:
            return
        try:
            self.engine.force()
        except BrokerError as error:
            raise OSError(str(error)) from error

    def close(self) -> bool:
        """Stop the engine. Data that is kept is flushed, so that the next start has no records to replay. See `Storage.close`."""
        is_done = True
        try:
            is_done = self.engine.close(flush=self._is_kept)
        finally:
            if is_done:
                self._resources.close()
        return is_done


def _check_catalog(data_dir: Path, *, skip_damage: bool) -> None:
    """Check that there is a catalog if there are topics, which are created after it. This comes before any file is created.

    Raises:
        CorruptRecord: there is no catalog, and damage is not skipped; or the list of topics cannot be read.
    """
    path, state = data_dir / NAME / CATALOG, StateFile(data_dir)
    if state.load().topics and not path.exists():
        text = missing_catalog(path, f"{state.path}, which has topics")
        if not skip_damage:
            raise CorruptRecord(text)
        logger.error("%s", text)


def _lock_external_directories(options: TieredOptions, resources: contextlib.ExitStack) -> None:
    """Lock the external directories. The data directory is already locked."""
    for path in (*([] if options.journal_dir is None else [options.journal_dir]), *options.ledger_dirs):
        make_private_directory(path)
        resources.callback(DirectoryLock(path).close)


def _unreadable(state: LogState, why: str) -> UnreadableLog:
    return UnreadableLog(
        f"partition {state.name} is not opened: {why}. Restore the data directory from a backup; or delete the topic, which "
        "loses its records; or start once with skip_damage (pyproducer broker --skip-damage), which skips the records that the "
        "entry logs have lost",
        code=Code.KAFKA_STORAGE_ERROR,
    )
