"""The settings of a sender, which follow from the options of a producer."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.protocol import PRODUCE_BY_ID, Api
from spark_producer.protocol.messages import ProduceRequest, ProduceResponse


class SenderSettings(NamedTuple):
    """The settings of the sender.

    `acks` is -1, 1 or 0. `timeout` is in seconds, for one request. `availability_timeout` is in seconds, 0 for off (KIP-794).
    `produce` has the versions of the Produce request that suit the batches. `user` is what brokers know us as, for messages.
    With a `transactional_id` the producer is transactional, and `transaction_timeout_ms` is its `transaction.timeout.ms`.
    """

    acks: int
    timeout: float
    max_request_size: int
    retries: int
    idempotent: bool
    availability_timeout: float = 0.0
    produce: Api[ProduceRequest, ProduceResponse] = PRODUCE_BY_ID
    user: str = ""
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60000
