"""The memory plan: how two budgets, the broker's and the storage's, are divided among the buffers and caches of batches.

The shares are those of Pulsar's broker and BookKeeper's bookie, each of which divides the direct memory of a JVM: of the
broker's, a half for batches without a response yet and a fifth for the tail cache; of the storage's, a quarter for the write
cache, a quarter for the read cache, a tenth for the index and a twentieth for the journal's queue. The rest of the broker's is
for other requests and for responses.

A plan that does not fit is refused with the numbers before anything is served, as the bookie does (DbLedgerStorage.initialize).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_producer.broker.memory.sizes import MIB, in_mib, parse_size
from spark_producer.errors import ConfigError

NO_LIMIT: Final = -1
"""Size of the publish buffer for no limit (maxMessagePublishBufferSizeInMB=-1)."""

FLOOR: Final = 64 * MIB
"""Minimum size in bytes of the publish buffer and of the tail cache, where the budget is `FLOOR_FROM` or more (Pulsar's
ServiceConfiguration)."""

FLOOR_FROM: Final = 192 * MIB
"""The broker's budget in bytes from which on `FLOOR` holds. A smaller one would have nothing left: two floors alone are 128
MiB."""

DEFAULT_BUDGET: Final = 64 * MIB
"""The default of each budget in bytes."""

MAX_BATCH_BYTES: Final = 1_048_588
"""Maximum size of a batch in bytes by default (max.message.bytes)."""

PER_HEAP: Final = 2
"""Recommended ratio of the broker's budget to its heap (Pulsar's advice for heap and direct memory)."""


class Share(NamedTuple):
    """One part of a budget.

    name: the name of the setting.
    field: the field of `MemoryPlan`.
    counterpart: the setting of Pulsar or BookKeeper.
    unit: the bytes of one unit of that setting.
    of: the budget that it is a part of, "broker" or "storage".
    formula: the default in words.
    share: returns the default in bytes, given that budget.
    text: the buffer or cache that it limits.
    """

    name: str
    field: str
    counterpart: str
    unit: int
    of: str
    formula: str
    share: Callable[[int], int]
    text: str

    @property
    def is_tier(self) -> bool:
        """Whether only a tiered engine has it."""
        return self.field != "publish_buffer"


def _floored(part: Callable[[int], int]) -> Callable[[int], int]:
    return lambda budget: max(part(budget), FLOOR) if budget >= FLOOR_FROM else part(budget)


SHARES: Final = (
    Share(
        "broker.publish.buffer.bytes", "publish_buffer", "maxMessagePublishBufferSizeInMB", MIB, "broker",
        "1/2, at least 64 MiB from 192 MiB on", _floored(lambda budget: budget // 2),
        "received batches without a response yet; -1 for no limit",
    ),
    Share(
        "broker.tail.cache.bytes", "tail_cache", "managedLedgerCacheSizeMB", MIB, "broker",
        "1/5, at least 64 MiB from 192 MiB on", _floored(lambda budget: budget // 5),
        "batches that were just written, for readers near the end",
    ),
    Share(
        "storage.write.cache.bytes", "write_cache", "dbStorage_writeCacheMaxSizeMb", MIB, "storage",
        "1/4", lambda budget: budget // 4, "batches that are not flushed yet, in two halves",
    ),
    Share(
        "storage.read.cache.bytes", "read_cache", "dbStorage_readAheadCacheMaxSizeMb", MIB, "storage",
        "1/4", lambda budget: budget // 4, "batches read ahead, for readers far from the end",
    ),
    Share(
        "storage.index.cache.bytes", "index_cache", "dbStorage_rocksDB_blockCacheSize", 1, "storage",
        "1/10", lambda budget: budget // 10,
        "the part of RocksDB's index that stays in memory; the index in arrays is not bounded: it takes 44 bytes a batch",
    ),
    Share(
        "journal.max.memory.bytes", "journal_memory", "journalMaxMemorySizeMb", MIB, "storage",
        "1/20", lambda budget: budget // 20, "batches that wait for the journal",
    ),
)  # fmt: skip
"""All parts of both budgets. Each can be set under its own name, in bytes, or under its counterpart's, in the unit of that."""


@dataclass(frozen=True)
class MemoryPlan:
    """The size of each part in bytes. The storage's parts are for all ledger directories together.

    broker_budget, storage_budget: the two budgets.
    publish_buffer: -1 for no limit.
    given: the names of the parts that the user has set.
    """

    broker_budget: int
    storage_budget: int
    publish_buffer: int
    tail_cache: int
    write_cache: int
    read_cache: int
    index_cache: int
    journal_memory: int
    given: frozenset[str] = frozenset()

    @property
    def tiers_given(self) -> list[str]:
        """The names of the parts that the user has set and that only a tiered engine has."""
        return [each.name for each in SHARES if each.name in self.given and each.is_tier]

    @property
    def half(self) -> int:
        """The bytes of one half of the write cache, which is the maximum size of a batch."""
        return self.write_cache // 2

    @property
    def requests(self) -> int:
        """The part of the broker's budget, in bytes, for requests and responses in transit, including the publish buffer."""
        return self.broker_budget - self.tail_cache

    @property
    def budgets(self) -> int:
        """The bytes of both budgets together."""
        return self.broker_budget + self.storage_budget


