"""Avro with a Schema Registry: struct columns become columns of bytes in Confluent's wire format.

Owns: the Avro schema of a column, the plan by which it is encoded, the wire format, subjects, and requests to a registry.
Must not know: Spark (except for the module with a function over columns), Kafka, or how the encoded bytes are written.
"""

from spark_producer.schemas.functions import to_confluent_avro

__all__ = ["to_confluent_avro"]
