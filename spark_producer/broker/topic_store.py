"""The topics of the broker and their partitions, which survive restarts."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from spark_producer.broker.counters import MetricReading
from spark_producer.broker.data_directory import DataDirectory
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.log_quoting import quoted
from spark_producer.broker.settings import MAX_PARTITIONS, BrokerSettings, TopicSettings, topic_settings
from spark_producer.broker.storage.disk import storage_errors
from spark_producer.broker.storage.engines import OpenStorage, open_storage
from spark_producer.broker.storage.state_file import TopicEntry
from spark_producer.broker.topic_names import MAX_NAME_LENGTH, check_name, metric_name
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError

logger = escaping_logger(__name__)


@dataclass(frozen=True)
class Topic:
    """A topic, with its `partitions` in the order of their indexes."""

    name: str
    topic_id: bytes
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class NewTopic:
    """A topic to create; its `configs` have Kafka's dotted names."""

    name: str
    partitions: int
    configs: Mapping[str, str | None] = field(default_factory=dict)


class TopicStore:
    """All topics of a data directory. One thread at a time may use it."""

    def __init__(self, data_dir: Path, settings: BrokerSettings, open_storage: OpenStorage = open_storage) -> None:
        """Lock the directory and open all of its logs, with the storage engine of `open_storage`.

        Raises:
            ConfigError: another broker uses the directory.
            CorruptRecord: the state file cannot be read, or is missing although there are records.
        """
        self._settings = settings
        self._life = contextlib.ExitStack()
        self.directory = DataDirectory(data_dir)
        self._life.callback(self._unlock)
        self._is_in_use = False
        self._process = os.getpid()
        self._topics: dict[str, Topic] = {}
        self._with_cursor: set[tuple[str, int]] = set()
        try:
            self._folds_case = self.directory.folds_case()
            self.directory.check_format()
            self._storage = open_storage(self.directory.path, settings)
            self._life.callback(self._close_storage)
            self.directory.load(self._storage)
            self._storage.recover({name: entry.partitions for name, entry in self.directory.topics.items()})
            for name, entry in self.directory.topics.items():
                check_name(name)  # it names a directory
                stored = topic_settings(entry.configs, settings.topic, any_number=True)
                self._topics[name] = self._open(name, entry, stored)
        except BaseException:
            self.close()
            raise
        self._by_id = {topic.topic_id: topic for topic in self._topics.values()}
        self._by_metric_name = {metric_name(name): name for name in self._topics}
        self._partitions = sum(len(topic.partitions) for topic in self._topics.values())

    def watch(self, confirmed: Callable[[str, int], None], space_freed: Callable[[], None]) -> None:
        """Register two callbacks, which the storage calls from any thread, as in `Storage.watch`."""
        self._storage.watch(confirmed, space_freed)

    def has_space(self, size: int) -> bool:
        """Return whether the storage has space for a request of `size` bytes now."""
        return self._storage.has_space(size)

    def cursor_changed(self, topic: str, partition: int, exists: bool) -> None:
        """Notify the storage whether any consumer group has a cursor in a partition. The store repeats it when the topic is
        created again."""
        if exists:
            self._with_cursor.add((topic, partition))
        else:
            self._with_cursor.discard((topic, partition))
        self._storage.cursor_changed(topic, partition, exists)

    def has_partition(self, name: str, index: int) -> bool:
        """Return whether the partition exists."""
        topic = self._topics.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    @property
    def engine(self) -> str:
        """The name of the storage engine."""
        return self._storage.name

    def readings(self) -> Iterable[MetricReading]:
        """Return the metrics of the storage. Any thread may call this."""
        return self._storage.readings()

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._topics.values()))

    def get(self, name: str) -> Topic | None:
        """Return the topic with this name, or None."""
        return self._topics.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id (16 bytes), or None."""
        return self._by_id.get(topic_id)

    def name_of(self, name: str, topic_id: bytes) -> str:
        """Return the name of a topic that a request has by name or, from Produce and Fetch 13 on, by id.

        Raises:
            BrokerError: UNKNOWN_TOPIC_ID.
        """
        if name:
            return name
        found = self.get_by_id(topic_id)
        if found is None:
            raise BrokerError(f"there is no topic with the id {topic_id.hex()}", code=Code.UNKNOWN_TOPIC_ID)
        return found.name

    def partition(self, name: str, index: int) -> Partition:
        """Return a partition.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION if the name is too long for a topic.
        """
        if not self.has_partition(name, index):
            code = Code.INVALID_TOPIC_EXCEPTION if len(name) > MAX_NAME_LENGTH else Code.UNKNOWN_TOPIC_OR_PARTITION
            raise BrokerError(f"there is no partition {index} of topic {quoted(name)}", code=code)
        return self._topics[name].partitions[index]

    def check(self, new: NewTopic) -> TopicSettings:
        """Check that the topic can be created, and return the settings that it would get.

        Raises:
            BrokerError: as `create` would.
        """
        check_name(new.name)
        if new.name in self._topics:
            raise BrokerError(f"topic {new.name!r} already exists", code=Code.TOPIC_ALREADY_EXISTS)
        # Kafka's rule: both topics would have the same metric names.
        other = self._by_metric_name.get(metric_name(new.name))
        if other is not None:
            raise BrokerError(
                f"topic {new.name!r} collides with existing topic {other!r}", code=Code.INVALID_TOPIC_EXCEPTION
            )
        if self._folds_case:
            self._check_case(new.name)
        if not 1 <= new.partitions <= MAX_PARTITIONS:
            raise BrokerError(
                f"{new.partitions} partitions are not possible. Use 1 to {MAX_PARTITIONS}", code=Code.INVALID_PARTITIONS
            )
        self._check_partition_limit(new.partitions)
        return self.check_configs(new.configs)

    def check_partition_increase(self, name: str, count: int) -> int:
        """Check that a topic can be given `count` partitions; return its current number.

        Raises:
            BrokerError: as `add_partitions` would.
        """
        topic = self._topics.get(name)
        if topic is None:
            raise BrokerError(f"there is no topic {quoted(name)}", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
        now = len(topic.partitions)
        if count == now:
            raise BrokerError(f"Topic already has {now} partition(s).", code=Code.INVALID_PARTITIONS)
        if count < now:
            raise BrokerError(
                f"The topic {name} currently has {now} partition(s); {count} would not be an increase.",
                code=Code.INVALID_PARTITIONS,
            )
        if count > MAX_PARTITIONS:
            raise BrokerError(
                f"{count} partitions are not possible. Use 1 to {MAX_PARTITIONS}", code=Code.INVALID_PARTITIONS
            )
        self._check_partition_limit(count - now)
        return now

    def _check_partition_limit(self, more: int) -> None:
        if self._partitions + more > self._settings.max_partitions:
            raise BrokerError(
                f"cannot add {more} partitions to {self._partitions}: the embedded broker allows {self._settings.max_partitions} "
                "(BrokerSettings.max_partitions)",
                code=Code.POLICY_VIOLATION,
            )

    def check_configs(self, configs: Mapping[str, str | None]) -> TopicSettings:
        """Check the settings given for a topic, and return them with the broker's defaults for all others.

        Raises:
            BrokerError: INVALID_CONFIG.
        """
        settings = topic_settings(configs, self._settings.topic)
        if "max.message.bytes" in configs:  # the default was checked at the start of the broker
            self._storage.check_largest_batch(settings.max_message_bytes)
        return settings

    def _check_case(self, name: str) -> None:
        other = next((other for other in self._topics if other.lower() == name.lower()), None)
        if other is not None:
            raise BrokerError(
                f"topic {name!r} differs from {other!r} only in case, and the file system of {self.directory.path} ignores case. "
                "Use another name, or a data directory on another file system",
                code=Code.INVALID_TOPIC_EXCEPTION,
            )

    def create(self, name: str, partitions: int, configs: Mapping[str, str | None] | None = None) -> Topic:
        """Create a topic. Once this has returned, the topic survives a crash.

        Raises:
            BrokerError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG, POLICY_VIOLATION,
                KAFKA_STORAGE_ERROR.
        """
        (created,) = self.create_all([NewTopic(name, partitions, configs or {})])
        if isinstance(created, BrokerError):
            raise created
        return created

    def create_all(self, wanted: Iterable[NewTopic]) -> list[Topic | BrokerError]:
        """Create topics; return for each one the topic, or the error that prevented it.

        The state file is written once, because it holds all topics and each write waits for the disk.
        """
        results: list[Topic | BrokerError] = []
        entries: dict[str, TopicEntry] = {}
        for new in wanted:
            try:
                settings = self.check(new)
                entry = TopicEntry(uuid.uuid4().hex, new.partitions, dict(new.configs))
                results.append(self._create(new.name, entry, settings))
                entries[new.name] = entry
            except BrokerError as error:
                results.append(error)
        try:
            if entries:
                self.directory.store_topics({**self.directory.topics, **entries})
        except BrokerError as error:
            for name in entries:
                _close(self._remove(name).partitions, discard=True)
            return [error if isinstance(created, Topic) else created for created in results]
        return results

    def _create(self, name: str, entry: TopicEntry, settings: TopicSettings) -> Topic:
        """Open a new topic that is not in the state file yet."""
        with storage_errors(self.directory.path):
            topic = self._open(name, entry, settings, is_new=True)
        self._topics[name] = self._by_id[topic.topic_id] = topic
        self._by_metric_name[metric_name(name)] = name
        self._partitions += len(topic.partitions)
        self._report_cursors(name, range(len(topic.partitions)))
        return topic

    def add_partitions(self, name: str, count: int) -> Topic:
        """Increase the number of partitions of a topic to `count`. Once this has returned, they survive a crash.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, POLICY_VIOLATION, KAFKA_STORAGE_ERROR.
        """
        now = self.check_partition_increase(name, count)
        topic, entry = self._topics[name], self.directory.topics[name]
        settings = topic_settings(entry.configs, self._settings.topic, any_number=True)
        fresh: list[Partition] = []
        try:
            with storage_errors(self.directory.path):
                fresh += self._open_partitions(name, range(now, count), settings, is_new=True)
            self.directory.store_topics({**self.directory.topics, name: replace(entry, partitions=count)})
        except BrokerError:
            _close(fresh, discard=True)  # their files belong to no topic
            raise
        topic = replace(topic, partitions=(*topic.partitions, *fresh))
        self._topics[name] = self._by_id[topic.topic_id] = topic
        self._partitions += count - now
        self._report_cursors(name, range(now, count))
        return topic

    def _report_cursors(self, name: str, indexes: Iterable[int]) -> None:
        for index in indexes:
            if (name, index) in self._with_cursor:
                self._storage.cursor_changed(name, index, True)

    def _remove(self, name: str) -> Topic:
        topic = self._topics.pop(name)
        del self._by_id[topic.topic_id], self._by_metric_name[metric_name(name)]
        self._partitions -= len(topic.partitions)
        return topic

    def delete(self, name: str) -> None:
        """Delete a topic and its records.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR.
        """
        (deleted,) = self.delete_all([name])
        if isinstance(deleted, BrokerError):
            raise deleted

    def delete_all(self, names: Iterable[str]) -> list[Topic | BrokerError]:
        """Delete topics, whose `names` must differ; return for each one the topic, or the error that prevented it.

        The state file is written once.
        """
        results: list[Topic | BrokerError] = [
            self._topics.get(name)
            or BrokerError(f"there is no topic {quoted(name)}", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
            for name in names
        ]
        deleted = {topic.name: topic for topic in results if isinstance(topic, Topic)}
        if not deleted:
            return results
        kept = {name: entry for name, entry in self.directory.topics.items() if name not in deleted}
        try:
            self.directory.store_topics(kept)
        except BrokerError as error:
            return [error if isinstance(topic, Topic) else topic for topic in results]
        refusal = self._delete_records(deleted.values())
        return [refusal or topic if isinstance(topic, Topic) else topic for topic in results]

    def _delete_records(self, topics: Collection[Topic]) -> BrokerError | None:
        """Delete the records of topics that are no longer in the state file; return the error of the disk, if there is one."""
        for topic in topics:
            _close(self._remove(topic.name).partitions, discard=True)
        partitions = [(topic.name, partition.index) for topic in topics for partition in topic.partitions]
        try:
            with storage_errors(self.directory.path):
                self._storage.delete(partitions)
        except BrokerError as error:
            return error
        return None

    def settings_of(self, name: str) -> tuple[TopicSettings, Mapping[str, str | None]]:
        """Return all settings of a topic, and those of them that were given for it.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        entry = self.directory.topics.get(name)
        if entry is None:
            raise BrokerError(f"there is no topic {quoted(name)}", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_settings(entry.configs, self._settings.topic, any_number=True), dict(entry.configs)

    def alter_all(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Replace the given settings of topics; their values must be checked already. The state file is written once.

        Args:
            changes: topic → all settings that are given for it from now on.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; nothing has changed.
        """
        topics = self.directory.topics
        altered = {name: replace(topics[name], configs=dict(configs)) for name, configs in changes.items()}
        self.directory.store_topics({**topics, **altered})
        for name, entry in altered.items():
            settings = topic_settings(entry.configs, self._settings.topic, any_number=True)
            for partition in self._topics[name].partitions:
                partition.settings = settings

    def partitions(self) -> Iterator[tuple[str, Partition]]:
        """Return all partitions with the names of their topics."""
        return ((topic.name, partition) for topic in self for partition in topic.partitions)

    def delete_old(self, now_ms: int) -> None:
        """Delete records beyond the retention of their topics at the time `now_ms` (milliseconds since 1970).

        An error of one partition is logged, and its old records stay.
        """
        for topic in self._topics.values():
            for partition in topic.partitions:
                try:
                    partition.delete_old(now_ms)
                except BrokerError as error:
                    logger.error(
                        "topic %s, partition %d: old records were not deleted: %s", topic.name, partition.index, error
                    )

    def close(self) -> None:
        """Flush and close every log, and unlock the directory. A forked child leaves that to its parent."""
        if os.getpid() != self._process:
            return
        for topic in self._topics.values():
            _close(topic.partitions)
        self._topics.clear()
        self._life.close()

    def _close_storage(self) -> None:
        self._is_in_use = not self._storage.close()

    def _unlock(self) -> None:
        """Unlock the directory, unless the storage still uses it: then the lock ends with the process."""
        if not self._is_in_use:
            self.directory.unlock()

    def _open(self, name: str, entry: TopicEntry, settings: TopicSettings, *, is_new: bool = False) -> Topic:
        partitions = self._open_partitions(name, range(entry.partitions), settings, is_new=is_new)
        return Topic(name, bytes.fromhex(entry.topic_id), tuple(partitions))

    def _open_partitions(
        self, name: str, indexes: Iterable[int], settings: TopicSettings, *, is_new: bool = False
    ) -> list[Partition]:
        partitions: list[Partition] = []
        try:
            for index in indexes:
                partitions.append(Partition(self._storage, name, index, settings, is_new=is_new))
        except OSError:
            _close(partitions, discard=True)
            raise
        return partitions


def _close(partitions: Iterable[Partition], *, discard: bool = False) -> None:
    """Close all partitions, even if the disk refuses to sync one of them."""
    for partition in partitions:
        try:
            partition.close(discard=discard)
        except OSError as error:
            logger.error("partition %d was closed, but could not be synced to the disk: %s", partition.index, error)
