"""The protocol of an exactly-once write as pure state machines: BEGIN, COMMIT, ABORT and roll forward.

Owns: the states, the commands that they ask for, the control record as a value, admission of a batch.
Must not know: requests, sockets, the clock, or Spark (import contract).
"""
