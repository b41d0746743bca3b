"""A transactional id that its coordinator has forgotten, since it was idle for too long, differs from one that was taken over."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from spark_producer.broker import LocalBroker
from spark_producer.config.docs_table import option_rows
from spark_producer.errors import ExactlyOnceError, PyProducerError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.names import control_id
from spark_producer.producer import Producer
from tests.support.filled_tasks import batch
from tests.unit.exactly_once.lossy_world import SINK, ZERO, World


def expire(broker: LocalBroker, transactional_id: str) -> None:
    """transactional.id.expiration.ms has passed."""
    coordinator: Any = broker._server._transactions._coordinator
    broker._call(lambda: coordinator._state.transactions.pop(transactional_id))


@pytest.mark.parametrize("large", [False, True], ids=["inline", "a transaction"])
def test_a_sink_whose_id_has_expired_fails_with_that_and_runs_again(world: World, large: bool) -> None:
    row = world.fill(0, (0, "a")) if large else batch(*ZERO, "a")
    expire(world.broker, control_id(SINK))
    with pytest.raises(ExactlyOnceError, match="its transactional id has expired") as caught:
        world.commit(0, row)
    assert (caught.value.kind, caught.value.again) == ("EXPIRED", True)
    assert "newer driver has begun" not in str(caught.value)
    world.run_again(0, (0, "a") if large else batch(*ZERO, "a"))
    assert world.rows() == ["a"]


def test_a_sink_that_was_taken_after_it_had_expired_is_overtaken(world: World) -> None:
    expire(world.broker, control_id(SINK))
    driver.begin(world.sink._replace(timeout=world.sink.timeout + 1))
    with pytest.raises(ExactlyOnceError, match="a newer driver has begun") as caught:
        world.commit(0, batch(*ZERO, "a"))
    assert caught.value.kind == "FENCED"


def test_a_producer_whose_id_has_expired_fails_with_that(world: World) -> None:
    producer = Producer({"bootstrap.servers": world.broker.bootstrap_servers, "transactional.id": "mine"})
    producer.init_transactions()
    producer.begin_transaction()
    expire(world.broker, "mine")
    sent = producer.send("rows", b"a")
    for call in (producer.commit_transaction, sent.result):
        with pytest.raises(PyProducerError, match=r"transactional\.id\.expiration\.ms"):
            call()
    with suppress(PyProducerError):
        producer.close(1)


def test_options_say_their_greatest_value() -> None:
    reported = {name: doc for name, _, doc in option_rows()}
    assert "At most 67108864." in reported["exactlyOnceMaxInlineBytes"]
    assert "At most 9" not in reported["kafka.compression.gzip.level"], "its text says so"
    assert "At most" not in reported["txnVersion"]
