"""Transactional ids: which sink each belongs to."""

from __future__ import annotations

import pytest

from spark_producer.exactly_once.names import control_id, is_task_of, sink_of, task_id, task_prefix

WORKER = "0123456789abcdef" * 2


def test_ids_are_readable() -> None:
    assert control_id("orders") == "pyproducer.orders.ctl"
    assert task_id("orders", WORKER, 3) == f"pyproducer.orders.{WORKER}.3"
    assert task_id("orders", WORKER, 3).startswith(task_prefix("orders"))


@pytest.mark.parametrize("sink", ["orders", "orders.eu", "orders.0", f"orders.{WORKER}", "-", "a.b-c_d.E"])
def test_an_id_belongs_to_one_sink_alone(sink: str) -> None:
    """Otherwise the one sink would abort the other's transactions as left over."""
    mine = task_id(sink, WORKER, 12)
    assert is_task_of(sink, mine)
    others = ["orders", "orders.eu", "orders.0", f"orders.{WORKER}", "-", "a", "a.b-c_d", "a.b-c_d.E", "order"]
    assert [other for other in others if is_task_of(other, mine)] == [sink]
    assert sink_of(mine) == sink_of(control_id(sink)) == sink


@pytest.mark.parametrize(
    "odd", ["ctl", "", "0", f"{WORKER}", f"{WORKER}.", f"{WORKER}.x", f"{WORKER}.0.0", f"{WORKER}.0\n"]
)
def test_what_no_task_is_named_is_no_task(odd: str) -> None:
    assert not is_task_of("orders", task_prefix("orders") + odd)
    assert sink_of(task_prefix("orders") + odd) == {"ctl": "orders", f"{WORKER}.0.0": None}.get(odd)


@pytest.mark.parametrize(
    "stranger", ["billing-1", "pyproducer.ctl", "pyproducer..ctl", "pyproducer.a b.ctl", "xpyproducer.orders.ctl", ""]
)
def test_the_id_of_a_stranger_is_no_sinks(stranger: str) -> None:
    assert sink_of(stranger) is None
