"""Formats of records that no writer needs any more: for archives, and for tools that know nothing newer.

Owns: building records in V0, V1 and V2, down-conversion, log files written anew; for `pyproducer convert` and `encode_table`.
Must not know: producers, brokers, sockets. Reading every format is `record`'s.
"""

from spark_producer.archive.record_sets import convert, encode_table, magic_of

__all__ = ["convert", "encode_table", "magic_of"]
