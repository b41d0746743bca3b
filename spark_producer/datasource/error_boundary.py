"""Decorators for methods that Spark calls: errors keep their message, but not the traceback through this package.

Spark prints the traceback of its Python process before the message. For a user's error that would be up to 20 lines of this
package, while the message alone says what to do.
"""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Callable, Iterator
from pickle import PickleError
from typing import ParamSpec, TypeVar

from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConfigError, PartitionerError, PyProducerError

P = ParamSpec("P")
R = TypeVar("R")
logger = escaping_logger("pyproducer")
_DEPENDENCIES = ("pyarrow", "numpy", "crc32c", "zstandard", "lz4")
"""What every worker needs (pyproject.toml). With `--py-files` it gets the package without them."""


def hide_internal_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method that Spark calls, so that an error of this package leaves it with one line of traceback, this module's.

    The whole traceback goes to the log `pyproducer` at level DEBUG. Only a user's own function keeps its traceback, as the
    cause of a `PartitionerError`. A dependency that this Python lacks is a ConfigError. Other exceptions are defects and keep
    their traceback.
    """

    @functools.wraps(method)
    def surface(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return method(*arguments, **named)
        except PyProducerError as error:
            logger.debug("%s failed", method.__qualname__, exc_info=True)
            cause = error.__cause__ if isinstance(error, PartitionerError) else None
            raise error.with_traceback(None) from cause
        except ModuleNotFoundError as error:
            raise _or_lacking_dependency(error) from None

    return surface


def hide_traceback_of_iterator(method: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Wrap a method that returns an iterator, like `hide_internal_traceback`: for its errors between two items, too."""

    @functools.wraps(method)
    def surface(*arguments: P.args, **named: P.kwargs) -> Iterator[R]:
        try:
            yield from method(*arguments, **named)
        except PyProducerError as error:
            logger.debug("%s failed", method.__qualname__, exc_info=True)
            raise error.with_traceback(None) from None
        except ModuleNotFoundError as error:
            raise _or_lacking_dependency(error) from None

    return surface


def as_pickling_error(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method that Spark calls for pickling, like `hide_internal_traceback`.

    PySpark turns every error of pickling into its own `PicklingError`, with the tracebacks of both, except for
    pickling errors. So the error gets `PickleError` as a second base, and keeps its name.
    """

    @functools.wraps(method)
    def surface(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return method(*arguments, **named)
        except PyProducerError as error:
            logger.debug("%s failed", method.__qualname__, exc_info=True)
            raise _as_pickle_error(error) from None

    return surface


def _or_lacking_dependency(error: ModuleNotFoundError) -> Exception:
    package = (error.name or "").partition(".")[0]
    if package not in _DEPENDENCIES:
        return error
    return ConfigError(
        f"{package} is not installed for {sys.executable} on {platform.node()}. What to do: install pyproducer, or what it needs "
        f"({', '.join(_DEPENDENCIES)}), for the Python of the driver and of all executors"
    )


def _as_pickle_error(error: PyProducerError) -> PyProducerError:
    kind = type(error)
    both = type(kind.__name__, (kind, PickleError), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
    combined: PyProducerError = both(*error.args)
    combined.__dict__.update(error.__dict__)
    return combined
