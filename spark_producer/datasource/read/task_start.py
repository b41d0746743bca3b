"""The start of a read in a task: its reader is unpickled, and then its ranges come from the JVM."""

from __future__ import annotations


def acknowledge_in_task() -> None:
    """Acknowledge the pickled reader at once, if a Spark task is unpickling it.

    The JVM writes the input partition after it as another small piece. It does not send that before the acknowledgement, which
    Linux delays by 40 ms (decision 0701). `read` is called too late for this: the input partition is its argument.
    """
    from spark_producer.datasource.jvm_socket import JvmConnection  # look-ups of the format do without the network

    JvmConnection().answer_at_once()
