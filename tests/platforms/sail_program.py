"""Program that runs the examples of docs/sail.md with Sail, and writes and reads as `program` does with Spark.

    python tests/platforms/sail_program.py docs/sail.md

It needs pysail, a client of Spark Connect, this package and confluent-kafka, and prints one line of JSON for each way. It is a
file of its own, since its environment lacks the other tests.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import spark_producer
from spark_producer.broker import LocalBroker

program: Any = importlib.import_module("program")
"""The program of Spark, in the same folder."""

DEAD = 10
"""The number of bad rows of the write with dead letters."""


def examples(page: Path, servers: str) -> dict[str, Any]:
    """Run the examples of the page, and return their names: `spark` is the session, `server` Sail's."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        text = block.replace('"127.0.0.1", 50051', '"127.0.0.1", 0').replace("localhost:9092", servers)
        if "remote(" in text:
            start, session = text.split("spark = ")
            exec(start, names)
            address = "{}:{}".format(*names["server"].listening_address)
            text = "spark = " + session.replace("127.0.0.1:50051", address)
        exec(compile(text, str(page), "exec"), names)
    return names


def shown(_: Any, servers: str) -> str:
    """The rows of the page's examples."""
    found = {topic: sorted(program.read(servers, topic)) for topic in ("people", "days")}
    expected = ["Ada", "Edith", "Grace"]
    return "" if all(values == expected for values in found.values()) else f"the examples wrote {found}"


def batch(spark: Any, servers: str, **more: str) -> str:
    """A write of all rows."""
    options = {"kafka.bootstrap.servers": servers, "topic": f"batch{len(more)}", **more}
    for _ in range(2 if more else 1):  # the second exactly-once write has the number of the first one
        program.as_batch(spark, options, Path())
    return str(program.judge(program.read(servers, options["topic"])))


def exactly_once(spark: Any, servers: str) -> str:
    """Two writes with one `txnVersion`; all rows are too many for the driver."""
    return batch(spark, servers, exactlyOnceId="sail", txnVersion="1")


def read(spark: Any, servers: str) -> str:
    """A read of all rows, in Sail's own time zone."""
    program.send(servers, "read", range(program.ROWS))
    options = {"kafka.bootstrap.servers": servers, "subscribe": "read", "minPartitions": "8"}
    rows = spark.read.format("pyproducer").schema("value binary, timestamp timestamp").options(**options).load()
    if rows.where("timestamp > timestamp '2020-01-01 00:00:00'").count() != program.ROWS:
        return "timestamps are wrong"
    return str(program.judge(program.values(rows)))


def dead_letters(spark: Any, servers: str) -> str:
    """A write with bad rows in several tasks, whose dead letters name different tasks."""
    options = {"kafka.bootstrap.servers": servers, "topic": "batch0", "deadLetterTopic": "dead"}
    rows = spark.range(2 * DEAD).repartition(2).selectExpr("string(id) as value", "if(id % 4 < 2, 99, 0) as partition")
    rows.write.format("pyproducer").mode("append").options(**options).save()
    found = spark_producer.read_table("dead", {"bootstrap.servers": servers}, columns=["value", "headers"])
    tasks = {
        header["value"]
        for headers in found["headers"].to_pylist()
        for header in headers or ()
        if header["key"].endswith(".task.id")
    }
    return "" if found.num_rows == DEAD and len(tasks) == 2 else f"{found.num_rows} dead letters, of tasks {tasks}"


def streams(spark: Any, servers: str) -> str:
    """Streams, which Sail refuses. When it does not any more, the page is wrong."""
    options = {"kafka.bootstrap.servers": servers, "topic": "streamed", "checkpointLocation": "checkpoint"}
    rows = spark.readStream.format("rate").load().selectExpr("string(value) as value")
    try:
        rows.writeStream.format("pyproducer").options(**options).start()
    except Exception as error:
        return "" if "unsupported extension node for streaming" in str(error) else f"another error: {error}"
    return "Sail writes streams"


WAYS: dict[str, Callable[[Any, str], str]] = {
    "the page": shown,
    "batch": batch,
    "exactly once, batch": exactly_once,
    "read, batch": read,
    "dead letters": dead_letters,
    "no streams": streams,
}
"""The ways, each of which returns what is wrong, or an empty text."""


def main(page: Path) -> int:
    """Run all ways, print each outcome, and return the number of ways that failed."""
    failed = 0
    with LocalBroker(default_partitions=2) as broker:
        broker.create_topic("dead")
        names = examples(page, broker.bootstrap_servers)
        for way, run in WAYS.items():
            try:
                wrong = run(names["spark"], broker.bootstrap_servers)
            except Exception:
                wrong = traceback.format_exc()
            failed += bool(wrong)
            print(json.dumps({"way": way, "wrong": wrong, "sail": version("pysail")}), flush=True)
        names["spark"].stop()
        names["server"].stop()
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
