"""The command line: `pyproducer broker | tail | convert | options`, or `python -m spark_producer …`.

Owns: arguments, what is printed, exit codes; one module for each command. Must not know: how anything is done.
"""
