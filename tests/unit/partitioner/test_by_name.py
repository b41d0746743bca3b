"""The values of `partitioner.class`, and the partitioner of each."""

from __future__ import annotations

import pytest

from spark_producer import Producer
from spark_producer.config import producer_config
from spark_producer.errors import ConfigError
from spark_producer.partitioner import Partitioner, make_partitioner, resolve_partitioner
from spark_producer.partitioner.by_name import CHOICES, PartitionerRules
from tests.fakes.partitioner_fakes import FakeLoad, columns_of, topic_of


def made(name: str = "", load: FakeLoad | None = None, **options: object) -> Partitioner:
    given = {option.replace("_", "."): value for option, value in options.items()}
    chosen = {"partitioner.class": name} if name else {}
    return make_partitioner(producer_config({"bootstrap.servers": "h:1", **chosen, **given}), load)


def slots(partitioner: Partitioner, keys: list[str | None]) -> list[int]:
    columns = columns_of(value=["v"] * len(keys), key=keys)
    found: list[int] = partitioner.assign(columns, [topic_of(12)]).slots.tolist()
    return found


@pytest.mark.parametrize("name", CHOICES)
def test_every_name_makes_a_partitioner_that_places_every_row(name: str) -> None:
    placed = slots(made(name.upper()), ["key", None, "", "key"])
    assert all(0 <= partition < 12 for partition in placed)
    if CHOICES[name].keys is not None:
        assert placed[0] == placed[3]


@pytest.mark.parametrize(
    ("java", "short"),
    [
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", "round_robin"),
        ("RoundRobinPartitioner", "round_robin"),
        ("roundrobinpartitioner", "round_robin"),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", "sticky_without_keys"),
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", "sticky"),
        ("DefaultPartitioner", "sticky"),
        ("BuiltInPartitioner", "uniform_sticky"),
    ],
)
def test_javas_names(java: str, short: str) -> None:
    assert resolve_partitioner(java) is CHOICES[short]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("rond_robin", "Did you mean 'round_robin'"),
        ("stiky", "Did you mean 'sticky'"),
        ("org.apache.kafka.clients.producer.RoundRobinPartitoner", "Did you mean 'RoundRobinPartitioner'"),
        ("murmur2_ramdom", "Did you mean 'murmur2_random'"),
        ("com.example.MyPartitioner", "Java classes cannot run here"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Producer({"bootstrap.servers": "h:1", "partitioner.class": name})
    assert f"unknown kafka.partitioner.class {name!r}" in str(raised.value)
    assert hint in str(raised.value)


@pytest.mark.covers("KY1")
def test_the_default_hashes_keys_and_sticks_without() -> None:
    placed = slots(made(), ["key", "a", None, None])
    assert placed[:2] == [1, 4]
    assert placed[2] == placed[3]


@pytest.mark.covers("KY2")
def test_ignore_keys() -> None:
    assert len(set(slots(made(partitioner_ignore_keys="true"), [str(number) for number in range(50)]))) == 1
    assert len(set(slots(made("sticky_without_keys"), [str(number) for number in range(50)]))) == 1
    assert len(set(slots(made(), [str(number) for number in range(50)]))) > 1


def test_the_load_counts_unless_adaptive_is_off() -> None:
    load = FakeLoad(dict.fromkeys(range(11), 10**6))
    assert {slots(made(load=load), [None])[0] for _ in range(20)} == {11}
    off = made(load=load, partitioner_adaptive_partitioning_enable="false")
    starts = set()
    for _ in range(20):
        starts |= set(slots(off, [None]))
        off.restart()
    assert len(starts) > 3


def test_a_rack_is_needed_to_be_aware_of_it() -> None:
    with pytest.raises(ConfigError, match=r"needs kafka\.client\.rack"):
        made(partitioner_rack_aware="true")
    made(partitioner_rack_aware="true", client_rack="a")


def test_names_without_a_class_in_java_are_of_this_package_or_librdkafka() -> None:
    assert all(isinstance(resolve_partitioner(name), PartitionerRules) for name in CHOICES)
    assert {name for name, choice in CHOICES.items() if not choice.java_class} == {
        "round_robin_with_keys",
        "consistent",
        "consistent_random",
        "murmur2",
        "murmur2_random",
        "fnv1a",
        "fnv1a_random",
    }
