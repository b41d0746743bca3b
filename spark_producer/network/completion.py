"""The end of a request, as a client tells it."""

from __future__ import annotations

from typing import Any, NamedTuple

from spark_producer.errors import PyProducerError
from spark_producer.protocol import AnyApi


class Completion(NamedTuple):
    """The end of a request: `body` is the response message of `api`, if one is expected, or `error` says why there is none."""

    tag: object
    node: int
    api: AnyApi
    body: Any
    error: PyProducerError | None
    latency: float
    """The seconds from `send` to the completion."""
