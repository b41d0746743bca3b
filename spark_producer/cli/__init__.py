"""The command line: `pyproducer broker | tail | convert | options | txn`, or `python -m spark_producer …`.

Owns: the arguments, the output and the exit codes, with one module for each command. Must not know: how the work is done.
"""
