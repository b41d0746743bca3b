"""The memory report of `pyproducer broker --report`: heap, budgets with their parts, page cache, and advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from spark_producer.broker.memory.object_memory import HeapCounts
from spark_producer.broker.memory.plan import NO_LIMIT, SHARES, MemoryPlan, Share, warnings
from spark_producer.broker.memory.sizes import in_mib
from spark_producer.broker.memory.system_memory import SystemMemory
from spark_producer.broker.settings import BrokerSettings

METRIC_OF_PART: Final = {
    "publish_buffer": "pyproducer_broker_publish_pending_bytes",
    "tail_cache": "pyproducer_broker_tail_bytes",
    "write_cache": "pyproducer_broker_write_cache_bytes",
    "read_cache": "pyproducer_broker_read_cache_bytes",
    "index_cache": "pyproducer_broker_index_block_cache_bytes",
    "journal_memory": "pyproducer_broker_journal_memory",
}
"""The part of the memory plan → the metric of its use."""

_HEAP: Final = "pyproducer_broker_heap_estimated_bytes"


def memory_report(
    settings: BrokerSettings,
    machine: SystemMemory,
    engine: str,
    *,
    has_tiers: bool,
    metrics: Mapping[str, float] | None = None,
) -> str:
    """Return the report as lines of text.

    Args:
        settings: of the broker, with its memory plan.
        machine: the memory of the system.
        engine: the name of the storage engine.
        has_tiers: whether it has the tiers of the plan.
        metrics: the values of the metrics page of a running broker; None without one.

    Raises:
        ConfigError: the plan does not fit into the machine.
    """
    now = metrics or {}
    heap = int(now.get(_HEAP, HeapCounts().bytes))
    plan = settings.memory if has_tiers else _without_tiers(settings)
    lines = [_engine(engine, has_tiers=has_tiers)]
    state = "estimated, now" if _HEAP in now else "estimated, without topics"
    lines.append(f"heap              {in_mib(heap)} ({state})")
    if has_tiers:
        for which, budget in (("broker", plan.broker_budget), ("storage", plan.storage_budget)):
            lines.append(f"{which + ' budget':<18}{in_mib(budget)}")
            lines += [
                _part(plan, share, now, f"{share.counterpart}; {share.formula}")
                for share in SHARES
                if share.of == which
            ]
    else:
        lines.append(
            f"requests          {in_mib(settings.max_buffered_bytes)} for requests and responses of all connections"
        )
        lines += [_part(plan, share, now, share.counterpart) for share in SHARES if not share.is_tier]
    lines.append(f"page cache        {_known(machine.page_cache)} now, of all processes")
    lines.append(f"machine           {_known(machine.available)} for this process")
    lines += [f"advice: {each}" for each in (*_of_index(plan, now), *warnings(plan, heap, machine.available))]
    return "\n".join(lines)


def memory_fields(
    settings: BrokerSettings,
    machine: SystemMemory,
    engine: str,
    *,
    has_tiers: bool,
    metrics: Mapping[str, float] | None = None,
) -> dict[str, object]:
    """Return the report for JSON, in bytes: None for no limit, and where a value is unknown or the engine lacks it.

    Arguments and errors are those of `memory_report`.
    """
    now = metrics or {}
    heap = int(now.get(_HEAP, HeapCounts().bytes))
    plan = settings.memory if has_tiers else _without_tiers(settings)
    parts = []
    for share in SHARES:
        if has_tiers or not share.is_tier:
            size, used = getattr(plan, share.field), now.get(METRIC_OF_PART[share.field])
            parts.append(
                {
                    "name": share.name,
                    "limit_bytes": None if size == NO_LIMIT else size,
                    "used_bytes": None if used is None else int(used),
                }
            )
    return {
        "engine": engine,
        "heap_bytes": heap,
        "broker_budget_bytes": plan.broker_budget if has_tiers else None,
        "storage_budget_bytes": plan.storage_budget if has_tiers else None,
        "requests_bytes": None if has_tiers else settings.max_buffered_bytes,
        "parts": parts,
        "page_cache_bytes": machine.page_cache,
        "available_bytes": machine.available,
        "advice": [*_of_index(plan, now), *warnings(plan, heap, machine.available)],
    }


def _engine(engine: str, *, has_tiers: bool) -> str:
    if has_tiers:
        return f"engine            {engine}"
    return (
        f"engine            {engine}: it reads and writes its files through the page cache, and has no caches of its own. The "
        "storage's budget and the tail cache are for --storage tiered"
    )


def _without_tiers(settings: BrokerSettings) -> MemoryPlan:
    """Return the part of a plan that an engine without tiers uses, with the actual publish buffer of the broker."""
    return replace(settings.memory, storage_budget=0, publish_buffer=settings.publish_buffer_bytes)


def _part(plan: MemoryPlan, share: Share, now: Mapping[str, float], source: str) -> str:
    size = getattr(plan, share.field)
    limit = "no limit" if size == NO_LIMIT else in_mib(size)
    used = f", {in_mib(int(now[METRIC_OF_PART[share.field]]))} in use" if METRIC_OF_PART[share.field] in now else ""
    return f"  {share.name:<30}{limit}{used} ({source}): {share.text}"


def _of_index(plan: MemoryPlan, now: Mapping[str, float]) -> Iterator[str]:
    """Yield a warning if the index exceeds its part of the plan. RocksDB's index never does."""
    used = int(now.get(METRIC_OF_PART["index_cache"], 0))
    if used > plan.index_cache:
        yield (
            f"the index takes {in_mib(used)}, but its part is {in_mib(plan.index_cache)}: the index in arrays has every batch in "
            "memory. RocksDB's index stays within its part (--index rocks)"
        )


def _known(size: int | None) -> str:
    return "unknown" if size is None else in_mib(size)
