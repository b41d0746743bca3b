"""DataFrames as records, COM18 and COM19: beside the select that people write by hand, and read by CloudEvents' own SDK."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_producer import as_cloud_events, as_records
from spark_producer.datasource.follow import Written
from spark_producer.errors import ConfigError, SchemaError
from tests.conftest import Broker
from tests.spark.frames import assert_same_rows, read_back, write
from tests.spark.isolated import REPOSITORY, run_program
from tests.support.read_back import read_topic

MORNING = datetime(2013, 1, 1, 5, 17, 0, 123_000, tzinfo=UTC)
SCHEMA = (
    "carrier string, flight int, delay double, op string, at timestamp, raw binary, way struct<dest: string, miles: int>, "
    "`a b` int"
)
ROWS = [
    ("UA", 1545, 2.0, "c", MORNING, b"\x00\xff", ("IAH", 1400), 1),
    ("AA", 1141, None, "d", MORNING + timedelta(days=1), None, None, None),
    (None, None, -1.5, None, MORNING, b"", ("MIA", None), 3),
]
JSON_WITH_NULLS = {"ignoreNullFields": "false"}
MICROSECONDS = "map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")"
"""The format of SQL, in which a timestamp has all of its digits; `to_json` itself writes three."""

Make = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def flights(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, SCHEMA)


CASES: dict[str, tuple[Make, Make]] = {
    "all columns": (as_records, lambda df: df.selectExpr(f"to_json(struct(*), {MICROSECONDS}) as value")),
    "everything": (
        lambda df: as_records(
            df,
            key="carrier",
            headers={"source": "'flights'", "number": "flight"},
            topic="op",
            partition="`a b` % 2",
            timestamp="at",
        ),
        lambda df: df.selectExpr(
            "carrier as key",
            f"to_json(struct(*), {MICROSECONDS}) as value",
            "array(struct('source' as key, 'flights' as value), struct('number' as key, string(flight) as value)) as headers",
            "op as topic",
            "int(`a b` % 2) as partition",
            "at as timestamp",
        ),
    ),
    "a number as key": (
        lambda df: as_records(df, key="FLIGHT", value="raw"),
        lambda df: df.selectExpr("string(flight) as key", "raw as value"),
    ),
    "two keys, which are not in the value": (
        lambda df: as_records(df, key=["carrier", "flight"], value_without_key=True),
        lambda df: df.selectExpr(
            "to_json(struct(carrier, flight)) as key",
            f"to_json(struct(delay, op, at, raw, way, `a b`), {MICROSECONDS}) as value",
        ),
    ),
    "some columns, with their nulls": (
        lambda df: as_records(df, key="raw", value=["delay", "a b"], keep_nulls=True),
        lambda df: df.select(
            F.col("raw").alias("key"), F.to_json(F.struct("delay", "`a b`"), JSON_WITH_NULLS).alias("value")
        ),
    ),
    "a struct, and one other column": (
        lambda df: as_records(df, key="way", value="delay"),
        lambda df: df.selectExpr("to_json(way) as key", "string(delay) as value"),
    ),
    "tombstones": (
        lambda df: as_records(df, key="carrier", value="way", tombstone="op = 'd'"),
        lambda df: df.selectExpr("carrier as key", "if(op = 'd', null, to_json(way)) as value"),
    ),
    "a struct for another encoder": (
        lambda df: as_records(df, value=["carrier", "way"], value_format="struct"),
        lambda df: df.selectExpr("struct(carrier, way) as value"),
    ),
    "columns of Spark, and binary headers": (
        lambda df: as_records(df, value=F.lower("carrier"), headers={"raw": F.col("raw"), "n": "flight"}),
        lambda df: df.selectExpr(
            "lower(carrier) as value",
            "array(struct('raw' as key, raw as value), struct('n' as key, binary(string(flight)) as value)) as headers",
        ),
    ),
    "headers that are there": (
        lambda df: as_records(df, value="op", headers="map('a', raw)"),
        lambda df: df.selectExpr("op as value", "map('a', raw) as headers"),
    ),
}


def test_microseconds_are_in_the_value_as_they_are_in_the_key(spark: SparkSession) -> None:
    moments = "timestamp'2013-01-01 05:17:00.123456' at, timestamp_ntz'2013-01-01 05:17:00.000001' ntz"
    records = as_records(spark.sql(f"select {moments}, array(struct(timestamp'1500-01-01 00:00:00.1' a)) x"), key="at")
    assert tuple(records.first() or ()) == (
        "2013-01-01 05:17:00.123456",
        '{"at":"2013-01-01T05:17:00.123456Z","ntz":"2013-01-01T05:17:00.000001","x":[{"a":"1500-01-01T00:00:00.100000Z"}]}',
    )


def test_a_moment_in_json_is_the_same_in_every_zone(spark: SparkSession) -> None:
    berlin = spark.newSession()
    berlin.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    given = berlin.sql("select timestamp_micros(id) at from values (0), (-14831769600000001) t(id)")
    moments = [row.value for row in as_records(given).collect()]
    assert moments == ['{"at":"1970-01-01T01:00:00.000000+01:00"}', '{"at":"1500-01-01T00:53:27.999999+00:53:28"}']
    last = datetime.fromisoformat(json.loads(moments[1])["at"])
    assert last == datetime(1499, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "without the seconds it would be 28 s later"


def test_headers_whose_names_differ_in_case_alone_are_two(spark: SparkSession) -> None:
    frame = spark.sql("select 1 id, X'ff' raw")
    for given, values in (
        ({"Trace": "'a'", "trace": "id"}, ["a", "1"]),
        ({"Trace": "raw", "trace": "id"}, [b"\xff", b"1"]),
    ):
        (row,) = as_records(frame, headers=given).collect()
        assert [(header.key, header.value) for header in row.headers] == list(
            zip(("Trace", "trace"), values, strict=True)
        )


def test_a_header_that_is_no_single_value_is_json_as_a_key_is(spark: SparkSession) -> None:
    (row,) = as_records(spark.sql("select 1 id"), headers={"h": "struct(id, array(1.5D) x)", "b": "X'00'"}).collect()
    assert [bytes(header.value) for header in row.headers] == [b'{"id":1,"x":[1.5]}', b"\x00"]


@pytest.mark.covers("COM18")
@pytest.mark.parametrize("case", CASES)
def test_as_records_equals_the_select_by_hand(flights: DataFrame, case: str) -> None:
    made, by_hand = CASES[case]
    assert_df_equality(made(flights), by_hand(flights), ignore_nullable=True)


@pytest.mark.covers("COM18")
def test_the_sink_writes_what_as_records_made(
    spark: SparkSession, embedded_broker: Broker, topic: str, flights: DataFrame
) -> None:
    embedded_broker.create_topic(topic, 2)
    records = as_records(flights, key="carrier", headers={"number": "flight"}, timestamp="at")
    write(records, embedded_broker, topic)
    found = read_back(spark, embedded_broker, topic, expected=len(ROWS))
    wanted = records.selectExpr("binary(key) as key", "binary(value) as value", "timestamp")
    assert_same_rows(found.select("key", "value", "timestamp"), wanted)
    headers = sorted((row.headers for row in read_topic(embedded_broker.bootstrap_servers, topic)), key=str)
    assert headers == [[("number", None)], [("number", b"1141")], [("number", b"1545")]]


CONNECT = """
import sys
from chispa import assert_df_equality
from pyspark.sql import SparkSession
import spark_producer

