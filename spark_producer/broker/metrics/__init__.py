"""Metrics of the broker: what is shown of it, the page in Prometheus text format, and the server of that page.

Owns: names and values that are shown, and the report of memory. Must not know: who counts, or why.
"""
