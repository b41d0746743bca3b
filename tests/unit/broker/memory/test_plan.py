"""The memory plan: the shares of Pulsar's broker and BookKeeper's bookie, and what is refused."""

from __future__ import annotations

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.memory.plan import (
    DEFAULT_PLAN,
    FLOOR,
    FLOOR_FROM,
    MAX_BATCH_BYTES,
    NO_LIMIT,
    SHARES,
    MemoryPlan,
    check_largest_batch,
    plan_memory,
    warnings,
)
from spark_producer.broker.memory.sizes import GIB, KIB, MIB, in_mib, parse_size
from spark_producer.broker.settings import TopicSettings, with_memory
from spark_producer.errors import ConfigError
from tests.unit.test_layout import ROOT


def test_the_profile_of_256_mib_each_is_that_of_the_article() -> None:
    plan = plan_memory(broker=256 * MIB, storage=256 * MIB)
    assert plan.publish_buffer == 128 * MIB
    assert plan.tail_cache == 64 * MIB, "a fifth is 51, and the floor is 64"
    assert (plan.write_cache, plan.half) == (64 * MIB, 32 * MIB)
    assert plan.read_cache == 64 * MIB
    assert plan.index_cache == 256 * MIB // 10
    assert plan.journal_memory == 256 * MIB // 20
    assert plan.requests == 192 * MIB


def test_one_size_is_both_budgets() -> None:
    plan = plan_memory(256 * MIB)
    assert (plan.broker_budget, plan.storage_budget, plan.budgets) == (128 * MIB, 128 * MIB, 256 * MIB)
    assert plan_memory(256 * MIB + 1).budgets == 256 * MIB + 1
    assert plan_memory(128 * MIB) == DEFAULT_PLAN == plan_memory()
    assert BrokerSettings().memory == DEFAULT_PLAN


