"""Spark finds the data source: installed, registered by hand, and over Spark Connect."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_producer
from tests.conftest import Broker
from tests.spark.frames import sink_options, write
from tests.spark.isolated import REPOSITORY, run_program
from tests.support.distribution import Wheel, install
from tests.support.read_back import read_topic

WRITE = """
import sys
from pyspark.sql import SparkSession

bootstrap, topic = sys.argv[1:]

def write(name, **more):
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, **more}
    spark.range(10).selectExpr("string(id) as value").write.format(name).options(**options).mode("append").save()
"""
INSTALLED = """
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
write("pyproducer")
"""
REGISTERED = """
import spark_producer

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
try:
    write("pyproducer")
except Exception as error:
    assert "DATA_SOURCE_NOT_FOUND" in str(error), error
else:
    raise AssertionError("found before it was registered")
spark_producer.register(spark)
write("pyproducer")
"""
CONNECT = """
from pyspark.errors import AnalysisException

spark = SparkSession.builder.remote("local[2]").getOrCreate()
write("pyproducer")
try:
    write("pyproducer", topic="no-such-topic", **{"kafka.max.block.ms": "500"})
except AnalysisException as error:
    assert "UNKNOWN_TOPIC_OR_PARTITION (3) for topic 'no-such-topic'" in str(error), error
else:
    raise AssertionError("wrote to a topic that does not exist")
spark.stop()
"""


WITH_THE_WHEEL = pytest.mark.xdist_group("built")


@pytest.fixture(scope="module")
def installed(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("package") / "installed")


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only the package, as a zip for --py-files: Spark's own lookup finds nothing there."""
    archive = tmp_path_factory.mktemp("py-files") / "pyproducer.zip"
    make = ["make", "zip", f"ZIP={archive}", f"PYTHON={sys.executable}"]
    subprocess.run(make, cwd=REPOSITORY, check=True, capture_output=True, timeout=60)
    return archive


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "libraries", "cluster"),
    [
        # How the format is found does not depend on the broker: no Kafka is started for it.
        pytest.param(INSTALLED, "installed", "embedded_broker", marks=WITH_THE_WHEEL),
        pytest.param(REGISTERED, "zipped", "embedded_broker"),
        pytest.param(CONNECT, "installed", "strict_broker", marks=WITH_THE_WHEEL),
    ],
    ids=["installed", "registered", "connect"],
)
def test_a_fresh_process_writes(
    request: pytest.FixtureRequest, topic: str, tmp_path: Path, program: str, libraries: str, cluster: str
) -> None:
    broker: Broker = request.getfixturevalue(cluster)
    broker.create_topic(topic, 2)
    run_program(WRITE + program, [broker.bootstrap_servers, topic], [request.getfixturevalue(libraries)], tmp_path)
    rows = read_topic(broker.bootstrap_servers, topic, expected=10)
    assert sorted(row.value or b"" for row in rows) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("name", ["pyproducer", "PyProducer", "PYPRODUCER"])
def test_any_letter_case_and_a_new_session(spark: SparkSession, embedded_broker: Broker, topic: str, name: str) -> None:
    embedded_broker.create_topic(topic, 1)
    frame = spark.newSession().range(1).selectExpr("'v' as value")
    frame.write.format(name).options(**sink_options(embedded_broker, topic)).mode("append").save()
    assert len(read_topic(embedded_broker.bootstrap_servers, topic)) == 1


def test_registering_what_is_installed_changes_nothing(
    spark: SparkSession, embedded_broker: Broker, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    session = spark.newSession()
    spark_producer.register(session)
    write(session.range(1).selectExpr("'v' as value"), embedded_broker, topic)
    assert len(read_topic(embedded_broker.bootstrap_servers, topic)) == 1


def test_a_thread_of_the_program_writes_once_it_has_registered(
    spark: SparkSession, embedded_broker: Broker, topic: str
) -> None:
    """Spark looks for Python data sources in the active session of the thread, and it has none."""
    embedded_broker.create_topic(topic, 1)

    def job() -> None:
        session = spark.newSession()
        spark_producer.register(session)
        write(session.range(1).selectExpr("'v' as value"), embedded_broker, topic)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(job).result()
    assert len(read_topic(embedded_broker.bootstrap_servers, topic)) == 1
