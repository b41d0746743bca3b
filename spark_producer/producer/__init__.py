"""The producer: the classes for callers, and the thread that does the input and output.

Owns: `Producer`, `MockProducer`, the code that connects their parts, and the checks of arguments.
Must not know: pyspark, sockets.
"""

from spark_producer.producer.internals import Parts
from spark_producer.producer.producer import Producer, parts_of, producer_of

__all__ = ["Parts", "Producer", "parts_of", "producer_of"]
