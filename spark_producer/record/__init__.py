"""Arrow columns to and from Kafka record batches.

Owns: columns and their checks, pieces of a table, the header of a batch, codecs, and reading every format.
Must not know: sockets, threads, the clock, partitions; it has numpy and pyarrow only.
"""
