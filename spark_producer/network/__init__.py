"""Sockets of the client's side: connections to brokers, and requests over them.

Owns: every socket of a producer, reconnects, timeouts of requests, and one option of sockets that others made.
Must not know: what a producer does with answers (`sender`), record batches, pyspark.
"""

from spark_producer.network.addresses import format_address, parse_bootstrap_servers
from spark_producer.network.client import Client, Completion
from spark_producer.network.quick_ack import set_quickack
from spark_producer.network.settings import ConnectionSettings, principal

__all__ = [
    "Client",
    "Completion",
    "ConnectionSettings",
    "format_address",
    "parse_bootstrap_servers",
    "principal",
    "set_quickack",
]
