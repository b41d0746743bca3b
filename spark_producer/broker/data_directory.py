"""The data directory of the broker: its lock, and its state file with the topics, the producer ids and the cluster id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from spark_producer.broker.log_quoting import first_few
from spark_producer.broker.storage.base import Storage
from spark_producer.broker.storage.directory_lock import DirectoryLock
from spark_producer.broker.storage.disk import folds_case, make_private_directory, storage_errors
from spark_producer.broker.storage.state_file import BrokerState, StateFile, TopicEntry
from spark_producer.errors import CorruptRecord

COORDINATOR_LOG: Final = "coordinator.log"
"""The name of the coordinator's file in the data directory."""

_PRODUCER_ID_BLOCK: Final = 1000
"""Number of producer ids that are reserved on the disk at once, as in Kafka; a crash skips the rest of a block."""


class DataDirectory:
    """A locked data directory with a state file. One thread at a time may use it."""

    def __init__(self, path: Path) -> None:
        """Create the directory if there is none, and lock it. `load` must follow.

        Raises:
            ConfigError: another broker uses the directory.
        """
        self.path = path.absolute()  # the process may change its working directory
        make_private_directory(self.path)
        self._lock = DirectoryLock(self.path)
        self._file = StateFile(self.path)
        self._state: BrokerState
        self._next_producer_id = 0

    def folds_case(self) -> bool:
        """Return whether the file system ignores the case of names."""
        return folds_case(self._lock.path)

    def check_format(self) -> None:
        """Check that this version can read the directory, before anything in it is opened or written.

        Raises:
            CorruptRecord: a newer version wrote it, or the state file cannot be read.
        """
        if self._file.exists():
            self._file.load()

    def load(self, storage: Storage) -> None:
        """Load the state file, or store a new one.

        Raises:
            CorruptRecord: the state file cannot be read, or is missing although `storage` has records.
        """
        is_new = not self._file.exists()
        self._state = replace(self._file.load(), engine=storage.name)
        self._next_producer_id = self._state.next_producer_id
        if is_new:
            self._check_empty(storage)
            self._file.store(self._state)  # an existing file is not written again: a full disk can still be read

    def _check_empty(self, storage: Storage) -> None:
        found = (("records", storage.orphaned({})), ("partitions", storage.partitions()))
        traces = [f"{what} ({first_few(names)})" for what, names in found if names]
        traces += [COORDINATOR_LOG] if (self.path / COORDINATOR_LOG).exists() else []
        if traces:
            raise CorruptRecord(
                f"{self.path} has {traces[0]}, but its broker.json is missing, which has the topics and producer ids. "
                "Restore that file from a backup, or use another data directory"
            )

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which is created once for each data directory."""
        return self._state.cluster_id

    @property
    def topics(self) -> dict[str, TopicEntry]:
        """The stored topics by name."""
        return self._state.topics

    @property
    def coordinator_bytes(self) -> int:
        """The length in bytes that the coordinator's log surely has; 0 if there has been no log."""
        return self._state.coordinator_bytes

    def store_topics(self, topics: dict[str, TopicEntry]) -> None:
        """Replace the stored topics.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; nothing has changed.
        """
        with storage_errors(self.path):
            self._store(replace(self._state, topics=topics))

    def store_coordinator_bytes(self, size: int) -> None:
        """Store the minimum length of the coordinator's log in bytes.

        Raises:
            OSError: the disk refused.
        """
        if size != self._state.coordinator_bytes:
            self._store(replace(self._state, coordinator_bytes=size))

    def new_producer_id(self) -> int:
        """Return a producer id that was never assigned before, by this process or an earlier one.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        if self._next_producer_id >= self._state.next_producer_id:
            with storage_errors(self.path):
                self._store(replace(self._state, next_producer_id=self._next_producer_id + _PRODUCER_ID_BLOCK))
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def check_moved(self) -> None:
        """Check that the directory was not renamed or removed.

        Raises:
            OSError: it was.
        """
        self._lock.check()

    def _store(self, state: BrokerState) -> None:
        self.check_moved()
        self._file.store(state)
        self._state = state

    def unlock(self) -> None:
        """Release the lock."""
        self._lock.close()
