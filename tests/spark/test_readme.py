"""Every example of the README and of the pages in docs/, pasted as it stands, against the embedded broker."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.cli.entry import main
from spark_producer.record.reading import read_records, single_records
from tests.support.read_back import read_topic
from tests.support.read_confluent import end_offsets
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
OWN_TEST = [
    "avro.md", "json_schema.md", "kafka_to_tables.md", "metrics.md", "pipelines.md", "protobuf.md", "reports.md", "sail.md",
    "security.md", "tables_to_kafka.md", "transactions.md", "upstream.md"
]  # fmt: skip
"""Run by tests of their own: spark/test_avro.py, spark/test_json_schema.py, spark/test_metrics_page.py, spark/test_protobuf.py,
spark/test_reports.py, platforms/sail.py, platforms/recipes.py, spark/test_pipelines.py, pages/test_security_page.py,
kafka/test_transactions.py, spark/test_upstream.py."""

PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in OWN_TEST)]
SECONDS = 60


def blocks(language: str) -> list[str]:
    """The examples of all pages, once each: docs/index.md shows one of the README's."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return list(dict.fromkeys(block for page in PAGES for block in pattern.findall(page.read_text(encoding="utf-8"))))


def example(marker: str) -> str:
    """The one Python example that contains `marker`."""
    (found,) = [block for block in blocks("python") if marker in block]
    return found


class Page:
    """The examples, run in one namespace, in which `spark` is there and `localhost:9092` is our broker."""

    def __init__(self, spark: SparkSession, broker: LocalBroker, checkpoint: Path) -> None:
        self.spark, self.broker = spark, broker
        self._replacements = {"localhost:9092": broker.bootstrap_servers, "/tmp/ticks-checkpoint": str(checkpoint)}
        self._replacements["/tmp/first-checkpoint"] = f"{checkpoint}-first"
        self._replacements["/tmp/orders-checkpoint"] = f"{checkpoint}-orders"
        self._replacements["/tmp/flights-checkpoint"] = f"{checkpoint}-flights"
        self._replacements["/tmp/loud-checkpoint"] = f"{checkpoint}-loud"
        self.names: dict[str, Any] = {"spark": spark}

    def text(self, text: str) -> str:
        for old, new in self._replacements.items():
            text = text.replace(old, new)
        return text

    def run(self, marker: str) -> None:
        """The one Python example that contains `marker`."""
        exec(compile(self.text(example(marker)), marker, "exec"), self.names)

    def wait_for_records(self, topic: str) -> None:
        wait_until(
            lambda: topic in self.broker.topics() and self.count(topic),
            f"a record in {topic}",
            seconds=SECONDS,
            pause=0.1,
        )

    def count(self, topic: str) -> int:
        return sum(end_offsets(self.broker.bootstrap_servers, topic).values())


@pytest.fixture
def page(spark: SparkSession, tmp_path: Path) -> Iterator[Page]:
    with LocalBroker(default_partitions=2) as broker:
        yield Page(spark, broker, tmp_path / "checkpoint")
    for query in spark.streams.active:
        query.stop()


def test_every_example_is_run_here() -> None:
    """A new example needs a new test."""
    assert len(blocks("python")) == 32  # test_replay.py runs the replay of dead letters
    assert len(blocks("sql")) == 2


def test_batch_and_producer(page: Page) -> None:
    page.run("people.write")
    page.run("written = producer.send(")
    rows = read_topic(page.broker.bootstrap_servers, "people", expected=4)
    assert {(row.key, row.value) for row in rows} == {
        (b"1", b"Ada"),
        (b"2", b"Grace"),
        (b"3", b"Edith"),
        (b"4", b"Katherine"),
    }
    assert [row.headers for row in rows if row.headers] == [[("source", b"readme")]]


