"""The weighted choice. Ids (tests/ids.md): PT3, PT4, RA26."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.partitioner import LoadStatistics, TopicPartitions, describe_topic
from spark_producer.partitioner.adaptive import PartitionChooser, QueueTable


def statistics(queued: dict[int, int], stalled: set[int] | None = None) -> LoadStatistics:
    return LoadStatistics({p: size for p, size in queued.items() if size}, frozenset(stalled or ()))


def frequencies(topic: TopicPartitions, load: LoadStatistics | None, total: int) -> dict[int, int]:
    """Return the frequency of each partition over all random numbers below `total`."""
    chooser = PartitionChooser()
    return dict(Counter(chooser.choose(topic, load, number) for number in range(total)))


def even_topic(count: int) -> TopicPartitions:
    return describe_topic("t", tuple(range(count)))


def test_the_example_of_kip_794() -> None:
    """Queues 0 3 1 → weights 4 1 3 → sums 4 5 8."""
    table = QueueTable(3, {1: 3, 2: 1})
    assert table.total == 8
    assert [table.at(number) for number in range(8)] == [0, 0, 0, 0, 1, 2, 2, 2]


@pytest.mark.covers("PT3", "RA26")
@pytest.mark.parametrize(
    ("sizes", "weights"),
    [((5, 0, 3, 0, 1), (1, 6, 3, 6, 5)), ((1, 7, 2), (7, 1, 6)), ((0, 3, 1), (4, 1, 3)), ((2, 0), (1, 3))],
)
def test_frequencies(sizes: tuple[int, ...], weights: tuple[int, ...]) -> None:
    load = statistics(dict(enumerate(sizes)))
    for rounds in (1, 10):
        found = frequencies(even_topic(len(sizes)), load, sum(weights) * rounds)
        assert found == {partition: weight * rounds for partition, weight in enumerate(weights)}


@pytest.mark.covers("PT3")
@pytest.mark.parametrize("sizes", [(0, 0, 0), (4, 4, 4)])
def test_equal_queues_change_nothing(sizes: tuple[int, ...]) -> None:
    assert frequencies(even_topic(3), statistics(dict(enumerate(sizes))), 30) == {0: 10, 1: 10, 2: 10}


@pytest.mark.covers("PT3")
def test_one_partition_and_no_statistics_are_chosen_evenly() -> None:
    assert frequencies(even_topic(1), statistics({0: 9}), 10) == {0: 10}
    assert frequencies(even_topic(2), None, 10) == {0: 5, 1: 5}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.data())
def test_the_sparse_table_is_the_full_one(sizes: list[int], data: st.DataObject) -> None:
    """Against the plain cumulative table: the first entry above the number."""
    excluded = data.draw(st.sets(st.integers(0, len(sizes) - 1), max_size=len(sizes) - 1))
    longest = max((size for at, size in enumerate(sizes) if at not in excluded), default=0)
    weights = [0 if at in excluded else longest + 1 - size for at, size in enumerate(sizes)]
    expected = [at for at, weight in enumerate(weights) for _ in range(weight)]
    table = QueueTable(len(sizes), {at: size for at, size in enumerate(sizes) if size}, excluded)
    assert table.total == len(expected)
    assert [table.at(number) for number in range(table.total)] == expected


def test_a_table_costs_what_is_queued_and_not_what_is_idle() -> None:
    table = QueueTable(5000, {17: 3, 4000: 1})
    assert len(table._positions) == 2  # the partition is the same either way
    assert Counter(table.at(number) for number in range(table.total)) == Counter(
        {partition: {17: 1, 4000: 3}.get(partition, 4) for partition in range(5000)}
    )


def test_queues_of_partitions_without_a_leader_do_not_count() -> None:
    topic = describe_topic("t", (5, -1, 6, -1, 7))
    found = frequencies(topic, statistics({1: 100, 2: 1, 3: 50}), 5)
    assert found == {0: 2, 2: 1, 4: 2}


@pytest.mark.covers("RA26")
def test_a_stalled_node_gets_nothing_also_for_its_idle_partitions() -> None:
    topic = describe_topic("t", (0, 1, 2, 0))
    assert frequencies(topic, statistics({1: 1}, {0}), 3) == {1: 1, 2: 2}
    assert frequencies(topic, statistics({}, {0}), 10) == {1: 5, 2: 5}


@pytest.mark.covers("RA26")
def test_when_every_node_is_stalled_all_are_chosen_evenly() -> None:
    topic = describe_topic("t", (0, 1))
    assert frequencies(topic, statistics({0: 9}, {0, 1}), 10) == {0: 5, 1: 5}


@pytest.mark.covers("RA26")
def test_what_is_stalled_is_found_again_when_it_changes() -> None:
    chooser, topic = PartitionChooser(), describe_topic("t", (0, 1))
    assert {chooser.choose(topic, statistics({}, {0}), number) for number in range(10)} == {1}
    assert {chooser.choose(topic, statistics({}, {1}), number) for number in range(10)} == {0}
    moved = describe_topic("t", (1, 0))
    assert {chooser.choose(moved, statistics({}, {1}), number) for number in range(10)} == {1}


RACKS = {0: "a", 1: "b", 2: "a", 3: None}


@pytest.mark.covers("PT4")
def test_partitions_of_the_own_rack_are_preferred_with_and_without_load() -> None:
    topic = describe_topic("t", (0, 1, 2, 3), RACKS, "a")
    assert topic.same_rack == (0, 2)
    assert frequencies(topic, None, 10) == {0: 5, 2: 5}
    assert frequencies(topic, statistics({0: 2, 1: 9}), 40) == {0: 10, 2: 30}, "weighed by their own longest queue"


@pytest.mark.covers("PT4")
def test_no_partition_in_the_rack_or_all_of_them_stalled_leaves_all() -> None:
    assert frequencies(describe_topic("t", (0, 1), RACKS, "c"), None, 10) == {0: 5, 1: 5}
    topic = describe_topic("t", (0, 1, 2, 3), RACKS, "a")
    assert frequencies(topic, statistics({}, {0, 2}), 10) == {1: 5, 3: 5}
    assert frequencies(topic, statistics({}, {0}), 10) == {2: 10}


@pytest.mark.covers("PT4")
def test_a_partition_of_the_rack_without_a_leader_is_not_in_it() -> None:
    assert describe_topic("t", (-1, 2), RACKS, "a").same_rack == (1,)
