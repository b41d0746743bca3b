"""The Python worker of a write: one task sends its rows with a producer that the worker keeps.

Owns: producers kept across tasks, the size of batches, memory of a worker, the socket to the JVM.
Must not know: the driver (`driver`); what it reports travels in its commit message.
"""
