"""The message formats V0 and V1, for archives and for tools that know nothing newer.

Owns: the building of records in V0, V1 and V2, down-conversion, and the rewriting of log files, for `pyproducer downconvert` and
`encode_table`. Must not know: producers, brokers or sockets. Reading every format is the work of `record`.
"""

from spark_producer.legacy_formats.record_sets import convert, encode_table, magic_of

__all__ = ["convert", "encode_table", "magic_of"]
