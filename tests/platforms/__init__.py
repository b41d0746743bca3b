"""The package beside other versions of Spark and Python: `program` is what each of them runs, `__main__` makes the table.

Owns: which versions are tried, and what a version must do. Must not know: how a row is written.
"""
