"""The producer: what callers hold, and the thread that does its input and output.

Owns: `Producer`, `MockProducer`, how their parts are put together, checks of what callers ask. Must not know: pyspark, sockets.
"""

from spark_producer.producer.parts import Parts
from spark_producer.producer.producer import Producer, parts_of

__all__ = ["Parts", "Producer", "parts_of"]
