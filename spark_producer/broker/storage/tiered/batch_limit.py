"""The maximum size of a batch, half of the write cache, and the warnings for topics with a larger `max.message.bytes`."""

from __future__ import annotations

from typing import Final

from spark_producer.broker.log_quoting import quoted
from spark_producer.broker.settings import TopicSettings
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError

SETTING: Final = "storage.write.cache.bytes"

logger = escaping_logger(__name__)


class BatchLimit:
    """The limit: a batch must fit in a half of the write cache, of `half_size` bytes. Only the broker's thread uses it.

    A topic cannot be given a larger `max.message.bytes`. A topic that has one, from a run of the broker with more memory, is
    logged once, and so is its first refused batch.
    """

    def __init__(self, half_size: int) -> None:
        self.half_size = half_size
        self._warned: dict[str, int] = {}
        self._refused: set[str] = set()

    def warn_if_exceeded(self, topic: str, settings: TopicSettings) -> None:
        """Log a warning if `max.message.bytes` of a topic exceeds the limit, once for each value."""
        promised = settings.max_message_bytes
        if promised <= self.half_size:
            self._warned.pop(topic, None)
        elif self._warned.get(topic) != promised:
            self._warned[topic] = promised
            logger.warning(
                "topic %s: max.message.bytes is %s, but batches of more than %s bytes, half of the write cache, are refused: "
                "set %s to %s at least",
                *(quoted(topic), f"{promised:,}", f"{self.half_size:,}", SETTING, f"{2 * promised:,}"),
            )

    def check_setting(self, size: int) -> None:
        """Check a new value of `max.message.bytes`. The message is that of Kafka's ConfigDef.Range.

        Raises:
            BrokerError: INVALID_CONFIG.
        """
        if size > self.half_size:
            raise BrokerError(
                f"Invalid value {size} for configuration max.message.bytes: Value must be no more than {self.half_size}, "
                f"half of the broker's write cache. Start the broker with {SETTING} of {2 * size} at least (--memory-part), or "
                "more --memory",
                code=Code.INVALID_CONFIG,
            )

    def check(self, topic: str, size: int) -> None:
        """Check the size of a batch.

        Raises:
            BrokerError: MESSAGE_TOO_LARGE.
        """
        if size <= self.half_size:
            return
        why = (
            f"the record batch has {size:,} bytes, half of the write cache has {self.half_size:,}. Start the broker with "
            f"a larger --memory-part {SETTING}, or more --memory: {SETTING} must be {2 * size:,} at least"
        )
        if topic not in self._refused:
            self._refused.add(topic)
            logger.warning("topic %s: batches are refused, and only the first is logged: %s", quoted(topic), why)
        raise BrokerError(why, code=Code.MESSAGE_TOO_LARGE)

    def forget(self, topic: str) -> None:
        """Forget the warnings for a deleted topic."""
        self._warned.pop(topic, None)
        self._refused.discard(topic)
