"""Program that runs the recipes of docs/kafka_to_tables.md and docs/tables_to_kafka.md against the embedded broker.

    python tests/platforms/recipes_program.py docs [pandas]

It makes files in the folder that it runs in. It needs this package and the libraries of the recipes; with `pandas` only those of
pandas are run. It prints one line of JSON for each page. It is a file of its own, since its environment lacks the other tests.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_producer import Producer, read_table
from spark_producer.broker import LocalBroker

ORDERS = [("Ada", 12.5), ("Grace", 3.25), ("Ada", 7.0)]
LATER = [("Edith", 1.5)]
BOTH = {b'{"customer":"Ada","price":12.5}', b'{"customer":"Grace","price":3.25}'}
SNAPSHOTS = [("Ada", 100), ("Grace", 200)]


class Page:
    """The blocks of one page by their headings, run in one namespace."""

    def __init__(self, path: Path, servers: str) -> None:
        self.servers = servers
        self.names: dict[str, Any] = {}
        self.blocks: dict[str, str] = {}
        """The code below each heading, which has one block at most; the first has the name of the page."""
        for section in re.split(r"^#+ ", path.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            heading, _, text = section.partition("\n")
            code = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
            if code and not heading.startswith("Spark: "):  # spark_tables_program.py
                (self.blocks[heading],) = code
        self.run(next(iter(self.blocks)))

    def run(self, heading: str) -> None:
        """Run the block below a heading."""
        code = self.blocks[heading].replace("localhost:9092", self.servers)
        exec(compile(code, heading, "exec"), self.names)

    def values(self, topic: str) -> list[bytes | None]:
        """The committed values of a topic."""
        options = {"bootstrap.servers": self.servers, "isolation.level": "read_committed"}
        return read_table(topic, options, columns=["value"])["value"].to_pylist()


def send_orders(servers: str, orders: list[tuple[str, float]]) -> None:
    """Write orders as JSON."""
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send_many("orders", [json.dumps({"customer": name, "price": price}) for name, price in orders])


def from_kafka(page: Page) -> set[str]:
    """Run every recipe, those of growing tables three times, and return the headings."""
    send_orders(page.servers, ORDERS)
    pandas_from_kafka(page)
    page.run("Polars")
    assert sorted(page.names["orders"].select("customer", "price").rows()) == sorted(ORDERS)
    for heading, rows in (("DuckDB", of_duckdb), ("Delta", of_delta), ("Iceberg", of_iceberg)):
        for _ in range(2):  # the second run finds nothing new
            page.run(heading)
            assert rows() == len(page.values("orders")), heading
    send_orders(page.servers, LATER)
    for heading, rows in (("DuckDB", of_duckdb), ("Delta", of_delta), ("Iceberg", of_iceberg)):
        page.run(heading)
        assert rows() == len(ORDERS + LATER), heading
    return {"pandas", "Polars", "DuckDB", "Delta", "Iceberg"}


def pandas_from_kafka(page: Page) -> set[str]:
    """The recipe of pandas alone."""
    if not page.values("orders"):
        send_orders(page.servers, ORDERS)
    page.run("pandas")
    assert sorted(page.names["frame"].itertuples(index=False, name=None)) == sorted(ORDERS)
    return {"pandas"}


def of_duckdb() -> int:
    """The rows of DuckDB's table."""
    with importlib.import_module("duckdb").connect("orders.duckdb") as base:
        return int(base.execute("SELECT count(*) FROM orders").fetchone()[0])


def of_delta() -> int:
    """The rows of the Delta table."""
    return int(importlib.import_module("deltalake").DeltaTable("orders.delta").to_pyarrow_table().num_rows)


def catalog() -> Any:
    """The catalog of the Iceberg tables."""
    load: Callable[..., Any] = importlib.import_module("pyiceberg.catalog").load_catalog
    return load("local", type="sql", uri="sqlite:///catalog.db", warehouse=Path.cwd().as_uri())


