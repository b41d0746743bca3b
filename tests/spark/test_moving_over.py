"""docs/moving_over.md: both sides of every change on it run and write the same rows, and its tables are true.

Spark's own Kafka sink and confluent-kafka write the rows before a change, so the page says nothing of them that did not happen.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from spark_producer.broker import LocalBroker
from spark_producer.config import KAFKA_FIELDS, SINK_FIELDS, unsupported
from spark_producer.config.profiles import profile
from tests.spark.isolated import REPOSITORY, run_program
from tests.support.jars import spark_sink_jars
from tests.support.read_back import Row, read_topic

SINK, SOURCE, CLIENT = re.split(
    r"^## From (?:Spark's Kafka source|confluent-kafka)",
    (REPOSITORY / "docs" / "moving_over.md").read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)
PAGE = SINK + CLIENT
"""Without the source's half, which test_read_stream.py and test_source_options.py try."""

DIFFS = re.findall(r"^```diff\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NAMED = ("batch", "stream", "function")
PARTITIONS, ROWS = 4, 40

pytestmark = pytest.mark.xdist_group("moving over")  # all of them check the results of one program of Spark

PROGRAM = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr, lit

jars, servers = sys.argv[1:]
steps = json.loads(Path("steps.json").read_text())
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
orders = spark.range(40).select("id", expr("concat('item ', id)").alias("item"))
Path("orders").mkdir()
stream = spark.readStream.schema("id long, item string").json("orders")
names = {"__name__": "__main__", "orders": orders, "stream": stream}

for number, (text, topic) in enumerate(steps):
    text = text.replace("localhost:9092", servers).replace('"orders"', repr(topic))
    text = text.replace("/tmp/orders-checkpoint", "checkpoint")
    if "Stream" in text:
        line = json.dumps({"id": number, "item": "item"})
        Path("orders", f"{number}.json").write_text(line)
    exec(compile(text, topic, "exec"), names)
    if "Stream" in text:
        names["query"].processAllAvailable()
        names["query"].stop()

# Topic of a case → the text of its error: empty if the write succeeded.
plain = spark.range(1).select(lit("v").alias("value"))
old = plain.withColumn("timestamp", lit("2020-01-01 00:00:00").cast("timestamp"))
headers = plain.withColumn("headers", expr("array(struct('name' as key, cast('x' as binary) as value))"))
cases = {
    "other column": (plain.withColumn("other", lit(1)), {}),
    "timestamp": (old, {}),
    "no headers": (headers, {"includeHeaders": "false"}),
    "headers as a map": (plain.withColumn("headers", expr("map('name', 'x')")), {}),
    "null topic": (plain.withColumn("topic", lit(None).cast("string")), {"topic": None}),
    "misspelt": (plain, {"kafka.bathc.size": "1"}),
    "ours": (plain, {"profile": "latency", "deadLetterTopic": "dead", "reportPath": "reports", "exactlyOnceId": "once"}),
    "kafka.key.serializer": (plain, {"kafka.key.serializer": "x"}),
    "kafka.interceptor.classes": (plain, {"kafka.interceptor.classes": "org.example.None"}),
    "update mode": None,
}
errors = {}
for name in ("kafka", "pyproducer"):
    for case, chosen in cases.items():
        topic = f"{case}-{name}".replace(" ", "-")
        try:
            if chosen is None:
                counts = stream.groupBy("id").count().selectExpr("string(count) as value").writeStream.format(name)
                counts = counts.option("kafka.bootstrap.servers", servers).option("topic", topic).outputMode("update")
                running = counts.option("checkpointLocation", topic).start()
                running.processAllAvailable()
                running.stop()
            else:
                frame, options = chosen
                given = {"kafka.bootstrap.servers": servers, "topic": topic, **options}
                given = {option: value for option, value in given.items() if value is not None}
                frame.write.format(name).mode("append").options(**given).save()
        except Exception as error:
            errors[topic] = str(error)[:2000]
        else:
            errors[topic] = ""
Path("errors.json").write_text(json.dumps(errors))
"""


def sides(diff: str) -> tuple[str, str]:
    """The code before a change, and after it."""
    lines = diff.splitlines()
    before = [line[1:] for line in lines if not line.startswith("+")]
    return "\n".join(before), "\n".join(line[1:] for line in lines if not line.startswith("-"))


class Moved:
    """The broker with the written topics, and the errors of all attempts."""

    def __init__(self, broker: LocalBroker, reported: dict[str, str]) -> None:
        self._broker, self.reported = broker, reported

    def rows(self, topic: str, expected: int) -> list[Row]:
        return read_topic(self._broker.bootstrap_servers, topic, expected=expected)

    def placed(self, topic: str) -> set[tuple[int, bytes | None, bytes | None]]:
        found = self.rows(topic, ROWS)
        assert len(found) == ROWS
        return {(row.partition, row.key, row.value) for row in found}


@pytest.fixture(scope="module")
def moved(embedded_broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Moved:
    directory = tmp_path_factory.mktemp("moving")
    steps: list[tuple[str, str]] = []
    for name, diff in zip(NAMED, DIFFS, strict=True):
        before, after = sides(diff)
        topics = ("moved-stream",) * 2 if name == "stream" else (f"moved-{name}-before", f"moved-{name}-after")
        for topic in set(topics):
            embedded_broker.create_topic(topic, PARTITIONS)
        steps += [(before, topics[0]), (after, topics[1])]
        if name == "stream":
            steps.append((before, topics[0]))  # the way back
    steps.append((sides(DIFFS[2])[1].replace("consistent_random", "uniform_sticky"), "moved-function-default"))
    embedded_broker.create_topic("moved-function-default", PARTITIONS)
    (directory / "steps.json").write_text(json.dumps(steps))
    jars = ",".join(map(str, spark_sink_jars()))
    run_program(PROGRAM, [jars, embedded_broker.bootstrap_servers], [REPOSITORY], directory)
    return Moved(embedded_broker, json.loads((directory / "errors.json").read_text()))


@pytest.mark.spark
@pytest.mark.slow
def test_both_sinks_write_the_same_rows_to_the_same_partitions(moved: Moved) -> None:
    assert moved.placed("moved-batch-before") == moved.placed("moved-batch-after")


@pytest.mark.spark
@pytest.mark.slow
def test_a_checkpoint_serves_both_sinks_there_and_back(moved: Moved) -> None:
    rows = moved.rows("moved-stream", 3)
    assert sorted(json.loads(row.value or b"")["id"] for row in rows) == [2, 3, 4], "each file once"


@pytest.mark.spark
@pytest.mark.slow
def test_a_function_with_confluent_kafka_places_keys_as_the_page_says(moved: Moved) -> None:
    before = moved.placed("moved-function-before")
    assert moved.placed("moved-function-after") == before
    by_default = moved.placed("moved-function-default")
    assert by_default == moved.placed("moved-batch-after")
    assert by_default != before


@pytest.mark.spark
@pytest.mark.slow
def test_columns_and_options_do_what_the_page_says_in_both(moved: Moved) -> None:
    reported = moved.reported
    for case in ("other-column", "timestamp", "no-headers", "misspelt", "ours", "update-mode"):
        assert reported[f"{case}-kafka"] == "", f"{case}: Spark's sink takes it"
    assert "'other'" in reported["other-column-pyproducer"]
    assert "Did you mean 'kafka.batch.size'" in reported["misspelt-pyproducer"]
    assert "Update" in reported["update-mode-pyproducer"]
    for case in ("null-topic", "kafka.key.serializer", "kafka.interceptor.classes"):
        for name in ("kafka", "pyproducer"):
            assert reported[f"{case}-{name}"], f"{case}: an error in {name}"
    assert reported["headers-as-a-map-kafka"]
    assert [row.headers for row in moved.rows("headers-as-a-map-pyproducer", 1)] == [[("name", b"x")]]
    (ignored,), (taken,) = moved.rows("timestamp-kafka", 1), moved.rows("timestamp-pyproducer", 1)
    year = 365 * 86_400_000
    assert taken.timestamp_ms < ignored.timestamp_ms - 5 * year
    assert [row.headers for row in moved.rows("no-headers-kafka", 1)] == [[("name", b"x")]], "without effect there"
    assert [row.headers for row in moved.rows("no-headers-pyproducer", 1)] == [[]]


def tables() -> list[list[list[str]]]:
    """The rows of each table of the page, as texts of cells."""
    found = re.findall(r"(?:^\|.*\|\n)+", PAGE, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in table.splitlines()[2:]]
        for table in found
    ]


def shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_options_of_the_page_exist_and_their_defaults_are_those_of_the_tables() -> None:
    """Spark's sink brings a client of before Kafka 4.0, whose defaults are the profile `kafka3`."""
    old = profile("kafka3")
    compared = set()
    for option, theirs, ours, _ in (row for row in tables()[1] if len(row) == 4):
        for name in re.findall(r"`([^`…]+)`", option):
            bare = name.removeprefix("kafka.")
            assert (
                name in SINK_FIELDS
                or bare in {*KAFKA_FIELDS, *unsupported.UNSUPPORTED}
                or bare.startswith("sasl.kerberos.")
            ), name
            if bare in unsupported.UNSUPPORTED or bare == "transactional.id":
                assert ours == "an error", name
            elif bare in KAFKA_FIELDS and re.fullmatch(r"-?\d+|all|true|none", theirs):
                compared.add(bare)
                default = shown(KAFKA_FIELDS[bare].default)
                assert ours == default, name
                assert theirs == old.get(bare, default), name
    assert set(old) <= compared, "the profile kafka3 sets all of these"


def test_librdkafkas_names_on_the_page_lead_to_ours() -> None:
    compared = 0
    for theirs, _, ours, default in (row for row in tables()[3] if len(row) == 4):
        named = re.findall(r"`kafka\.([^`]+)`", ours)
        if not named:
            continue
        assert default in ("required", shown(KAFKA_FIELDS[named[0]].default)), theirs
        for name in re.findall(r"`([^`]+)`", theirs):
            assert named[0] in (name, unsupported.LIBRDKAFKA.get(name)), name
            compared += 1
    assert compared > len(unsupported.LIBRDKAFKA)


def test_what_the_way_back_names_are_options_of_ours() -> None:
    way_back = PAGE.partition("## The way back\n")[2]
    ignored = re.findall(r"`([a-zA-Z]+)`", way_back.partition("**ignores**")[2].partition("have no effect")[0])
    assert len(ignored) == 4
    assert set(ignored) <= set(SINK_FIELDS)
    assert all(name in PROGRAM for name in ignored), "tried above"
