"""Converts Arrow columns to Kafka record batches and back.

Owns: the rendering of rows of any type as text and JSON, the columns and their checks, the cutting of tables into pieces, the
header of a batch, the codecs, and the reading of every format. Must not know: sockets, threads, the clock or partitions; it uses
numpy and pyarrow only.

`columns` checks the columns of rows to write, by name; `decoded_columns` makes the columns of records that were read.
"""
