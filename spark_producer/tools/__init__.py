"""What the driver, jobs and the command line ask of a cluster, and wait for.

Owns: a client whose calls block, reading a topic as it grows. Must not know: producers, pyspark.
"""

from spark_producer.tools.blocking import BlockingClient

__all__ = ["BlockingClient"]
