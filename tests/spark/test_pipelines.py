"""The project of docs/pipelines.md, run by `spark-pipelines` on a real Kafka: continued, and refused when it begins again.

And what the page says of tables, of materialized views and of a sink with two flows.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_producer import Producer
from tests.spark.isolated import REPOSITORY, connect_port
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_back import read_topic

PAGE = REPOSITORY / "docs" / "pipelines.md"
FILES = {"yaml": "spark-pipeline.yml", "python": "transformations/orders.py", "sql": "transformations/orders.sql"}
"""The file of each of the page's blocks, by its language."""
TABLES = {
    "spark-pipeline.yml": "name: tables\nstorage: STORAGE\nlibraries:\n  - glob:\n      include: transformations/**\n",
    "transformations/tables.sql": """
CREATE STREAMING TABLE archive AS SELECT * FROM STREAM orders;
CREATE MATERIALIZED VIEW counts AS SELECT customer, count(*) AS orders FROM archive GROUP BY customer;
""",
    "transformations/tables.py": """
from pyspark import pipelines as dp
from pyspark.sql import functions as f

cluster = {"kafka.bootstrap.servers": "SERVERS"}
topic = cluster | {"subscribe": "sales", "startingOffsets": "earliest"}


@dp.temporary_view
def orders():
    records = spark.readStream.format("pyproducer").options(**topic).load()
    return records.selectExpr("string(key) as customer", "double(string(value)) as price")


@dp.materialized_view
def sums():
    records = spark.read.format("pyproducer").options(**topic).load()
    return (
        records.selectExpr("string(key) as customer", "double(string(value)) as price")
        .groupBy("customer")
        .agg(f.sum("price").alias("price"))
    )


dp.create_sink("copies", format="pyproducer", options=cluster | {"topic": "sales.copies"})


@dp.append_flow(target="copies")
def low():
    return spark.readStream.table("orders").where("price < 50").selectExpr("'low' as key", "string(price) as value")


@dp.append_flow(target="copies")
def high():
    return spark.readStream.table("orders").where("price >= 50").selectExpr("'high' as key", "string(price) as value")
""",
}
"""The files of a project with two tables of SQL, a view of a batch, and a sink of two flows."""
SECONDS = 400
"""A run takes some 25 seconds on an idle machine, most of it for Spark's start."""


def write_project(home: Path, servers: str) -> None:
    """Write the files of the page, which has one block for each of them and names them."""
    text = PAGE.read_text(encoding="utf-8")
    for language, name in FILES.items():
        (block,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert f"`{name}`" in text
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.replace("localhost:9092", servers).replace("/tmp/orders-pipeline", f"{home}/storage"))


def pipelines(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in the project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_HOME"))}
    environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY), "SPARK_LOCAL_IP": "127.0.0.1"}
    with connect_port():
        return subprocess.run(
            [str(Path(sys.executable).with_name("spark-pipelines")), *arguments],
            cwd=home,
            env=kept | environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


def send(servers: str, topic: str, first: int, end: int) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        prices = range(first, end)
        producer.send_many(topic, [str(price) for price in prices], keys=[f"customer {each % 5}" for each in prices])


def found(servers: str) -> list[float]:
    """The prices of the committed rows."""
    rows = read_topic(servers, "orders.large", isolation="read_committed")
    return sorted(float(re.findall(rb'"price":([\d.]+)', row.value or b"")[0]) for row in rows)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(4 * SECONDS)
def test_the_pipeline_of_the_page(kafka_4: KafkaCluster, tmp_path: Path) -> None:
    servers = kafka_4.bootstrap_servers
    for topic in ("orders", "orders.large"):
        kafka_4.create_topic(topic, 2)
    write_project(tmp_path, servers)
    for first, end in ((0, 150), (150, 170)):
        send(servers, "orders", first, end)
        done = pipelines(tmp_path, "run")
        assert "Run is COMPLETED" in done.stdout + done.stderr, done.stderr[-8_000:]
        assert found(servers) == list(range(100, end))
    again = pipelines(tmp_path, "run", "--full-refresh-all")
    assert again.returncode != 0
    assert "exactlyOnceId" in again.stdout + again.stderr, again.stderr[-8_000:]
    assert found(servers) == list(range(100, 170))


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(2 * SECONDS)
def test_tables_views_and_a_sink_of_two_flows(kafka_4: KafkaCluster, tmp_path: Path) -> None:
    servers = kafka_4.bootstrap_servers
    for topic in ("sales", "sales.copies"):
        kafka_4.create_topic(topic, 2)
    for name, text in TABLES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("SERVERS", servers).replace("STORAGE", (tmp_path / "storage").as_uri()))
    send(servers, "sales", 0, 100)
    done = pipelines(tmp_path, "run")
    assert "Run is COMPLETED" in done.stdout + done.stderr, done.stderr[-8_000:]
    assert table(tmp_path, "archive") == [(f"customer {price % 5}", price) for price in range(100)]
    assert table(tmp_path, "counts") == [(f"customer {each}", 20) for each in range(5)]
    assert table(tmp_path, "sums") == [(f"customer {each}", sum(range(each, 100, 5))) for each in range(5)]
    copies = [(row.key, float(row.value or b"nan")) for row in read_topic(servers, "sales.copies")]
    assert sorted(copies, key=lambda each: each[1]) == [(b"low" if each < 50 else b"high", each) for each in range(100)]


def table(home: Path, name: str) -> list[tuple[str, float]]:
    """The rows of a table of the project, by their number."""
    rows = pq.read_table(home / "spark-warehouse" / name).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=lambda row: (row[1], row[0]))
