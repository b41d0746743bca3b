"""Keep the flights that left late: read them from a topic, filter them, and write them to another topic exactly once.

    spark-submit jobs/late_flights.py --bootstrap-servers localhost:9092 --checkpoint late-checkpoint
    spark-submit jobs/late_flights.py --command-config client.properties --checkpoint late-checkpoint --follow

It reads what `jobs/flights.py` has written. Killed at any moment and started again with the same checkpoint, it continues, and
readers of committed records see each late flight once.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence

from display import console
from interrupts import end_in_order
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone uses
from pyspark.sql.streaming.query import StreamingQuery
from session import quiet_session

from spark_producer.cli.connection_args import add_connection, connection_options
from spark_producer.errors import PyProducerError

LATE = 15
"""The minutes of delay from which on a flight is late, as the airlines count."""


def late_flights(flights: DataFrame) -> DataFrame:
    """Return the late flights among records of `jobs/flights.py`, as columns of the sink."""
    delay = F.get_json_object(F.col("value").cast("string"), "$.dep_delay").cast("int")
    return flights.where(delay >= LATE).select("key", "value", "timestamp")


def start(spark: SparkSession, chosen: argparse.Namespace, connection: Mapping[str, str]) -> StreamingQuery:
    """Start the query, which ends at the present end of the topic unless it follows."""
    reader = spark.readStream.format("pyproducer").options(**connection).option("subscribe", chosen.source)
    reader = reader.option("startingOffsets", "earliest").option("kafka.isolation.level", "read_committed")
    if chosen.max_offsets:
        reader = reader.option("maxOffsetsPerTrigger", chosen.max_offsets)
    if chosen.commit_group:
        reader = reader.option("commitGroup", chosen.commit_group)
    writer = (
        late_flights(reader.load())
        .writeStream.format("pyproducer")
        .options(**connection)
        .option("topic", chosen.target)
        .option("exactlyOnceId", chosen.target)
        .option("checkpointLocation", chosen.checkpoint)
        .queryName("late flights")
    )
    return (writer if chosen.follow else writer.trigger(availableNow=True)).start()


def reason(error: StreamingQueryException) -> str:
    """Return the message of this package in an error of Spark, which has it among its own; else the first line of Spark's."""
    own = re.search(r"spark_producer\.errors\.\w+: (.+)", str(error))
    return own[1] if own else str(error).splitlines()[0]


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Copy the late flights to another topic, exactly once.")
    add_connection(parser, default=None)
    parser.add_argument("--source", default="flights", help="topic to read (default: %(default)s)")
    parser.add_argument("--target", default="flights-late", help="topic to write to (default: %(default)s)")
    parser.add_argument(
        "--checkpoint", required=True, help="directory of the checkpoint, which driver and executors share"
    )
    parser.add_argument("--follow", action="store_true", help="wait for new flights, instead of ending at the last one")
    parser.add_argument("--max-offsets", type=int, help="maximum records of a micro-batch (Spark 4.2 or newer)")
    parser.add_argument("--commit-group", help="consumer group that shows the progress to Kafka's tools")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    """Run the query to its end, and say how many records it has read.

    Raises:
        PyProducerError: the query has failed.
    """
    chosen = _arguments(given)
    with quiet_session("late flights") as spark:
        query = start(spark, chosen, connection_options(chosen, {}))
        try:
            query.awaitTermination()
        except StreamingQueryException as error:  # its text comes from the JVM, which the end of the session ends
            raise PyProducerError(reason(error)) from None
        finally:
            query.stop()
        rows = sum(progress.numInputRows for progress in query.recentProgress)
        console.print(f"{rows:,} flights read from {chosen.source}, the late ones are in {chosen.target}")


if __name__ == "__main__":
    end_in_order()
    try:
        main()
    except PyProducerError as error:
        sys.exit(f"late_flights: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
