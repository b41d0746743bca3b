"""Texts of brokers, registries and files reach terminals, errors and logs escaped and cut, wherever they are shown."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import spark_producer
from spark_producer.admin.checks import Finding, FindingState
from spark_producer.admin.topics import PartitionRow, TopicPage, TopicRow
from spark_producer.broker.counters import MetricDescription, MetricReading, MetricType
from spark_producer.broker.metrics.page import metrics_page
from spark_producer.cli import progress, topics, txn
from spark_producer.cli.check import line
from spark_producer.cli.record_text import format_record, record_json
from spark_producer.common.addresses import format_address
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.escape import HAS_LINES, MAX_LENGTH, MAX_LINE, escaping_logger
from spark_producer.datasource.write.driver.report_formats import describe
from spark_producer.errors import MAX_MESSAGE, BrokerError, SchemaError, broker_error
from spark_producer.exactly_once.cluster.broker_requests import format_partitions
from spark_producer.metrics.write_report import OffsetRange, WriteReport
from spark_producer.network.transport import resolve
from spark_producer.record.reading import ConsumerRecord

HOSTILE = "a\x1b]0;title\x07\x1b[2J\r\n\u202eb\u2028c\x9bd\u200be\ud800"
LONG = "x" * 5_000_000
MAX_SHOWN = 4 * MAX_LENGTH + 500
"""The characters of a few texts of others with our own words around."""


def of_error(text: str) -> str:
    return str(broker_error(42, "topic 't'", text))


def of_bar(text: str) -> str:
    return progress.ProgressBar(text, 3)._label


def of_topic(text: str) -> str:
    return "".join(topics._lines(TopicPage(text, (PartitionRow(0, 1, (1,), (1,), 0, 9),), {text: text})))


def of_label(text: str) -> str:
    meaning = MetricDescription("text", MetricType.GAUGE)
    page = metrics_page([MetricReading("name", 1, meaning, (("topic", text),))])
    assert len(page.splitlines()) == 3
    return page.replace("\n", "")


def of_resolver(text: str) -> str:
    with pytest.raises(Exception, match="cannot resolve") as refused:
        resolve(text, 9092)
    return str(refused.value)


SHOWN: dict[str, Callable[[str], str]] = {
    "an error of the broker": of_error,
    "a bar": of_bar,
    "topics describe": of_topic,
    "a label of the metrics": of_label,
    "a finding": lambda text: line(Finding("brokers", FindingState.FAILED, of_error(text), "look")).replace("\n", ""),
    "partitions": lambda text: format_partitions([TopicPartition(text, 0)]),
}


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_a_text_of_a_peer_is_escaped_and_cut(shown: Callable[[str], str]) -> None:
    assert shown(HOSTILE).isprintable()
    assert r"\x1b" in shown(HOSTILE)
    assert len(shown(LONG)) <= MAX_SHOWN
    assert "…" in shown(LONG)


@pytest.mark.parametrize(
    "shown",
    [
        lambda text: format_address(text, 9092),
        lambda text: str(BrokerError(f"topic {text} of {text}", code=3)),
        lambda text: describe(WriteReport(ranges={(text, 0): OffsetRange(0, 1, 2)})).replace("\n", ""),
        lambda text: format_record(0, ConsumerRecord(0, 0, text.encode("utf-8", "replace"), b"v", ((text, None),))),
        lambda text: record_json(0, ConsumerRecord(0, 0, text.encode("utf-8", "replace"), b"v", ((text, None),))),
    ],
    ids=["address", "error", "report", "tail", "tail --json"],
)
def test_a_name_of_a_peer_is_escaped(shown: Callable[[str], str]) -> None:
    assert shown(HOSTILE).isprintable()


def test_a_host_from_a_broker_is_escaped_where_it_is_no_name() -> None:
    assert of_resolver("a\x1b[2J b").isprintable()
    assert len(of_resolver("x" * 30_000)) < MAX_SHOWN


def test_an_error_is_escaped_once_and_bounded() -> None:
    error = SchemaError(f"field {HOSTILE!s}")
    assert str(error).isprintable()
    assert str(SchemaError(str(error))) == str(error)
    assert len(str(SchemaError(LONG))) == MAX_MESSAGE


def test_commands_print_no_text_of_a_broker_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topics, "list_topics", lambda *_, **__: [TopicRow(HOSTILE, 1, 1, 0), TopicRow(LONG, 1, 1, 0)])
    for arguments in (["--json"], []):
        parser = argparse.ArgumentParser()
        topics.add(parser.add_subparsers())
        chosen = parser.parse_args(["topics", "list", "--bootstrap-servers", "127.0.0.1:1", *arguments])
        topics._list(chosen)
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 4
    assert all(row.isprintable() for row in rows)
    assert len(rows[3]) < MAX_SHOWN


def test_a_prompt_shows_no_text_of_a_broker_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(txn, "is_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", lambda: "yes")
    txn._confirm(argparse.Namespace(yes=False), f"Write markers into {HOSTILE}?")
    asked = capsys.readouterr().err
    assert asked.isprintable()
    assert r"\x1b[2J" in asked


def test_a_log_shows_no_text_of_a_peer_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    logger = escaping_logger("pyproducer.test")
    caplog.set_level(logging.INFO, "pyproducer.test")
    logger.info("topic %s: %s", HOSTILE, ValueError(HOSTILE))
    logger.info("%s", LONG)
    logger.info("first\nsecond %s", "\x1b", extra=HAS_LINES)
    first, second, third = (record.getMessage() for record in caplog.records)
    assert first.isprintable()
    assert len(second) == MAX_LINE
    assert third == "first\nsecond \\x1b"
    assert escaping_logger("pyproducer.test").filters == logger.filters
    assert len(logger.filters) == 1


def test_each_logger_of_the_package_escapes() -> None:
    """All loggers but `pyproducer.commit`, whose lines are JSON, and those of clouds' libraries, which are muted."""
    package = Path(spark_producer.__file__).parent
    plain = [path for path in package.rglob("*.py") if "logging.getLogger(" in path.read_text(encoding="utf-8")]
    assert sorted(str(path.relative_to(package)) for path in plain) == [
        "common/escape.py",
        "datasource/write/driver/commit.py",
        "network/auth/cloud_library.py",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["pyproducer", "spark_producer.exactly_once.cluster.control_topic", "spark_producer.broker.connections.lifecycle"],
)
def test_the_loggers_of_the_package_escape(name: str, caplog: pytest.LogCaptureFixture) -> None:
    import spark_producer.broker.connections.lifecycle
    import spark_producer.datasource.write.driver.cluster_check
    import spark_producer.exactly_once.cluster.control_topic  # noqa: F401

    caplog.set_level(logging.INFO, name)
    logging.getLogger(name).warning("made %s", HOSTILE)
    assert caplog.messages[-1].isprintable()
