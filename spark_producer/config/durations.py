"""Durations as Spark writes them: `15m`, `90s`, `1500` (JavaUtils.timeStringAs)."""

from __future__ import annotations

import re

from spark_producer.config.option import INT64_MAX
from spark_producer.errors import ConfigError

_FORM = re.compile(r"([0-9]+)([a-z]*)", re.ASCII)
_MICROSECONDS = {
    "us": 1, "ms": 1_000, "": 1_000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000
}  # fmt: skip
"""Microseconds of each unit; a number without one counts milliseconds."""


def duration_ms(option: str, text: str) -> int:
    """Return the whole milliseconds of a duration, a number with one of Spark's units in any case.

    Raises:
        ConfigError: it has another form, or is too long for 64 bits.
    """
    form = _FORM.fullmatch(text.strip().lower())
    if form is None or form[2] not in _MICROSECONDS:
        raise ConfigError(
            f"{option} must be a duration, not {text!r}: a whole number with us, ms, s, m (or min), h or d, such as 15m"
        )
    milliseconds = int(form[1]) * _MICROSECONDS[form[2]] // 1_000 if len(form[1]) < 20 else INT64_MAX + 1
    if milliseconds > INT64_MAX:
        raise ConfigError(f"{option} is too long: {text!r}. Give a shorter duration, such as 15m")
    return milliseconds
