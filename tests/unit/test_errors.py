"""The exception tree crosses processes, and its messages say what to do."""

from __future__ import annotations

import copy
import inspect
import pickle
from types import ModuleType
from typing import Any

import pytest

from spark_producer import errors
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, TopicNotFound, broker_error


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


def test_a_broker_error_says_what_about_what_and_what_to_do() -> None:
    error = broker_error(29, "topic 'pay', partition 4", "Denied", topic="pay", partition=4)
    assert str(error) == (
        "TOPIC_AUTHORIZATION_FAILED (29) for topic 'pay', partition 4. The broker says: Denied. "
        "What to do: grant WRITE on the topic to this user."
    )
    assert type(error) is BrokerError
    assert vars(error) == {"code": 29, "topic": "pay", "partition": 4}


def test_a_missing_topic_has_a_class_of_its_own() -> None:
    error = broker_error(3, "topic 'gone'")
    assert type(error) is TopicNotFound
    assert "The broker says" not in str(error)
    assert error.code is Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_code_that_is_not_in_the_table_goes_by_its_number() -> None:
    error = broker_error(12345, "topic 't'")
    assert str(error) == "UNKNOWN_ERROR_CODE_12345 (12345) for topic 't'. What to do: see the broker's log."
    assert pickle.loads(pickle.dumps(error)).code == error.code == 12345
