"""Errors as Spark shows them: with their message, and without the traceback through this package.

Spark prints the traceback of its Python process before the message: up to 20 lines of this package, for a mistake that was not
made in it. The message says what to do.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from spark_producer.errors import PartitionerError, PyProducerError

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger("pyproducer")


def told_in_short(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method that Spark calls, so that an error of ours leaves it with one line of traceback, this module's.

    The whole traceback goes to the log `pyproducer` at level DEBUG. Only a user's own function keeps its traceback, as the
    cause of a `PartitionerError`. Other exceptions are defects and keep their traceback.
    """

    @functools.wraps(method)
    def surface(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return method(*arguments, **named)
        except PyProducerError as error:
            logger.debug("%s failed", method.__qualname__, exc_info=True)
            cause = error.__cause__ if isinstance(error, PartitionerError) else None
            raise error.with_traceback(None) from cause

    return surface
