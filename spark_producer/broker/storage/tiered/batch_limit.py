"""The largest batch that the write cache takes, and what is said of topics that promise to take larger ones."""

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
    """A half of the write cache, of `half_size` bytes, which holds each batch whole. Only the broker's thread uses it.

    Nobody may give a topic a larger `max.message.bytes`. One that has it, from a time with more memory, is told in the log once,
    and so is its first batch that is refused.
    """

    def __init__(self, half_size: int) -> None:
        self.half_size = half_size
        self._warned: dict[str, int] = {}
        self._refused: set[str] = set()

    def warn_if_exceeded(self, topic: str, settings: TopicSettings) -> None:
        """Warn of a topic with these settings if it promises more than there is room for, unless that was said before."""
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
        """Check the `max.message.bytes` that somebody wants for a topic. The words are those of Kafka's ConfigDef.Range.

        Raises:
            BrokerError: INVALID_CONFIG.
        """
        if size > self.half_size:
            raise BrokerError(
                f"Invalid value {size} for configuration max.message.bytes: Value must be no more than {self.half_size}, "
                f"half of the broker's write cache; start the broker with {SETTING} of {2 * size} at least (--memory-part), or "
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
            f"the record batch has {size:,} bytes, half of the write cache has {self.half_size:,}: start the broker with "
            f"a larger --memory-part {SETTING}, or more --memory: {SETTING} must be {2 * size:,} at least"
        )
        if topic not in self._refused:
            self._refused.add(topic)
            logger.warning("topic %s refuses batches, the first of which is told: %s", quoted(topic), why)
        raise BrokerError(why, code=Code.MESSAGE_TOO_LARGE)

    def forget(self, topic: str) -> None:
        """Forget what was said of a topic that was deleted."""
        self._warned.pop(topic, None)
        self._refused.discard(topic)
