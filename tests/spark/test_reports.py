"""The reports of writes, COM15 to COM17, in real sessions, beside the offsets that a foreign client sees."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession

import spark_producer
from spark_producer.broker import LocalBroker
from spark_producer.datasource.follow import Reports, Written
from tests.conftest import Broker
from tests.spark.frames import write
from tests.spark.isolated import REPOSITORY, run_program
from tests.spark.streams import FileStream

SECONDS = 60
PAGE = REPOSITORY / "docs" / "reports.md"

Watermarks = dict[int, tuple[int, int]]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session of its own, since it registers a source of its own."""
    return spark.newSession()


@pytest.fixture
def reports(session: SparkSession) -> Reports:
    found = spark_producer.follow(session)
    found.take()
    return found


def ends(broker: Broker, topic: str, partitions: int) -> list[int]:
    """The high watermarks, as librdkafka sees them."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "ends"})
    try:
        found = [
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=SECONDS) for each in range(partitions)
        ]
        return [high for _, high in found]
    finally:
        consumer.close()


@pytest.mark.covers("COM15", "COM17")
def test_a_batch_reports_the_watermarks_before_and_after(
    session: SparkSession, reports: Reports, broker: Broker, topic: str
) -> None:
    broker.create_topic(topic, 3)
    frame = session.range(0, 1000, 1, 4).selectExpr("string(id) as key", "string(id) as value")
    write(frame.limit(10), broker, topic)
    before = ends(broker, topic, 3)
    write(frame, broker, topic)
    after = ends(broker, topic, 3)
    first, second = reports.take()
    assert (first.records, second.records) == (10, 1000)
    assert (second.write, second.status, second.batch_id) == ("batch write", "committed", None)
    ranges = [second.ranges[topic, partition] for partition in range(3)]
    assert [(one.first, one.last + 1) for one in ranges] == list(zip(before, after, strict=True))
    assert sum(one.records for one in ranges) == 1000
    assert second.outputs == ({"namespace": f"kafka://{broker.bootstrap_servers.lower()}", "name": topic},)
    assert second.metrics["pyproducer-metrics"]["record-delivered-total"] == 1000
    assert second.started is not None
    assert second.started <= second.ended
    assert reports.latest is second
    assert spark_producer.follow(session) is reports


@pytest.mark.covers("COM15")
def test_a_session_that_follows_its_writes_reads_too(
    session: SparkSession, reports: Reports, embedded_broker: Broker, topic: str, tmp_path: Path
) -> None:
    embedded_broker.create_topic(topic, 2)
    write(session.range(0, 100, 1, 2).selectExpr("string(id) as value"), embedded_broker, topic)
    servers = ("kafka.bootstrap.servers", embedded_broker.bootstrap_servers)
    read = session.read.format("pyproducer").option(*servers).option("subscribe", topic).load()
    assert {int(row.value) for row in read.collect()} == {*range(100)}
    stream = session.readStream.format("pyproducer").option(*servers).option("subscribe", topic)
    rows = stream.option("startingOffsets", "earliest").load()
    query = rows.writeStream.format("memory").queryName("followed_read").trigger(availableNow=True)
    assert query.option("checkpointLocation", str(tmp_path)).start().awaitTermination(SECONDS)
    assert session.table("followed_read").count() == 100
    assert [one.records for one in reports.take()] == [100]


@pytest.mark.covers("COM15", "COM16")
def test_two_queries_and_a_restart(
    session: SparkSession, reports: Reports, embedded_broker: Broker, topic: str, tmp_path: Path
) -> None:
    embedded_broker.create_topic(topic, 1)
    folder, options = tmp_path / "reports", {"reportPath": tmp_path / "reports"}
    queries = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        stream = FileStream(session, tmp_path / name, "value string")
        stream.put("0", [{"value": name}] * 3)
        stream.put("1", [{"value": name}] * 4)
        query = stream.to(embedded_broker, topic, options=options).trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS)
        queries.append(query)
        (last,) = (stream.checkpoint / "commits").glob("1")
        last.unlink()  # as if the driver had died before Spark wrote down that the micro-batch was done
        (stream.checkpoint / "commits" / ".1.crc").unlink()
        again = stream.to(embedded_broker, topic, options=options).trigger(availableNow=True).start()
        assert again.awaitTermination(SECONDS)
    reported = [(one.query_id, one.batch_id, one.records) for one in reports.take()]
    assert reported == [(query.id, batch, count) for query in queries for batch, count in ((0, 3), (1, 4), (1, 4))]
    files = {file.name: Written.from_json(file.read_text("utf-8")) for file in folder.iterdir()}
    assert sorted(files) == sorted(f"{query.id}-{batch:08}.json" for query in queries for batch in (0, 1))
    offsets = [files[f"{query.id}-00000001.json"].ranges[topic, 0][:2] for query in queries]
    assert offsets == [(7, 10), (18, 21)], "those of the repetition"


@pytest.mark.covers("COM15")
def test_a_failed_write_reports_what_stays(
    session: SparkSession, reports: Reports, embedded_broker: Broker, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    good = session.range(5).selectExpr("string(id) as value", "0 as partition").coalesce(1)
    bad = session.range(1).selectExpr("'v' as value", "-1 as partition").coalesce(1)
    with pytest.raises(Exception, match="partition -1"):
        write(good.union(bad), embedded_broker, topic)
    (reported,) = reports.take()
    assert reported.status == "aborted"
    assert reported.records in (0, 5), "whether the good task ended before the bad one failed the write"
    frame = reports.to_frame().where("status = 'aborted'")
    assert [(row.write, row.records) for row in frame.collect()] == [("batch write", reported.records)]


RETRIED = """
import sys
from pyspark import TaskContext
from pyspark.sql import SparkSession
import spark_producer

