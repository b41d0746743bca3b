"""Exactly once for a whole write: the control record that is its commit point, and the steps around it.

Owns: the control record and its topic, the pure steps of begin, commit and redrive, their execution on a cluster, and what
people do to transactions that are left (`pyproducer txn`).
Must not know: Spark (`datasource` calls this room), nor how tasks write their rows (`producer`).
"""
