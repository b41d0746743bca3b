"""What to send next, and what an answer means: pure decisions, every method takes `now`.

Owns: the cluster metadata and its refresh, the producer id and the sequences, the choice of batches for a request, and retries.
Must not know: sockets and threads. It sees the network through `NetworkView`, and returns requests.
"""

from spark_producer.sender.load import KnownTopics, ProducerLoad
from spark_producer.sender.metadata import Metadata, Wish
from spark_producer.sender.sender import NetworkView, Outgoing, Sender, SenderSettings, Step, Tag

__all__ = [
    "KnownTopics",
    "Metadata",
    "NetworkView",
    "Outgoing",
    "ProducerLoad",
    "Sender",
    "SenderSettings",
    "Step",
    "Tag",
    "Wish",
]
