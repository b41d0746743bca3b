"""Decides which requests to send next, and the result of each response. All methods take the time `now`.

Owns: the cluster metadata and its refresh, the producer id and sequence numbers, the batches of a request, and retries.
Must not know: sockets and threads. It sees the network through `NetworkView`, and returns requests.
"""

from spark_producer.sender.metadata import Metadata, TopicWaiter
from spark_producer.sender.network_view import ClientRequest, NetworkView, RequestBatches
from spark_producer.sender.partitioner_load import KnownTopics, ProducerLoad
from spark_producer.sender.sender import Sender, SenderStep
from spark_producer.sender.settings import SenderSettings

__all__ = [
    "ClientRequest",
    "KnownTopics",
    "Metadata",
    "NetworkView",
    "ProducerLoad",
    "RequestBatches",
    "Sender",
    "SenderSettings",
    "SenderStep",
    "TopicWaiter",
]
