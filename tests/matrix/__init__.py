"""The failure matrix: a streaming query that dies at every step of an exactly-once write, on real clusters, and a judge.

    python -m tests.matrix --help
    python -m tests.matrix.nemesis --help

Owns: the query and its rows, who dies where, the readers, the checker, the results and the page that is made of them.
Must not know: how the sink does it. The sink only calls its failpoints by name (`spark_producer/common/failpoints.py`).
"""
