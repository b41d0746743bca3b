"""The client's connections to brokers, and requests over them.

Owns: every socket of a producer, reconnects, request timeouts, and one socket option that others may set (`set_quickack`).
Must not know: the use of responses (`sender`), record batches, pyspark.
"""

from spark_producer.network.addresses import parse_bootstrap_servers
from spark_producer.network.client import Client, Completion
from spark_producer.network.quick_ack import set_quickack
from spark_producer.network.settings import ConnectionSettings, principal

__all__ = [
    "Client",
    "Completion",
    "ConnectionSettings",
    "parse_bootstrap_servers",
    "principal",
    "set_quickack",
]
