"""What the driver, jobs and the command line ask of a cluster, and wait for.

Owns: a client whose calls block, offsets, reading a topic as it grows, records as text. Must not know: producers, pyspark.
"""

from spark_producer.tools.blocking import BlockingClient

__all__ = ["BlockingClient"]
