"""Why a call cannot learn of its topic, in words.

Owns: the errors of a wait for metadata. Must not know: how one waits.
"""

from __future__ import annotations

from spark_producer.config import ProducerConfig
from spark_producer.errors import (
    BrokersUnreachable,
    MetadataTimeout,
    PyProducerError,
    RecordError,
    broker_error,
    error_code,
)

UNKNOWN_TOPIC = 3


def no_metadata(
    config: ProducerConfig, name: str, code: int, *, answered: bool, last_error: PyProducerError | None
) -> PyProducerError:
    """The wait for topic `name` has ended in vain; `code` is what the brokers said of it, `answered` whether any did."""
    waited = f"within {config.max_block_ms} ms (kafka.max.block.ms)"
    if code == UNKNOWN_TOPIC:
        return broker_error(code, f"topic {name!r}", topic=name)
    if not answered:
        reason = f" Last error: {last_error}" if last_error else ""
        return BrokersUnreachable(
            f"none of the bootstrap servers {config.bootstrap_servers} answered {waited}.{reason} "
            "Check kafka.bootstrap.servers, the network, and whether the brokers run"
        )
    known = f" The brokers answer {error_code(code).name}." if code else ""
    return MetadataTimeout(f"nothing was learnt of topic {name!r} {waited}.{known}")


def check_topic_name(name: str) -> None:
    """One name that cannot be encoded would spoil every later question about topics.

    Raises:
        RecordError: it cannot be encoded.
    """
    try:
        name.encode()
    except (AttributeError, UnicodeEncodeError):
        raise RecordError(f"{name!r} is no topic name: a name is text of letters, digits, '.', '_' and '-'") from None
