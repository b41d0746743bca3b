"""The protocol of an exactly-once write as pure state machines: BEGIN, COMMIT, ABORT and roll forward.

Owns: the states, the commands that they ask for, the control record as a value, admission of a batch.
Must not know: requests, sockets, the clock, or Spark (import contract).

A new state of a commit is a class in `commit`, with a failpoint and a place in `CommitState` (`begin`, `abort` and `roll_forward`
are alike). If no command in `commands` fits, it needs one there, and a case in `cluster.command_executor`.
"""
