"""The admin client of the driver, jobs and the command line: topics, offsets and checks of a cluster (Kafka's Admin).

Owns: one client, which blocks until brokers respond, and the operations on top of it.
Must not know: produced batches (`sender`, `accumulator`), options, Spark.
"""

from spark_producer.admin.client import BlockingClient

__all__ = ["BlockingClient"]
