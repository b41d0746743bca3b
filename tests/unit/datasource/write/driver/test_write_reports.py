"""The pages about writes: what is in them, under which names, and that no trouble with a file fails a write."""

from __future__ import annotations

import json
import pickle
import re
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.accumulators import Accumulator
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType

from spark_producer.config import SinkOptions, producer_config
from spark_producer.datasource.follow import MAX_REPORTS, Reports, Written, _followed_source, _ReportQueue
from spark_producer.datasource.write.driver import write_reports
from spark_producer.datasource.write.driver.commit import ReportedWrite, TaskReport
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.writers import BatchWriter, StreamWriter
from spark_producer.errors import CommitError, ConfigError
from spark_producer.metrics import OffsetRange, WriteReport

SERVERS = "Broker-1.Example.org:9092,broker-2:9092"


def settings(folder: object = None) -> TaskSettings:
    return TaskSettings(
        producer_config({"bootstrap.servers": SERVERS}),
        SinkOptions(topic="t", report_path=None if folder is None else str(folder)),
    )


def task(first: int, query: str | None = None) -> TaskReport:
    report = WriteReport({("t", 0): OffsetRange(first, first + 9, 10)}, 10, 1061, 1, 1, 0)
    return TaskReport(report, started=1_700_000_000.0 + first, query=query)


def only_page(folder: Path) -> dict[str, Any]:
    (file,) = folder.iterdir()
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


@pytest.mark.covers("COM16")
def test_a_batch_write_has_a_file_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there yet"
    BatchWriter(settings(folder)).commit([task(0), task(10)])
    page = only_page(folder)
    assert (page["write"], page["status"], page["batch_id"], page["records"]) == ("batch write", "committed", None, 20)
    assert page["ranges"] == [{"topic": "t", "partition": 0, "first": 0, "last": 19, "records": 20}]
    assert page["started"] == "2023-11-14T22:13:20.000+00:00"
    assert page["outputs"] == [{"namespace": "kafka://broker-1.example.org:9092", "name": "t"}]
    written = Written.from_json(json.dumps(page))
    assert (written.records, written.ranges["t", 0].last) == (20, 19)
    assert written.started is not None
    assert written.ended >= written.started
    BatchWriter(settings(folder)).commit([task(20)])
    assert len(list(folder.iterdir())) == 2


@pytest.mark.covers("COM16")
def test_a_repeated_micro_batch_overwrites_its_file(tmp_path: Path) -> None:
    writer = StreamWriter(settings(f"file://{tmp_path}"))
    writer.abort([task(0, "q1"), None], 7)
    assert [file.name for file in tmp_path.iterdir()] == ["q1-00000007.json"]
    assert only_page(tmp_path)["status"] == "aborted"
    writer.commit([task(10, "q1")], 7)
    page = only_page(tmp_path)
    assert (page["status"], page["batch_id"], page["query_id"], page["records"]) == ("committed", 7, "q1", 10)
    writer.commit([task(20, "q2")], 7)
    writer.commit([], 8)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "q1-00000007.json", "q2-00000007.json", "query-00000008.json",
    ]  # fmt: skip


@pytest.mark.covers("COM16")
def test_a_path_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way", encoding="utf-8")
    for folder in (blocked / "reports", "nonsense://host/path"):
        caplog.clear()
        BatchWriter(settings(folder)).commit([task(0)])
        (reported,) = [record for record in caplog.records if record.levelname == "WARNING"]
        assert f"its report could not be saved in reportPath {folder}" in reported.getMessage()
        assert "the write is committed" in reported.getMessage()
        assert '"records": 10' in reported.getMessage(), "who reads the log has the report all the same"


