"""The exception tree crosses processes; the table of error codes agrees with foreign ones."""

from __future__ import annotations

import copy
import inspect
import pickle
from types import ModuleType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from spark_producer import errors
from spark_producer.errors import ERROR_CODES, Action, BrokerError, Persisted, TopicNotFound, broker_error, error_code


def classes_of(module: ModuleType, root: type) -> list[Any]:
    found = [kind for _, kind in inspect.getmembers(module, inspect.isclass)]
    return [kind for kind in found if issubclass(kind, root) and kind.__module__ == module.__name__]


CLASSES = classes_of(errors, Exception)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_the_one_root_and_survives_pickling_with_its_details(
    kind: Any,
) -> None:
    assert issubclass(kind, errors.PyProducerError)
    error = kind("what happened", topic="t", partition=3, code=6)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == "what happened"
        assert (again.topic, again.partition, again.code) == ("t", 3, 6)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_when_it_is_raised(kind: type) -> None:
    assert kind.__doc__


def test_waits_that_end_are_timeouts_and_bad_rows_are_record_errors() -> None:
    for kind in ("BrokersUnreachable", "MetadataTimeout", "BufferExhausted", "DeliveryTimeout"):
        assert issubclass(getattr(errors, kind), errors.KafkaTimeout)
    assert issubclass(errors.RecordTooLarge, errors.RecordError)


def test_names_and_retries_are_those_of_kafka() -> None:
    """As kio generates them from Kafka's own source; the two that differ have their own rules in the sender."""
    others: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}
    assert set(ERROR_CODES) <= set(others)
    for row in ERROR_CODES.values():
        assert row.name.lower() == others[row.code].name
        if row.name not in ("OUT_OF_ORDER_SEQUENCE_NUMBER", "REBOOTSTRAP_REQUIRED"):
            assert (Action.RETRY in row.action) == others[row.code].retriable, row.name


@pytest.mark.parametrize("row", ERROR_CODES.values(), ids=lambda row: row.name)
def test_every_row_of_the_table_is_whole(row: errors.ErrorCode) -> None:
    assert ERROR_CODES[row.code] is row
    assert row.name == row.name.upper()
    assert bool(row.advice) == (row.code != 0)
    assert not (Action.RETRY in row.action and Action.FATAL in row.action)
    if Action.REFRESH_METADATA in row.action:
        assert Action.RETRY in row.action
    if Action.SUCCESS in row.action:
        assert row.persisted is Persisted.YES


RETRY_AND_REFRESH = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
RETRY = {2, 7, 14, 15, 16, 19, 20, 41, 51, 75, 78, 88, 89}
FAIL = {-1, 17, 18, 21, 29, 32, 42, 43, 44, 76, 87, 47, 120, 48}
FATAL = {31, 53, 90, 35, 49}


def test_the_actions_are_those_of_kafkas_producer() -> None:
    """By Kafka's class `Errors`."""
    for code in RETRY_AND_REFRESH:
        assert ERROR_CODES[code].action == Action.RETRY | Action.REFRESH_METADATA, code
    for code in RETRY:
        assert ERROR_CODES[code].action == Action.RETRY, code
    for code in FAIL:
        assert ERROR_CODES[code].action == Action.NONE, code
    for code in FATAL:
        assert ERROR_CODES[code].action == Action.FATAL, code
    assert ERROR_CODES[10].action == Action.SPLIT
    assert ERROR_CODES[46].action == Action.SUCCESS


def test_an_error_after_which_records_may_be_in_the_log_says_so() -> None:
    for code in (-1, 7, 13, 20):
        assert ERROR_CODES[code].persisted is Persisted.POSSIBLY


def test_an_unknown_code_is_not_retried_and_may_have_persisted() -> None:
    row = error_code(12345)
    assert row == (12345, "UNKNOWN_ERROR_CODE_12345", Action.NONE, Persisted.POSSIBLY, "look into the broker's log")


def test_a_broker_error_says_what_about_what_and_what_to_do() -> None:
    error = broker_error(29, "topic 'pay', partition 4", "Denied", topic="pay", partition=4)
    assert str(error) == (
        "TOPIC_AUTHORIZATION_FAILED (29) for topic 'pay', partition 4. The broker says: Denied. "
        "What to do: grant WRITE on the topic to this user."
    )
    assert type(error) is BrokerError
    assert (error.code, error.topic, error.partition) == (29, "pay", 4)  # type: ignore[attr-defined]


def test_a_missing_topic_has_a_class_of_its_own() -> None:
    error = broker_error(3, "topic 'gone'")
    assert type(error) is TopicNotFound
    assert "The broker says" not in str(error)
    assert error.code == 3
