"""The settings of the embedded broker and of its topics: their names, defaults and legal values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from spark_producer.broker.log_quoting import quoted
from spark_producer.broker.memory.plan import DEFAULT_PLAN, MemoryPlan
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, ConfigError

MIN_SEGMENT_BYTES: Final = 1024 * 1024
"""The lower bound of `segment.bytes` in a request, which is Kafka's since 4.0 (KIP-1030). Older versions take 14, which makes a
file for every batch. Python code may set less (`TopicSettings`), as tests do; Kafka has `internal.segment.bytes` for that."""

UNLIMITED: Final = -1
"""The value that sets no limit of time or size to what is retained."""

_MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,19})?")
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
"""Matches every number that 64 bits can hold. Python refuses to read numbers of thousands of digits, with an error of its own."""


DELETE, COMPACT = "delete", "compact"
"""What `cleanup.policy` may have."""


@dataclass(frozen=True)
class TopicSettings:
    """The settings of one topic, under Kafka's names (with `_` for `.`).

    max_message_bytes: the largest record batch that is accepted, header included (Kafka's default: 1 MiB + 12).
    segment_bytes: a segment file is closed, and the next one begun, before it would grow larger than this.
    segment_ms: a new segment also begins with a batch that is so much later than the first one of its segment (milliseconds, by
        the records' timestamps).
    retention_ms: a segment is deleted once its newest record is older than this; -1 for never.
    retention_bytes: the oldest segments are deleted while a partition has at least so many bytes without them; -1 for never.

    cleanup_policy: "delete", "compact", or both with a comma: whether old segments are deleted, and whether records go that a
        later one with the same key has replaced (see `broker.compaction`).
    min_cleanable_dirty_ratio: a log is compacted once this part of it, by bytes, was not compacted yet.
    min_compaction_lag_ms, max_compaction_lag_ms: a record stays for so long whatever comes after it, and a log is compacted
        whatever its ratio once its oldest record that was not compacted is older than that.
    delete_retention_ms: a compacted log keeps tombstones, and the markers of transactions without records, for so long.

    By default Kafka deletes records after seven days, and this broker keeps all of them: a table of events is often older than
    that, and would be gone minutes after it was written.
    """

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 256 * 1024 * 1024
    segment_ms: int = _MAX_LONG
    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED
    cleanup_policy: str = DELETE
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _MAX_LONG
    delete_retention_ms: int = 86_400_000

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted."""
        return DELETE in self.cleanup_policy.split(",")

    @property
    def compacts(self) -> bool:
        """Whether the log is compacted."""
        return COMPACT in self.cleanup_policy.split(",")

    @property
    def roll_ms(self) -> int:
        """`segment_ms`, or less where compaction must not wait for the end of a segment so long (LogConfig.maxSegmentMs)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms


_RANGES: Final = {
    "max_message_bytes": (0, _MAX_INT),
    "segment_bytes": (MIN_SEGMENT_BYTES, _MAX_INT),
    "segment_ms": (1, _MAX_LONG),
    "retention_ms": (UNLIMITED, _MAX_LONG),
    "retention_bytes": (UNLIMITED, _MAX_LONG),
    "min_compaction_lag_ms": (0, _MAX_LONG),
    "max_compaction_lag_ms": (1, _MAX_LONG),
    "delete_retention_ms": (0, _MAX_LONG),
}
"""The smallest and largest value to which a request may set each of them (Kafka's LogConfig)."""


_FIXED: Final = {
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}
"""Settings that clients like to send, with the one value that is true of this broker."""


STORAGE_ENGINES: Final = ("segments", "tiered")
"""The engines that can keep the records: see docs/embedded_broker.md."""

TIERED: Final = "tiered"
"""The engine that some settings are for alone."""

DEFAULT_ENGINE: Final = "segments"
"""The engine of a new data directory, unless the settings name one, or are for another one alone. It is the faster one where no
batch is forced (docs/benchmarks_broker.md)."""

MAX_PARTITIONS: Final = 10_000
"""The most partitions of one topic: each takes files and memory here, so a mistyped number must not make millions."""

INDEX_ENGINES: Final = ("arrays", "rocks")
"""The engines that can keep the index of the engine "tiered"."""

_POSITIVE: Final = (
    "retention_check_s",
    "compaction_check_s",
    "max_request_bytes",
    "max_buffered_bytes",
    "throttle_s",
    "max_connections",
    "idle_timeout",
    "stall_timeout",
    "max_partitions",
    "max_transactional_ids",
    "max_transaction_partitions",
    "max_committed_offsets",
    "transaction_max_timeout_ms",
    "transactional_id_expiration_ms",
    "transaction_scan_s",
)
"""The settings of a broker that must be positive."""


@dataclass(frozen=True)
class GroupSettings:
    """The settings of consumer groups, under Kafka's names for `group.`… (with `_` for `.`); the last one is ours.

    initial_rebalance_delay_ms: the milliseconds that the first members of an empty group wait for others. It is 0 as in the
        settings that Kafka ships for a try; where they say nothing it is 3000. A broker for development shall not let every
        consumer wait for three seconds.
    min_session_timeout_ms, max_session_timeout_ms: the bounds of the session timeout that a member may ask for. A member that
        asks for a longer rebalance timeout than the latter has so long to join again.
    max_size: the most members of a group. Kafka's default is no limit.
    max_bytes: the memory that all groups together may count for: 2 KiB for each group and each member, their names, what members
        say of themselves, and what they are assigned.
    """

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 1000
    max_bytes: int = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        if not 0 < self.min_session_timeout_ms <= self.max_session_timeout_ms:
            raise ConfigError(
                f"session timeouts of groups from {self.min_session_timeout_ms} to {self.max_session_timeout_ms} ms are none"
            )
        for name, least in (("initial_rebalance_delay_ms", 0), ("max_size", 1), ("max_bytes", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} of groups is {getattr(self, name)}; it must be at least {least}")


TRANSACTION_VERSIONS: Final = (0, 2)
"""The levels of the feature `transaction.version` that the broker can have (KIP-890); for clients level 1 is the same as 0."""


@dataclass(frozen=True)
class BrokerSettings:
    """The settings of a broker.

    storage_engine: what keeps the records, "segments" or "tiered". A data directory stays with the one that it began with. With
        None that one is taken; naming another one is an error. A new directory gets "segments" then, or "tiered" if there is a
        setting that only that engine has (`journal_dir`, `ledger_dirs`, the index engine "rocks", the size of a cache).
    journal_dir, ledger_dirs: directories outside of the data directory for the journal of the engine "tiered" and for its entry
        logs (BookKeeper's `journalDirectories` and `ledgerDirectories`), best on disks of their own. They must be empty at first,
        and are the same ones, in the same order, as long as there is the data directory. By default both are in it.
    index_engine: what keeps the index of the engine "tiered": "arrays", in memory, or "rocks", in RocksDB, which needs the extra
        `rocksdb`. It may be changed; the index is then rebuilt.
    default_partitions: the partitions of a topic that is made without saying how many.
    auto_create_topics: whether Metadata makes unknown topics, if the request allows it.
    sync_each_append: whether fdatasync is called before a Produce is answered. It is off by default, as in Kafka: an
        acknowledged batch then survives the death of the process at any moment, but not a loss of power. The engine "tiered" is
        the faster one with it, since many batches share one call.
    sync_on_close: whether a segment is put on the disk when the next one is begun, and everything before `close` returns. It is
        off for data that is thrown away at the end.
    skip_damage: whether to start although stored records are missing or damaged: what is damaged is kept aside, what is skipped
        is counted in the log, and partitions go on with what is left. It is meant for one start, after the log of a start that
        was refused was read.
    retention_check_s: the seconds between two looks for segments that may be deleted (Kafka's
        `log.retention.check.interval.ms`).
    compaction_check_s: the seconds between two looks for logs to compact (Kafka's `log.cleaner.backoff.ms`).
    max_request_bytes: the connection is dropped at a larger frame (Kafka's `socket.request.max.bytes`).
    max_buffered_bytes: the bytes of requests, answers and waiting Fetches of all connections together. Beyond it the broker
        reads and answers no more until some of them have gone. A request may take half of it. See `broker.budget`.
    publish_buffer_bytes: the bytes of Produce requests of all connections together that are handled and not answered. Beyond it
        nothing is read from connections that produce until half of it is left; -1 for no limit. See `broker.publish_buffer`.
    throttle_s: the seconds that a Produce waits at most while the storage has no room for it; then it is refused (BookKeeper's
        `dbStorage_maxThrottleTimeMs`).
    max_connections: the most connections at a time; further ones are closed at once.
    idle_timeout: the seconds after which a connection without requests is closed (Kafka's `connections.max.idle.ms`).
    stall_timeout: the seconds after which a connection is closed that neither goes on sending a request nor takes its answer.
    max_partitions: the most partitions of all topics together; each one is a directory, a file and some kilobytes of memory.
    transaction_version: the level of the feature `transaction.version`. With 0 the broker speaks transactions as 3.9 does:
        Produce up to 11, EndTxn up to 4.
    transaction_max_timeout_ms: the longest timeout that a producer may ask for (Kafka's `transaction.max.timeout.ms`).
    transactional_id_expiration_ms: an id that is not used for so long is forgotten (Kafka's
        `transactional.id.expiration.ms`).
    transaction_scan_s: the seconds between two looks for transactions whose time is up (Kafka's
        `transaction.abort.timed.out.transaction.cleanup.interval.ms`).
    max_transactional_ids: the most transactional ids that are known at a time.
    max_transaction_partitions: the most partitions that all open transactions touch together; a group counts for ten.
    max_committed_offsets: the most offsets of consumer groups, each of a partition; 100 characters of group and text count as
        one more.
    memory: the two budgets and their parts, of which the engine "tiered" takes the storage's and the tail cache. `with_memory`
        sets what else follows from it.
    groups: the settings of consumer groups.
    topic: the defaults for every topic.
    """

    storage_engine: str | None = None
    index_engine: str = "arrays"
    journal_dir: str | None = None
    ledger_dirs: tuple[str, ...] = ()
    default_partitions: int = 1
    auto_create_topics: bool = True
    sync_each_append: bool = False
    sync_on_close: bool = True
    skip_damage: bool = False
    retention_check_s: float = 300.0
    compaction_check_s: float = 15.0
    max_request_bytes: int = 100 * 1024 * 1024
    max_buffered_bytes: int = 256 * 1024 * 1024
    publish_buffer_bytes: int = 64 * 1024 * 1024
    throttle_s: float = 10.0
    max_connections: int = 1000
    idle_timeout: float = 600.0
    stall_timeout: float = 30.0
    max_partitions: int = 50_000
    transaction_version: int = 2
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_scan_s: float = 10.0
    max_transactional_ids: int = 20_000
    max_transaction_partitions: int = 100_000
    max_committed_offsets: int = 20_000
    node_id: int = 1
    memory: MemoryPlan = DEFAULT_PLAN
    groups: GroupSettings = GroupSettings()
    topic: TopicSettings = TopicSettings()

    def __post_init__(self) -> None:
        if self.storage_engine not in (None, *STORAGE_ENGINES):
            raise ConfigError(f"storage_engine is {self.storage_engine!r}; it is one of {STORAGE_ENGINES}")
        if self.index_engine not in INDEX_ENGINES:
            raise ConfigError(f"index_engine is {self.index_engine!r}; it is one of {INDEX_ENGINES}")
        self._check_directories()
        if not 1 <= self.default_partitions <= MAX_PARTITIONS:
            raise ConfigError(
                f"default_partitions is {self.default_partitions}; a topic has from 1 to {MAX_PARTITIONS:,} partitions"
            )
        if self.transaction_version not in TRANSACTION_VERSIONS:
            raise ConfigError(f"transaction_version is {self.transaction_version}; it is one of {TRANSACTION_VERSIONS}")
        if self.publish_buffer_bytes < 0 and self.publish_buffer_bytes != UNLIMITED:
            raise ConfigError(f"publish_buffer_bytes is {self.publish_buffer_bytes}; it is a number of bytes, or -1")
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be positive")

    def _check_directories(self) -> None:
        if self.storage_engine is not None:
            self.check_engine(self.storage_engine)
        outside = [*([] if self.journal_dir is None else [self.journal_dir]), *self.ledger_dirs]
        if "" in outside or len({Path(each).absolute() for each in outside}) < len(outside):
            raise ConfigError(
                f"the directories for journal and ledgers must differ; they are {', '.join(map(repr, outside))}"
            )

    @property
    def engine_of_new(self) -> str:
        """The engine of a new data directory."""
        return self.storage_engine or (TIERED if self._of_tiered_alone() else DEFAULT_ENGINE)

    def check_engine(self, engine: str) -> None:
        """Check that the storage engine `engine` can do what these settings ask of it.

        Where they name no engine, this is known only once the data directory was looked into.

        Raises:
            ConfigError: they ask for what the engine "tiered" alone has, and it is another one.
        """
        names = self._of_tiered_alone()
        if names and engine != TIERED:
            raise ConfigError(
                f"the storage engine is {engine!r}, and only {TIERED!r} has {' and '.join(names)}: leave "
                f"{'it' if len(names) == 1 else 'them'} out, or use the engine {TIERED!r} with a new data directory"
            )

    def _of_tiered_alone(self) -> list[str]:
        """Return what these settings ask for and the engine "tiered" alone has."""
        asked = {
            "journal_dir": self.journal_dir is not None,
            "ledger_dirs": bool(self.ledger_dirs),
            "index_engine 'rocks'": self.index_engine == "rocks",
        }
        return [*(name for name, is_asked in asked.items() if is_asked), *self.memory.tiers_given]


def with_memory(settings: BrokerSettings, plan: MemoryPlan) -> BrokerSettings:
    """Return settings whose limits of memory follow from `plan`: the buffers of requests and answers, and the publish buffer."""
    return replace(settings, memory=plan, max_buffered_bytes=plan.requests, publish_buffer_bytes=plan.publish_buffer)


def all_settings(settings: TopicSettings) -> dict[str, str]:
    """Return every setting of a topic as text under Kafka's name, also those that cannot be changed here."""
    return {name.replace("_", "."): str(value) for name, value in asdict(settings).items()} | _FIXED


def topic_settings(
    given: Mapping[str, str | None], defaults: TopicSettings, *, any_number: bool = False
) -> TopicSettings:
    """Return `defaults` with the settings that a CreateTopics request gives under Kafka's dotted names.

    With `any_number` the bounds are not checked. That is for stored settings: an older broker took a smaller `segment.bytes`.

    Raises:
        BrokerError: INVALID_CONFIG, for a setting that this broker does not apply, or a value that the setting cannot have.
    """
    numbers = {field.name.replace("_", "."): field.name for field in fields(TopicSettings)}
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name in numbers:
            changes[numbers[name]] = _value(name, value, None if any_number else _RANGES.get(numbers[name]))
        elif _FIXED.get(name) != value or value is None:
            known = ", ".join([*numbers, *(f"{key}={fixed}" for key, fixed in _FIXED.items())])
            raise BrokerError(
                f"topic setting {quoted(name)}={quoted(value)} is not supported by the embedded broker, which knows: {known}",
                code=Code.INVALID_CONFIG,
            )
    return replace(defaults, **changes)


def _value(name: str, value: str | None, bounds: tuple[int, int] | None) -> int | float | str:
    """Return the value that the text means, for a setting under Kafka's dotted name."""
    if name == "cleanup.policy":
        return _policy(value)
    return _ratio(name, value) if name == "min.cleanable.dirty.ratio" else _number(name, value, bounds)


def _policy(value: str | None) -> str:
    named = [each.strip() for each in (value or "").split(",")]
    if len(set(named)) < len(named) or not set(named) <= {DELETE, COMPACT}:
        raise BrokerError(
            f"topic setting cleanup.policy has the bad value {quoted(value)}; it takes {DELETE}, {COMPACT}, or both with a comma",
            code=Code.INVALID_CONFIG,
        )
    return ",".join(named)


def _ratio(name: str, value: str | None) -> float:
    if value is None or not _DECIMAL.fullmatch(value) or float(value) > 1:
        raise BrokerError(
            f"topic setting {name} has the bad value {quoted(value)}; it takes a number from 0 to 1",
            code=Code.INVALID_CONFIG,
        )
    return float(value)


def _number(name: str, value: str | None, bounds: tuple[int, int] | None) -> int:
    smallest, largest = bounds or (-_MAX_LONG, _MAX_LONG)
    if value is None or not _WHOLE_NUMBER.fullmatch(value) or not smallest <= int(value) <= largest:
        raise BrokerError(
            f"topic setting {name} has the bad value {quoted(value)}; it takes a whole number from {smallest} to {largest}",
            code=Code.INVALID_CONFIG,
        )
    return int(value)