@pytest.mark.covers("COM16")
def test_nothing_half_written_is_left_under_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers look for *.json: while a file is written, it has a hidden name."""
    seen: list[list[str]] = []
    whole = write_reports._file_system

    def watched(folder: str) -> Any:
        system, base = whole(folder)

        class Watched:
            def __getattr__(self, name: str) -> Any:
                seen.append([one.name for one in tmp_path.iterdir() if not one.name.startswith(".")])
                return getattr(system, name)

        return Watched(), base

    monkeypatch.setattr(write_reports, "_file_system", watched)
    write_reports.save("{}", str(tmp_path), "a.json", overwrite=True)
    assert seen
    assert all(names == [] for names in seen)
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_a_skipped_write_keeps_the_report_of_the_one_that_wrote(tmp_path: Path) -> None:
    write_reports.save("first", str(tmp_path), "a.json", overwrite=True)
    write_reports.save("second", str(tmp_path), "a.json", overwrite=False)
    assert (tmp_path / "a.json").read_text("utf-8") == "first\n"
    write_reports.save("third", str(tmp_path), "b.json", overwrite=False)
    assert (tmp_path / "b.json").read_text("utf-8") == "third\n"


def test_without_followers_and_folders_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(write_reports, "publish", None)
    BatchWriter(settings()).commit([task(0)])
    BatchWriter(settings()).abort([None])
    with pytest.raises(CommitError):
        BatchWriter(settings(tmp_path / "x")).commit([None])
    assert list(tmp_path.iterdir()) == []


def accumulated() -> tuple[Accumulator[deque[str]], Reports]:
    accumulator = Accumulator(-17, deque[str](maxlen=MAX_REPORTS), _ReportQueue())
    return accumulator, Reports(None, accumulator)  # type: ignore[arg-type]  # no frame is made here


@pytest.mark.covers("COM15")
def test_commits_and_aborts_report_once_each_in_order() -> None:
    accumulator, reports = accumulated()
    with pytest.raises(LookupError, match="has ended since follow"):
        _ = reports.latest
    writer = StreamWriter(settings())
    writer.follower = accumulator
    writer.commit([task(0, "q"), task(10, "q")], 1)
    writer.abort([task(20, "q"), None], 2)
    assert [(one.batch_id, one.status, one.records) for one in reports] == [(1, "committed", 20), (2, "aborted", 10)]
    assert reports.latest.ranges["t", 0] == OffsetRange(20, 29, 10)
    assert len(reports.take()) == 2
    assert reports.take() == []
    writer.commit([task(20, "q")], 2)
    assert [one.status for one in reports.take()] == ["committed"]
    assert len(reports) == 3, "what was taken is kept"


@pytest.mark.covers("COM15")
def test_a_followed_source_travels_with_its_accumulator_and_its_errors_stay_short() -> None:
    """To a process that has never called `follow`."""
    accumulator, _ = accumulated()
    spark = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    pickled = spark.dumps(_followed_source(accumulator))  # type: ignore[no-untyped-call]
    source = pickle.loads(pickled)({"nonsense": "1"})
    assert type(source).__name__ == "FollowedDataSource"
    assert type(source) is not _followed_source(accumulator)
    with pytest.raises(ConfigError) as raised:
        source.writer(StructType([]), overwrite=False)
    frames = [frame for frame in raised.traceback if "/spark_producer/" in str(frame.path)]
    assert len(frames) == 1


@pytest.mark.covers("COM15")
def test_the_newest_thousand_are_kept_also_without_a_reader() -> None:
    accumulator, reports = accumulated()
    writer = StreamWriter(settings())
    writer.follower = accumulator
    for number in range(MAX_REPORTS + 5):
        writer.commit([], number)
    assert [one.batch_id for one in reports][:: MAX_REPORTS - 1] == [5, MAX_REPORTS + 4]


REJECTED = WriteReport(
    {("t", 0): OffsetRange(0, 9, 10)}, 10, 1061, 2, 1, 0, 3, {"row": 2, "size": 1}, {("dead", 1): OffsetRange(5, 7, 3)}
)


@pytest.mark.covers("COM5")
def test_the_frame_of_reports_has_the_rows_that_were_rejected() -> None:
    page = write_reports.report_of_write(ReportedWrite(REJECTED), [task(0)], "batch write", None, SERVERS) | {
        "query_id": None
    }
    made: list[tuple[Any, str]] = []
    session = SimpleNamespace(createDataFrame=lambda *arguments: made.append(arguments))  # a real one needs a JVM
    reported = SimpleNamespace(value=deque([json.dumps(page)]))
    Reports(cast(Any, session), cast(Any, reported)).to_frame()
    [([values], schema)] = made
    row = dict(zip(re.findall(r"(?:^|, )(\w+) ", schema), values, strict=True))
    assert (row["records"], row["rejected"], row["rejected_by"]) == (10, 3, {"row": 2, "size": 1})
    assert row["ranges"] == [("t", 0, 0, 9, 10)]
    assert row["dead_letters"] == [("dead", 1, 5, 7, 3)]
