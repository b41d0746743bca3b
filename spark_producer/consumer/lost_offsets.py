"""Offsets that are to be read and are not in the log any more: the error or the warning about them."""

from __future__ import annotations

from spark_producer.common.escape import escaping_logger
from spark_producer.errors import DataLoss

_LOGGER = escaping_logger(__name__)


FAIL_OPTION = "failOnDataLoss"
"""The name of the data source's option that says whether lost offsets are an error."""


def report_loss(loss: str, advice: str, *, fail: bool, option: str = FAIL_OPTION, **details: object) -> None:
    """Raise a DataLoss about `loss`, or log it as a warning; `details` are attributes of the error.

    `option` is the name under which the caller's user has set `fail`.

    Raises:
        DataLoss: `fail` is true.
    """
    if fail:
        raise DataLoss(
            f"reading failed: {loss}. What to do: {advice}, or set {option} to false to read what is left.",
            **details,
        )
    _LOGGER.warning("%s. Reading goes on with what is left, since %s is false.", loss, option)
