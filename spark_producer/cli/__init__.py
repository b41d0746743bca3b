"""The command line: `pyproducer check | write | tail | topics | bench | txn | downconvert | options | bytecode | broker`.

`python -m spark_producer …` is the same.

Owns: the arguments, the output and the exit codes, with one module for each command. Must not know: how the work is done.
"""
