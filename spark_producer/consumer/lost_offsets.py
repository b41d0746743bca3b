"""Offsets that are to be read and are not in the log any more: the error or the warning about them."""

from __future__ import annotations

from spark_producer.common.escape import escaping_logger
from spark_producer.errors import DataLoss

_LOGGER = escaping_logger(__name__)


def report_loss(loss: str, advice: str, *, fail: bool, **details: object) -> None:
    """Raise a DataLoss about `loss`, or log it as a warning; `details` are attributes of the error.

    Raises:
        DataLoss: `fail` is true.
    """
    if fail:
        raise DataLoss(
            f"reading failed: {loss}. What to do: {advice}, or set failOnDataLoss to false to read what is left.",
            **details,
        )
    _LOGGER.warning("%s. Reading goes on with what is left, since failOnDataLoss is false.", loss)
