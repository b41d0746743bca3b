"""Avro and Protobuf with a Schema Registry: struct columns become columns of bytes in Confluent's wire format, and back.

Owns: the Avro schema of a column, the plan by which it is encoded, the program by which it is decoded, the wire format, subjects,
and requests to a registry. The package `protobuf` owns what is different in Protobuf.
Must not know: Spark (except for the module with functions over columns), Kafka, or how the encoded bytes are written.
"""

from spark_producer.schemas.functions import (
    from_confluent_avro,
    from_confluent_protobuf,
    to_confluent_avro,
    to_confluent_protobuf,
)

__all__ = ["from_confluent_avro", "from_confluent_protobuf", "to_confluent_avro", "to_confluent_protobuf"]
