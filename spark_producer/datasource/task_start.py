"""The start of a task: its reader or writer is unpickled, and then the JVM sends what it works on."""

from __future__ import annotations


def acknowledge_in_task() -> None:
    """Acknowledge the pickled reader or writer at once, if a Spark task is unpickling it.

    The JVM writes the input partition, or the first rows, after it as another small piece. It does not send that before the
    acknowledgement, which Linux delays by 40 ms (decision 0701). `read` is called too late for this: the input partition is its
    argument. For a writer the rows come while its task gets ready.
    """
    from spark_producer.datasource.jvm_socket import JvmConnection  # look-ups of the format do without the network

    JvmConnection().answer_at_once()
