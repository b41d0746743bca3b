"""Streams for the tests: files appear in a folder, one file is one micro-batch.

Owns: the folder, the query with its checkpoint. Must not know: what is expected of the sink.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.conftest import Broker
from tests.spark.frames import FORMAT, sink_options

SECONDS = 120


class FileStream:
    """A folder that Spark reads as a stream of `schema`, and the checkpoint of one query on it."""

    def __init__(self, spark: SparkSession, home: Path, schema: str) -> None:
        self._spark, self._schema = spark, schema
        self._folder, self.checkpoint = home / "files", home / "checkpoint"
        self._time = int(time.time())
        self._folder.mkdir()

    def put(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """A file, all of it at once; of a name that exists already the content changes."""
        hidden = self._folder / f".{name}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self._time += 1  # the order in which Spark takes the files, to the millisecond
        os.utime(hidden, (self._time, self._time))
        hidden.rename(self._folder / name)

    @property
    def frame(self) -> DataFrame:
        """The stream."""
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder))

    def to(
        self,
        broker: Broker,
        topic: str,
        frame: DataFrame | None = None,
        options: Mapping[str, object] | None = None,
        name: str = FORMAT,
    ) -> DataStreamWriter:
        """A write of the stream, or of `frame` made from it, that only needs its trigger and start."""
        writer = (self.frame if frame is None else frame).writeStream.format(name)
        return writer.options(**sink_options(broker, topic, options)).option("checkpointLocation", str(self.checkpoint))

    def committed(self) -> list[int]:
        """Numbers of the micro-batches that are done."""
        return sorted(int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*"))


def run(writer: DataStreamWriter) -> StreamingQuery:
    """Process all rows that are there now, then stop; raise the error of the query."""
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(SECONDS), f"the query has not ended within {SECONDS} s"
    finally:
        query.stop()
    return query
