"""The producers that a Python worker keeps for its next tasks."""

from __future__ import annotations

from spark_producer.accumulator import BufferPool
from spark_producer.config import ProducerConfig, producer_config
from spark_producer.datasource.write.worker.cache import MAX_IDLE_S, MAX_PRODUCERS, ProducerCache
from tests.fakes.fake_clock import FakeClock
from tests.fakes.pool_fakes import free_buffers


class FakeProducer:
    """The part of a producer that the cache uses."""

    def __init__(self, config: ProducerConfig) -> None:
        self.config = config
        self._parts = self
        self.failed = False
        self.timeouts: list[float | None] = []
        self.pool = BufferPool(1 << 16, 1024, FakeClock())

    def close(self, timeout: float | None = None) -> None:
        self.timeouts.append(timeout)


def config(number: int) -> ProducerConfig:
    return producer_config({"bootstrap.servers": "host:9092", "client.id": f"client {number}"})


def cache(clock: FakeClock | None = None) -> ProducerCache:
    # The fake has all of a producer that the cache asks for.
    return ProducerCache(FakeProducer, clock or FakeClock())  # type: ignore[arg-type]


def taken(kept: ProducerCache, number: int) -> FakeProducer:
    found = kept.get(config(number))
    assert isinstance(found, FakeProducer)
    return found


def test_alternating_sinks_keep_their_producers() -> None:
    kept = cache()
    first, second = taken(kept, 1), taken(kept, 2)
    assert first is not second
    for _ in range(3):
        assert taken(kept, 1) is first
        assert taken(kept, 2) is second


def test_new_credentials_are_a_new_producer_and_the_same_ones_are_not() -> None:
    """Configurations with secrets have no hash; they are compared."""
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}

    def with_password(password: str) -> ProducerConfig:
        return producer_config({"bootstrap.servers": "host:9092", **login, "sasl.password": password})

    kept = cache()
    first = kept.get(with_password("old"))
    assert kept.get(with_password("new")) is not first
    assert kept.get(with_password("old")) is first
    assert len(kept) == 2
    kept.drop(with_password("new"))
    assert len(kept) == 1


def test_of_too_many_the_one_goes_whose_last_task_is_the_longest_ago() -> None:
    kept = cache()
    made = [taken(kept, number) for number in range(MAX_PRODUCERS)]
    assert taken(kept, 0) is made[0]
    taken(kept, MAX_PRODUCERS)
    assert len(kept) == MAX_PRODUCERS
    assert [producer.timeouts for producer in made] == [[], [0]] + [[]] * (MAX_PRODUCERS - 2)
    assert taken(kept, 0) is made[0]


def test_idle_ones_are_closed_when_a_task_begins_but_not_its_own() -> None:
    clock = FakeClock()
    kept = cache(clock)
    first, second = taken(kept, 1), taken(kept, 2)
    clock.advance(MAX_IDLE_S - 1)
    assert taken(kept, 1) is first
    clock.advance(MAX_IDLE_S)
    assert first.timeouts == second.timeouts == []
    assert taken(kept, 1) is first
    assert (len(kept), second.timeouts) == (1, [0])


def test_a_failed_one_is_replaced_and_the_others_stay() -> None:
    kept = cache()
    first, second = taken(kept, 1), taken(kept, 2)
    first.failed = True
    assert taken(kept, 2) is second
    assert len(kept) == 1
    assert taken(kept, 1) is not first
    kept.drop(config(1))
    kept.drop(config(3))
    assert taken(kept, 2) is second
    kept.clear()
    assert len(kept) == 0


def test_only_the_one_in_use_keeps_buffers() -> None:
    """A worker needs one `buffer.memory`, however many sinks it writes to."""
    kept = cache()
    first = taken(kept, 1)
    for pool in (first.pool, taken(kept, 2).pool):
        pool.release(pool.allocate(1024, 0))
    taken(kept, 2)
    assert free_buffers(first.pool) == 0
    assert first.pool.available == first.pool.total
    assert free_buffers(taken(kept, 2).pool) == 1


def test_a_pool_that_is_trimmed_still_has_all_its_memory() -> None:
    pool = BufferPool(4096, 1024, FakeClock())
    lent = [pool.allocate(1024, 0) for _ in range(3)]
    pool.release(lent.pop())
    pool.trim()
    assert (pool.available, free_buffers(pool)) == (2048, 0)
    for buffer in lent:
        pool.release(buffer)
    assert pool.available == 4096
    assert len(pool.allocate(4096, 0)) == 4096
