"""Delayed requests: their conditions and their deadlines."""

import weakref

from spark_producer.broker.connections.purgatory import Purgatory


def test_waiters_are_found_by_any_of_their_keys_in_order_of_arrival() -> None:
    delayed: Purgatory[str] = Purgatory()
    delayed.add("b", ["x", "y"], 1.0)
    delayed.add("a", ["y"], 2.0)
    assert delayed.waiting_for(["x"]) == ["b"]
    assert delayed.waiting_for(["x", "y"]) == ["b", "a"]
    assert delayed.waiting_for(["z"]) == []
    delayed.remove("b")
    delayed.remove("b")
    assert delayed.waiting_for(["x", "y"]) == ["a"]
    assert len(delayed) == 1


def test_deadlines_come_in_order_and_once() -> None:
    delayed: Purgatory[str] = Purgatory()
    for name, deadline in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        delayed.add(name, [name], deadline)
    assert delayed.next_deadline() == 1.0
    assert delayed.take_expired(0.5) == []
    assert delayed.take_expired(2.0) == ["a", "b"]
    assert delayed.next_deadline() == 3.0
    assert delayed.waiting_for(["a", "b", "c"]) == ["c"]


def test_a_waiter_that_returns_has_its_new_deadline_only() -> None:
    delayed: Purgatory[str] = Purgatory()
    delayed.add("a", ["x"], 1.0)
    delayed.remove("a")
    delayed.add("a", ["x"], 5.0)
    assert delayed.next_deadline() == 5.0
    assert delayed.take_expired(4.0) == []
    assert delayed.take_expired(5.0) == ["a"]
    assert delayed.next_deadline() is None


def test_a_key_may_be_named_twice() -> None:
    delayed: Purgatory[str] = Purgatory()
    delayed.add("a", ["x", "y", "y"], 1.0)
    delayed.add("b", ["x"], 9.0)
    assert delayed.waiting_for(["x"]) == ["a", "b"]
    assert delayed.take_expired(1.0) == ["a"]
    assert delayed.waiting_for(["x", "y"]) == ["b"]


class _Client:
    """Something that a weak reference can watch."""


def test_nothing_is_kept_of_waiters_that_left() -> None:
    delayed: Purgatory[_Client] = Purgatory()
    watched = []
    for _ in range(3000):
        client = _Client()
        delayed.add(client, ["x"], 1e9)
        delayed.remove(client)
        watched.append(weakref.ref(client))
    del client
    assert not any(watch() for watch in watched)
    assert len(delayed._deadlines) < 200, "its length is all that can be seen of a heap that grows"
    assert delayed.next_deadline() is None


def test_sweeping_keeps_those_who_still_wait() -> None:
    delayed: Purgatory[int] = Purgatory()
    for number in range(1000):
        delayed.add(number, ["x"], float(number))
    for number in range(1000):
        if number % 10:
            delayed.remove(number)
    assert delayed.take_expired(1000.0) == list(range(0, 1000, 10))
