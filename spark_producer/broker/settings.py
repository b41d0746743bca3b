"""The settings of the embedded broker and of its topics: names, defaults and legal values."""

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
"""Minimum of `segment.bytes` in a request, in bytes, which is Kafka's since 4.0 (KIP-1030). Older versions take 14, which makes a
file for every batch. Python code may set less (`TopicSettings`), as tests do; Kafka has `internal.segment.bytes` for that."""

UNLIMITED: Final = -1
"""The value for retention without a limit of time or size."""

_MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,19})?")
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
"""Matches every number of 64 bits. Python refuses to parse numbers of thousands of digits, with an error of its own."""


DELETE, COMPACT = "delete", "compact"
"""The values of `cleanup.policy`."""


@dataclass(frozen=True)
class TopicSettings:
    """The settings of one topic, under Kafka's names (with `_` for `.`).

    max_message_bytes: maximum size of a record batch in bytes, including its header (Kafka's default: 1 MiB + 12).
    segment_bytes: maximum size of a segment file in bytes: the next segment begins before a file would exceed it.
    segment_ms: a new segment also begins with a batch whose timestamp is this many milliseconds after the first one of its
        segment.
    retention_ms: a segment is deleted once its newest record is older than this; -1 for never.
    retention_bytes: the oldest segments are deleted while a partition has at least this many bytes without them; -1 for never.

    cleanup_policy: "delete", "compact", or both with a comma: whether old segments are deleted, and whether records are removed
        that a later one with the same key has replaced (`broker.log.compaction`).
    min_cleanable_dirty_ratio: a log is compacted once this fraction of it, by bytes, is not compacted yet.
    min_compaction_lag_ms, max_compaction_lag_ms: a record stays for the former time even if it is replaced, and a log is
        compacted whatever its ratio once its oldest record that is not compacted is older than the latter.
    delete_retention_ms: the time for which a compacted log keeps tombstones, and the markers of transactions without records.

    By default Kafka deletes records after seven days, and this broker keeps all of them: the events of a table are often older
    than that, and would be deleted minutes after they were written.
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
        """`segment_ms`, or less where compaction must not wait that long for the end of a segment (LogConfig.maxSegmentMs)."""
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
"""The minimum and maximum of each setting in a request (Kafka's LogConfig)."""


_FIXED: Final = {
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}
"""Settings that clients often send, with the one value that this broker has."""


STORAGE_ENGINES: Final = ("segments", "tiered")
"""The storage engines: see docs/embedded_broker.md."""

TIERED: Final = "tiered"
"""The storage engine that some settings require."""

DEFAULT_ENGINE: Final = "segments"
"""The engine of a new data directory, unless the settings name or require another one. It is the faster one without fdatasync for
each batch (docs/benchmarks_broker.md)."""

MAX_PARTITIONS: Final = 10_000
"""Maximum number of partitions of one topic: each takes files and memory, so a mistyped number must not create millions."""

INDEX_ENGINES: Final = ("arrays", "rocks")
"""The index engines of the storage engine "tiered"."""

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
    """The settings of consumer groups, under Kafka's names for `group.`… (with `_` for `.`); the last one is pyproducer's.

    initial_rebalance_delay_ms: the milliseconds that the first members of an empty group wait for others. It is 0, as in the
        settings file that Kafka ships, so that no consumer waits for three seconds in development; Kafka's built-in default is
        3000.
    min_session_timeout_ms, max_session_timeout_ms: the bounds of a member's session timeout. The latter also limits the rebalance
        timeout.
    max_size: maximum number of members of a group. Kafka's default is no limit.
    max_bytes: maximum memory in bytes that all groups together may count for: 2 KiB for each group and each member, their names,
        the metadata of members, and their assignments.
    """

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 1000
    max_bytes: int = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        if not 0 < self.min_session_timeout_ms <= self.max_session_timeout_ms:
            raise ConfigError(
                f"session timeouts of groups are {self.min_session_timeout_ms} to {self.max_session_timeout_ms} ms: "
                "the minimum must be positive, and at most the maximum"
            )
        for name, least in (("initial_rebalance_delay_ms", 0), ("max_size", 1), ("max_bytes", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} of groups is {getattr(self, name)}: it must be at least {least}")


TRANSACTION_VERSIONS: Final = (0, 2)
"""The levels of the feature `transaction.version` that the broker can have (KIP-890); for clients level 1 equals 0."""


@dataclass(frozen=True)
class BrokerSettings:
    """The settings of a broker.

    storage_engine: the engine that keeps the records, "segments" or "tiered". A data directory keeps the engine that it was
        created with: None selects that engine, and any other name is an error. For a new directory, None means "segments", or
        "tiered" if a setting requires it (`journal_dir`, `ledger_dirs`, the index engine "rocks", the size of a cache).
    journal_dir, ledger_dirs: directories outside of the data directory for the journal and the entry logs of the engine "tiered"
        (BookKeeper's `journalDirectories` and `ledgerDirectories`), best on disks of their own. They must be empty at first, and
        stay the same, in the same order, for the life of the data directory. By default both are in it.
    index_engine: the engine of the index of "tiered": "arrays", in memory, or "rocks", in RocksDB, which needs the extra
        `rocksdb`. It can be changed; the index is then rebuilt.
    default_partitions: the number of partitions of a topic that is created without one.
    auto_create_topics: whether Metadata creates unknown topics, if the request allows it.
    sync_each_append: whether fdatasync is called before the response to a Produce. It is off by default, as in Kafka: an
        acknowledged batch then survives the death of the process at any moment, but not a power failure. With it, the engine
        "tiered" is the faster one, since many batches share one call.
    sync_on_close: whether a segment is synced to the disk when the next one begins, and everything before `close` returns. It is
        off for temporary data.
    skip_damage: whether to start although stored records are missing or damaged: damaged files are kept aside, skipped records
        are counted in the log, and partitions go on with the rest. Meant for one start, after the log of a refused start was
        read.
    retention_check_s: interval of the retention check in seconds (Kafka's `log.retention.check.interval.ms`).
    compaction_check_s: interval of the compaction check in seconds (Kafka's `log.cleaner.backoff.ms`).
    max_request_bytes: maximum size of a request in bytes; a larger one drops the connection (Kafka's `socket.request.max.bytes`).
    max_buffered_bytes: maximum bytes of requests, responses and delayed Fetches of all connections together. Beyond it the broker
        stops reading and responding until some are done. A request may take half of it. See `broker.memory.budget`.
    publish_buffer_bytes: maximum bytes of Produce requests of all connections together that are handled and have no response yet.
        Beyond it no producer is read from until half of it is left; -1 for no limit. See `broker.connections.publish_buffer`.
    throttle_s: maximum wait of a Produce for space in the storage, in seconds; then it is refused (BookKeeper's
        `dbStorage_maxThrottleTimeMs`).
    max_connections: maximum number of connections; further ones are closed at once.
    idle_timeout: the seconds after which a connection without requests is closed (Kafka's `connections.max.idle.ms`).
    stall_timeout: the seconds after which a connection is closed that neither completes its request nor takes its response.
    max_partitions: maximum number of partitions of all topics together; each is a directory, a file and some kilobytes of memory.
    transaction_version: the level of the feature `transaction.version`. At 0 the broker speaks transactions as Kafka 3.9 does:
        Produce up to 11, EndTxn up to 4.
    transaction_max_timeout_ms: maximum transaction timeout of a producer (Kafka's `transaction.max.timeout.ms`).
    transactional_id_expiration_ms: the time after which an unused id is forgotten (Kafka's `transactional.id.expiration.ms`).
    transaction_scan_s: interval of the check for timed-out transactions in seconds (Kafka's
        `transaction.abort.timed.out.transaction.cleanup.interval.ms`).
    max_transactional_ids: maximum number of transactional ids.
    max_transaction_partitions: maximum number of partitions of all open transactions together; a group counts for ten.
    max_committed_offsets: maximum number of offsets of consumer groups, each of a partition; 100 characters of group and metadata
        count as one more.
    memory: the two memory budgets and their parts; the storage's budget and the tail cache are for the engine "tiered".
        `with_memory` also sets the limits that follow from them.
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
            raise ConfigError(f"storage_engine is {self.storage_engine!r}: it must be one of {STORAGE_ENGINES}")
        if self.index_engine not in INDEX_ENGINES:
            raise ConfigError(f"index_engine is {self.index_engine!r}: it must be one of {INDEX_ENGINES}")
        self._check_directories()
        if not 1 <= self.default_partitions <= MAX_PARTITIONS:
            raise ConfigError(
                f"default_partitions is {self.default_partitions}: it must be from 1 to {MAX_PARTITIONS:,}"
            )
        if self.transaction_version not in TRANSACTION_VERSIONS:
            raise ConfigError(
                f"transaction_version is {self.transaction_version}: it must be one of {TRANSACTION_VERSIONS}"
            )
        if self.publish_buffer_bytes < 0 and self.publish_buffer_bytes != UNLIMITED:
            raise ConfigError(
                f"publish_buffer_bytes is {self.publish_buffer_bytes}: it must be a number of bytes, or -1 for no limit"
            )
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be positive")

    def _check_directories(self) -> None:
        if self.storage_engine is not None:
            self.check_engine(self.storage_engine)
        outside = [*([] if self.journal_dir is None else [self.journal_dir]), *self.ledger_dirs]
        if "" in outside or len({Path(each).absolute() for each in outside}) < len(outside):
            raise ConfigError(
                f"the directories for journal and ledgers must differ, and are {', '.join(map(repr, outside))}"
            )

    @property
    def engine_of_new(self) -> str:
        """The engine of a new data directory."""
        return self.storage_engine or (TIERED if self._of_tiered_alone() else DEFAULT_ENGINE)

    def check_engine(self, engine: str) -> None:
        """Check that a storage engine supports these settings.

        Where the settings name no engine, it is known only once the data directory has been read.

        Raises:
            ConfigError: a setting requires the engine "tiered", and `engine` is another one.
        """
        names = self._of_tiered_alone()
        if names and engine != TIERED:
            raise ConfigError(
                f"the storage engine is {engine!r}, and only {TIERED!r} has {' and '.join(names)}. Leave "
                f"{'it' if len(names) == 1 else 'them'} out, or use the engine {TIERED!r} with a new data directory"
            )

    def _of_tiered_alone(self) -> list[str]:
        """Return the names of the given settings that only the engine "tiered" has."""
        given = {
            "journal_dir": self.journal_dir is not None,
            "ledger_dirs": bool(self.ledger_dirs),
            "index_engine 'rocks'": self.index_engine == "rocks",
        }
        return [*(name for name, is_given in given.items() if is_given), *self.memory.tiers_given]


def with_memory(settings: BrokerSettings, plan: MemoryPlan) -> BrokerSettings:
    """Return the settings with the limits that follow from `plan`: the buffers of requests and responses, and the publish
    buffer."""
    return replace(settings, memory=plan, max_buffered_bytes=plan.requests, publish_buffer_bytes=plan.publish_buffer)


def all_settings(settings: TopicSettings) -> dict[str, str]:
    """Return all settings of a topic as text under Kafka's names, including those that cannot be changed here."""
    return {name.replace("_", "."): str(value) for name, value in asdict(settings).items()} | _FIXED


def topic_settings(
    given: Mapping[str, str | None], defaults: TopicSettings, *, any_number: bool = False
) -> TopicSettings:
    """Return `defaults` with the settings of a request, which have Kafka's dotted names.

    With `any_number` the bounds are not checked. That is for stored settings: an older broker allowed a smaller `segment.bytes`.

    Raises:
        BrokerError: INVALID_CONFIG, for an unsupported setting or an illegal value.
    """
    numbers = {field.name.replace("_", "."): field.name for field in fields(TopicSettings)}
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name in numbers:
            changes[numbers[name]] = _value(name, value, None if any_number else _RANGES.get(numbers[name]))
        elif _FIXED.get(name) != value or value is None:
            known = ", ".join([*numbers, *(f"{key}={fixed}" for key, fixed in _FIXED.items())])
            raise BrokerError(
                f"topic setting {quoted(name)}={quoted(value)} is not supported by the embedded broker: it supports {known}",
                code=Code.INVALID_CONFIG,
            )
    return replace(defaults, **changes)


def _value(name: str, value: str | None, bounds: tuple[int, int] | None) -> int | float | str:
    """Return the value of a setting, which has Kafka's dotted name."""
    if name == "cleanup.policy":
        return _policy(value)
    return _ratio(name, value) if name == "min.cleanable.dirty.ratio" else _number(name, value, bounds)


def _policy(value: str | None) -> str:
    named = [each.strip() for each in (value or "").split(",")]
    if len(set(named)) < len(named) or not set(named) <= {DELETE, COMPACT}:
        raise BrokerError(
            f"topic setting cleanup.policy has the invalid value {quoted(value)}. Use {DELETE}, {COMPACT}, or both with a comma",
            code=Code.INVALID_CONFIG,
        )
    return ",".join(named)


def _ratio(name: str, value: str | None) -> float:
    if value is None or not _DECIMAL.fullmatch(value) or float(value) > 1:
        raise BrokerError(
            f"topic setting {name} has the invalid value {quoted(value)}. Use a number from 0 to 1",
            code=Code.INVALID_CONFIG,
        )
    return float(value)


def _number(name: str, value: str | None, bounds: tuple[int, int] | None) -> int:
    smallest, largest = bounds or (-_MAX_LONG, _MAX_LONG)
    if value is None or not _WHOLE_NUMBER.fullmatch(value) or not smallest <= int(value) <= largest:
        raise BrokerError(
            f"topic setting {name} has the invalid value {quoted(value)}. Use a whole number from {smallest} to {largest}",
            code=Code.INVALID_CONFIG,
        )
    return int(value)