@pytest.mark.parametrize(
    ("budget", "publish", "tail"),
    [
        (64 * MIB, 32 * MIB, 64 * MIB // 5),
        (FLOOR_FROM - 1, (FLOOR_FROM - 1) // 2, (FLOOR_FROM - 1) // 5),
        (FLOOR_FROM, 96 * MIB, FLOOR),
        (1 * GIB, 512 * MIB, GIB // 5),
    ],
)
def test_floors_hold_only_in_a_budget_for_both(budget: int, publish: int, tail: int) -> None:
    """With them a broker with 64 MiB of direct memory gives away 128 MiB of it."""
    plan = plan_memory(broker=budget, storage=64 * MIB)
    assert (plan.publish_buffer, plan.tail_cache) == (publish, tail)
    assert publish + tail <= budget


@pytest.mark.parametrize("budget", [16 * MIB, 100 * MIB, 191 * MIB, 192 * MIB, 256 * MIB, 10 * GIB, 12345678])
def test_the_parts_of_each_budget_fit_by_default(budget: int) -> None:
    plan = plan_memory(broker=budget, storage=budget)
    for which in ("broker", "storage"):
        assert sum(getattr(plan, share.field) for share in SHARES if share.of == which) <= budget


@pytest.mark.parametrize("share", SHARES, ids=lambda share: share.field)
def test_each_part_may_be_set_under_both_names(share: object) -> None:
    name, counterpart, field, unit = (getattr(share, each) for each in ("name", "counterpart", "field", "unit"))
    assert getattr(plan_memory(GIB, {name: "4194304"}), field) == 4 * MIB
    assert getattr(plan_memory(GIB, {name: "4M"}), field) == 4 * MIB
    assert getattr(plan_memory(GIB, {counterpart: str(4 * MIB // unit)}), field) == 4 * MIB
    assert getattr(plan_memory(GIB, {counterpart: "4 MiB"}), field) == 4 * MIB, "a letter is a letter under each name"


def test_the_publish_buffer_may_be_without_limit() -> None:
    for name in ("broker.publish.buffer.bytes", "maxMessagePublishBufferSizeInMB"):
        plan = plan_memory(128 * MIB, {name: "-1"})
        assert plan.publish_buffer == NO_LIMIT
    with pytest.raises(ConfigError, match=r"broker\.tail\.cache\.bytes is '-1'"):
        plan_memory(128 * MIB, {"broker.tail.cache.bytes": "-1"})


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(ConfigError) as refused:
        plan_memory(128 * MIB, {"broker.tail.cache.bytes": "60M"})
    assert str(refused.value) == (
        "the broker's budget is 64 MiB, but its parts take 92 MiB: broker.publish.buffer.bytes 32 MiB + "
        "broker.tail.cache.bytes 60 MiB. Give it more memory, or set one of them lower"
    )
    with pytest.raises(ConfigError, match="the storage's budget is 64 MiB, but its parts take 67 MiB"):
        plan_memory(
            128 * MIB, {"storage.read.cache.bytes": str(67 * MIB - 64 * MIB // 4 - 64 * MIB // 10 - 64 * MIB // 20)}
        )


def test_parts_that_fit_exactly_are_taken() -> None:
    exactly = 64 * MIB - 16 * MIB - 64 * MIB // 10 - 64 * MIB // 20
    assert plan_memory(128 * MIB, {"storage.read.cache.bytes": str(exactly)}).read_cache == exactly
    with pytest.raises(ConfigError, match="the storage's budget"):
        plan_memory(128 * MIB, {"storage.read.cache.bytes": str(exactly + 1)})


def test_a_half_of_the_write_cache_holds_the_largest_batch() -> None:
    assert TopicSettings().max_message_bytes == MAX_BATCH_BYTES
    needed = str(2 * MAX_BATCH_BYTES)
    assert plan_memory(128 * MIB, {"storage.write.cache.bytes": needed}).half == MAX_BATCH_BYTES
    too_small = plan_memory(128 * MIB, {"storage.write.cache.bytes": str(2 * MAX_BATCH_BYTES - 1)})
    with pytest.raises(ConfigError, match="a half of the write cache has 1,048,587 bytes, but topics accept"):
        check_largest_batch(too_small, MAX_BATCH_BYTES)
    with pytest.raises(ConfigError, match=r"give both budgets together 17M at least \(--memory\)"):
        check_largest_batch(plan_memory(16 * MIB), MAX_BATCH_BYTES)
    assert plan_memory(17 * MIB).half >= MAX_BATCH_BYTES, "what the message names is enough"


def test_the_publish_buffer_holds_a_batch() -> None:
    with pytest.raises(ConfigError, match=r"broker\.publish\.buffer\.bytes is 1,024, but topics accept"):
        plan_memory(128 * MIB, {"broker.publish.buffer.bytes": "1K"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"broker.tail.cache": "1M"},
            "unknown setting broker.tail.cache of the memory plan. Use one of broker.publish",
        ),
        (
            {"broker.tail.cache.bytes": "1M", "managedLedgerCacheSizeMB": "1"},
            "are the same setting. Give one of them",
        ),
        (
            {"broker.tail.cache.bytes": "much"},
            "broker.tail.cache.bytes is 'much'. Use a positive size such as 256M",
        ),
    ],
)
def test_wrong_settings_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_memory(GIB, given)


def test_the_brokers_settings_follow_from_the_plan() -> None:
    plan = plan_memory(256 * MIB)
    settings = with_memory(BrokerSettings(default_partitions=3), plan)
    assert (settings.memory, settings.default_partitions) == (plan, 3)
    assert settings.publish_buffer_bytes == 64 * MIB
    assert settings.max_buffered_bytes == 128 * MIB - 128 * MIB // 5


def plan_of(both: int) -> MemoryPlan:
    return plan_memory(both)


def test_advice_is_that_of_the_article() -> None:
    assert warnings(plan_of(128 * MIB), 32 * MIB, 4 * GIB) == []
    assert warnings(plan_of(128 * MIB), 32 * MIB, None) == []
    (heap,) = warnings(plan_of(128 * MIB), 33 * MIB, 4 * GIB)
    assert heap.startswith("the broker's budget (64 MiB) is less than twice its heap (33 MiB estimated)")
    assert warnings(plan_of(128 * MIB), 32 * MIB, 320 * MIB) == [], "160 of 320 MiB leave a half"
    (pages,) = warnings(plan_of(128 * MIB), 32 * MIB, 319 * MIB)
    assert pages.startswith("heap and budgets take 160 MiB of 319 MiB, which leaves 159 MiB for the page cache")


def test_budgets_that_the_machine_does_not_have_are_refused() -> None:
    warnings(plan_of(128 * MIB), 0, 128 * MIB)
    with pytest.raises(ConfigError) as refused:
        warnings(plan_of(128 * MIB), 0, 128 * MIB - 1)
    assert str(refused.value) == (
        "the budgets take 128 MiB (broker 64 MiB, storage 64 MiB), but this process may have 128 MiB. Use less with --memory"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("256M", 256 * MIB),
        ("256 mib", 256 * MIB),
        ("1G", GIB),
        ("2GB", 2 * GIB),
        ("3k", 3 * KIB),
        (" 7b ", 7),
    ],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_size("x", text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5G", "1T", "M", "99999999999999999G", "1 M M", "²M", "2000000G"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ConfigError, match="x is "):
        parse_size("x", text)


def test_sizes_as_people_read_them() -> None:
    assert [in_mib(each) for each in (MIB, MIB * 3 // 2, 100 * MIB + 1, GIB, 10_000 * MIB)] == [
        "1 MiB", "1.5 MiB", "100 MiB", "1,024 MiB", "10,000 MiB",
    ]  # fmt: skip


def test_the_documentation_has_each_part_with_both_names() -> None:
    page = (ROOT / "docs" / "embedded_broker.md").read_text(encoding="utf-8")
    for share in SHARES:
        formula = share.formula.partition(",")[0]
        assert f"| `{share.name}` | `{share.counterpart}` | {formula} of the {share.of}'s | " in page
