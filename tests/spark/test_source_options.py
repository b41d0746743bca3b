"""Options of reads in Spark: errors before any task, and texts as Java and Spark read them. Ids (tests/ids.md): RD."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, NumberFormatException, PySparkException
from pyspark.sql import SparkSession

from spark_producer.config.durations import duration_ms
from spark_producer.config.partition_json import numbers_of
from spark_producer.config.subscription import SubscribePattern
from spark_producer.config.topic_pattern import check_pattern
from spark_producer.errors import ConfigError
from tests.spark.frames import FORMAT, short_message
from tests.support.jars import spark_sink_jars
from tests.unit.config.source_texts import BAD_DURATIONS, DURATIONS, OFFSETS, REFUSED_OFFSETS, TAKEN_BY_SPARK
from tests.unit.config.topic_patterns import NAMES, SHARED, random_patterns

SERVERS, UNREACHABLE = "kafka.bootstrap.servers", "localhost:1"

LOADS = [
    ({}, "the read has no topics: one of subscribe, subscribePattern and assign must be set"),
    (
        {"subscribe": "orders", "startingOffsets": '{"orders":{"0":1.5}}'},
        "startingOffsets is wrong: the number of topic 'orders'",
    ),
    ({"subscribePattern": "\\p{L}"}, "subscribePattern has a class of Unicode"),
    ({"subscribe": "orders", "kafka.max.poll.records": "1"}, "option 'kafka.max.poll.records' is not supported"),
    ({"subscribe": "orders", "deadLetterTopic": "x"}, "option 'deadLetterTopic' is not supported: it is for writes"),
    ({"subscribe": "orders", "failOnDataLos": "true"}, "Did you mean 'failOnDataLoss'?"),
]


@pytest.mark.covers("RD2")
@pytest.mark.parametrize(("options", "said"), LOADS)
@pytest.mark.parametrize("way", ["read", pytest.param("readStream", marks=pytest.mark.nightly)])
def test_a_bad_option_is_an_error_of_load(spark: SparkSession, way: str, options: dict[str, str], said: str) -> None:
    """No broker is asked: none listens at that address."""
    with pytest.raises(AnalysisException) as raised:
        getattr(spark, way).format(FORMAT).option(SERVERS, UNREACHABLE).options(**options).load()
    assert said in short_message(str(raised.value))


@pytest.mark.covers("RD2")
def test_what_is_wrong_in_a_batch_alone_is_an_error_of_its_plan(spark: SparkSession) -> None:
    options = {SERVERS: UNREACHABLE, "subscribe": "orders", "startingOffsets": "latest"}
    with pytest.raises(PySparkException) as raised:
        spark.read.format(FORMAT).options(**options).load().collect()
    assert "startingOffsets cannot be latest: a batch that starts there" in short_message(str(raised.value))


@pytest.mark.covers("RD2")
def test_what_is_wrong_in_a_stream_alone_fails_its_start(spark: SparkSession, tmp_path: Path) -> None:
    options = {SERVERS: UNREACHABLE, "subscribe": "orders", "endingOffsets": "latest"}
    stream = spark.readStream.format(FORMAT).options(**options).load()
    with pytest.raises(PySparkException) as raised:
        stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start().processAllAvailable()
    assert "endingOffsets is for batches: a stream has no end" in str(raised.value)


def is_taken(pattern: str) -> bool:
    try:
        check_pattern("subscribePattern", pattern)
    except ConfigError:
        return False
    return True


@pytest.mark.covers("RD2")
def test_a_pattern_finds_what_java_finds(spark: SparkSession) -> None:
    """All names are one text for Java, which is asked once for each pattern and name: whether the pattern is found in it."""
    java = spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    patterns = [pattern for pattern in [*filter(None, SHARED), *random_patterns(2_500, seed=7)] if is_taken(pattern)]
    assert len(patterns) > 300
    differ = []
    for pattern in patterns[:400]:
        compiled = java.compile(pattern)
        found = [name for name in NAMES if compiled.matcher(name).find()]
        if found != [name for name in NAMES if SubscribePattern(pattern).matches(name)]:
            differ.append((pattern, found))
    assert differ == []


@pytest.fixture(scope="module")
def partition_offsets(spark: SparkSession) -> Callable[[str], str]:
    """Spark's parser of JSON with offsets, and the text of its value."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    jars = [jar.as_uri() for jar in spark_sink_jars()]
    urls = gateway.new_array(jvm.java.net.URL, len(jars))
    for number, jar in enumerate(jars):
        urls[number] = jvm.java.net.URI(jar).toURL()
    loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    types = gateway.new_array(jvm.java.lang.Class, 1)
    types[0] = jvm.java.lang.Class.forName("java.lang.String")
    parse = loader.loadClass("org.apache.spark.sql.kafka010.JsonUtils").getMethod("partitionOffsets", types)

    def parsed(text: str) -> str:
        arguments = gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = text
        try:
            return str(parse.invoke(None, arguments).toString())
        except Py4JJavaError as error:
            return str(error.java_exception.getCause().getMessage())

    return parsed


def ours(text: str) -> str:
    found = numbers_of("startingOffsets", text, -2, "…")
    return f"Map({', '.join(f'{tp.topic}-{tp.partition} -> {number}' for tp, number in found.items())})"


@pytest.mark.covers("RD2")
def test_offsets_are_those_that_spark_reads(partition_offsets: Callable[[str], str]) -> None:
    for text, value in OFFSETS.items():
        assert (partition_offsets(text), ours(text)) == (value, value)
    for text in REFUSED_OFFSETS:
        assert partition_offsets(text).startswith("Expected e.g. ")
        with pytest.raises(ConfigError):
            ours(text)
    for text in TAKEN_BY_SPARK:
        assert partition_offsets(text).startswith("Map(")
        with pytest.raises(ConfigError):
            ours(text)


@pytest.mark.covers("RD2")
def test_durations_are_those_that_spark_reads(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    milliseconds = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
    for text, ms in DURATIONS:
        assert jvm.org.apache.spark.network.util.JavaUtils.timeStringAs(text, milliseconds) == ms
        assert duration_ms("maxTriggerDelay", text) == ms
    for text in BAD_DURATIONS:
        with pytest.raises(NumberFormatException):
            jvm.org.apache.spark.network.util.JavaUtils.timeStringAs(text, milliseconds)
        with pytest.raises(ConfigError):
            duration_ms("maxTriggerDelay", text)
