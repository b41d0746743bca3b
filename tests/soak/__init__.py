"""The soak: streams of every guarantee side by side on three nodes for hours, under random faults, with every row accounted.

    python -m tests.soak --help

Owns: the streams, which faults there are, the accounts, the samples of processes, the page that a run writes.
Must not know: how the sink and the source do it. Clusters, drivers and hands are those of `tests/matrix`.
"""
