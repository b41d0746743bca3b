"""The stalled nodes. Id (tests/ids.md): RA26."""

from __future__ import annotations

import pytest

from spark_producer.partitioner.availability import NodeLatencies


@pytest.mark.covers("RA26")
def test_a_node_is_stalled_when_it_takes_nothing_for_longer_than_the_timeout() -> None:
    nodes = NodeLatencies(0.1)
    assert nodes.observe(10.0, {1: True, 2: True}) == frozenset()
    assert nodes.observe(10.1, {1: True, 2: False}) == frozenset()
    assert nodes.observe(10.101, {1: True, 2: False}) == {2}
    assert nodes.observe(10.2, {1: True, 2: True}) == frozenset()


@pytest.mark.covers("RA26")
def test_a_node_first_seen_unable_has_the_whole_timeout() -> None:
    nodes = NodeLatencies(0.1)
    assert nodes.observe(5.0, {1: False}) == frozenset()
    assert nodes.observe(5.05, {1: False}) == frozenset()
    assert nodes.observe(5.2, {1: False}) == {1}


@pytest.mark.covers("RA26")
def test_a_node_without_anything_ready_gets_another_chance() -> None:
    """The node's batches expired: no batch would ever be ready again for a node that gets no rows."""
    nodes = NodeLatencies(0.1)
    nodes.observe(5.0, {1: False})
    assert nodes.observe(6.0, {1: False}) == {1}
    assert nodes.observe(6.1, {2: True}) == frozenset()
    assert nodes.observe(6.2, {1: False}) == {1}, "which it has not used"
    assert nodes.observe(6.3, {1: True}) == frozenset()


@pytest.mark.covers("RA26")
def test_the_time_counts_from_the_last_batch_that_a_node_took() -> None:
    nodes = NodeLatencies(0.1)
    nodes.observe(5.0, {1: True})
    assert nodes.observe(5.05, {}) == frozenset(), "nothing waits for it"
    assert nodes.observe(5.08, {1: False}) == frozenset()
    assert nodes.observe(5.101, {1: False}) == {1}


@pytest.mark.covers("RA26")
def test_no_timeout_excludes_no_node() -> None:
    nodes = NodeLatencies(0.0)
    nodes.observe(5.0, {1: False})
    assert nodes.observe(50.0, {1: False}) == frozenset()
