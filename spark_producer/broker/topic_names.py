"""Kafka's rule for topic names."""

from __future__ import annotations

import re
from typing import Final

from spark_producer.broker.log_quoting import quoted
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError

MAX_NAME_LENGTH: Final = 249
"""Maximum length of a topic name (Kafka's): with the partition number it must fit into a file name of 255 characters."""
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def metric_name(name: str) -> str:
    """Return the name of the topic in Kafka's metrics, which must differ from those of all other topics."""
    return name.replace(".", "_")


def is_legal_name(name: str) -> bool:
    """Return whether the name is legal for a topic."""
    return name not in (".", "..") and len(name) <= MAX_NAME_LENGTH and _LEGAL_NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Check that the name is legal for a topic.

    Raises:
        BrokerError: INVALID_TOPIC_EXCEPTION.
    """
    if not is_legal_name(name):
        raise BrokerError(
            f"illegal topic name {quoted(name)}. Use 1 to {MAX_NAME_LENGTH} of a-z, A-Z, 0-9, '.', '_' and '-', not '.' or '..'",
            code=Code.INVALID_TOPIC_EXCEPTION,
        )
