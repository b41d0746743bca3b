"""Protobuf with a Schema Registry: columns of bytes in Confluent's wire format become columns of their messages, and back.

Owns: the compilation of schemas, the columns of a message, the plan by which a column is encoded, the message's path in the wire
format, and the names of messages. Must not know: Spark, Kafka, or how bytes are encoded and decoded.
"""