spark = SparkSession.builder.remote("local[2]").getOrCreate()
df = spark.createDataFrame([("UA", 1, None), ("AA", 2, 1.5)], "carrier string, flight int, delay double")
made = spark_producer.as_records(df, key="carrier", headers={"n": "flight"}, tombstone="flight = 2")
by_hand = df.selectExpr(
    "carrier as key",
    "if(flight = 2, null, to_json(struct(*))) as value",
    "array(struct('n' as key, string(flight) as value)) as headers",
)
assert_df_equality(made, by_hand, ignore_nullable=True)
events = spark_producer.as_cloud_events(df, id="flight", source="'/f'", type="'made'", key="carrier").collect()
assert events[0].headers[0] == ("ce_specversion", "1.0"), events
try:
    spark_producer.as_records(df, key="carier")
except spark_producer.errors.SchemaError as error:
    assert "no column 'carier'. Did you mean 'carrier'?" in str(error), error
else:
    raise AssertionError("a column that is not there")
try:
    spark_producer.follow(spark)
except spark_producer.errors.ConfigError as error:
    assert "Set the option reportPath" in str(error), error
else:
    raise AssertionError("reports over Spark Connect")
bootstrap, topic, folder = sys.argv[1:]
options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "reportPath": folder}
made.write.format("pyproducer").options(**options).mode("append").save()
spark.stop()
"""


@pytest.mark.covers("COM16", "COM18")
@pytest.mark.spark
@pytest.mark.nightly
def test_records_and_their_report_in_spark_connect(embedded_broker: Broker, topic: str, tmp_path: Path) -> None:
    embedded_broker.create_topic(topic, 1)
    folder = tmp_path / "reports"
    run_program(CONNECT, [embedded_broker.bootstrap_servers, topic, str(folder)], [REPOSITORY], tmp_path)
    (file,) = folder.iterdir()
    written = Written.from_json(file.read_text("utf-8"))
    assert (written.status, written.records, written.ranges[topic, 0]) == ("committed", 2, (0, 1, 2))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"key": "carier"}, "no column 'carier'. Did you mean 'carrier'\\? Its columns are carrier, flight"),
    ({"headers": {"source": "flights"}}, "no column 'flights'. Did you mean 'flight'\\? .*Quote a fixed text"),
    ({"key": ["carrier", "nothing"]}, "no column 'nothing'. Its columns"),
    ({"value_format": "avro"}, "value_format must be 'json' or 'struct', not 'avro'"),
    ({"key": "carrier", "value": "op", "value_without_key": True}, "but value is given. Drop one of them"),
    ({"value_without_key": True}, "value_without_key needs a key that names columns"),
    ({"key": "upper(carrier)", "value_without_key": True}, "needs a key that names columns, not SQL"),
    ({"value": []}, "an empty list of columns"),
    ({"partition": "flight / 2"}, "the partition has type double, but partitions are whole numbers. Use cast"),
    ({"partition": "flight > 2"}, "the partition has type boolean"),
    ({"partition": "1.5"}, r"the partition has type decimal\(2,1\)"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_bad_arguments_fail_at_once(flights: DataFrame, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((SchemaError, ConfigError), match=message):
        as_records(flights, **arguments)


@pytest.mark.parametrize("partition", ["flight % 2", "1L", "cast(1 as decimal(9,0))", "'1'", "cast(null as int)"])
def test_partitions_are_whole_numbers_of_any_type(flights: DataFrame, partition: str) -> None:
    (kind,) = [field.dataType for field in as_records(flights, partition=partition).schema if field.name == "partition"]
    assert kind.simpleString() == "int"


TWICE: dict[str, dict[str, Any]] = {
    "all columns": {},
    "all columns as a struct": {"value_format": "struct"},
    "a list": {"value": ["id", "id"]},
    "a key of several": {"key": ["x", "id", "x"], "value": "id"},
    "the column of two": {"key": "a", "value": "id"},
    "a struct within": {"value": "struct(id, array(struct(1 a, 2 a)))"},
    "a header": {"value": "id", "headers": {"h": "struct(id, id)"}},
}


@pytest.mark.parametrize("case", TWICE)
def test_two_columns_of_one_name_are_refused(spark: SparkSession, case: str) -> None:
    frame = spark.sql("select 1 id, 2 a, 3 a, 4 x")
    with pytest.raises(SchemaError, match=r"several columns '(a|id|x)'\. Give each a different name"):
        as_records(frame, **TWICE[case])
    assert as_records(frame, key="x", value="id").collect() == [("4", "1")], "of no harm where they are not written"


def test_columns_whose_names_differ_in_case_alone_are_two_fields(spark: SparkSession) -> None:
    (row,) = as_records(spark.sql("select 1 id, 2 ID")).collect()
    assert row.value == '{"id":1,"ID":2}'


def test_a_key_of_all_columns_leaves_nothing_for_the_value(flights: DataFrame) -> None:
    with pytest.raises(ConfigError, match="leaves no column for the value"):
        as_records(flights.select("carrier"), key="carrier", value_without_key=True)


@pytest.mark.covers("COM19")
def test_the_sdk_of_cloud_events_reads_what_was_written(
    embedded_broker: Broker, topic: str, flights: DataFrame
) -> None:
    embedded_broker.create_topic(topic, 1)
    events = as_cloud_events(
        flights.where("flight is not null"),
        id="concat(carrier, flight)",
        source="'/flights'",
        type="'org.example.departed'",
        subject="way.dest",
        time="at",
        key="carrier",
        data=["carrier", "delay"],
        extensions={"op": "op"},
    )
    write(events.coalesce(1).orderBy("timestamp"), embedded_broker, topic)
    rows = read_topic(embedded_broker.bootstrap_servers, topic, expected=2)
    assert [row.timestamp_ms for row in rows] == [int(moment.timestamp() * 1000) for moment in (MORNING, ROWS[1][4])]
    first, second = (
        from_binary(
            KafkaMessage({name: value or b"" for name, value in row.headers}, row.key, row.value or b""), JSONFormat()
        )
        for row in rows
    )
    assert (first.get_id(), first.get_source(), first.get_type()) == ("UA1545", "/flights", "org.example.departed")
    assert (first.get_specversion(), first.get_datacontenttype()) == ("1.0", "application/json")
    assert (first.get_time(), first.get_subject()) == (MORNING, "IAH")
    assert (first.get_extension("op"), first.get_extension("partitionkey")) == ("c", "UA")
    assert first.get_data() == {"carrier": "UA", "delay": 2.0}
    assert second.get_subject() is None, "an optional attribute that is null is none"
    assert "ce_subject" not in dict(rows[1].headers)
    assert json.loads(rows[1].value or b"") == {"carrier": "AA"}


@pytest.mark.covers("COM19")
def test_a_row_that_is_no_event_and_a_bad_extension_are_errors(flights: DataFrame) -> None:
    events = as_cloud_events(flights, id="carrier", source="'/flights'", type="'t'")
    with pytest.raises(PySparkException, match="a CloudEvent needs 'id': it is null or empty"):
        events.collect()
    for name in ("Über", "time", "id", ""):
        with pytest.raises(SchemaError, match="not a legal name of a CloudEvents extension"):
            as_cloud_events(flights, id="carrier", source="'/flights'", type="'t'", extensions={name: "op"})
