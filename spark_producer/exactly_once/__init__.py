"""Exactly once for a whole write: the control record that is its commit point, and the protocol around it.

Owns: the control record and its topic, the pure states of BEGIN, COMMIT, ABORT and roll forward, their execution on a cluster,
and the repairs by a person (`pyproducer txn`).
Must not know: Spark (`datasource` calls this package), nor how tasks write their rows (`producer`).

A sink is what an `exactlyOnceId` names; each field `sink` has the value of that option. In the driver process `driver` runs the
states of `protocol`, and `cluster.command_executor` executes the command of each state; `cluster.control_write` writes the
control record.
"""