def plan_memory(
    both: int | None = None,
    given: Mapping[str, str] | None = None,
    *,
    broker: int = DEFAULT_BUDGET,
    storage: int = DEFAULT_BUDGET,
    max_message_bytes: int = MAX_BATCH_BYTES,
) -> MemoryPlan:
    """Return the plan for these budgets.

    Args:
        both: the bytes of both budgets together, half for each; instead of `broker` and `storage`.
        given: the parts that the user has set, as text under either name.
        broker, storage: the bytes of each budget.
        max_message_bytes: the topics' default of max.message.bytes, which bounds a batch. A broker with another default calls
            `check_largest_batch` at its start, and for a topic that is given its own, if its engine has a write cache.

    Raises:
        ConfigError: a name or a size is wrong, or the parts do not fit.
    """
    if both is not None:
        broker, storage = both - both // 2, both // 2
    budgets = {"broker": broker, "storage": storage}
    sizes = _sizes(given or {})
    parts = {part.field: part.share(budgets[part.of]) for part in SHARES} | sizes
    plan = MemoryPlan(broker, storage, **parts, given=frozenset(part.name for part in SHARES if part.field in sizes))
    _check(plan, max_message_bytes)
    return plan


def _sizes(given: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, text in given.items():
        part = next((each for each in SHARES if name in (each.name, each.counterpart)), None)
        if part is None:
            known = ", ".join(f"{each.name} ({each.counterpart})" for each in SHARES)
            raise ConfigError(f"unknown setting {name} of the memory plan. Use one of {known}")
        if part.field in found:
            raise ConfigError(f"{part.name} and {part.counterpart} are the same setting. Give one of them")
        is_off = part.field == "publish_buffer" and text.strip() == str(NO_LIMIT)
        unit = 1 if name == part.name else part.unit
        found[part.field] = NO_LIMIT if is_off else parse_size(name, text, unit)
    return found


def _check(plan: MemoryPlan, max_message_bytes: int) -> None:
    _check_sum("broker", plan.broker_budget, plan)
    _check_sum("storage", plan.storage_budget, plan)
    if NO_LIMIT < plan.publish_buffer < max_message_bytes:
        raise ConfigError(
            f"broker.publish.buffer.bytes is {plan.publish_buffer:,}, but topics accept batches of {max_message_bytes:,}: "
            "it must hold one at least, or be -1 for no limit"
        )


def check_largest_batch(plan: MemoryPlan, max_message_bytes: int) -> None:
    """Check that the write cache of a plan takes batches of `max_message_bytes` bytes. Only the engine "tiered" has that cache.

    Raises:
        ConfigError: it does not.
    """
    if plan.half < max_message_bytes:
        raise ConfigError(
            f"a half of the write cache has {plan.half:,} bytes, but topics accept batches of {max_message_bytes:,}. "
            f"Set storage.write.cache.bytes to {2 * max_message_bytes} at least, or give both budgets together "
            f"{-(-16 * max_message_bytes // MIB)}M at least (--memory), of which it has an eighth. The storage engine segments "
            "has no such cache"
        )


def _check_sum(which: str, budget: int, plan: MemoryPlan) -> None:
    """Raise ConfigError if the parts of a budget exceed it."""
    parts = [(each.name, max(getattr(plan, each.field), 0)) for each in SHARES if each.of == which]
    total = sum(part for _, part in parts)
    if total > budget:
        sums = " + ".join(f"{name} {in_mib(part)}" for name, part in parts)
        raise ConfigError(
            f"the {which}'s budget is {in_mib(budget)}, but its parts take {in_mib(total)}: {sums}. Give it more memory, or set "
            "one of them lower"
        )


def warnings(plan: MemoryPlan, heap: int, machine: int | None) -> list[str]:
    """Return warnings about a plan that fits, as sentences.

    Args:
        heap: the bytes of the process that no budget limits, estimated.
        machine: the bytes of memory that the process may have, None if that is not known.

    Raises:
        ConfigError: the machine has less memory than the budgets.
    """
    found = []
    if plan.broker_budget < PER_HEAP * heap:
        found.append(
            f"the broker's budget ({in_mib(plan.broker_budget)}) is less than twice its heap ({in_mib(heap)} estimated): Pulsar "
            "recommends 1:2"
        )
    if machine is None:
        return found
    if plan.budgets > machine:
        raise ConfigError(
            f"the budgets take {in_mib(plan.budgets)} (broker {in_mib(plan.broker_budget)}, storage "
            f"{in_mib(plan.storage_budget)}), but this process may have {in_mib(machine)}. Use less with --memory"
        )
    left = machine - plan.budgets - heap
    if left < machine // 2:
        found.append(
            f"heap and budgets take {in_mib(heap + plan.budgets)} of {in_mib(machine)}, which leaves {in_mib(max(left, 0))} for "
            "the page cache: BookKeeper recommends half of the memory, heap : budget : page cache as 1:2:3"
        )
    return found


DEFAULT_PLAN: Final = plan_memory()
"""The plan of a broker without memory settings."""
