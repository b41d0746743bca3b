from __future__ import annotations

import pytest

from spark_producer.config.registry_table import ColumnOptions
from spark_producer.errors import ConfigError
from spark_producer.schemas.subjects import subject_of


def wish(strategy: str, subject: str | None = None) -> ColumnOptions:
    return ColumnOptions("key", "avro", None, None, None, subject, strategy)


@pytest.mark.parametrize(
    ("strategy", "topic", "subject"),
    [
        ("TopicNameStrategy", "t", "t-key"),
        ("RecordNameStrategy", None, "air.Flight"),
        ("TopicRecordNameStrategy", "t", "t-air.Flight"),
    ],
)
def test_a_strategy_makes_the_subject(strategy: str, topic: str | None, subject: str) -> None:
    assert subject_of(wish(strategy), topic, "air.Flight") == subject
    assert subject_of(wish(strategy, "mine"), None, None) == "mine"


def test_a_strategy_that_lacks_something_says_what() -> None:
    with pytest.raises(ConfigError, match="Set the option topic, keySubject"):
        subject_of(wish("TopicNameStrategy"), None, "air.Flight")
    with pytest.raises(ConfigError, match="Set keySchema, or keySubject"):
        subject_of(wish("RecordNameStrategy"), "t", None)
