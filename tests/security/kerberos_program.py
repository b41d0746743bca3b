"""A program of Spark that writes and reads by Kerberos: its processes have the environment of their start.

Run with the path of a plan (JSON): options of the sink, topic, and a folder for checkpoints.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.session import end_session, spark_session


def main() -> None:
    """Write 100 rows, half of them exactly once by a stream, and print what was read."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    options, topic, home = plan["options"], plan["topic"], Path(plan["home"])
    spark = spark_session()
    try:
        rows = spark.range(50, numPartitions=2).selectExpr("cast(id as string) as value")
        rows.write.format("pyproducer").options(**options).option("topic", topic).mode("append").save()
        (home / "in").mkdir()
        (home / "in" / "rows.txt").write_text("".join(f"{number}\n" for number in range(50, 100)))
        stream = spark.readStream.text(str(home / "in")).writeStream.format("pyproducer").options(**options)
        stream = stream.option("topic", topic).option("exactlyOnceId", f"{topic}-id").trigger(availableNow=True)
        stream.option("checkpointLocation", str(home / "checkpoint")).start().awaitTermination()
        source = {name: value for name, value in options.items() if name != "kafka.max.block.ms"}
        found = spark.read.format("pyproducer").options(**source).option("subscribe", topic).load()
        values = [bytes(row.value) for row in found.select("value").collect()]
        print(json.dumps({"rows": len(values), "distinct": len(set(values))}))
    finally:
        end_session(spark)


if __name__ == "__main__":
    main()
