"""The metrics of the broker: the snapshot of their values, the page in Prometheus' text format, its server, and the memory
report.

Owns: the names and values that are shown. Must not know: who counts, or why.
"""