bootstrap, topic = sys.argv[1:]
spark = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false").getOrCreate()
reports = spark_producer.follow(spark)
spark_producer.register(spark)

def fails_once(batches):
    yield from batches
    if TaskContext.get().partitionId() == 0 and TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("once")

frame = spark.range(0, 100, 1, 2).selectExpr("string(id) as value").mapInArrow(fails_once, "value string")
frame.write.format("pyproducer").mode("append").options(**{"kafka.bootstrap.servers": bootstrap, "topic": topic}).save()
assert [(one.status, one.records) for one in reports] == [("committed", 100)], list(reports)
assert sum(found.records for found in reports.latest.ranges.values()) == 100
"""


@pytest.mark.covers("COM15")
@pytest.mark.spark
@pytest.mark.slow
def test_a_task_that_is_run_again_counts_once(embedded_broker: Broker, topic: str, tmp_path: Path) -> None:
    embedded_broker.create_topic(topic, 1)
    said = run_program(RETRIED, [embedded_broker.bootstrap_servers, topic], [REPOSITORY], tmp_path)
    assert "replaced a" not in said, "Spark warns of no data source, neither of follow() nor of register()"
    assert ends(embedded_broker, topic, 1)[0] >= 100


class Page:
    """The examples of the page, run in one namespace, in which `localhost:9092` is our broker."""

    def __init__(self, names: dict[str, Any], replacements: dict[str, str]) -> None:
        self.names, self._replacements = names, replacements
        self.left = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)

    def run(self, marker: str) -> None:
        (found,) = [block for block in self.left if marker in block]
        self.left.remove(found)
        for old, new in self._replacements.items():
            found = found.replace(old, new)
        exec(compile(found, marker, "exec"), self.names)


@pytest.mark.covers("COM15", "COM16")
def test_the_examples_of_the_page_and_its_recipes(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = session.range(7).selectExpr("string(id) as value")
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    with LocalBroker(default_partitions=2) as broker:
        here = {"localhost:9092": broker.bootstrap_servers, "/data/reports": str(tmp_path)}
        page = Page({"spark": session, "df": frame}, here)
        page.run("spark_producer.follow(spark)")
        assert page.names["written"].records == 7
        page.run("reportPath")
        assert len(list(tmp_path.iterdir())) == 1
        page.run("prometheus_client")
        broker.create_topic("dead")
        bad = frame.selectExpr("value", "cast(if(value = '3', -5, null) as int) as partition")
        write(bad, broker, "events", {"deadLetterTopic": "dead"})
        assert REGISTRY.get_sample_value("pyproducer_records_delivered_total", {"topic": "events"}) == 20
        assert REGISTRY.get_sample_value("pyproducer_records_rejected_total", {"reason": "row"}) == 1
        assert (REGISTRY.get_sample_value("pyproducer_request_latency_seconds") or 0) > 0
        page.run("opentelemetry")
        write(bad, broker, "events", {"deadLetterTopic": "dead"})
        reported = json.loads(reader.get_metrics_data().to_json())  # type: ignore[union-attr]  # there is one
        lineage = tmp_path / "lineage.jsonl"
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(lineage))
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
        page.run("openlineage")
        write(bad, broker, "events", {"deadLetterTopic": "dead"})
        page.names["send_lineage"]()
        (event,) = map(json.loads, lineage.read_text("utf-8").splitlines())
    assert page.left == [], "a new example needs a line here"
    assert event["eventType"] == "COMPLETE"
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == (f"kafka://{broker.bootstrap_servers}", "events")
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 6
    found = {
        metric["name"]: [(point["value"], point["attributes"]) for point in metric["data"]["data_points"]]
        for metric in reported["resource_metrics"][0]["scope_metrics"][0]["metrics"]
    }
    assert found == {
        "pyproducer.records.delivered": [(6, {"topic": "events"})],
        "pyproducer.records.rejected": [(1, {"reason": "row"})],
    }
