"""Program that runs the recipes of Spark with Delta and Iceberg of two pages against the embedded broker.

    python tests/platforms/spark_tables_program.py docs JAR...

It makes files in the folder that it runs in, and prints one line of JSON for each page. It is a file of its own, since its
environment lacks the other tests.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_producer import Producer, read_table
from spark_producer.broker import LocalBroker

ORDERS = [("Ada", 12.5), ("Grace", 3.25), ("Ada", 7.0)]
LATER = [("Edith", 1.5)]
SPARK_HEADING = "Spark: "


class Page:
    """The blocks of one page whose headings begin with `Spark: `, run in one namespace."""

    def __init__(self, path: Path, spark: SparkSession, servers: str) -> None:
        self.spark, self.servers = spark, servers
        self.names: dict[str, Any] = {"spark": spark}
        self.blocks: dict[str, str] = {}
        for section in re.split(r"^#+ ", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            heading, _, text = section.partition("\n")
            code = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
            if code and heading.startswith(SPARK_HEADING):
                (self.blocks[heading.removeprefix(SPARK_HEADING)],) = code

    def run(self, heading: str) -> None:
        """Run the block below a heading."""
        code = self.blocks[heading].replace("localhost:9092", self.servers).replace("/data/", f"{Path.cwd()}/data/")
        exec(compile(code, heading, "exec"), self.names)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """The customers, prices and milliseconds of a table."""
        found = self.spark.sql(f"SELECT customer, price, unix_millis(timestamp) FROM {table}")
        return sorted(tuple(row) for row in found.collect())

    def values(self, topic: str) -> dict[str, list[str | None]]:
        """The committed values of each key, in their order."""
        options = {"bootstrap.servers": self.servers, "isolation.level": "read_committed"}
        found: dict[str, list[str | None]] = {}
        for row in read_table(topic, options, columns=["key", "value"]).to_pylist():
            found.setdefault(row["key"].decode(), []).append(row["value"] and row["value"].decode())
        return found

    def orders(self) -> list[tuple[Any, ...]]:
        """What `rows` of a table should be: the records of the topic."""
        sent: Any = read_table("orders", {"bootstrap.servers": self.servers}, columns=["value", "timestamp"])
        values = [json.loads(value) for value in sent["value"].to_pylist()]
        millis = sent["timestamp"].cast("int64").to_pylist()
        return sorted((each["customer"], each["price"], at) for each, at in zip(values, millis, strict=True))


def send_orders(servers: str, orders: list[tuple[str, float]]) -> None:
    """Write orders as JSON."""
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send_many("orders", [json.dumps({"customer": name, "price": price}) for name, price in orders])


def from_kafka(page: Page) -> set[str]:
    """Run each stream three times; the second finds nothing new."""
    tables = {"a Delta table": f"delta.`{Path.cwd()}/data/orders`", "an Iceberg table": "local.shop.orders"}
    send_orders(page.servers, ORDERS)
    for heading, table in tables.items():
        for _ in range(2):
            page.run(heading)
            compare(page, table, ORDERS)
    send_orders(page.servers, LATER)
    for heading, table in tables.items():
        page.run(heading)
        compare(page, table, ORDERS + LATER)
    return set(tables)


def compare(page: Page, table: str, sent: list[tuple[str, float]]) -> None:
    """A table has every order once, with the timestamp of its record."""
    rows = page.rows(table)
    assert [row[:2] for row in rows] == sorted(sent), (table, rows)
    assert rows == page.orders(), table


def to_kafka(page: Page) -> set[str]:
    """Versions with inserts, updates and deletes: each change once, in its order, though the recipes run again and again."""
    table = f"delta.`{Path.cwd()}/data/customers`"
    page.spark.sql(
        f"CREATE TABLE {table} (customer STRING, limit INT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    change(page, table)
    for _ in range(2):
        page.run("the change feed of Delta")
    page.spark.sql(f"UPDATE {table} SET limit = 500 WHERE customer = 'Ada'")
    page.run("the change feed of Delta")
    sent = page.values("customers.delta")
    assert sent == {
        "Ada": [limit_of("Ada", limit) for limit in (100, 300, 500)],
        "Grace": [limit_of("Grace", 200), None],
    }, sent
    page.spark.sql("CREATE TABLE local.shop.customers (customer STRING, limit INT) USING iceberg")
    page.spark.sql("INSERT INTO local.shop.customers VALUES ('Ada', 100)")
    for _ in range(2):
        page.run("the appended rows of Iceberg")
    page.spark.sql("INSERT INTO local.shop.customers VALUES ('Grace', 200)")
    page.run("the appended rows of Iceberg")
    sent = page.values("customers.iceberg")
    assert sent == {"Ada": [limit_of("Ada", 100)], "Grace": [limit_of("Grace", 200)]}, sent
    return {"the change feed of Delta", "the appended rows of Iceberg"}


def change(page: Page, table: str) -> None:
    """Insert, update and delete, in versions of their own, which the stream sees at once."""
    page.spark.sql(f"INSERT INTO {table} VALUES ('Ada', 100), ('Grace', 200)")
    page.spark.sql(f"UPDATE {table} SET limit = 300 WHERE customer = 'Ada'")
    page.spark.sql(f"DELETE FROM {table} WHERE customer = 'Grace'")


def limit_of(customer: str, limit: int) -> str:
    """The value of a record."""
    return f'{{"customer":"{customer}","limit":{limit}}}'


PAGES: dict[str, Callable[[Page], set[str]]] = {"kafka_to_tables": from_kafka, "tables_to_kafka": to_kafka}


def session(jars: list[str]) -> SparkSession:
    """A session with both formats, as the pages configure it."""
    extensions = ["io.delta.sql.DeltaSparkSessionExtension"]
    extensions.append("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")  # 50 tasks a version otherwise
        .config("spark.jars", ",".join(jars))
        .config("spark.sql.extensions", ",".join(extensions))
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.catalog.local", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.local.type", "hadoop")
        .config("spark.sql.catalog.local.warehouse", f"{Path.cwd()}/data/warehouse")
        .getOrCreate()
    )


def main(docs: Path, jars: list[str]) -> int:
    """Run the pages, print the outcome of each, and return the number of those that failed."""
    failed = 0
    spark = session(jars)
    for name, run in PAGES.items():
        with LocalBroker(default_partitions=2) as broker:
            for topic in ("orders", "customers.delta", "customers.iceberg"):
                broker.create_topic(topic, 2)
            wrong = ""
            try:
                page = Page(docs / f"{name}.md", spark, broker.bootstrap_servers)
                if left := page.blocks.keys() ^ run(page):
                    wrong = f"not run: {left}"
            except Exception:
                wrong = traceback.format_exc()
        failed += bool(wrong)
        print(json.dumps({"page": name, "wrong": wrong}), flush=True)
    spark.stop()
    return failed


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
