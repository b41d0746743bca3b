"""What the driver, jobs and the command line ask of a cluster, and wait for.

Owns: a client whose calls block, the look-up of offsets, the reading of a topic as it grows, and the form of records as text.
Must not know: producers, pyspark.
"""

from spark_producer.tools.blocking import BlockingClient

__all__ = ["BlockingClient"]
