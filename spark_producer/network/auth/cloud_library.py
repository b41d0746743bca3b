"""Calls of the clouds' own libraries: their import, their errors without what a peer's body or a secret holds, their tokens."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from spark_producer.common.escape import for_log
from spark_producer.common.secret import Secret
from spark_producer.errors import ConfigError
from spark_producer.security.token import Token, token_problem

MAX_CAUSES: Final = 20
"""Maximum length of a chain of errors that is looked at."""


class Failure(NamedTuple):
    """An error of a library."""

    kind: str
    """The name of its type."""
    text: str
    """Its type and the first line of its own message, escaped."""
    may_pass: bool
    """Whether the library says so, or a transport failed."""


def import_library(module: str, provider: str, extra: str, package: str) -> Any:
    """Return a module of a cloud's library. Its warnings are not logged, unless the program has set a level for its logger.

    They repeat what a peer says, which may have a secret in it; our errors say the same without secrets.

    Raises:
        ConfigError: it is not installed (fatal).
    """
    logger = logging.getLogger(module)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)
    try:
        return importlib.import_module(module)
    except ImportError:
        pass
    raise ConfigError(
        f"a login with {provider} needs {package} on the driver and the executors: pip install 'pyproducer[{extra}]'",
        fatal=True,
    )


def call_library(function: Callable[[], object]) -> tuple[Failure | None, object]:
    """Call a function of a library. Return its failure, if it raised an error, and its result."""
    try:
        return None, function()
    except Exception as error:  # libraries pass on what their transports raise
        return _failure(error), None


def library_token(text: object, expires_at: object) -> Token | str:
    """Return the token that a library gave, or its problem. It expires at a number of seconds since 1970."""
    if not isinstance(text, str) or not isinstance(expires_at, int | float) or not math.isfinite(expires_at):
        return "gave a token without a text or an expiry"
    problem = token_problem(Secret(text))
    return f"gave a token that cannot be sent: {problem}" if problem else Token(Secret(text), float(expires_at))


def _failure(error: BaseException) -> Failure:
    """Return what is known of an error. Its `str` may have the body of a response, and that a token: its message has neither."""
    kind, line = type(error).__name__, _first_line(error)
    may_pass = getattr(error, "retryable", False) is True
    may_pass = may_pass or any(type(cause).__name__ == "TransportError" for cause in _causes(error))
    return Failure(kind, f"{kind}: {for_log(line)}" if line else kind, may_pass)


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's own message, or of the error that it wraps."""
    said: object = getattr(error, "message", None) or (error.args[0] if error.args else "")
    if isinstance(said, BaseException):
        said = said.args[0] if said.args else ""
    return said.strip().partition("\n")[0] if isinstance(said, str) else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, the one that caused it, and so on."""
    for _ in range(MAX_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
