"""What the driver, jobs and the command line ask of a cluster: topics, offsets, checks (Kafka's Admin client).

Owns: a client that blocks, and one that has requests to many brokers in flight.
Must not know: batches on their way (`sender`, `accumulator`), options, Spark.
"""

from spark_producer.admin.client import BlockingClient

__all__ = ["BlockingClient"]
