"""The driver's reports of a committed, and of an aborted, write."""

from __future__ import annotations

import json
import logging

import pytest

from spark_producer.datasource.write.driver import commit as commit_module
from spark_producer.datasource.write.driver.commit import TaskReport, abort, commit
from spark_producer.metrics import Levels, OffsetRange, WriteReport
from tests.fakes.metric_events import everything_once, new_metrics


def task(first: int) -> TaskReport:
    metrics = new_metrics()
    everything_once(metrics)
    report = WriteReport({("t", 0): OffsetRange(first, first + 9, 10)}, 10, 1061, 1, 1, 0)
    return TaskReport(report, metrics.since_mark(Levels(), 2.0))


def test_a_commit_logs_a_page_for_people_and_a_line_for_programs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reported = commit([task(0), task(10)], "micro-batch 3")
    assert reported.status == "committed"
    assert reported.report.ranges == {("t", 0): OffsetRange(0, 19, 20)}
    people, programs = caplog.records
    assert (people.name, people.levelname) == ("pyproducer", "INFO")
    assert people.getMessage().startswith("micro-batch 3: 20 records in 2.00 s (10/s); 2,122 bytes ")
    assert "\n  t-0: offsets 0 to 19, 20 records" in people.getMessage()
    assert (programs.name, programs.levelname) == ("pyproducer.commit", "INFO")
    page = json.loads(programs.getMessage())
    assert (page["write"], page["records"]) == ("micro-batch 3", 20)
    assert page["metrics"]["pyproducer-metrics"]["record-delivered-total"] == 20


def test_tasks_without_metrics_are_counted_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert commit([TaskReport(task(0).report), task(10)], "batch write").report.records == 20
    assert json.loads(caplog.records[1].getMessage())["metrics"]["pyproducer-metrics"]["record-delivered-total"] == 10
    caplog.clear()
    commit([TaskReport(task(0).report)], "batch write")
    assert "metrics" not in json.loads(caplog.records[1].getMessage())


def test_an_abort_is_one_warning_for_people(caplog: pytest.LogCaptureFixture) -> None:
    reported = abort([task(0), None], "batch write")
    assert (reported.report.records, reported.status) == (10, "aborted")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("pyproducer", "WARNING")
    assert "stay in Kafka" in record.getMessage()
    assert "10 records" in record.getMessage()


def test_messages_without_a_handler_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's logging of Python workers adds one. The messages would be most of the work of a small commit."""

    def forbidden(*_: object, **__: object) -> str:
        raise AssertionError("the message is made")

    for name in ("describe", "to_json"):
        monkeypatch.setattr(commit_module, name, forbidden)
    for logger in (commit_module.logger, commit_module.json_logger):
        monkeypatch.setattr(logger, "propagate", False)
    assert commit([task(0), task(10)], "micro-batch 3").report.records == 20
    monkeypatch.setattr(commit_module.logger, "propagate", True)
    with pytest.raises(AssertionError, match="the message is made"):  # pytest's own handler would show it
        commit([task(0)], "micro-batch 4")
