"""`help(Producer)` shows the methods that users call, and the mock has the same ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from spark_producer import MockProducer, Producer
from spark_producer.producer import Parts, parts_of

TRANSACTIONS = {
    "abort_transaction", "begin_transaction", "commit_transaction", "init_transactions", "send_offsets_to_transaction",
    "transaction",
}  # fmt: skip
CALLS = {
    "client_instance_id",
    "close",
    "flush",
    "metrics",
    "send",
    "send_batch",
    "send_many",
    "send_table",
} | TRANSACTIONS


def public_names(owner: object) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def test_a_producer_shows_what_users_call_and_nothing_else(start: Callable[..., Producer]) -> None:
    assert public_names(Producer) == CALLS
    producer = start()
    assert public_names(producer) == CALLS | {"config", "process"}


def test_the_data_source_finds_the_parts_of_a_producer(start: Callable[..., Producer]) -> None:
    producer = start()
    assert isinstance(parts_of(producer), Parts)
    assert parts_of(producer).config is producer.config


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_mock_takes_what_a_producer_takes(name: str) -> None:
    real, mock = (inspect.signature(getattr(owner, name)) for owner in (Producer, MockProducer))
    assert mock == real