def test_what_was_written_is_read_back(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run("people.write")
    page.run("records = (")
    rows = page.names["records"].selectExpr("string(key)", "string(value)").collect()
    assert sorted(map(tuple, rows)) == [("1", "Ada"), ("2", "Grace"), ("3", "Edith")]
    assert "Edith" in capsys.readouterr().out


def test_reads_as_batch_and_as_stream_and_of_one_column(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    with Producer({"bootstrap.servers": page.broker.bootstrap_servers}) as producer:
        producer.send_batch(pa.record_batch({"key": ["1", None], "value": ["late", "early"]}), topic="flights")
    page.run("flights = (")
    assert "early" in capsys.readouterr().out
    assert page.names["flights"].columns[:2] == ["key", "value"]
    page.run("values = (")
    assert capsys.readouterr().out.strip() == "2"
    page.run('"flights-loud"')
    page.wait_for_records("flights-loud")
    page.names["query"].processAllAvailable()
    page.names["query"].stop()
    rows = read_topic(page.broker.bootstrap_servers, "flights-loud", isolation="read_committed")
    assert sorted((row.key or b"", row.value) for row in rows) == [(b"", b"EARLY"), (b"1", b"LATE")]


def test_the_workers_run_the_compiled_kernel_after_the_commands_of_the_readme(spark: SparkSession) -> None:
    """`make setup` has made the environment of this run; the workers start in the checkout."""
    assert any(block.startswith("$ make setup ") for block in blocks("console"))
    assert Path(sys.prefix) == ROOT / ".venv"

    def where_and_what(_: int) -> tuple[str, str]:
        from spark_producer.kernel import LOADED

        return str(Path.cwd()), LOADED.describe()

    found = spark.sparkContext.parallelize(range(2), 2).map(where_and_what).collect()
    assert set(found) == {(str(ROOT), "compiled kernel")}


def test_deliveries_are_reported(page: Page) -> None:
    page.run("written = producer.send(")
    page.run("on_delivery=on_delivery")
    assert page.names["lost"] == []
    rows = read_topic(page.broker.bootstrap_servers, "people", expected=4)
    assert {row.value for row in rows} == {b"Katherine", b"Margaret", b"Dorothy", b"Mary"}


def test_a_list_is_sent_at_once(page: Page) -> None:
    page.run("written = producer.send_many")
    assert page.names["written"].result(0).records == 2
    rows = read_topic(page.broker.bootstrap_servers, "people", expected=2)
    assert [(row.value, row.headers) for row in sorted(rows, key=lambda row: row.value or b"")] == [
        (b"Ada", [("source", b"list")]),
        (b"Grace", []),
    ]


def test_a_topic_is_read_without_spark(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run("people.write")
    page.run("people = read_table(")
    assert "Grace" in capsys.readouterr().out
    assert page.names["people"].num_rows == 3
    assert page.names["added"].num_rows == 0


def test_threads_that_share_a_producer(page: Page) -> None:
    page.run("ThreadPoolExecutor(4)")
    rows = read_topic(page.broker.bootstrap_servers, "people", expected=10)
    assert sorted(row.value or b"" for row in rows) == sorted(b"%d" % number for number in range(10))


def test_a_mock_takes_a_producers_place(page: Page) -> None:
    page.run("MockProducer(auto_complete=False)")
    assert len(page.names["mock"].history) == 1


def test_any_dataframe_as_records_and_as_cloud_events(page: Page) -> None:
    page.run("records = as_records(")
    rows = read_topic(page.broker.bootstrap_servers, "flights", expected=2)
    assert {(row.key, row.value) for row in rows} == {
        (b"UA", b'{"carrier":"UA","flight":1545,"delay":2.0}'),
        (b"AA", b'{"carrier":"AA","flight":1141}'),
    }
    assert sorted(row.headers for row in rows)[1] == [("source", b"flights"), ("number", b"1545")]
    page.run("events = as_cloud_events(")
    assert page.names["events"].count() == 2


def test_the_first_steps(page: Page) -> None:
    """The examples as printed: a write, a mistake that names the right option, a stream that goes on where it ended."""
    page.run("to_first.save()")
    of_ada = [row for row in read_topic(page.broker.bootstrap_servers, "first", expected=3) if row.key == b"Ada"]
    assert sorted(row.value or b"" for row in of_ada) == [
        b'{"id":1,"customer":"Ada","price":12.5}',
        b'{"id":3,"customer":"Ada","price":3.25}',
    ]
    assert len({row.partition for row in of_ada}) == 1
    with pytest.raises(Exception, match=r"unknown option 'deadletertopic'\. Did you mean 'deadLetterTopic'"):
        page.run("deadLeterTopic")
    assert page.count("first") == 3
    page.run("found.selectExpr(")
    assert page.names["found"].count() == 3
    page.run("def start():")
    page.wait_for_records("first-stream")
    page.run("ticking.stop()")
    before = page.count("first-stream")
    wait_until(lambda: page.count("first-stream") > before, "a record after the restart", seconds=SECONDS, pause=0.1)
    page.names["ticking"].stop()
    assert page.names["ticking"].exception() is None
    rows = read_topic(page.broker.bootstrap_servers, "first-stream", isolation="read_committed")
    numbers = sorted(json.loads(row.value or b"")["value"] for row in rows)
    assert numbers == list(range(len(numbers))), "none is missing, and none is there twice"


def test_a_check_from_the_executors(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run("spark_producer.check(spark, options)")
    reported = capsys.readouterr().out
    assert " failed topic UNKNOWN_TOPIC_OR_PARTITION (3) for topic 'people'" in reported
    assert " ok connection " in reported


def test_a_function_that_places_rows() -> None:
    names: dict[str, Any] = {}
    exec(compile(example("def by_length("), "def by_length(", "exec"), names)
    with LocalBroker(default_partitions=3) as broker:
        with Producer({"bootstrap.servers": broker.bootstrap_servers}, partitioner=names["by_length"]) as producer:
            producer.send_batch(pa.record_batch({"value": ["", "aaaa", None, "bb"]}), topic="people")
        rows = read_topic(broker.bootstrap_servers, "people", expected=4)
    assert sorted((row.partition, row.value or b"") for row in rows) == [(0, b""), (0, b""), (1, b"aaaa"), (2, b"bb")]


def test_streaming_and_update_mode(page: Page) -> None:
    page.run('as_records(ticks, key="value % 10"')
    page.run("foreachBatch(write_counts)")
    page.wait_for_records("ticks")
    page.wait_for_records("counts")
    for query in (page.names["query"], page.names["counting"]):
        query.stop()
        assert query.exception() is None
    first = read_topic(page.broker.bootstrap_servers, "ticks")[0]
    assert first.value is not None
    assert b'"timestamp"' in first.value


def test_rows_of_a_key_in_order(page: Page) -> None:
    page.run('changes.repartition("key")')
    rows = read_topic(page.broker.bootstrap_servers, "changes", expected=3)
    assert [row.value for row in rows if row.key == b"1"] == [b"new", b"paid"]
    assert [row.value for row in rows if row.key == b"2"] == [b"new"]


def test_a_dead_letter_topic(page: Page) -> None:
    for topic in ("flights", "flights.dead"):
        page.broker.create_topic(topic)
    before = set(page.spark.streams.active)
    page.names["df"] = page.spark.readStream.format("rate").load().selectExpr("string(value) as value")
    page.run('"deadLetterTopic", "flights.dead"')
    page.wait_for_records("flights")
    for query in set(page.spark.streams.active) - before:
        query.stop()
        assert query.exception() is None


def test_exactly_once(page: Page) -> None:
    """A batch write whose number was there before writes nothing, in `foreachBatch` too."""
    batch = page.spark.createDataFrame([(1,), (2,)], "value long")
    for topic, expected in (("days", {b"Ada", b"Grace"}), ("once", {b"1", b"2"})):
        ends = []
        for _ in range(2):
            page.run(f'"exactlyOnceId", "{topic}"')
            if topic == "once":
                page.names["write_once"](batch, 7)
            ends.append(page.count(topic))
        rows = read_topic(page.broker.bootstrap_servers, topic, expected=2)
        assert {row.value for row in rows} == expected
        assert ends[0] == ends[1]
    page.run('"exactlyOnceId", "orders"')
    page.wait_for_records("orders")
    page.names["query"].stop()
    assert page.names["query"].exception() is None


def test_what_was_written(page: Page) -> None:
    page.run("logged.show(")
    try:
        page.run("people.write")
        # Spark takes the line over from the process that wrote it.
        (report,) = wait_until(page.names["logged"].collect, "the line", seconds=SECONDS, pause=0.1)
        assert report.level == "INFO"
        assert report.msg.startswith("batch write: 3 records in ")
        assert "people-0: offsets 0 to " in report.msg
    finally:
        page.spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")


def test_a_log_for_old_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = pa.table({"key": ["1", "2"], "value": ["Ada", "Grace"]})
    exec(compile(example("encode_table("), "encode_table(", "exec"), {"table": table})
    batches = read_records((tmp_path / "people.log").read_bytes())
    assert [record.value for batch in batches for record in single_records(batch)] == [b"Ada", b"Grace"]


def test_register(page: Page) -> None:
    page.run("spark_producer.register(spark)")
    page.run("people.write")
    assert page.count("people") == 3


def test_sql(page: Page) -> None:
    script, view = blocks("sql")
    try:
        *statements, select = (each for each in page.text(script).split(";") if each.strip())
        for statement in statements:
            page.spark.sql(statement)
        assert page.count("events") == 10
        values = [row[0] for row in page.spark.sql(select).collect()]
        assert sorted(values) == [f"event {number}" for number in range(10)]
        create, select, _ = page.text(view).split(";")
        page.spark.sql(create)
        assert sorted(row[0] for row in page.spark.sql(select).collect()) == sorted(values)
        page.run('frame.writeTo("events")')
        assert page.count("events") == 20
        with pytest.raises(AnalysisException, match=r"kafka\.bootstrap\.servers is not set"):
            page.spark.sql("INSERT INTO events SELECT 'key', 'value'")
        with pytest.raises(AnalysisException, match="cannot be overwritten"):
            page.spark.sql("INSERT OVERWRITE events SELECT 'key', 'value'")
        with pytest.raises(
            AnalysisException, match=r"column 'key' of the schema has type string, but is read as binary"
        ):
            page.spark.sql(
                "SELECT * FROM events WITH ('kafka.bootstrap.servers' = 'localhost:9092', 'subscribe' = 'events')"
            ).collect()
    finally:
        page.spark.sql("DROP VIEW IF EXISTS latest_events")
        for table in ("events", "records"):
            page.spark.sql(f"DROP TABLE IF EXISTS {table}")
        shutil.rmtree("spark-warehouse", ignore_errors=True)


def test_a_batch_write_without_append_fails_as_the_readme_says(page: Page) -> None:
    frame = page.spark.createDataFrame([("value",)], "value string")
    writer = frame.write.format("pyproducer").option("kafka.bootstrap.servers", page.broker.bootstrap_servers)
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.option("topic", "people").save()


def test_update_mode_is_refused_by_spark(page: Page, tmp_path: Path) -> None:
    source = page.spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    writer = source.writeStream.format("pyproducer").option("checkpointLocation", str(tmp_path))
    options = {"kafka.bootstrap.servers": page.broker.bootstrap_servers, "topic": "people"}
    query = writer.options(**options).outputMode("update").start()
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        query.awaitTermination(SECONDS)


def test_the_commands_of_all_pages_parse(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [line for block in blocks("console") for line in block.splitlines() if line.startswith("$ pyproducer")]
    assert commands
    for line in commands:
        arguments = shlex.split(line, comments=True)[2:]
        with pytest.raises(SystemExit) as caught:
            main([*arguments, "--help"])
        assert caught.value.code == 0
        shown = capsys.readouterr().out
        assert all(argument in shown for argument in arguments if argument.startswith("--"))
