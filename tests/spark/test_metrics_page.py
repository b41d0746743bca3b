"""The example of docs/metrics.md, pasted as it stands: a committed write is read from Spark's log of its workers."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_producer.broker import LocalBroker

PAGE = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
SECONDS = 60


def test_the_last_commit_can_be_read_on_the_driver(spark: SparkSession) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    switch_on, query = example.split("\n", 1)
    query = query.replace("commits.selectExpr", "rows = commits.selectExpr").replace(").show()", ").collect()")
    session = spark.newSession()  # with a log of its own
    names: dict[str, Any] = {"spark": session, "rows": []}
    try:
        with LocalBroker(default_partitions=1) as broker:
            exec(switch_on, names)
            frame = session.range(7).selectExpr("cast(id as string) as value").coalesce(1)
            options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "seven"}
            frame.write.format("pyproducer").mode("append").options(**options).save()
            deadline, pause = time.monotonic() + SECONDS, threading.Event()
            while not names["rows"] and time.monotonic() < deadline:
                pause.wait(0.1)  # Spark takes the line over from the process that wrote it
                exec(query, names)
        (row,) = names["rows"]
        assert (row.write, row.records, row.last_offset) == ("batch write", "7", "6")
    finally:
        session.conf.unset("spark.sql.pyspark.worker.logging.enabled")
