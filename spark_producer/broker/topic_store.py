"""The broker's topics and their partitions, which are kept across restarts, and its producer ids, which must not repeat."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from spark_producer.broker.counters import MetricReading
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.log_quoting import first_few, quoted
from spark_producer.broker.settings import MAX_PARTITIONS, BrokerSettings, TopicSettings, topic_settings
from spark_producer.broker.storage.directory_lock import DirectoryLock
from spark_producer.broker.storage.disk import folds_case, make_private_directory, storage_errors
from spark_producer.broker.storage.engines import OpenStorage, open_storage
from spark_producer.broker.storage.state_file import BrokerState, StateFile, TopicEntry
from spark_producer.broker.topic_names import MAX_NAME_LENGTH, check_name, metric_name
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, CorruptRecord

logger = escaping_logger(__name__)

COORDINATOR_LOG: Final = "coordinator.log"
"""The name of the coordinator's file in the data directory."""

_PRODUCER_ID_BLOCK: Final = 1000
"""Producer ids are reserved on the disk in blocks of this size, as in Kafka; a crash skips the rest of a block."""


@dataclass(frozen=True)
class Topic:
    """A topic that exists, with its `partitions` in the order of their indexes."""

    name: str
    topic_id: bytes
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class NewTopic:
    """A topic to create, with its `configs` under Kafka's dotted names."""

    name: str
    partitions: int
    configs: Mapping[str, str | None] = field(default_factory=dict)


