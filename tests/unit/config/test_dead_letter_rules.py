"""Options that dead letters need, and those that contradict each other. Ids: COM4."""

from __future__ import annotations

import pytest

from spark_producer.config import parse_options
from spark_producer.config.dead_letter_rules import check_dead_letters, dead_letter_classes
from spark_producer.errors import ConfigError

SERVERS = {"kafka.bootstrap.servers": "host:9092"}


@pytest.mark.covers("COM4")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"maxBadRecords": "5"}, "maxBadRecords needs deadLetterTopic"),
        ({"deadLetterHeaders": "false"}, "deadLetterHeaders needs deadLetterTopic"),
        ({"deadLetterTopic": "t", "topic": "t"}, "topic and deadLetterTopic are both 't'"),
        ({"deadLetterTopic": "__pyproducer_commits"}, "exactlyOnceControlTopic and deadLetterTopic are both"),
        ({"deadLetterTopic": ""}, "deadLetterTopic is empty"),
        (
            {"deadLetterTopic": "d", "deadLetterClasses": "row,sise"},
            "contains 'sise'; the classes are row, size, broker, schema, topic. Did you mean 'size'",
        ),
        ({"deadLetterTopic": "d", "deadLetterClasses": " , "}, "deadLetterClasses is empty"),
        ({"deadLetterTopic": "d", "deadLetterClasses": "topic", "topic": "t"}, "deadLetterClasses contains 'topic'"),
        ({"deadLetterTopic": "d", "maxBadRecordsRatio": "1.5"}, "maxBadRecordsRatio must lie between 0 and 1"),
        ({"deadLetterTopic": "d", "maxBadRecords": "-2"}, "maxBadRecords must lie between -1"),
        ({"deadLetterTopic": "d", "kafka.acks": "0"}, "kafka.acks is 0, so brokers do not report them"),
        ({"deadLetterTopic": "d", "kafka.acks": "0", "deadLetterClasses": "row,topic"}, "kafka.acks is 0"),
        ({"badRecordsPath": "/tmp/bad"}, "Set deadLetterTopic"),
        ({"deadLettersTopic": "d"}, "Did you mean 'deadLetterTopic'"),
    ],
)
def test_contradictions_are_one_clear_error(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_dead_letters(*parse_options(SERVERS | options))


@pytest.mark.covers("COM4")
def test_defaults() -> None:
    config, sink = parse_options(SERVERS | {"deadlettertopic": "d"})
    check_dead_letters(config, sink)
    assert dead_letter_classes(sink.dead_letter_classes) == ("row", "size", "broker", "schema")
    assert (sink.max_bad_records, sink.max_bad_records_ratio, sink.dead_letter_headers) == (1000, 0.1, True)


@pytest.mark.covers("COM4")
@pytest.mark.parametrize("options", [{"kafka.acks": "1"}, {"kafka.acks": "0", "deadLetterClasses": "row,schema"}])
def test_rows_that_tasks_find_need_no_answers(options: dict[str, str]) -> None:
    check_dead_letters(*parse_options(SERVERS | {"deadLetterTopic": "d"} | options))
