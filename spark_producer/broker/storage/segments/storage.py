"""The storage with one directory `<topic>-<partition>` for each partition, as in Kafka."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from spark_producer.broker.counters import MetricReading
from spark_producer.broker.log_quoting import first_few
from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.base import Recovered, UnreadableLog
from spark_producer.broker.storage.disk import HeldDirectory
from spark_producer.broker.storage.segments.log import SegmentLog, ignore
from spark_producer.broker.storage.segments.orphaned_logs import NAME as LOST
from spark_producer.broker.storage.segments.orphaned_logs import find_orphaned, set_aside
from spark_producer.broker.storage.segments.pending_deletes import PendingDeletes
from spark_producer.broker.storage.segments.segment import Segment
from spark_producer.broker.storage.space_notice import SpaceNotice
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger

logger = escaping_logger(__name__)


def holds_segments(data_dir: Path) -> bool:
    """Return whether a data directory has logs of this engine.

    Raises:
        OSError: the disk refused.
    """
    return data_dir.is_dir() and bool(find_orphaned(data_dir, ()))


class SegmentStorage:
    """A `Storage` with independent logs of segment files. A batch is confirmed as soon as it is admitted."""

    name = "segments"

    def __init__(self, data_dir: Path, settings: BrokerSettings) -> None:
        self._data_dir = data_dir
        self._sync_each_append = settings.sync_each_append
        self._sync_on_close = settings.sync_on_close
        self._skip_damage = settings.skip_damage
        self._made: set[str] = set()
        self._pending_deletes = PendingDeletes(data_dir)
        self._held = HeldDirectory(data_dir)
        self._space = SpaceNotice(data_dir)

    def watch(self, confirmed: Callable[[str, int], None], space_freed: Callable[[], None]) -> None:
        """Do nothing: no batch waits for its confirmation or for space here, so neither function is ever called."""

    def has_space(self, _size: int) -> bool:
        """Return True: a batch is written when it is admitted, and memory holds none."""
        return True

    def check_largest_batch(self, _size: int) -> None:
        """Accept any size: memory holds no batch."""

    def cursor_changed(self, _topic: str, _partition: int, _exists: bool) -> None:
        """Do nothing: memory holds no batch."""

    def readings(self) -> Iterable[MetricReading]:
        """Return no metrics: this engine has no tiers."""
        return ()

    def orphaned(self, topics: Mapping[str, int]) -> list[str]:
        """Return the names of directories whose records belong to no partition of `topics`."""
        owned = {f"{topic}-{partition}" for topic, count in topics.items() for partition in range(count)}
        return find_orphaned(self._data_dir, owned)

    def recover(self, topics: Mapping[str, int]) -> None:
        """Remove the remains of deleted topics. From then on `open` requires the directories of `topics`."""
        self._made = {f"{topic}-{partition}" for topic, count in topics.items() for partition in range(count)}
        orphaned = self.orphaned(topics)
        if orphaned:
            logger.warning(
                "%s: %d directories hold records of no topic (%s), after an incomplete deletion, or a change of broker.json. "
                "They stay where they are until a topic of that name is created; then they are moved to %s",
                *(self._data_dir, len(orphaned), first_few(orphaned), self._data_dir / LOST),
            )
        self._pending_deletes.clear()

    def open(self, topic: str, partition: int, settings: TopicSettings, recovered: Recovered) -> SegmentLog:
        """Open the log of a partition. Its directory and first segment were created with the topic, so they must exist."""
        directory = self._directory(topic, partition)
        try:
            self._check_made(directory)
            return self._log(directory, settings, recovered)
        except OSError as error:
            raise UnreadableLog(
                f"partition {directory.name} is not opened: {error}. Check the disk and the permissions of {directory}, then "
                "restart the broker",
                code=Code.KAFKA_STORAGE_ERROR,
            ) from error

    def _check_made(self, directory: Path) -> None:
        is_foreign = directory.exists() and not directory.is_dir()  # then the system reports it
        if directory.name not in self._made or is_foreign or Segment.base_offsets(directory):
            return
        what = "all segments (.log) are missing from" if directory.is_dir() else "there is no directory"
        text = f"partition {directory.name} is not opened: {what} {directory}, which were created with the topic"
        if not self._skip_damage:
            raise UnreadableLog(
                f"{text}. Restore it from a backup; or delete the topic; or start once with skip_damage (pyproducer broker "
                "--skip-damage), and the partition starts empty",
                code=Code.KAFKA_STORAGE_ERROR,
            )
        logger.error("%s; it starts empty", text)

    def partitions(self) -> list[str]:
        """Return the names of the directories that have segments."""
        return sorted(path.name for path in self._data_dir.iterdir() if Segment.base_offsets(path))

    def create(self, topic: str, partition: int, settings: TopicSettings) -> SegmentLog:
        """Create a log in a new directory."""
        directory = self._directory(topic, partition)
        self._held.check()
        # A crash after the directories were created and before the topic was stored leaves directories of no topic.
        moved = set_aside(directory)
        if moved is not None:
            logger.warning("topic %s: its directory had records of no topic; they were moved to %s", topic, moved)
        shutil.rmtree(directory, ignore_errors=True)
        return self._log(directory, settings, ignore)

    def delete(self, partitions: Collection[tuple[str, int]]) -> None:
        """Delete the directories of partitions."""
        self._held.check()
        for topic, partition in partitions:
            self._pending_deletes.delete(self._directory(topic, partition))

    def close(self) -> bool:
        """Close the data directory; return True, since no other file is open."""
        self._held.close()
        return True

    def _log(self, directory: Path, settings: TopicSettings, recovered: Recovered) -> SegmentLog:
        return SegmentLog(
            directory,
            settings,
            sync_each_append=self._sync_each_append,
            sync_on_close=self._sync_on_close,
            skip_damage=self._skip_damage,
            visit=recovered,
            check_directory=self._held.check,
            space=self._space,
        )

    def _directory(self, topic: str, partition: int) -> Path:
        return self._data_dir / f"{topic}-{partition}"