def of_iceberg() -> int:
    """The rows of the Iceberg table."""
    return int(catalog().load_table("shop.orders").scan().to_arrow().num_rows)


def to_kafka(page: Page) -> set[str]:
    """Run every recipe, and return the headings."""
    pandas_to_kafka(page)
    for heading, topic in (("Polars", "orders.polars"), ("DuckDB", "orders.duckdb")):
        page.run(heading)
        assert set(page.values(topic)) == BOTH, heading
    change_feed(page)
    appended_rows(page)
    return {"pandas", "Polars", "DuckDB", "Delta: the change feed", "Iceberg: the appended rows"}


def pandas_to_kafka(page: Page) -> set[str]:
    """The recipe of pandas alone."""
    page.run("pandas")
    assert set(page.values("orders.pandas")) == BOTH
    return {"pandas"}


def customers(rows: list[tuple[str, int]]) -> pa.Table:
    """A table of customers and their limits."""
    return pa.table({"customer": [name for name, _ in rows], "limit": [limit for _, limit in rows]})


def change_feed(page: Page) -> None:
    """Versions with inserts, an update and a delete: each change once, though the recipe runs again and again."""
    delta = importlib.import_module("deltalake")
    feed = {"delta.enableChangeDataFeed": "true"}
    delta.write_deltalake("customers.delta", customers(SNAPSHOTS), configuration=feed)
    for _ in range(2):
        page.run("Delta: the change feed")
    table = delta.DeltaTable("customers.delta")
    table.update(updates={"limit": "300"}, predicate="customer = 'Ada'")
    table.delete("customer = 'Grace'")
    for _ in range(2):
        page.run("Delta: the change feed")
    options = {"bootstrap.servers": page.servers, "isolation.level": "read_committed"}
    changes = read_table("orders.changes", options).to_pylist()
    assert [row["value"] for row in changes if row["key"] == b"Ada"] == [
        b'{"customer":"Ada","limit":100}',
        b'{"customer":"Ada","limit":300}',
    ]
    assert [row["value"] for row in changes if row["key"] == b"Grace"] == [b'{"customer":"Grace","limit":200}', None]
    assert page.values("orders.changes.version") == [b"0", b"2"]


def appended_rows(page: Page) -> None:
    """Two snapshots, the second one after the first was sent."""
    names = catalog()
    names.create_namespace_if_not_exists("shop")
    table = names.create_table("shop.customers", schema=customers(SNAPSHOTS).schema)
    for row in SNAPSHOTS:
        table.append(customers([row]))
        page.run("Iceberg: the appended rows")
    expected = [b'{"customer":"%s","limit":%d}' % (name.encode(), limit) for name, limit in SNAPSHOTS]
    assert page.values("orders.iceberg") == expected


PAGES: dict[str, Callable[[Page], set[str]]] = {"kafka_to_tables": from_kafka, "tables_to_kafka": to_kafka}
OF_PANDAS: dict[str, Callable[[Page], set[str]]] = {
    "kafka_to_tables": pandas_from_kafka,
    "tables_to_kafka": pandas_to_kafka,
}


def main(docs: Path, *only: str) -> int:
    """Run the pages, print the outcome of each, and return the number of those that failed."""
    failed = 0
    for name, run in (OF_PANDAS if only else PAGES).items():
        with LocalBroker() as broker:
            for topic in ("orders", "orders.changes.version"):
                broker.create_topic(topic)
            wrong = ""
            try:
                page = Page(docs / f"{name}.md", broker.bootstrap_servers)
                left = page.blocks.keys() - run(page) - {next(iter(page.blocks))}
                if left and not only:
                    wrong = f"not run: {left}"
            except Exception:
                wrong = traceback.format_exc()
        failed += bool(wrong)
        print(json.dumps({"page": name, "wrong": wrong}), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
