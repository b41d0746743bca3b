"""Three rows from Spark to a topic, and back: a job of `make release-check`. Its arguments are the brokers and the topic."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import spark_producer


def main(servers: str, topic: str) -> None:
    """Write and read, with what is installed or was sent along."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark_producer.register(spark)
    options = {"kafka.bootstrap.servers": servers}
    rows = spark.createDataFrame([("a", "1"), ("b", "2"), ("c", "3")], "key string, value string")
    rows.write.format("pyproducer").mode("append").options(**options).option("topic", topic).save()
    read = spark.read.format("pyproducer").options(**options).option("subscribe", topic).load()
    found = sorted(tuple(row) for row in read.selectExpr("string(key)", "string(value)").collect())
    assert found == [("a", "1"), ("b", "2"), ("c", "3")], found
    print(f"Spark {spark.version} wrote and read {len(found)} rows with {spark_producer.__file__}")
    spark.stop()


main(*sys.argv[1:])
