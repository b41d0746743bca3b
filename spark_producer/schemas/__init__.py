"""Avro with a Schema Registry: columns of structs become columns of bytes in Confluent's frame.

Owns: which Avro schema a column has, the plan by which it is encoded, frames and subjects, and what is asked of a registry.
Must not know: Spark (but for the one module with a function over columns), Kafka, or how the encoded bytes are written.
"""

from spark_producer.schemas.functions import to_confluent_avro

__all__ = ["to_confluent_avro"]
