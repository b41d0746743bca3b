"""Regular expressions for names of topics: Java's syntax as far as Python's `re` gives it the same meaning."""

from __future__ import annotations

import re

from spark_producer.errors import ConfigError


def check_pattern(option: str, pattern: str) -> None:
    """Refuse a pattern that Python's `re` cannot compile.

    Raises:
        ConfigError: the pattern is empty, or wrong.
    """
    if not pattern:
        raise ConfigError(f"{option} is empty. Give a regular expression, such as orders-.*")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{option} is not a regular expression: {error.msg} (in {pattern!r})") from None
