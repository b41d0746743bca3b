"""Helpers of the Spark tests: a write in one call, a topic read back as a DataFrame, settings of a session for a while.

Owns: the spelling of the data source's options in tests. Must not know: what a test expects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import Broker
from tests.support.read_back import Client, read_topic
from tests.support.read_spark import as_dataframe

FORMAT = "pyproducer"
RECORD_COLUMNS = ["topic", "partition", "timestamp", "key", "value", "headers"]


def sink_options(broker: Broker, topic: str | None, options: Mapping[str, object] | None = None) -> dict[str, str]:
    """Options of a write to `broker`; those in `options` win."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, **({"topic": topic} if topic else {})}
    return given | {name: str(value) for name, value in (options or {}).items()}


def write(frame: DataFrame, broker: Broker, topic: str | None, options: Mapping[str, object] | None = None) -> None:
    """A batch write."""
    frame.write.format(FORMAT).options(**sink_options(broker, topic, options)).mode("append").save()


def read_back(
    spark: SparkSession, broker: Broker, topic: str, *, client: Client = "kafka-python", expected: int | None = None
) -> DataFrame:
    """The whole topic as a foreign client sees it."""
    return as_dataframe(spark, read_topic(broker.bootstrap_servers, topic, client=client, expected=expected))


def assert_same_rows(actual: DataFrame, wanted: DataFrame) -> None:
    """The same columns and rows, in any order; whether a column may be null is no matter."""
    assert_df_equality(actual, wanted, ignore_row_order=True, ignore_nullable=True)


@contextlib.contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session, for a `with` block."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def short_message(text: str) -> str:
    """The text of an error that Spark raised. What our package says in it comes after one frame of ours at most."""
    lines = text.splitlines()
    assert sum("/spark_producer/" in line for line in lines) <= 1, text
    said = [place for place, line in enumerate(lines) if line.startswith("spark_producer.errors.")]
    assert not said or said[0] <= 4, text
    return text