class TopicStore:
    """All topics in a data directory. One thread at a time may use it."""

    def __init__(self, data_dir: Path, settings: BrokerSettings, open_storage: OpenStorage = open_storage) -> None:
        """Lock the directory and open every log in it, with the engine that `open_storage` starts.

        Raises:
            ConfigError: another broker uses the directory.
            CorruptRecord: the state file cannot be read, or is missing although there are records.
        """
        self._data_dir = data_dir = data_dir.absolute()  # the process may change its working directory
        self._settings = settings
        make_private_directory(data_dir)
        self._life = contextlib.ExitStack()
        self._lock = DirectoryLock(data_dir)
        self._life.callback(self._unlock)
        self._is_in_use = False
        self._process = os.getpid()
        self._file = StateFile(data_dir)
        self._topics: dict[str, Topic] = {}
        self._with_cursor: set[tuple[str, int]] = set()
        try:
            self._folds_case = folds_case(self._lock.path)
            self._storage = open_storage(data_dir, settings)
            self._life.callback(self._close_storage)
            self._state = self._load_state()
            self._storage.recover({name: entry.partitions for name, entry in self._state.topics.items()})
            for name, entry in self._state.topics.items():
                check_name(name)  # it names a directory
                stored = topic_settings(entry.configs, settings.topic, any_number=True)
                self._topics[name] = self._open(name, entry, stored)
        except BaseException:
            self.close()
            raise
        self._by_id = {topic.topic_id: topic for topic in self._topics.values()}
        self._by_metric_name = {metric_name(name): name for name in self._topics}
        self._partitions = sum(len(topic.partitions) for topic in self._topics.values())
        self._next_producer_id = self._state.next_producer_id

    def _load_state(self) -> BrokerState:
        """Return the stored state, or store a new one; raise CorruptRecord if there are records but no state."""
        is_new = not self._file.exists()
        state = replace(self._file.load(), engine=self._storage.name)
        if is_new:
            kept = (("records", self._storage.orphaned({})), ("partitions", self._storage.partitions()))
            traces = [f"{what} ({first_few(names)})" for what, names in kept if names]
            traces += [COORDINATOR_LOG] if (self._data_dir / COORDINATOR_LOG).exists() else []
            if traces:
                raise CorruptRecord(
                    f"{self._data_dir} has {traces[0]}, but its broker.json is missing, which has the topics and producer "
                    "ids. Restore that file from a backup, or use another data directory"
                )
            self._file.store(state)  # a file that exists is not written again: a full disk can still be read
        return state

    @property
    def coordinator_bytes(self) -> int:
        """How many bytes the coordinator's log had at least, 0 if there was none."""
        return self._state.coordinator_bytes

    def check_moved(self) -> None:
        """Check that the data directory is where it was.

        Raises:
            OSError: it was renamed or removed.
        """
        self._lock.check()

    def note_coordinator(self, size: int) -> None:
        """Note on the disk that the coordinator's log has so many bytes at least.

        Raises:
            OSError: the disk refused.
        """
        if size != self._state.coordinator_bytes:
            self._replace(replace(self._state, coordinator_bytes=size))

    def watch(self, confirmed: Callable[[str, int], None], room: Callable[[], None]) -> None:
        """Have the two functions called, from any thread, as `Storage.watch` says."""
        self._storage.watch(confirmed, room)

    def has_room(self, size: int) -> bool:
        """Return whether the storage has room for a request of `size` bytes now."""
        return self._storage.has_space(size)

    def cursor_changed(self, topic: str, partition: int, exists: bool) -> None:
        """Tell the storage whether any consumer group has a cursor in a partition. It is told again of a topic made anew."""
        if exists:
            self._with_cursor.add((topic, partition))
        else:
            self._with_cursor.discard((topic, partition))
        self._storage.cursor_changed(topic, partition, exists)

    def has_partition(self, name: str, index: int) -> bool:
        """Return whether there is such a partition."""
        topic = self._topics.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    @property
    def engine(self) -> str:
        """The name of the engine that keeps the records."""
        return self._storage.name

    def readings(self) -> Iterable[MetricReading]:
        """Return what the storage counts. Any thread may call this."""
        return self._storage.readings()

    @property
    def data_dir(self) -> Path:
        """The directory, which is locked until `close`."""
        return self._data_dir

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which is made once for each data directory."""
        return self._state.cluster_id

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._topics.values()))

    def get(self, name: str) -> Topic | None:
        """Return the topic of this name, or None."""
        return self._topics.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id (16 bytes), or None."""
        return self._by_id.get(topic_id)

    def partition(self, name: str, index: int) -> Partition:
        """Return the partition of this topic and index.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION if the name is too long for a topic.
        """
        if not self.has_partition(name, index):
            code = Code.INVALID_TOPIC_EXCEPTION if len(name) > MAX_NAME_LENGTH else Code.UNKNOWN_TOPIC_OR_PARTITION
            raise BrokerError(f"there is no partition {index} of topic {quoted(name)}", code=code)
        return self._topics[name].partitions[index]

    def check(self, new: NewTopic) -> TopicSettings:
        """Check whether the topic may be created, and return the settings that it would get.

        Raises:
            BrokerError: what `create` would raise.
        """
        check_name(new.name)
        if new.name in self._topics:
            raise BrokerError(f"topic {new.name!r} already exists", code=Code.TOPIC_ALREADY_EXISTS)
        # This is Kafka's rule: both topics would have the same metric names.
        twin = self._by_metric_name.get(metric_name(new.name))
        if twin is not None:
            raise BrokerError(
                f"topic {new.name!r} collides with existing topic {twin!r}", code=Code.INVALID_TOPIC_EXCEPTION
            )
        if self._folds_case:
            self._check_case(new.name)
        if not 1 <= new.partitions <= MAX_PARTITIONS:
            raise BrokerError(
                f"{new.partitions} partitions; 1 to {MAX_PARTITIONS} are possible", code=Code.INVALID_PARTITIONS
            )
        self._check_room(new.partitions)
        return self.check_configs(new.configs)

    def check_more(self, name: str, count: int) -> int:
        """Check whether a topic may get more partitions, up to `count`; return how many it has.

        Raises:
            BrokerError: what `add_partitions` would raise.
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
            raise BrokerError(f"{count} partitions; 1 to {MAX_PARTITIONS} are possible", code=Code.INVALID_PARTITIONS)
        self._check_room(count - now)
        return now

    def _check_room(self, more: int) -> None:
        if self._partitions + more > self._settings.max_partitions:
            raise BrokerError(
                f"{more} partitions besides the {self._partitions} that are there: the embedded broker has "
                f"room for {self._settings.max_partitions} (BrokerSettings.max_partitions)",
                code=Code.POLICY_VIOLATION,
            )

    def check_configs(self, configs: Mapping[str, str | None]) -> TopicSettings:
        """Check settings that somebody wants for a topic, and return them, with the broker's defaults for all others.

        Raises:
            BrokerError: INVALID_CONFIG.
        """
        settings = topic_settings(configs, self._settings.topic)
        if "max.message.bytes" in configs:  # the default was looked at when the broker was started
            self._storage.check_largest_batch(settings.max_message_bytes)
        return settings

    def _check_case(self, name: str) -> None:
        twin = next((other for other in self._topics if other.lower() == name.lower()), None)
        if twin is not None:
            raise BrokerError(
                f"topic {name!r} differs from {twin!r} in case alone, and the file system of {self._data_dir} takes these names "
                "for the same one: use another name, or a data directory elsewhere",
                code=Code.INVALID_TOPIC_EXCEPTION,
            )

    def create(self, name: str, partitions: int, configs: Mapping[str, str | None] | None = None) -> Topic:
        """Make a topic. Once this has returned, the topic survives a crash.

        Raises:
            BrokerError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG,
                POLICY_VIOLATION, KAFKA_STORAGE_ERROR.
        """
        (made,) = self.create_all([NewTopic(name, partitions, configs or {})])
        if isinstance(made, BrokerError):
            raise made
        return made

    def create_all(self, wanted: Iterable[NewTopic]) -> list[Topic | BrokerError]:
        """Make topics; return for each the topic, or the error that prevented it.

        The state file is written only once, because it holds all topics and the write waits for the disk.
        """
        results: list[Topic | BrokerError] = []
        entries: dict[str, TopicEntry] = {}
        for new in wanted:
            try:
                settings = self.check(new)
                entry = TopicEntry(uuid.uuid4().hex, new.partitions, dict(new.configs))
                results.append(self._make(new.name, entry, settings))
                entries[new.name] = entry
            except BrokerError as error:
                results.append(error)
        try:
            if entries:
                with storage_errors(self._data_dir):
                    self._store({**self._state.topics, **entries}, self._state.next_producer_id)
        except BrokerError as error:
            for name in entries:
                _close(self._forget(name).partitions, discard=True)
            return [error if isinstance(made, Topic) else made for made in results]
        return results

    def _make(self, name: str, entry: TopicEntry, settings: TopicSettings) -> Topic:
        """Open a new topic, which the state file does not know yet."""
        with storage_errors(self._data_dir):
            topic = self._open(name, entry, settings, is_new=True)
        self._topics[name] = self._by_id[topic.topic_id] = topic
        self._by_metric_name[metric_name(name)] = name
        self._partitions += len(topic.partitions)
        self._report_cursors(name, range(len(topic.partitions)))
        return topic

    def add_partitions(self, name: str, count: int) -> Topic:
        """Give a topic more partitions, so that it has `count` of them. Once this has returned, they survive a crash.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, POLICY_VIOLATION, KAFKA_STORAGE_ERROR.
        """
        now = self.check_more(name, count)
        topic, entry = self._topics[name], self._state.topics[name]
        settings = topic_settings(entry.configs, self._settings.topic, any_number=True)
        fresh: list[Partition] = []
        try:
            with storage_errors(self._data_dir):
                fresh += self._opened(name, range(now, count), settings, is_new=True)
                larger = {**self._state.topics, name: replace(entry, partitions=count)}
                self._store(larger, self._state.next_producer_id)
        except BrokerError:
            _close(fresh, discard=True)  # what they left belongs to no topic
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

    def _forget(self, name: str) -> Topic:
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
        """Delete topics, whose `names` must differ; return for each the topic, or the error that prevented it.

        The state file is written only once.
        """
        results: list[Topic | BrokerError] = [
            self._topics.get(name)
            or BrokerError(f"there is no topic {quoted(name)}", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
            for name in names
        ]
        doomed = {topic.name: topic for topic in results if isinstance(topic, Topic)}
        if not doomed:
            return results
        kept = {name: entry for name, entry in self._state.topics.items() if name not in doomed}
        try:
            with storage_errors(self._data_dir):
                self._store(kept, self._state.next_producer_id)
        except BrokerError as error:
            return [error if isinstance(topic, Topic) else topic for topic in results]
        refusal = self._bury(doomed.values())
        return [refusal or topic if isinstance(topic, Topic) else topic for topic in results]

    def _bury(self, topics: Collection[Topic]) -> BrokerError | None:
        """Remove the records of topics that the state file no longer knows; return what the disk had against it, if anything."""
        for topic in topics:
            _close(self._forget(topic.name).partitions, discard=True)
        partitions = [(topic.name, partition.index) for topic in topics for partition in topic.partitions]
        try:
            with storage_errors(self._data_dir):
                self._storage.delete(partitions)
        except BrokerError as error:
            return error
        return None

    def settings_of(self, name: str) -> tuple[TopicSettings, Mapping[str, str | None]]:
        """Return all settings of an existing topic, and those of them that were given for it.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        entry = self._state.topics.get(name)
        if entry is None:
            raise BrokerError(f"there is no topic {quoted(name)}", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_settings(entry.configs, self._settings.topic, any_number=True), dict(entry.configs)

    def alter_all(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Give existing topics new settings, whose values were checked before. The state file is written only once.

        Args:
            changes: topic → all settings that are given for it from now on.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; nothing has changed then.
        """
        topics = self._state.topics
        altered = {name: replace(topics[name], configs=dict(configs)) for name, configs in changes.items()}
        with storage_errors(self._data_dir):
            self._store({**topics, **altered}, self._state.next_producer_id)
        for name, entry in altered.items():
            settings = topic_settings(entry.configs, self._settings.topic, any_number=True)
            for partition in self._topics[name].partitions:
                partition.settings = settings

    def partitions(self) -> Iterator[tuple[str, Partition]]:
        """Yield all partitions, with the names of their topics."""
        return ((topic.name, partition) for topic in self for partition in topic.partitions)

    def delete_old(self, now_ms: int) -> None:
        """Delete the records that the topics' settings do not retain at the time `now_ms` (milliseconds since 1970).

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

    def new_producer_id(self) -> int:
        """Return a producer id that was never given out before, neither in this life of the broker nor in an earlier one.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        if self._next_producer_id >= self._state.next_producer_id:
            with storage_errors(self._data_dir):
                self._store(self._state.topics, self._next_producer_id + _PRODUCER_ID_BLOCK)
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def close(self) -> None:
        """Flush and close every log, and unlock the directory. A forked child leaves all of it to its parent."""
        if os.getpid() != self._process:
            return
        for topic in self._topics.values():
            _close(topic.partitions)
        self._topics.clear()
        self._life.close()

    def _close_storage(self) -> None:
        self._is_in_use = not self._storage.close()

    def _unlock(self) -> None:
        """Unlock the directory, unless the storage is not done with it: then the lock ends with the process."""
        if not self._is_in_use:
            self._lock.close()

    def _store(self, topics: dict[str, TopicEntry], next_producer_id: int) -> None:
        self._replace(replace(self._state, topics=topics, next_producer_id=next_producer_id))

    def _replace(self, state: BrokerState) -> None:
        self.check_moved()
        self._file.store(state)
        self._state = state

    def _open(self, name: str, entry: TopicEntry, settings: TopicSettings, *, is_new: bool = False) -> Topic:
        partitions = self._opened(name, range(entry.partitions), settings, is_new=is_new)
        return Topic(name, bytes.fromhex(entry.topic_id), tuple(partitions))

    def _opened(
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
            logger.error("partition %d was closed, but not all of it is on the disk: %s", partition.index, error)
