"""Each wrong setting, on either side, gives its own message long before `max.block.ms`, on the driver and in a task."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_producer.config import parse_options
from spark_producer.datasource.write.driver.cluster_check import check_cluster
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.cache import ProducerCache
from spark_producer.datasource.write.worker.task import write_task
from tests.security import ours
from tests.security.wrong import WRONG, WRONG_PASSWORD, Wrong
from tests.support.secured_kafka import PASSWORD, SecuredKafka


def assert_named(text: str, wrong: Wrong) -> None:
    """The message names the cause, and no secret."""
    missing = [pattern for pattern in wrong.patterns if not re.search(pattern, text, re.IGNORECASE)]
    assert not missing, f"nothing of {missing} in: {text}"
    assert WRONG_PASSWORD not in text
    assert PASSWORD not in text


def options_of(wrong: Wrong, secured: SecuredKafka) -> dict[str, str]:
    """Options of the sink that allow a minute."""
    return ours.sink_options(wrong.way, secured, more={"max.block.ms": str(ours.TIMEOUT_MS)})


@pytest.mark.covers("SEC20–SEC27")
@pytest.mark.parametrize("name", WRONG)
def test_the_check_of_the_driver_fails_at_once(secured: SecuredKafka, topic: str, name: str) -> None:
    config, sink = parse_options({**options_of(WRONG[name], secured), "topic": topic})
    with pytest.raises(WRONG[name].error) as reported, ours.soon():
        check_cluster(config, sink.topic)
    assert_named(str(reported.value), WRONG[name])


@pytest.mark.covers("SEC20–SEC27")
@pytest.mark.parametrize("name", WRONG)
def test_a_task_fails_at_once(secured_4: SecuredKafka, topic: str, name: str) -> None:
    """Without the check of the driver, as for an executor that has other files or another network."""
    config, sink = parse_options({**options_of(WRONG[name], secured_4), "topic": topic})
    with pytest.raises(WRONG[name].error) as reported, ours.soon():
        write_task(TaskSettings(config, sink, buffer_memory_unset=False), iter([ours.numbers(0, 10)]), ProducerCache())
    assert_named(str(reported.value), WRONG[name])


def append(spark: SparkSession, options: Mapping[str, str], topic: str) -> None:
    frame = spark.range(10).selectExpr("cast(id as string) as value")
    frame.write.format("pyproducer").options(**options).option("topic", topic).mode("append").save()


@pytest.mark.covers("SEC20–SEC27")
@pytest.mark.parametrize(
    "name",
    [
        "plaintext to a TLS port",
        "a mechanism that is off",
        "a wrong password of SCRAM",
        "an unknown CA",
        "no client certificate",
    ],
)
def test_spark_shows_the_message(secured_4: SecuredKafka, spark: SparkSession, topic: str, name: str) -> None:
    with pytest.raises(PySparkException) as reported, ours.soon():
        append(spark, options_of(WRONG[name], secured_4), topic)
    assert "spark_producer.errors." in str(reported.value)
    assert_named(str(reported.value), WRONG[name])
